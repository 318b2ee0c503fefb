"""The reconcile loop: whatever happens, it settles, and the final text is there completely and once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from channels.adapter import (
    Budget,
    Draw,
    Failure,
    Forbidden,
    Gone,
    Op,
    Outcome,
    RateLimited,
    Receipt,
    Refused,
    StoppedByUser,
    Transient,
    Unauthorised,
    Unknown,
)
from channels.model import Phase, Segment, View
from channels.pacing import Pacer
from channels.reply import Reply, ReplyEnd, ReplyEvents
from channels.store.records import LostLease, StoreError
from tests.clock import ManualClock
from tests.paper import Paper, PaperSurface, Rewrite, Write


@dataclass
class Desk:
    """A reply on paper, with everything a test wants to see or break."""

    paper: Paper = field(default_factory=Paper)
    clock: ManualClock = field(default_factory=ManualClock)
    budget: Budget = field(default_factory=lambda: Budget(limit=1, window=1.0))
    view: View = field(default_factory=View)
    stored: JsonValue = None
    messages: Sequence[str] = ()
    store_is_away: bool = False
    lost: bool = False
    stops: int = 0
    performed: list[Outcome] = field(default_factory=list)
    tasks: list[asyncio.Task[object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pacer = Pacer({"calls": self.budget}, self.clock)
        self.open()

    def open(self) -> None:
        self.reply = Reply(
            PaperSurface(self.paper),
            self.pacer,
            self.clock,
            source=lambda _: self.view,
            stored=self.stored,
            save=self._save,
            permit=self._permit,
            events=ReplyEvents(
                performed=lambda _op, outcome, _seconds: self.performed.append(outcome),
                stopped_by_user=self._count_stop,
            ),
        )

    def start(self) -> asyncio.Task[ReplyEnd]:
        running = asyncio.create_task(self.reply.run())
        self.tasks += [running, asyncio.create_task(self.pacer.run())]
        return running

    def show(self, text: str, phase: Phase = Phase.WRITING) -> None:
        urgent = phase.is_final or not self.view.has_content
        self.view = View(phase=phase, body=(Segment("a", text),), revision=self.view.revision + 1)
        self.reply.changed(urgent=urgent)

    async def crash(self) -> None:
        """End everything without a word and start again from what was stored."""
        await self.close()
        self.pacer = Pacer({"calls": self.budget}, self.clock)
        self.open()

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()

    async def until_done(self, running: asyncio.Task[ReplyEnd], limit: float = 4000.0) -> ReplyEnd:
        ends = self.clock.now() + limit
        while not running.done():
            assert self.clock.now() < ends, f"not settled: {self.paper.calls[-5:]}"
            await self.clock.advance(5.0)
        return running.result()

    async def _save(self, shown: JsonValue, messages: Sequence[str]) -> None:
        if self.lost:
            raise LostLease("taken over")
        if self.store_is_away:
            raise StoreError("away")
        self.stored, self.messages = shown, messages

    def _permit(self) -> None:
        if self.lost:
            raise LostLease("taken over")

    def _count_stop(self) -> None:
        self.stops += 1


async def test_the_last_text_gets_out_although_the_model_falls_silent() -> None:
    desk = Desk()
    desk.start()
    desk.show("Let")
    await desk.clock.advance(0.1)
    desk.show("Let me")
    desk.show("Let me look")
    await desk.clock.advance(1.1)
    assert desk.paper.text() == "Let me look"
    await desk.close()


async def test_updates_conflate_instead_of_queueing() -> None:
    desk = Desk()
    running = desk.start()
    for length in range(1, 31):
        desk.show("x" * length)
        await desk.clock.advance(0.05)
    desk.show("x" * 31, Phase.DONE)
    assert await desk.until_done(running) is ReplyEnd.SETTLED
    assert desk.paper.text() == "x" * 31
    assert len(desk.paper.calls) <= 4


async def test_the_first_text_is_shown_within_one_round_trip() -> None:
    desk = Desk()
    desk.start()
    await desk.clock.advance(0.0)
    desk.show("Hi")
    await desk.clock.advance(0.0)
    assert desk.paper.text() == "Hi"
    await desk.close()


async def test_a_rate_limit_closes_the_scope_for_its_whole_time_and_the_final_comes_after() -> None:
    desk = Desk()
    trouble = iter([(RateLimited(40.0, Draw("calls")), False)])
    desk.paper.trouble = lambda _: next(trouble, (None, True))
    running = desk.start()
    desk.show("growing")
    desk.show("the end", Phase.DONE)
    await desk.clock.advance(39.5)
    assert len(desk.paper.calls) == 1
    assert await desk.until_done(running) is ReplyEnd.SETTLED
    assert desk.paper.text() == "the end"


async def test_a_final_that_is_shown_already_settles_without_another_call() -> None:
    desk = Desk()
    running = desk.start()
    desk.show("Hello")
    await desk.clock.advance(5)
    desk.show("Hello", Phase.DONE)
    assert await desk.until_done(running) is ReplyEnd.SETTLED
    assert len(desk.paper.calls) == 1


async def test_a_message_deleted_meanwhile_is_written_anew() -> None:
    desk = Desk()
    running = desk.start()
    desk.show("Hello")
    await desk.clock.advance(0.1)
    desk.paper.sheets.clear()
    desk.show("Hello again", Phase.DONE)
    assert await desk.until_done(running) is ReplyEnd.SETTLED
    assert desk.paper.text() == "Hello again"


async def test_nothing_is_created_while_its_intent_cannot_be_stored() -> None:
    desk = Desk(store_is_away=True)
    running = desk.start()
    desk.show("Hello", Phase.DONE)
    await desk.clock.advance(30)
    assert desk.paper.calls == []
    desk.store_is_away = False
    assert await desk.until_done(running) is ReplyEnd.SETTLED
    assert desk.paper.text() == "Hello"


async def test_a_shown_reply_grows_on_while_the_store_is_away() -> None:
    desk = Desk()
    running = desk.start()
    desk.show("Hello")
    await desk.clock.advance(2)
    desk.store_is_away = True
    desk.show("Hello world")
    await desk.clock.advance(2)
    assert desk.paper.text() == "Hello world"
    desk.show("Hello world!", Phase.DONE)
    desk.store_is_away = False
    assert await desk.until_done(running) is ReplyEnd.SETTLED
    assert desk.messages == ["m0"]


async def test_a_lost_lease_ends_the_reply_before_anything_is_sent() -> None:
    desk = Desk()
    running = desk.start()
    desk.show("Hello")
    await desk.clock.advance(2)
    desk.lost = True
    desk.show("Hello world")
    await desk.clock.advance(2)
    with pytest.raises(LostLease):
        await running
    assert desk.paper.text() == "Hello"
    await desk.close()


async def test_halting_ends_after_the_op_in_flight_and_another_owner_goes_on_in_the_same_message() -> None:
    desk = Desk()
    running = desk.start()
    desk.show("Hello")
    await desk.clock.advance(2)
    desk.reply.halt()
    assert await desk.until_done(running) is ReplyEnd.HALTED
    await desk.crash()
    running = desk.start()
    desk.show("Hello world", Phase.DONE)
    assert await desk.until_done(running) is ReplyEnd.SETTLED
    assert desk.paper.sheets == {"m0": "Hello world"}


async def test_a_forbidden_place_ends_the_reply() -> None:
    desk = Desk()
    desk.paper.trouble = lambda _: (Forbidden("kicked"), False)
    running = desk.start()
    desk.show("Hello")
    assert await desk.until_done(running) is ReplyEnd.FORBIDDEN
    assert len(desk.paper.calls) == 1


async def test_a_stop_on_the_platform_reaches_the_owner() -> None:
    desk = Desk()
    trouble = iter([(None, True), (StoppedByUser(), False)])
    desk.paper.trouble = lambda _: next(trouble, (None, True))
    desk.start()
    desk.show("Hello")
    await desk.clock.advance(2)
    desk.show("Hello you")
    await desk.clock.advance(2)
    assert desk.stops == 1
    await desk.close()


async def test_bad_tokens_are_not_hammered_and_the_reply_survives_them() -> None:
    desk = Desk()
    bad = True
    desk.paper.trouble = lambda _: (Unauthorised("bad token"), False) if bad else (None, True)
    running = desk.start()
    desk.show("Hello", Phase.DONE)
    await desk.clock.advance(600)
    assert len(desk.paper.calls) < 20
    bad = False
    assert await desk.until_done(running) is ReplyEnd.SETTLED
    assert desk.paper.text() == "Hello"


FAILURES: list[Failure] = [
    RateLimited(7.0, Draw("calls")),
    Transient("503"),
    Unknown("timed out"),
    Refused("entities"),
    Gone("deleted"),
]
outcomes = st.tuples(st.sampled_from([None, None, None, *FAILURES]), st.booleans())
acts = st.one_of(
    st.tuples(st.just("grow"), st.integers(1, 60)),
    st.tuples(st.just("wait"), st.floats(0.0, 3.0)),
    st.tuples(st.just("crash"), st.just(0)),
    st.tuples(st.just("away"), st.integers(0, 1)),
    st.tuples(st.just("delete"), st.integers(0, 3)),
)


@settings(max_examples=120, deadline=None)
@given(script=st.lists(acts, max_size=25), troubles=st.lists(outcomes, max_size=25), tail=st.sampled_from(["", "."]))
async def test_any_views_failures_and_restarts_settle_complete_and_once(
    script: list[tuple[str, float]], troubles: list[tuple[Failure | None, bool]], tail: str
) -> None:
    desk = Desk()
    planned = iter(troubles)

    def trouble(op: Op) -> tuple[Failure | None, bool]:
        failure, done = next(planned, (None, True))
        if isinstance(failure, Gone) and not isinstance(op, Rewrite):
            failure = None  # only what exists can be gone
        if isinstance(failure, Gone) and isinstance(op, Rewrite):
            desk.paper.sheets.pop(op.id, None)
        return failure, done and isinstance(failure, Unknown | None)

    desk.paper.trouble = trouble
    running = desk.start()
    text = ""
    for act, amount in script:
        match act:
            case "grow":
                text += "".join(chr(97 + (len(text) + n) % 26) for n in range(int(amount)))
                desk.show(text)
            case "wait":
                await desk.clock.advance(amount)
            case "crash":
                await desk.crash()
                running = desk.start()
            case "away":
                desk.store_is_away = bool(amount)
            case "delete":
                desk.paper.sheets.pop(f"m{int(amount)}", None)
    desk.store_is_away = False
    text += tail
    desk.show(text, Phase.DONE)
    assert await desk.until_done(running) is ReplyEnd.SETTLED
    await desk.close()
    assert not desk.paper.broken
    if not any(act == "delete" for act, _ in script):
        assert desk.paper.text() == text
    assert all(isinstance(call, Write | Rewrite) for call in desk.paper.calls)
    assert not desk.performed or isinstance(desk.performed[-1], Receipt)
