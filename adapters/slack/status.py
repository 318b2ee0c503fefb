"""What shows beside a reply: the status line and the agent session of its thread, or a reaction to the question.

All of it is best effort: what is refused or over its rate is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from adapters.slack import limits
from adapters.slack.api import SlackApi
from adapters.slack.reactions import Reactions
from adapters.slack.spot import Spot
from channels.adapter import HintState, Refused
from channels.clock import Clock
from channels.model import Inbound, TurnId

_SET_STATUS = "assistant.threads.setStatus"
_SET_SESSION = "agents.sessions.setStatus"
_TEXTS: Mapping[HintState, str] = MappingProxyType(
    {
        HintState.WAITING: "is thinking…",
        HintState.WORKING: "is working…",
    }
)
_OVER = frozenset({HintState.DONE, HintState.FAILED})
_MOST = 5_000

Thread = tuple[str, str]


class Sessions:
    """Agent sessions, where Slack has them: `processing`, `suspended` while it is the person's turn, `active`.

    While a session is processing, Slack shows its own stop button, also before anything is streamed.
    """

    def __init__(self, api: SlackApi, *, enabled: bool) -> None:
        self._api = api
        self._exist: bool | None = None if enabled else False  # None: not tried yet
        self._status: dict[Thread, str] = {}
        self._live: dict[Thread, set[TurnId]] = {}

    def begin(self, spot: Spot) -> None:
        """A turn is at work in the thread."""
        self._live.setdefault(_thread(spot), set()).add(spot.turn)

    def end(self, spot: Spot) -> None:
        """The turn is over."""
        live = self._live.get(_thread(spot), set())
        live.discard(spot.turn)
        if not live:
            self._live.pop(_thread(spot), None)

    def forget(self) -> None:
        """Nothing is known of any thread any more; whether there are sessions at all does not change."""
        self._live.clear()
        self._status.clear()

    def is_shared(self, spot: Spot) -> bool:
        """Whether another turn is at work in the thread: then the status is that turn's."""
        return bool(self._live.get(_thread(spot), set()) - {spot.turn})

    def is_processing(self, spot: Spot) -> bool:
        """Whether the thread's session was left as if an answer were on its way."""
        return self._status.get(_thread(spot)) == "processing"

    def along_with(self, spot: Spot, status: str) -> str | None:
        """The status to send along with another call; None where there is none to send."""
        return status if status and self._exist and not spot.is_command and not self.is_shared(spot) else None

    def note(self, spot: Spot, status: str | None) -> None:
        """The status was set along with something else."""
        if status:
            self._status[_thread(spot)] = status
            if len(self._status) > _MOST:
                del self._status[next(iter(self._status))]

    async def set(self, spot: Spot, status: str) -> None:
        """Set the status of the thread's session, if that changes it. Never raises.

        After a restart nobody knows what it was, so it is set once whatever it is.
        """
        if not status or self._exist is False or not spot.root or spot.is_command or self.is_shared(spot):
            return
        if self._status.get(_thread(spot)) == status:
            return
        failure = await self._api.try_ask(_SET_SESSION, channel_id=spot.channel, thread_ts=spot.root, status=status)
        if failure is None:
            self._exist = True
            self.note(spot, status)
        elif isinstance(failure, Refused) and not self._exist:
            self._exist = False


@dataclass(slots=True)
class _Line:
    """The status line that a live turn keeps up."""

    state: HintState
    sent_at: float


class StatusLine:
    """Hints of live turns."""

    def __init__(self, api: SlackApi, sessions: Sessions, reactions: Reactions, clock: Clock, *, enabled: bool) -> None:
        self._api = api
        self._sessions = sessions
        self._reactions = reactions
        self._clock = clock
        self._has_line = enabled
        self._lines: dict[TurnId, _Line] = {}

    def forget(self) -> None:
        """The channel stops: its turns are another process's from now on, or are begun again."""
        self._lines.clear()
        self._sessions.forget()
        self._reactions.forget()

    async def hint(self, spot: Spot, question: Inbound, state: HintState) -> None:
        """Show the state, when it is new or Slack is about to forget it. Never raises."""
        if state in _OVER:
            self._lines.pop(spot.turn, None)
            self._sessions.end(spot)
            await self._clear(spot, question)
            return
        self._sessions.begin(spot)
        state = HintState.WORKING if state is HintState.WORKING else HintState.WAITING
        now = self._clock.now()
        line = self._lines.get(spot.turn)
        if line is not None and line.state is state and now < line.sent_at + limits.STATUS_REFRESH:
            return
        self._lines[spot.turn] = _Line(state, now)
        await self._show(spot, question, state)

    async def _show(self, spot: Spot, question: Inbound, state: HintState) -> None:
        if spot.is_command:
            return
        if spot.root is None:
            await self._reactions.add(spot, question)
        elif self._has_line:
            text = _TEXTS[state]
            await self._api.ask(_SET_STATUS, channel_id=spot.channel, thread_ts=spot.root, status=text)
            await self._sessions.set(spot, "processing")

    async def _clear(self, spot: Spot, question: Inbound) -> None:
        if spot.root is None:
            self._reactions.remove(spot, question)
            return
        if not self._has_line or self._sessions.is_shared(spot):
            return
        await self._api.ask(_SET_STATUS, channel_id=spot.channel, thread_ts=spot.root, status="")
        if self._sessions.is_processing(spot):
            await self._sessions.set(spot, "active")


def _thread(spot: Spot) -> Thread:
    return spot.channel, spot.root or ""
