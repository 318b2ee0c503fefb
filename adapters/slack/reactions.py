"""A reaction on the question while it is answered, where Slack has no status line: at top level of direct messages."""

from __future__ import annotations

import asyncio

from adapters.slack import limits
from adapters.slack.api import SlackApi
from adapters.slack.spot import Spot, moment
from channels.adapter import Failure, RateLimited
from channels.clock import Clock

_ADD, _REMOVE = "reactions.add", "reactions.remove"
_MOST = 1_000


class Reactions:
    """Added if the rate allows; what was added is removed as soon as the rate allows, by `run`."""

    def __init__(self, api: SlackApi, clock: Clock, emoji: str | None) -> None:
        self._api = api
        self._clock = clock
        self._emoji = emoji
        self._over: asyncio.Queue[tuple[str, str]] = asyncio.Queue(_MOST)

    async def add(self, spot: Spot, question_ts: str) -> bool:
        """False where there surely is none: it does not belong there, or the rate is used up. Never raises."""
        if not self._belongs(spot, question_ts):
            return False
        failure = await self._api.try_ask(_ADD, channel=spot.channel, timestamp=question_ts, name=self._emoji)
        return not isinstance(failure, RateLimited)

    def remove(self, spot: Spot, question_ts: str) -> None:
        """The reaction goes soon, whoever has added it: an earlier process may have."""
        if self._belongs(spot, question_ts) and not self._over.full():
            self._over.put_nowait((spot.channel, question_ts))

    async def run(self) -> None:
        """Remove what is to go, until cancelled."""
        while True:
            channel, ts = await self._over.get()
            while isinstance(failure := await self._take_off(channel, ts), RateLimited):
                await self._clock.sleep(max(failure.retry_after, 60.0 / limits.SIDE_CALLS[_REMOVE]))

    async def _take_off(self, channel: str, ts: str) -> Failure | None:
        return await self._api.try_ask(_REMOVE, channel=channel, timestamp=ts, name=self._emoji)

    def _belongs(self, spot: Spot, question_ts: str) -> bool:
        """Whether this question gets one; a slash command left no message to react to."""
        return self._emoji is not None and spot.root is None and not spot.is_command and moment(question_ts) > 0
