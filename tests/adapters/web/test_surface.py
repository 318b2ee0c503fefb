"""A reply is reconciled: whatever comes and whatever fails, the page ends with the final answer, whole and once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.web.log import LogAway, MemoryLog, Record
from adapters.web.markup import GrowingMarkup
from adapters.web.pages import asked_of
from adapters.web.paint import Painter, Style
from adapters.web.surface import BUDGETS, Publish, WebShown, WebSurface, digest_of, printable
from adapters.web.timeline import Asked, Timelines
from channels.access import ShowReasoning
from channels.adapter import (
    Closed,
    Draw,
    Failure,
    Forbidden,
    Gone,
    Intent,
    Op,
    Outcome,
    RateLimited,
    Receipt,
    Refused,
    ReplyTarget,
    StoppedByUser,
    TooLarge,
    Transient,
    Unauthorised,
    Unknown,
    Urgency,
)
from channels.model import Inbound, InboundKind, Phase, Place, Question, Segment, Sender, Step, StepState, TurnId, View
from config.channel import Streaming
from tests.adapters.web.core import message_view
from tests.adapters.web.page_model import PageModel
from tests.adapters.web.strategies import final_phases, views
from tests.clock import ManualClock

_STYLE = Style(ShowReasoning.ON)
_QUESTION = Inbound(
    Place("web", "anna", private=True), Sender("anna"), "anna:q1", InboundKind.MESSAGE, "What is it?", 1.0, "q1"
)
_TARGET = ReplyTarget(TurnId("a" * 32), _QUESTION.place, _QUESTION)


class _Stage:
    """The timelines of one life of a channel; the log outlives it."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.timelines = Timelines(log, ManualClock(), _STYLE)

    async def show(self, chat: str, turn: TurnId, asked: Asked, view: View, *, unformatted: bool) -> None:
        async with self.timelines.using(chat) as timeline:
            await timeline.show(turn, asked, view, unformatted=unformatted)


class _FlakyLog(MemoryLog):
    def __init__(self) -> None:
        super().__init__()
        self.failures = 0

    async def put(self, conversation: str, record: Record) -> None:
        if self.failures:
            self.failures -= 1
            raise LogAway("the disk is full")
        await super().put(conversation, record)


def _surface(stage: _Stage, streaming: Streaming = Streaming.AUTO) -> WebSurface:
    return WebSurface(stage, _TARGET, asked_of(_QUESTION), streaming)


def _planned(view: View, shown: WebShown, now: float = 0.0) -> Op:
    (op,) = _surface(_Stage(MemoryLog())).plan(view, shown, now)
    return op


# ---------------------------------------------------------------- any views, any failures, any restarts

_steps = st.lists(
    st.tuples(
        views,
        st.integers(0, 2),  # so many writes fail
        st.booleans(),  # the process dies after it; what is shown had been stored
        st.booleans(),  # the process dies after it; what is shown had not been stored
    ),
    max_size=6,
)


@given(_steps, views, final_phases)
@settings(max_examples=80, deadline=None)
def test_it_settles_and_the_final_answer_is_there_whole_and_once(
    steps: list[tuple[View, int, bool, bool]], last: View, phase: Phase
) -> None:
    final = replace(last, phase=phase)

    async def run() -> None:
        log = _FlakyLog()
        stage = _Stage(log)
        surface = _surface(stage)
        shown = WebShown()
        stored = shown.model_dump(mode="json")
        watching = PageModel()
        for view, failures, dies, dies_unstored in [*steps, (final, 3, False, False)]:
            log.failures = failures
            for _ in range(10):
                ops = surface.plan(view, shown, 0.0)
                if not ops:
                    break
                op = ops[0]
                if op.creates:
                    shown = surface.advance(shown, op, Intent(), 0.0)
                outcome: Outcome
                try:
                    outcome = await surface.perform(op)
                except Failure as failure:
                    outcome = failure
                shown = surface.advance(shown, op, outcome, 0.0)
                if not dies_unstored:
                    stored = shown.model_dump(mode="json")
            await _watch(stage, watching)
            if dies or dies_unstored:
                stage = _Stage(log)
                surface = _surface(stage)
                shown = surface.restore(WebShown.model_validate(stored))
        assert surface.plan(final, shown, 1e12) == ()
        assert shown.closed
        restarted = await _watch(_Stage(log), PageModel())
        for page in (watching, restarted):
            question, reply = page.in_order
            assert question.text.strip() == "What is it?"
            expected = Painter(_STYLE, _TARGET.turn).paint(printable(final))
            assert reply.pieces == expected
            assert reply.keys == list(expected)

    asyncio.run(run())


