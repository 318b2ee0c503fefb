"""Replies that grow under the real loop and the real pacer, on a clock moved by hand: rates without sockets.

A surface under test performs at once against its platform's rules, so that what the pacer admits is what arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

from pydantic import JsonValue

from channels.adapter import Budget, Surface
from channels.model import Phase, Segment, View
from channels.pacing import Pacer
from channels.reply import Reply, ReplyEnd, ReplyEvents
from tests.clock import ManualClock

_LIFTED = 1_000


def lifted(budgets: Mapping[str, Budget], name: str) -> Mapping[str, Budget]:
    """The budgets with one of them a thousand times as large, as if it were not there."""
    budget = budgets[name]
    return {**budgets, name: Budget(budget.limit * _LIFTED, budget.window, budget.burst * _LIFTED)}


class PacedReplies:
    """All replies of one channel. The context ends what still runs."""

    def __init__(self, budgets: Mapping[str, Budget], clock: ManualClock) -> None:
        self.clock = clock
        self.pacer = Pacer(budgets, clock)
        self._texts: list[str] = []
        self._views: list[View] = []
        self._replies: list[Reply] = []
        self._running: list[asyncio.Task[ReplyEnd]] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        pacing = asyncio.create_task(self.pacer.run())
        self._stack.callback(pacing.cancel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._stack.aclose()

    def start(self, surface: Surface, text: str) -> None:
        """One more reply, which is to say this text."""
        number = len(self._views)
        self._texts.append(text)
        self._views.append(View())
        reply = Reply(
            surface,
            self.pacer,
            self.clock,
            source=lambda _: self._views[number],
            stored=None,
            save=_save,
            permit=lambda: None,
            events=ReplyEvents(performed=lambda _op, _outcome, _seconds: None, stopped_by_user=lambda: None),
        )
        self._replies.append(reply)
        self._running.append(asyncio.create_task(reply.run()))

    async def grow(self, seconds: float, step_seconds: float = 0.1) -> None:
        """All texts grow evenly over this time, a step at a time; nothing is final yet."""
        steps = max(1, round(seconds / step_seconds))
        for step in range(1, steps + 1):
            for number, text in enumerate(self._texts):
                said = text[: len(text) * step // steps]
                self._show(number, View(Phase.WRITING, (Segment("a", said),)), urgent=step == 1)
            await self.clock.advance(step_seconds)

    async def finish(self, limit: float = 600.0) -> None:
        """All are final at once; wait until every one is settled."""
        for number, text in enumerate(self._texts):
            self._show(number, View(Phase.DONE, (Segment("a", text),)), urgent=True)
        ends = self.clock.now() + limit
        while not all(task.done() for task in self._running):
            assert self.clock.now() < ends, "not settled"
            await self.clock.advance(1.0)
        assert {task.result() for task in self._running} == {ReplyEnd.SETTLED}

    def _show(self, number: int, view: View, *, urgent: bool) -> None:
        self._views[number] = replace(view, revision=self._views[number].revision + 1)
        self._replies[number].changed(urgent=urgent)


async def _save(_shown: JsonValue, _messages: Sequence[str]) -> None:
    """Nothing is kept."""
