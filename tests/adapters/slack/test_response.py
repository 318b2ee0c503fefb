"""Answers by `response_url`, alone: whole, in five messages at the most, whatever becomes of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.slack import limits
from adapters.slack.ops import Respond
from adapters.slack.planning import Rules
from adapters.slack.response import ResponseSurface
from adapters.slack.shown import ResponseShown, SlackShown
from adapters.slack.spot import Spot
from adapters.slack.surface import SlackSurface, Taste
from adapters.slack.text import unformatted
from channels.access import ShowReasoning
from channels.adapter import Draw, Failure, Gone, Outcome, RateLimited, Receipt, Refused, TooLarge, Transient, Unknown
from channels.model import Option, Phase, Question, Segment, TurnId, View
from config.channel import Streaming
from tests.adapters.slack.paper_slack import on_paper
from tests.emulators.slack import rules

SPOT = Spot(TurnId("0" * 32), "C1", None, "T1", "U1", "T1", is_private=False, since="1.000001", intro="ann asked: why?")
WORD = re.compile(r"w\d+w")


def answer(text: str, phase: Phase = Phase.DONE) -> View:
    return View(phase, (Segment("a", text),), revision=1)


RETOUCHED: Mapping[str, Callable[[View], View]] = {
    "answered": lambda view: replace(view, phase=Phase.DONE, question=replace(_question(view), answer="this one")),
    "over": lambda view: replace(
        view, phase=Phase.DONE, question=replace(_question(view), options=()), notice="Nobody has answered in time."
    ),
    "failed": lambda view: replace(view, phase=Phase.FAILED, notice="This could not be finished in time."),
}
"""What may become of an answer after it was shown."""


def _question(view: View) -> Question:
    assert view.question is not None
    return view.question


def words(count: int) -> str:
    return " ".join(f"w{number}w" for number in range(count))


@dataclass
class Talk:
    """Performs what is planned until nothing is; `outcomes` are those of the first calls, the others succeed."""

    view: View
    outcomes: list[Outcome] = field(default_factory=list)
    spot: Spot = SPOT
    sent: list[Respond] = field(default_factory=list)
    arrived: list[Respond] = field(default_factory=list)
    shown: ResponseShown = field(default_factory=ResponseShown)

    def __post_init__(self) -> None:
        self.settle()

    def settle(self) -> None:
        surface = ResponseSurface(self.spot, on_paper())
        while ops := surface.plan(self.view, self.shown, 0.0):
            (op,) = ops
            outcome = self.outcomes.pop(0) if self.outcomes else Receipt()
            self.sent.append(op)
            if isinstance(outcome, Receipt):
                self.arrived.append(op)
            shown = surface.restore(ResponseShown.model_validate_json(self.shown.model_dump_json()))
            self.shown = surface.advance(shown, op, outcome, 0.0)
            assert len(self.sent) < 20

    @property
    def words(self) -> list[str]:
        return WORD.findall("\n".join(op.text for op in self.arrived))


def test_nothing_is_said_before_the_answer_is_finished() -> None:
    assert Talk(answer("half", Phase.WRITING)).sent == []


def test_a_command_is_answered_with_nothing_but_its_answer() -> None:
    assert [op.text for op in Talk(answer("idle"), spot=replace(SPOT, is_command=True)).sent] == ["idle"]


@given(st.integers(1, 6_000), st.lists(st.sampled_from([Transient("503"), RateLimited(1.0, Draw("x"))]), max_size=3))
def test_an_answer_comes_whole_and_within_the_size_of_each_message(count: int, troubles: list[Outcome]) -> None:
    talk = Talk(answer(words(count)), troubles)
    assert talk.words == WORD.findall(words(count))
    assert all(len(op.text) <= rules.MARKDOWN_CHARS for op in talk.sent)


@given(st.integers(0, 3_000), st.sampled_from(list(RETOUCHED.values())), st.booleans())
def test_a_settled_answer_stays_as_it_is_whatever_becomes_of_its_question(
    count: int, retouched: Callable[[View], View], is_command: bool
) -> None:
    question = Question("q", "Which one?", (Option("0", "this"), Option("1", "that")))
    asking = replace(answer(words(count), Phase.ASKING), question=question)
    talk = Talk(asking, spot=replace(SPOT, is_command=is_command))
    before = list(talk.sent)
    assert "Which one?" in " ".join(op.text for op in before)
    talk.view = retouched(asking)
    talk.settle()
    assert talk.sent == before
    rules = Rules(Streaming.AUTO, limits.STREAM_BYTES, limits.MARKDOWN_CHARS, feedback=True, may_stream=True)
    surface = SlackSurface(talk.spot, Taste(rules, ShowReasoning.OFF), on_paper())
    assert surface.plan(asking, SlackShown(response=ResponseShown()), 0.0) == tuple(before[:1])
    assert surface.plan(talk.view, SlackShown(response=talk.shown), 0.0) == (), "also where it began as a usual answer"


@pytest.mark.parametrize("refusal", [Refused("invalid_blocks"), TooLarge("msg_too_long")])
def test_what_is_refused_with_its_format_is_sent_without(refusal: Failure) -> None:
    talk = Talk(answer(words(1_000) + " a < b & c"), [refusal])
    assert [op.plain for op in talk.sent] == [False, True, True]
    assert talk.words == WORD.findall(words(1_000))
    assert all(len(unformatted(op.text)) <= rules.UPDATE_TEXT_CHARS for op in talk.arrived)
    assert len(Talk(answer("no"), [refusal, refusal]).sent) == 2, "then nobody can say it here"


@pytest.mark.parametrize("outcome", [Unknown("cut"), Receipt()])
def test_an_address_is_used_no_more_often_than_slack_allows(outcome: Outcome) -> None:
    talk = Talk(answer(words(20_000)), [outcome] * 20)
    assert len(talk.sent) == limits.RESPONSE_USES == rules.RESPONSE_URL_USES
    assert talk.sent[-1].text.endswith("say no more here._")
    assert talk.words == WORD.findall(words(20_000))[: len(talk.words)]


def test_a_used_up_address_ends_the_answer() -> None:
    assert len(Talk(answer(words(5_000)), [Receipt(), Gone("HTTP 404")]).sent) == 2
