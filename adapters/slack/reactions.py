"""A reaction on the question while it is answered, where Slack has no status line: at top level of direct messages.

What is to be removed is kept in memory only: a process that dies before it has caught up leaves the reactions that
still wait there.
"""

from __future__ import annotations

import asyncio
import math

from adapters.slack import limits
from adapters.slack.api import SlackApi
from adapters.slack.spot import Spot, moment
from channels.adapter import Failure, RateLimited, Transient, Unknown
from channels.clock import Clock
from channels.model import Inbound

_ADD, _REMOVE = "reactions.add", "reactions.remove"
_MOST = 1_000
_MOST_TRIES = 6
_PAUSE = 60.0 / limits.SIDE_CALLS[_REMOVE]  # seconds; doubled after each try without an answer

_Question = tuple[str, str]
_Adding = asyncio.Task[Failure | None]


class Reactions:
    """Added if the rate allows; what was added is removed as soon as the rate allows, by `run`."""

    def __init__(self, api: SlackApi, clock: Clock, emoji: str | None) -> None:
        self._api = api
        self._clock = clock
        self._emoji = emoji
        self._began = math.inf
        self._added: dict[_Question, _Adding] = {}
        self._over: asyncio.Queue[tuple[_Question, _Adding | None]] = asyncio.Queue(_MOST)

    async def add(self, spot: Spot, question: Inbound) -> None:
        """Add it, unless it does not belong there or the rate is used up. Never raises.

        The call goes on when its caller is cancelled: it may reach Slack all the same, and later than a removal.
        """
        if not self._belongs(spot, question):
            return
        key = (spot.channel, question.message_id)
        adding = self._added.get(key)
        if adding is None or (adding.done() and isinstance(adding.result(), RateLimited)):
            adding = self._added[key] = asyncio.create_task(self._call(_ADD, key))
        await asyncio.wait({adding})

    def remove(self, spot: Spot, question: Inbound) -> None:
        """The reaction goes soon, whoever has added it: before `run`, that may have been another process."""
        key = (spot.channel, question.message_id)
        adding = self._added.pop(key, None)
        may_be_there = adding is not None or question.received_at <= self._began
        if may_be_there and self._belongs(spot, question) and not self._over.full():
            self._over.put_nowait((key, adding))

    def forget(self) -> None:
        """The channel stops: its turns are another process's from now on, or are begun again."""
        for adding in self._added.values():
            adding.cancel()
        self._added.clear()
        self._began = math.inf

    async def run(self) -> None:
        """Remove what is to go, until cancelled."""
        self._began = self._clock.now()
        while True:
            key, adding = await self._over.get()
            if adding is None or not isinstance(await adding, RateLimited):
                await self._take_off(key)

    async def _take_off(self, key: _Question) -> None:
        tries = 0
        while tries < _MOST_TRIES:
            match await self._call(_REMOVE, key):
                case RateLimited() as failure:
                    await self._clock.sleep(max(failure.retry_after, _PAUSE))
                case Transient() | Unknown():
                    await self._clock.sleep(_PAUSE * 2**tries)
                    tries += 1
                case _:
                    return

    async def _call(self, method: str, key: _Question) -> Failure | None:
        channel, ts = key
        return await self._api.try_ask(method, channel=channel, timestamp=ts, name=self._emoji)

    def _belongs(self, spot: Spot, question: Inbound) -> bool:
        """Whether this question gets one; a slash command left no message to react to."""
        is_message = not spot.is_command and moment(question.message_id) > 0
        return self._emoji is not None and spot.root is None and is_message
