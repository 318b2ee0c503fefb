"""Visitors share one process, with each other and with every channel: what one of them writes holds up nobody else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from markdown_it import MarkdownIt

from adapters.web.log import MemoryLog
from adapters.web.markup import GrowingMarkup, markup
from adapters.web.paint import Style
from adapters.web.timeline import PAINT_INLINE, Asked, Timelines
from channels.model import TurnId
from tests.adapters.web.core import message_view
from tests.clock import ManualClock

_SLOW = "SLOW " * 1_000
_TURN = TurnId("a" * 32)
_VISITORS = [f"anna{number}" for number in range(40)]  # more than a loop has threads of its own


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until it is set, whoever paints a slow text is at it."""
    gate = threading.Event()
    parse = MarkdownIt.parse

    def held(self: MarkdownIt, text: str, env: dict[str, object] | None = None) -> object:
        if "SLOW" in text:
            assert gate.wait(3), "others have waited for it"
        return parse(self, text, env)

    monkeypatch.setattr(MarkdownIt, "parse", held)
    yield gate
    gate.set()


async def _ask(timelines: Timelines, visitor: str) -> None:
    async with timelines.using(visitor) as timeline:
        await timeline.ask(Asked("q1", _SLOW, 1.0))


async def _show(timelines: Timelines, visitor: str) -> None:
    async with timelines.using(visitor) as timeline:
        await timeline.show(_TURN, Asked("q1", "Hello", 1.0), message_view(_SLOW))


async def _come_back(timelines: Timelines, visitor: str) -> None:
    async with timelines.using(visitor):
        pass


@pytest.mark.parametrize("act", [_ask, _show, _come_back], ids=["a question", "an answer", "a history"])
async def test_nobody_waits_for_the_text_of_another_visitor(gate: threading.Event, act: object) -> None:
    assert callable(act)
    log, clock = MemoryLog(), ManualClock()
    if act is _come_back:
        gate.set()
        await asyncio.gather(*(_ask(Timelines(log, clock, Style()), visitor) for visitor in _VISITORS))
        gate.clear()
    timelines = Timelines(log, clock, Style())
    slow = [asyncio.create_task(act(timelines, visitor)) for visitor in _VISITORS]
    async with asyncio.timeout(2):
        await asyncio.sleep(0)
        async with timelines.using("bert") as bert:
            await bert.ask(Asked("q1", "Hello", 1.0))
            await bert.show(_TURN, Asked("q1", "Hello", 1.0), message_view("Hello."))
        await asyncio.to_thread(bool)  # as every channel looks up names
    assert not any(task.done() for task in slow)
    gate.set()
    await asyncio.gather(*slow)


@pytest.mark.parametrize("piece", ["[", "![", "[a](", "*a ", "~~a ", "`a", "> ", "- ", "a\n\n", "$$\n\n", "|a", "<a "])
def test_what_is_painted_at_once_takes_no_time_whatever_it_is(piece: str) -> None:
    text = (piece * PAINT_INLINE)[:PAINT_INLINE]

    def cost() -> float:
        started = time.thread_time()
        markup(text, breaks=True)
        GrowingMarkup().render(text, complete=False)
        return time.thread_time() - started

    assert min(cost() for _ in range(3)) < 0.15