async def _watch(stage: _Stage, page: PageModel) -> PageModel:
    async with stage.timelines.using("anna") as timeline:
        events = timeline.follow(page.cursor)
        following = asyncio.ensure_future(anext(events))
        while True:
            for _ in range(5):
                await asyncio.sleep(0)
            if not following.done():
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
                return page
            event = following.result()
            assert event is not None
            page.take(event)
            following = asyncio.ensure_future(anext(events))


@pytest.mark.parametrize(
    "failure",
    [
        Transient(),
        Unknown(),
        Gone(),
        Closed(),
        TooLarge(),
        Refused(),
        Forbidden(),
        Unauthorised(),
        StoppedByUser(),
        RateLimited(1.0, Draw("reply", "x")),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_planning_ends_when_a_call_fails_for_ever(failure: Failure) -> None:
    surface = _surface(_Stage(MemoryLog()))
    shown = WebShown()
    for _ in range(100):
        ops = surface.plan(message_view("Done."), shown, 0.0)
        if not ops:
            return
        shown = surface.advance(shown, ops[0], failure, 0.0)
    raise AssertionError("it would go on for ever")


def test_what_cannot_be_rendered_is_shown_as_it_is() -> None:
    surface = _surface(_Stage(MemoryLog()))
    (op,) = surface.plan(message_view("**x**"), WebShown(), 0.0)
    shown = surface.advance(WebShown(), op, Refused(), 0.0)
    (again,) = surface.plan(message_view("**x**"), shown, 0.0)
    assert isinstance(again, Publish)
    assert again.unformatted
    assert surface.plan(message_view("x"), surface.advance(shown, again, Refused(), 0.0), 0.0) == ()


async def test_a_fault_of_the_renderer_is_a_refusal_and_the_text_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: GrowingMarkup, text: str, *, complete: bool) -> list[str]:
        raise AssertionError("a bug that this text has found")

    monkeypatch.setattr(GrowingMarkup, "render", broken)
    stage = _Stage(MemoryLog())
    surface = _surface(stage)
    (op,) = surface.plan(message_view("**x**"), WebShown(), 0.0)
    with pytest.raises(Refused) as caught:
        await surface.perform(op)
    shown = surface.advance(WebShown(), op, caught.value, 0.0)
    (op,) = surface.plan(message_view("**x**"), shown, 0.0)
    await surface.perform(op)
    page = await _watch(stage, PageModel())
    assert page.texts == ["What is it?", "**x**"]


async def test_a_log_that_is_away_is_a_passing_trouble() -> None:
    log = _FlakyLog()
    log.failures = 10
    with pytest.raises(Transient):
        await _surface(_Stage(log)).perform(_planned(message_view("x"), WebShown()))


# ---------------------------------------------------------------- what is planned


def test_the_reply_is_created_at_once_so_that_it_can_be_stopped() -> None:
    op = _planned(View(Phase.WAITING), WebShown())
    assert (op.creates, op.urgency) == (True, Urgency.FIRST)
    assert op.draws == (Draw("reply", _TARGET.turn),)


def test_a_final_view_goes_first_and_is_stored() -> None:
    op = _planned(message_view("Done."), WebShown(created=True, at=100.0), now=100.0)
    assert (op.creates, op.keeps, op.urgency, op.not_before) == (False, True, Urgency.FINAL, 0.0)


def test_a_question_goes_before_growth() -> None:
    shown = WebShown(created=True)
    assert _planned(message_view("x", Phase.WRITING), shown).urgency is Urgency.GROWTH
    asking = message_view("x", Phase.WORKING, question=Question("q", "Which?"))
    assert _planned(asking, shown).urgency is Urgency.QUESTION


def test_an_unchanged_view_needs_nothing_whatever_its_revision() -> None:
    surface = _surface(_Stage(MemoryLog()))
    (op,) = surface.plan(message_view("Done.", revision=3), WebShown(), 0.0)
    shown = surface.advance(WebShown(), op, Receipt(), 5.0)
    assert surface.plan(message_view("Done.", revision=1), shown, 5.0) == ()
    assert surface.messages(shown) == (_TARGET.turn,)
    assert surface.messages(WebShown()) == ()


def test_a_settled_reply_is_not_published_again_after_a_restart() -> None:
    surface = _surface(_Stage(MemoryLog()))
    (op,) = surface.plan(message_view("Done."), WebShown(), 0.0)
    shown = surface.restore(surface.advance(WebShown(), op, Receipt(), 5.0))
    assert surface.plan(message_view("Done."), shown, 5.0) == ()
    assert len(surface.plan(message_view("Done, touched up."), shown, 5.0)) == 1


def test_the_growth_that_was_accepted_before_a_crash_is_published_again() -> None:
    surface = _surface(_Stage(MemoryLog()))
    view = message_view("Half", Phase.WRITING)
    (op,) = surface.plan(view, WebShown(), 0.0)
    shown = surface.restore(surface.advance(WebShown(), op, Receipt(), 5.0))
    (again,) = surface.plan(view, shown, 5.0)
    assert not again.creates


def test_twenty_updates_a_second_for_usual_answers_and_fewer_for_huge_ones() -> None:
    shown = WebShown(created=True, at=100.0)
    assert BUDGETS["reply"].limit == 20
    assert _planned(message_view("x" * 10_000, Phase.WRITING), shown).not_before == pytest.approx(100.05)
    assert _planned(message_view("x" * 400_000, Phase.WRITING), shown).not_before == pytest.approx(101.0)


def test_without_streaming_only_the_finished_text_is_shown() -> None:
    stage = _Stage(MemoryLog())
    surface = _surface(stage, Streaming.OFF)
    (op,) = surface.plan(message_view("Half", Phase.WRITING), WebShown(), 0.0)
    assert isinstance(op, Publish)
    assert op.view.text == ""
    shown = surface.advance(WebShown(), op, Receipt(), 0.0)
    assert surface.plan(message_view("Half and more", Phase.WRITING), shown, 0.0) == ()
    (op,) = surface.plan(message_view("Whole"), shown, 0.0)
    assert isinstance(op, Publish)
    assert op.view.text == "Whole"


# ---------------------------------------------------------------- names and texts


@given(views, views)
@settings(max_examples=60)
def test_views_that_differ_have_different_digests(one: View, other: View) -> None:
    same = replace(one, revision=0) == replace(other, revision=0)
    assert (digest_of(one) == digest_of(other)) == same
    assert digest_of(one) == digest_of(replace(one, revision=one.revision + 1))


def test_a_digest_tells_where_one_message_ends_and_the_next_begins() -> None:
    one = View(body=(Segment("a", "xy"), Segment("b", "z")))
    other = View(body=(Segment("a", "x"), Segment("b", "yz")))
    assert digest_of(one) != digest_of(other)


async def test_halves_of_surrogate_pairs_are_joined_or_replaced_everywhere() -> None:
    broken = "\ud83d"
    view = View(
        Phase.ASKING,
        (Segment("m", f"one {broken}\ude42 two {broken} three"),),
        reasoning=broken,
        steps=(Step("s", broken, StepState.DONE, detail=broken),),
        question=Question("q", broken),
        notice=broken,
    )
    assert printable(view).body[0].text == "one 🙂 two \ufffd three"
    stage = _Stage(MemoryLog())
    await _surface(stage).perform(_planned(view, WebShown()))
    page = await _watch(stage, PageModel())
    assert page.texts[-1].startswith("one 🙂 two \ufffd three")


def test_what_is_printable_stays_the_same_object() -> None:
    view = message_view("plain")
    assert printable(view) == view
    assert printable("谢谢🙂") == "谢谢🙂"
