"""How the channel stands: the connection on one side, the bot token on the other."""

from __future__ import annotations

from collections.abc import Callable

from channels.adapter import ChannelState


class Standing:
    """Reports the worse of the two. A token that Slack refuses is a failure until Slack takes it again."""

    def __init__(self, report: Callable[[ChannelState, str], None]) -> None:
        self._report = report
        self._link = (ChannelState.STARTING, "")
        self._refusal = ""
        self._has_begun = False

    @property
    def token_is_bad(self) -> bool:
        return bool(self._refusal)

    def begin(self) -> None:
        """The channel starts (again)."""
        self._has_begun = True
        self._refusal = ""
        self.link(ChannelState.STARTING)

    def link(self, state: ChannelState, reason: str = "") -> None:
        """The connection is in this state."""
        self._link = (state, reason)
        self._say()

    def judge_token(self, refusal: str) -> None:
        """What Slack said to the bot token: "" when it took it."""
        if refusal == self._refusal:
            return
        self._refusal = refusal
        self._say()

    def _say(self) -> None:
        if not self._has_begun:
            return  # another replica has the channel, or none yet
        if self._refusal:
            self._report(ChannelState.FAILED, self._refusal)
        else:
            self._report(*self._link)
