"""The surface alone: whatever the views, the failures and the crashes, it settles; the text is complete and there
once; no limit is passed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, currently_in_test_context, given, note, settings
from hypothesis import strategies as st

from adapters.slack.ops import Append, Find, StartStream, Stop, Update, Written
from adapters.slack.planning import Rules
from adapters.slack.shown import SlackShown
from adapters.slack.spot import Spot
from adapters.slack.surface import SlackSurface, Taste
from channels.access import ShowReasoning
from channels.adapter import (
    Draw,
    Failure,
    Intent,
    Op,
    Outcome,
    RateLimited,
    Receipt,
    Refused,
    TooLarge,
    Transient,
    Unknown,
)
from channels.model import (
    File,
    Option,
    Phase,
    Question,
    Segment,
    Step,
    StepState,
    TurnId,
    View,
)
from config.channel import Streaming
from tests.adapters.slack.paper_slack import PaperSlack, on_paper
from tests.long_question import WORDS as ASKED_ABOUT
from tests.long_question import long_question, words_in

TURN = TurnId("0" * 32)
SPOT = Spot(TURN, "C1", "1.000001", "T1", "U1", "T1", is_private=False, since="1.000001")
_FENCE = r"(?:`{3,}|~{3,})"
_REOPENED = re.compile(rf"(?:\s*{_FENCE}\s*)?\f\s*(?:{_FENCE}[^\n]*\n|>\s*|[-*+]\s+|\d+[.)]\s+)*")
WORD = re.compile(r"w\d+w")


def surface(streaming: Streaming = Streaming.AUTO, size: int = 600, *, may_stream: bool = True) -> SlackSurface:
    rules = Rules(streaming, size, size, feedback=True, may_stream=may_stream)
    return SlackSurface(SPOT, Taste(rules, ShowReasoning.ON), on_paper())


class Run:
    """One reply from its first view to its end, with everything that goes wrong on the way."""

    def __init__(self, surface_: SlackSurface, *, stream_bytes: int = 10_600) -> None:
        self.surface = surface_
        self.now = 1000.0
        self.slack = PaperSlack(lambda: self.now, stream_bytes=stream_bytes)
        self.shown = SlackShown()
        self.stored = SlackShown()
        self.view = View()
        self.outcomes: list[tuple[Op, Outcome]] = []

    def offers(self) -> Sequence[Op]:
        return self.surface.plan(self.view, self.shown, self.now)

    def step(self, trouble: tuple[Failure, bool] | None = None, *, alternative: bool = False) -> bool:
        """Perform what is planned; False when there is nothing to do yet."""
        ops = [op for op in self.offers() if op.not_before <= self.now]
        if not ops:
            return False
        op = ops[-1] if alternative else ops[0]
        if op.creates:
            self.shown = self.surface.advance(self.shown, op, Intent(), self.now)
            self.stored = self.shown
        outcome: Outcome
        try:
            if trouble is not None and not trouble[1]:
                raise trouble[0]
            outcome = self.slack.perform(op)
            if trouble is not None:
                raise trouble[0]
        except Failure as failure:
            outcome = failure
        self.outcomes.append((op, outcome))
        self.shown = self.surface.advance(self.shown, op, outcome, self.now)
        assert SlackShown.model_validate(self.shown.model_dump(mode="json")) == self.shown
        if op.creates or op.keeps:
            self.stored = self.shown
        return True

    def crash(self) -> None:
        """The process dies; what was not stored is forgotten."""
        self.shown = self.surface.restore(SlackShown.model_validate(self.stored.model_dump(mode="json")))

    def settle(self, most: int = 400) -> None:
        """Perform until nothing is planned any more, waiting for timers."""
        for _ in range(most):
            if not self.offers():
                return
            if not self.step():
                self.now = min(op.not_before for op in self.offers())
        raise AssertionError(f"does not settle: {self.outcomes[-6:]}")

    @property
    def words(self) -> list[str]:
        # Without white space, and without the marks with which a code block, a quotation or a list goes on in the next
        # message: a word that was flushed half, by a model that fell silent in it, may span two messages.
        joined = _REOPENED.sub("", "\f".join(paper.text for paper in self.slack.standing))
        return WORD.findall("".join(joined.split()))


def expected_words(view: View) -> list[str]:
    return WORD.findall("".join((view.text + (view.question.text if view.question else "")).split()))


def check(run: Run, *, complete: bool = True) -> None:
    if currently_in_test_context():
        _note(run)
    assert run.slack.broken == []
    assert not run.shown.given_up
    assert not [paper for paper in run.slack.standing if paper.state in ("live", "expired", "halted")]
    if complete:
        assert run.words == expected_words(run.view)
    assert not [paper for paper in run.slack.standing[:-1] if paper.buttons]


def _note(run: Run) -> None:
    note(f"{[(type(op).__name__, type(outcome).__name__) for op, outcome in run.outcomes]}")
    note("\n---\n".join(f"{paper.ts} {paper.state} {paper.text}" for paper in run.slack.standing))


# ---------------------------------------------------------------- what can come


class Words:
    """Numbers words, so that a lost or doubled one is noticed."""

    def __init__(self) -> None:
        self.count = 0

    def take(self, number: int, between: str = " ") -> str:
        start, self.count = self.count, self.count + number
        return between.join(f"w{index}w" for index in range(start, self.count))


PIECES = ("words", "paragraph", "bold", "code", "fence", "list", "table", "chinese", "quote", "heading")


def piece(kind: str, words: Words, size: int) -> str:
    match kind:
        case "words":
            return words.take(size) + " "
        case "paragraph":
            return words.take(size) + "\n\n"
        case "bold":
            return f"**{words.take(min(size, 8))}** "
        case "code":
            return f"`{words.take(min(size, 5))}` "
        case "fence":
            return f"\n\n```python\n{words.take(size, chr(10))}\n```\n\n"
        case "list":
            return "\n\n" + "".join(f"- {words.take(3)}\n" for _ in range(size)) + "\n"
        case "table":
            rows = "".join(f"| {words.take(1)} | {words.take(1)} |\n" for _ in range(size))
            return f"\n\n| a | b |\n|---|---|\n{rows}\n"
        case "chinese":
            return "".join(f"汉字{words.take(1)}，" for _ in range(size))
        case "quote":
            return f"\n\n> {words.take(size)}\n\n"
        case _:
            return f"\n\n## {words.take(min(size, 4))}\n\n"


documents = st.lists(st.tuples(st.sampled_from(PIECES), st.integers(1, 40)), min_size=1, max_size=10)


def render(document: list[tuple[str, int]]) -> str:
    words = Words()
    return "".join(piece(kind, words, size) for kind, size in document).strip()


steps = st.lists(
    st.builds(
        Step,
        id=st.sampled_from([f"s{number}" for number in range(24)]),
        title=st.sampled_from(["search", "read @channel", "", "x" * 200]),
        state=st.sampled_from(StepState),
        detail=st.sampled_from(["", "q: something", "汉" * 100]),
    ),
    max_size=24,
    unique_by=lambda step: step.id,
).map(tuple)

finals = st.sampled_from([Phase.DONE, Phase.DONE, Phase.STOPPED, Phase.FAILED, Phase.ASKING])

safe_troubles = st.sampled_from(
    [
        lambda: (Transient("503"), False),
        lambda: (Unknown("cut"), True),
        lambda: (Unknown("cut"), False),
        lambda: (RateLimited(3.0, Draw("x")), False),
    ]
)
hard_troubles = st.sampled_from(
    [
        lambda: (TooLarge("msg_too_long"), False),
        lambda: (Refused("invalid_blocks"), False),
    ]
)


@dataclass(frozen=True)
class Happening:
    """Something that happens between two views."""

    kind: str
    seconds: float
    trouble: Callable[[], tuple[Failure, bool]]

    def __call__(self, run: Run) -> None:
        match self.kind:
            case "step":
                run.step()
            case "trouble":
                run.step(self._trouble(run))
            case "alternative":
                run.step(alternative=True)
            case "wait":
                run.now += self.seconds / 30
            case "long wait":
                self._wait(run)
            case "crash":
                run.crash()
            case "expire":
                run.slack.expire()

    def _trouble(self, run: Run) -> tuple[Failure, bool] | None:
        """Content is refused only where there is some."""
        trouble = self.trouble()
        op = next(iter(run.offers()), None)
        has_content = isinstance(op, Written | StartStream | Append) or (
            isinstance(op, Stop) and (op.appends or bool(op.blocks))
        )
        return trouble if has_content or not isinstance(trouble[0], Refused | TooLarge) else None

    def _wait(self, run: Run) -> None:
        """Whoever waits is woken by the timers that were planned."""
        end = run.now + self.seconds
        while (timers := [op.not_before for op in run.offers() if op.not_before > run.now]) and min(timers) < end:
            run.now = min(timers)
            run.step()
        run.now = max(run.now, end)
        run.step()


KINDS = ("step", "step", "step", "trouble", "alternative", "wait", "long wait", "crash", "expire")


def happenings(troubles: st.SearchStrategy[Any]) -> st.SearchStrategy[Happening]:
    return st.builds(Happening, st.sampled_from(KINDS), st.sampled_from([0.1, 3.0, 30.0, 100.0]), troubles)


@st.composite
def stories(
    draw: st.DrawFn, troubles: st.SearchStrategy[Any] = safe_troubles
) -> tuple[list[View], list[list[Happening]]]:
    """Views of one turn, each growing out of the one before, and what happens after each."""
    text = render(draw(documents))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    breaks = max(0, text.rfind("\n\n", 0, draw(st.integers(0, len(text)))))  # one assistant message ends there
    views: list[View] = []
    for revision, cut in enumerate([*cuts, len(text)], 1):
        body = [Segment("a", text[: min(cut, breaks)], is_answer=cut <= breaks)]
        if cut > breaks:
            body.append(Segment("b", text[breaks:cut]))
        phase = draw(st.sampled_from([Phase.THINKING, Phase.WORKING, Phase.WRITING]))
        views.append(
            View(
                phase=phase,
                body=tuple(segment for segment in body if segment.text),
                reasoning=draw(st.sampled_from(["", "hm"])),
                steps=draw(steps),
                notice=draw(st.sampled_from(["", "", "I keep trying."])),
                revision=revision,
            )
        )
    phase = draw(finals)
    question = (
        Question("q", "Which one?", (Option("0", "this"), Option("1", "that"))) if phase is Phase.ASKING else None
    )
    notice = "It failed." if phase in (Phase.FAILED, Phase.STOPPED) else ""
    final = replace(views[-1], phase=phase, question=question, notice=notice, revision=len(views) + 1)
    files = draw(st.sampled_from([(), (File("f1", "a.txt"),), (File("f1", "a.txt"), File("f2", "b.txt"))]))
    views.append(replace(final, files=files))
    return views, [draw(st.lists(happenings(troubles), max_size=5)) for _ in views]


def play(run: Run, story: tuple[list[View], list[list[Happening]]]) -> None:
    views, happened = story
    for view, happening in zip(views, happened, strict=True):
        run.view = view
        for happen in happening:
            happen(run)
    run.settle()


EXAMPLES = int(os.environ.get("SLACK_EXAMPLES", "30"))
many = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


# ---------------------------------------------------------------- promises


@many
@given(stories(), st.sampled_from([(Streaming.AUTO, True), (Streaming.AUTO, True), (Streaming.EDIT, False)]))
def test_whatever_happens_the_answer_is_there_once_and_whole(
    story: tuple[list[View], list[list[Happening]]], how: tuple[Streaming, bool]
) -> None:
    run = Run(surface(how[0], may_stream=how[1]))
    play(run, story)
    check(run)
    assert sorted(run.slack.shared) == sorted(set(run.slack.shared))
    assert len(run.slack.shared) == len(run.view.files)


@many
@given(stories(st.one_of(safe_troubles, hard_troubles)))
def test_refusals_cost_format_and_never_the_answer(story: tuple[list[View], list[list[Happening]]]) -> None:
    run = Run(surface())
    refused = 0
    views, happened = story
    for view, happening in zip(views, happened, strict=True):
        run.view = view
        for happen in happening:
            if refused == 3:
                break  # a fourth time, and a stream is ended with its tasks as they are
            before = len(run.outcomes)
            happen(run)
            refused += sum(isinstance(o, Refused | TooLarge) for _, o in run.outcomes[before:])
    run.settle()
    check(run)


@many
@given(st.lists(documents, min_size=2, max_size=4), st.lists(happenings(safe_troubles), max_size=12), finals)
def test_a_text_that_changes_is_put_right_wherever_it_was_shown(
    texts: list[list[tuple[str, int]]], happened: list[Happening], phase: Phase
) -> None:
    run = Run(surface())
    words = Words()
    for revision, document in enumerate(texts, 1):
        text = "".join(piece(kind, words, size) for kind, size in document).strip()
        run.view = View(Phase.WRITING, (Segment("a", text),), revision=revision)
        for happen in happened[revision - 1 :: len(texts)]:
            happen(run)
    run.view = replace(run.view, phase=phase, revision=99)
    run.settle()
    check(run)


@many
@given(stories(), st.integers(0, 10))
def test_after_the_readers_own_stop_nothing_is_added_and_nothing_is_left_running(
    story: tuple[list[View], list[list[Happening]]], moment: int
) -> None:
    run = Run(surface())
    views, happened = story
    views[-1] = replace(views[-1], phase=Phase.STOPPED, question=None, notice="Stopped.")
    for number, (view, happening) in enumerate(zip(views, happened, strict=True)):
        run.view = view
        if number == moment:
            run.slack.halt()
        for happen in happening:
            happen(run)
    run.settle()
    check(run, complete=not run.shown.halted)
    assert run.words == expected_words(run.view)[: len(run.words)]


@many
@given(documents, st.data())
def test_appends_joined_are_the_text_at_every_prefix(document: list[tuple[str, int]], data: st.DataObject) -> None:
    text = render(document)[:4000]
    run = Run(surface(size=9_000))
    at = 0
    while at < len(text):
        at = min(len(text), at + data.draw(st.integers(1, 60)))
        run.view = View(Phase.WRITING, (Segment("a", text[:at]),), revision=at)
        run.now += data.draw(st.sampled_from([0.1, 0.7, 2.0]))
        run.step()
        assert text.startswith(run.slack.text)
    run.view = View(Phase.DONE, (Segment("a", text),), revision=at + 1)
    run.settle()
    assert run.slack.text.rstrip() == text.rstrip()
    assert not [op for op, _ in run.outcomes if isinstance(op, Update)]
    check(run)


@many
@given(stories())
def test_a_settled_reply_stays_settled_also_over_a_restart_and_an_answered_question(
    story: tuple[list[View], list[list[Happening]]],
) -> None:
    run = Run(surface())
    play(run, story)
    calls = len(run.slack.calls)
    run.now += 10_000
    run.settle()
    assert len(run.slack.calls) == calls
    run.crash()
    run.settle()
    check(run)
    if run.view.question is not None:
        answered = replace(run.view.question, answer="this")
        run.view = replace(run.view, phase=Phase.DONE, question=answered, revision=1_000)
        run.settle()
        check(run)
        assert not [button for paper in run.slack.standing for button in paper.buttons]


def test_two_texts_that_grow_side_by_side_do_not_litter_the_thread() -> None:
    """Agents that speak at once change the text in the middle again and again."""
    run = Run(surface(size=9_000))
    words = Words()
    first, second = "", ""
    for revision in range(1, 40):
        first += words.take(3) + " "
        second += words.take(3) + " "
        body = (Segment("a", first.strip()), Segment("b", second.strip()))
        run.view = View(Phase.WRITING, body, revision=revision)
        run.now += 1.0
        run.step()
        run.step()
    run.view = replace(run.view, phase=Phase.DONE, revision=100)
    run.settle()
    check(run)
    assert len(run.slack.standing) <= 4


def test_a_stream_found_again_after_it_was_ended_is_put_right_by_an_edit_alone() -> None:
    """The store was away while the stream ran; of what became of it only that it was asked for is known."""
    run = Run(surface(size=9_000))
    words = Words()
    run.view = View(Phase.WRITING, (Segment("a", words.take(20)),), revision=1)
    asked = run.surface.advance(run.shown, run.offers()[0], Intent(), run.now)
    run.step()
    run.view = View(Phase.DONE, (Segment("a", words.take(20)),), revision=2)
    run.settle()
    run.stored = asked
    calls = len(run.outcomes)
    run.crash()
    run.settle()
    check(run)
    assert [type(op) for op, _ in run.outcomes[calls:]] == [Find, Update]


def test_a_long_answer_without_its_format_keeps_to_the_size_of_plain_messages() -> None:
    """Where Slack takes neither blocks nor Markdown; signs that are sent escaped weigh more than they seem."""
    run = Run(surface(Streaming.EDIT, size=9_000, may_stream=False))
    words = Words()
    rows = "".join(f"| {words.take(1)} | [{words.take(1)}](https://example.org/?a=1&b=2) |\n" for _ in range(40))
    text = f"{words.take(800)} a < b && c > d\n\n| a | b |\n|---|---|\n{rows}\n" + "x & y > z; " * 600 + words.take(900)
    run.view = View(Phase.DONE, (Segment("a", text),), revision=1)
    for _ in range(3):
        run.step((Refused("invalid_blocks"), False))
    run.settle()
    check(run)
    assert len(run.slack.standing) > 4
    assert all(isinstance(op, Written) and op.plain for op, outcome in run.outcomes if isinstance(outcome, Receipt))


@pytest.mark.parametrize("refusals", range(4))
@pytest.mark.parametrize("streaming", [Streaming.AUTO, Streaming.EDIT])
def test_a_question_that_no_message_holds_is_shown_whole_above_its_buttons(streaming: Streaming, refusals: int) -> None:
    run = Run(surface(streaming, 9_000, may_stream=streaming is Streaming.AUTO))
    run.view = View(Phase.WRITING, (Segment("a", "Well."),), revision=1)
    run.step()
    run.view = replace(run.view, phase=Phase.ASKING, question=long_question(), revision=2)
    for _ in range(refusals):
        run.step((Refused("no"), False))
    run.settle()
    assert words_in(run.slack.text) == ASKED_ABOUT
    assert [bool(paper.buttons) for paper in run.slack.standing[-2:]] == [False, refusals < 2]
    check(run)


def test_a_stream_full_of_detailed_steps_keeps_to_its_size() -> None:
    """Details and outputs of tasks count twice towards it. At the largest size that the settings allow."""
    run = Run(surface(size=9_500))
    words = Words()
    text = words.take(4_000)
    steps = tuple(
        Step(f"s{number}", "x" * 72, StepState.RUNNING, detail=f"{number} " + "y" * 70) for number in range(16)
    )
    for end in range(0, len(text), 700):
        run.view = View(Phase.WRITING, (Segment("a", text[:end]),), steps=steps, revision=end + 1)
        run.step()
    run.view = View(Phase.STOPPED, (Segment("a", text),), steps=steps, revision=1_000_000)
    run.settle()
    check(run)
