"""The surface alone, through any views, troubles and restarts: it settles, and the answer is complete and once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.telegram.keyboard import Buttons
from adapters.telegram.layout import Layout, Style
from adapters.telegram.ops import DRAFT_ALIAS, Draft, Edit, FileForm, Send, SendFile, TelegramShown, Where
from adapters.telegram.surface import ReplySettings, TelegramSurface
from channels.adapter import FILE_PATIENCE, Failure, FileAway, FileGone, Intent, Op, Outcome, Receipt, Urgency
from channels.model import File, Option, Phase, Question, Segment, Step, StepState, TurnId, View
from tests.adapters.telegram.board import Board, Trouble, tokens
from tests.long_question import WORDS, long_question, words_in

TURN = TurnId("0123456789abcdef0123456789abcdef")


async def _never(op: Op) -> Receipt:
    raise AssertionError("these tests make the calls themselves")


def surface_for(*, drafts: bool = False, rich: bool = False, grows: bool = True, size: int = 4096) -> TelegramSurface:
    chat = "7" if drafts else "-100123"
    chosen = ReplySettings(
        turn=TURN,
        where=Where(chat),
        reply_to=None if drafts else 55,
        buttons=Buttons(TURN, feedback=True),
        size=size,
        grows=grows,
        drafts=drafts,
        rich=rich,
        previews=False,
    )
    return TelegramSurface(chosen, Layout(Style(size, open_reasoning=True, steps_below=drafts)), _never)


class Run:
    """The core's reconcile loop without time: plans, calls, advances; forgets what was not stored when it crashes."""

    def __init__(self, surface: TelegramSurface, board: Board, troubles: Iterator[Trouble]) -> None:
        self.surface = surface
        self.board = board
        self.troubles = troubles
        self.shown = TelegramShown()
        self.stored: str | None = None
        self.steps = 0
        self.log: list[str] = []

    def reconcile(self, view: View, most: int) -> bool:
        """Up to `most` calls towards the view; True when nothing more is planned."""
        for _ in range(most):
            ops = self.surface.plan(view, self.shown, float(self.steps))
            assert ops == self.surface.plan(view, self.shown, float(self.steps)), "planning is pure"
            if not ops or ops[0].not_before > self.steps:
                return True
            self._perform(ops[0])
        return False

    def _perform(self, op: Op) -> None:
        self.steps += 1
        trouble = next(self.troubles, Trouble.NONE)
        if op.creates:
            self.shown = self.surface.advance(self.shown, op, Intent(), float(self.steps))
            self._store()
        if trouble is Trouble.CRASH_BEFORE:
            return self._crash()
        outcome: Outcome
        try:
            outcome = self.board.call(op, trouble)
        except Failure as failure:
            outcome = failure
        self.log.append(f"{type(op).__name__} {trouble}: {outcome!r}")
        if trouble is Trouble.CRASH_AFTER:
            return self._crash()
        self.shown = self.surface.advance(self.shown, op, outcome, float(self.steps))
        if op.creates or op.keeps:
            self._store()
        return None

    def _store(self) -> None:
        self.stored = self.shown.model_dump_json()

    def _crash(self) -> None:
        stored = self.stored
        self.shown = TelegramShown() if stored is None else TelegramShown.model_validate_json(stored)
        self.shown = self.surface.restore(self.shown)

    def shown_texts(self) -> list[str]:
        """What the messages of the reply say, without those that were sent although nobody can know."""
        named = self.surface.messages(self.shown)
        return self.board.texts(int(number) for number in named if not number.startswith(DRAFT_ALIAS))


# ---------------------------------------------------------------- documents and views


@dataclass
class Words:
    """Numbers every word, so that each can be found again."""

    count: int = 0

    def take(self, count: int) -> list[str]:
        self.count += count
        return [f"w{number}w" for number in range(self.count - count, self.count)]


def _paragraph(words: Words, size: int, style: int) -> str:
    marks = ("{}", "**{}**", "*{}*", "`{}`", "[{}](https://example.org/a?b=c)", "~~{}~~", "**a `{}` b**", "漢字{}😀")
    styled = [marks[(style + at) % len(marks)].format(word) for at, word in enumerate(words.take(size))]
    return " ".join(styled)


def _block(words: Words, kind: int, size: int, style: int) -> str:
    match kind:
        case 0:
            return _paragraph(words, size, style)
        case 1:
            return "```python\n" + "\n".join(f"    x = '{word}'  # 日本 😀" for word in words.take(size)) + "\n```"
        case 2:
            return "\n".join(f"{'  ' * (at % 3)}- {word} **b** <tag>" for at, word in enumerate(words.take(size)))
        case 3:
            rows = [f"| {word} | 数 `x` | {'y' * (at % 9)} |" for at, word in enumerate(words.take(size))]
            return "\n".join(["| a | b | c |", "|---|:-:|---|", *rows])
        case 4:
            return "> " + _paragraph(words, size, style)
        case 5:
            return "# " + _paragraph(words, min(size, 6), 0)
        case _:
            return "x" * (size * 7) + " " + " ".join(words.take(1))


@st.composite
def documents(draw: st.DrawFn) -> str:
    words = Words()
    blocks = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 70), st.integers(0, 7)), min_size=1, max_size=8))
    return "\n\n".join(_block(words, *block) for block in blocks)


STEPS = tuple(
    Step(str(number), f"search {number}", StepState.DONE if number < 7 else StepState.RUNNING, detail="<q> *x* 日本")
    for number in range(9)
)


@st.composite
def stories(draw: st.DrawFn) -> list[View]:
    """The views of one turn: the document grows, with steps and reasoning beside it, and ends somehow."""
    text = draw(documents())
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    views = [View()] if draw(st.booleans()) else []
    for at, cut in enumerate(cuts):
        views.append(
            View(
                phase=Phase.WRITING,
                body=(Segment("a", text[:cut]),),
                steps=STEPS[: draw(st.integers(0, 9))],
                reasoning="thinking " * draw(st.sampled_from([0, 0, 3, 400])),
                revision=at,
            )
        )
        if draw(st.integers(0, 9)) == 0:  # the model begins anew: what was streamed was only a preview
            views.append(replace(views[-1], body=(Segment("z", "Something quite different. " * 40),)))
    last = views[-1] if views else View()
    phase = draw(st.sampled_from([Phase.DONE, Phase.DONE, Phase.ASKING, Phase.FAILED, Phase.STOPPED]))
    question = (
        Question("q", "Which one?", (Option("0", "red"), Option("1", "b" * 50))) if phase is Phase.ASKING else None
    )
    views.append(
        View(
            phase=phase,
            body=(Segment("a", text),),
            steps=last.steps,
            reasoning=last.reasoning,
            question=question,
            files=(File("f1", "a.png", "image/png", 10), File("f2", "b.txt")) if draw(st.booleans()) else (),
            notice="It failed. /retry asks again." if phase in (Phase.FAILED, Phase.STOPPED) else "",
            revision=99,
        )
    )
    return views


_REFUSALS = (Trouble.REFUSED, Trouble.TOO_LARGE, Trouble.CLOSED)


def _bearable(troubles: list[Trouble]) -> list[Trouble]:
    """Without refusals past the eighth: a platform that takes nothing at all is given up in the end."""
    refusals = 0
    kept = []
    for trouble in troubles:
        refusals += trouble in _REFUSALS
        kept.append(trouble if trouble not in _REFUSALS or refusals <= 8 else Trouble.NONE)
    return kept


TROUBLES = st.lists(st.sampled_from([*Trouble] + [Trouble.NONE] * 12), max_size=40).map(_bearable)


def expected_tokens(view: View) -> list[str]:
    return tokens([view.text])


def check_story(run: Run, views: Sequence[View], calls: Sequence[int]) -> None:
    """Play the views with so many calls for each; the last one until it is settled."""
    board, final = run.board, views[-1]
    for view, most in zip(views[:-1], calls, strict=False):
        run.reconcile(view, most)
    assert run.reconcile(final, 400), run.log
    assert not board.broken
    assert not run.shown.given_up
    texts = run.shown_texts()
    assert tokens(texts) == expected_tokens(final), run.log
    last = [
        posted for number, posted in sorted(board.messages.items()) if str(number) in run.surface.messages(run.shown)
    ]
    assert not any(button.data.startswith("s:") for posted in last for row in posted.content.keyboard for button in row)
    assert all(not posted.content.keyboard for posted in last[:-1]), "buttons stand under the last message only"
    assert [file.id for file in run.shown.files if file.sent or file.form is FileForm.NOTHING] == [
        file.id for file in final.files
    ]
    assert all(file.id in {sent for sent, _ in board.files} for file in run.shown.files if file.sent)
    before, run.troubles = len(board.calls), iter(())
    run.shown = run.surface.restore(TelegramShown.model_validate_json(run.shown.model_dump_json()))
    assert run.reconcile(final, 50)
    assert len(board.calls) - before <= 1, "a settled reply stays as it is"
    assert tokens(run.shown_texts()) == expected_tokens(final)


calm = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@calm
@given(stories(), st.lists(st.integers(0, 6), min_size=30, max_size=30), st.sampled_from([4096, 1000]))
def test_an_answer_flows_into_messages_and_finished_ones_are_not_touched_again(
    views: list[View], calls: list[int], size: int
) -> None:
    board = Board()
    run = Run(surface_for(size=size), board, iter(()))
    check_story(run, views, calls)
    assert not any("different" in text for text in board.texts())


@calm
@given(stories(), st.lists(st.integers(0, 6), min_size=30, max_size=30), TROUBLES, st.sampled_from([4096, 1000]))
def test_through_any_trouble_the_answer_is_complete_and_once(
    views: list[View], calls: list[int], troubles: list[Trouble], size: int
) -> None:
    run = Run(surface_for(size=size), Board(), iter(troubles))
    check_story(run, views, calls)


@calm
@given(stories(), st.lists(st.integers(0, 6), min_size=30, max_size=30), TROUBLES)
def test_drafts_end_in_the_same_messages(views: list[View], calls: list[int], troubles: list[Trouble]) -> None:
    run = Run(surface_for(drafts=True), Board(), iter(troubles))
    check_story(run, views, calls)


@calm
@given(stories(), st.lists(st.integers(0, 6), min_size=30, max_size=30), TROUBLES)
def test_rich_messages_end_in_the_same_text(views: list[View], calls: list[int], troubles: list[Trouble]) -> None:
    run = Run(surface_for(rich=True), Board(), iter(troubles))
    check_story(run, views, calls)


@calm
@given(stories())
def test_without_streaming_only_the_finished_answer_is_sent(views: list[View]) -> None:
    board = Board()
    run = Run(surface_for(grows=False), board, iter(()))
    for view in views[:-1]:
        run.reconcile(view, 10)
    assert not board.calls
    check_story(run, views, [])


@calm
@given(documents(), st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_a_finished_message_never_changes_while_the_text_only_grows(text: str, places: list[float]) -> None:
    board = Board()
    run = Run(surface_for(size=1000), board, iter(()))
    finished: dict[int, str] = {}
    for place in [*sorted(places), 1.0]:
        phase = Phase.DONE if place == 1.0 else Phase.WRITING
        run.reconcile(View(phase, (Segment("a", text[: int(len(text) * place)]),)), 400)
        now = {message.id: board.messages[message.id].content.body.text for message in run.shown.messages if message.id}
        for number, said in finished.items():
            assert now[number] == said
        finished = dict(list(now.items())[:-1])
    sends = [op for op in board.calls if isinstance(op, Send)]
    assert len(sends) == len(board.messages)


@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize("trouble", [*Trouble])
def test_the_same_trouble_for_ever_comes_to_an_end_or_repeats_one_call(trouble: Trouble, drafts: bool) -> None:
    run = Run(surface_for(drafts=drafts), Board(), iter([trouble] * 1000))
    run.reconcile(View(Phase.WRITING, (Segment("a", "w1w " * 100),)), 5)
    is_over = run.reconcile(View(Phase.DONE, (Segment("a", "w1w " * 1500),)), 100)
    never_done = (Trouble.TRANSIENT, Trouble.RATE_LIMITED, Trouble.CRASH_BEFORE, Trouble.CRASH_AFTER)
    assert is_over is (trouble not in never_done)


@pytest.mark.parametrize(
    "trouble",
    [Trouble.DONE_BUT_UNKNOWN, Trouble.NOT_DONE_AND_UNKNOWN, Trouble.CRASH_BEFORE, Trouble.CRASH_AFTER],
)
@pytest.mark.parametrize("file", [File("f", "a.zip"), File("f", "a.png", "image/png", 10)])
def test_a_file_is_uploaded_twice_at_most_and_its_reader_told(file: File, trouble: Trouble) -> None:
    board = Board()
    crashes = trouble in (Trouble.CRASH_BEFORE, Trouble.CRASH_AFTER)
    again = [Trouble.NONE] if crashes else []  # after a crash the text is edited first
    run = Run(surface_for(), board, iter([Trouble.NONE, *[trouble, *again] * 4]))
    assert run.reconcile(View(Phase.DONE, (Segment("a", "Here."),), files=(file,)), 50)
    uploads = [form for _, form in board.files if form is not FileForm.SENTENCE]
    assert len(uploads) == (2 if trouble in (Trouble.DONE_BUT_UNKNOWN, Trouble.CRASH_AFTER) else 0)
    (last,) = [op for op in board.calls[-1:] if isinstance(op, SendFile)]
    assert (last.form, last.in_doubt) == (FileForm.SENTENCE, True)


def test_a_file_that_was_surely_not_sent_is_no_upload_in_doubt() -> None:
    board = Board()
    waits = [Trouble.TRANSIENT, Trouble.RATE_LIMITED] * 5
    run = Run(surface_for(), board, iter([Trouble.NONE, *waits]))
    assert run.reconcile(View(Phase.DONE, (Segment("a", "Here."),), files=(File("f", "a.zip"),)), 50)
    assert board.files == [("f", FileForm.DOCUMENT)]


def test_a_file_is_waited_for_anew_after_a_restart() -> None:
    surface = surface_for()
    run = Run(surface, Board(), iter(()))
    view = View(Phase.DONE, (Segment("a", "Here."),), files=(File("f", "a.png", "image/png", 10),))
    run.reconcile(view, 1)
    shown = run.shown
    for now in (1_000.0, 1_000.0 + 10 * FILE_PATIENCE):
        (op,) = surface.plan(view, shown, now)
        if not isinstance(op, SendFile):  # after a restart the text is made sure of first
            (op,) = surface.plan(view, surface.advance(shown, op, Receipt("101"), now), now)
        assert isinstance(op, SendFile)
        assert op.form is FileForm.PHOTO
        shown = surface.restore(surface.advance(shown, op, FileAway("away"), now))


@pytest.mark.parametrize("pause", [0.5, 7.0, 31.0])
@pytest.mark.parametrize("ends", [FileAway("away"), Receipt("7"), FileGone("gone")])
def test_a_file_that_is_away_is_asked_for_for_a_minute_however_often_that_is(ends: Outcome, pause: float) -> None:
    surface = surface_for()
    run = Run(surface, Board(), iter(()))
    view = View(Phase.DONE, (Segment("a", "Here."),), files=(File("f", "a.png", "image/png", 10),))
    run.reconcile(view, 1)
    shown, began, now = run.shown, 1_000.0, 1_000.0
    while now - began < FILE_PATIENCE:
        (op,) = surface.plan(view, shown, now)
        assert isinstance(op, SendFile)
        assert op.form is FileForm.PHOTO
        shown = surface.advance(surface.advance(shown, op, Intent(), now), op, FileAway("away"), now + 0.125)
        shown = TelegramShown.model_validate_json(shown.model_dump_json())
        now += pause
    (op,) = [op for op in surface.plan(view, shown, now) if isinstance(op, SendFile)]
    shown = surface.advance(shown, op, ends, now + 0.125)
    forms = [op.form for op in surface.plan(view, shown, now) if isinstance(op, SendFile)]
    assert forms == ([] if isinstance(ends, Receipt) else [FileForm.SENTENCE])


@pytest.mark.parametrize("refusals", range(5))
@pytest.mark.parametrize("free_text", [True, False])
def test_every_option_of_a_question_can_be_read_however_plain_the_reply_has_become(
    refusals: int, free_text: bool
) -> None:
    board = Board()
    run = Run(surface_for(), board, iter([Trouble.REFUSED] * refusals))
    question = Question("q", "Which colour?", (Option("0", "red"), Option("1", "b" * 50)), free_text)
    for asked in (question, replace(question, options=question.options[:1])):
        assert run.reconcile(View(Phase.ASKING, (Segment("a", "Well."),), question=asked), 50)
        (posted,) = board.messages.values()
        labels = [button.label for row in posted.content.keyboard for button in row]
        for option in asked.options:
            assert option.label in labels or option.label in posted.content.body.text
        assert bool(labels) is (refusals < 2)


@pytest.mark.parametrize("refusals", range(4))
def test_a_question_that_no_message_holds_is_shown_whole_above_its_buttons(refusals: int) -> None:
    board = Board()
    run = Run(surface_for(), board, iter([Trouble.REFUSED] * refusals))
    assert run.reconcile(View(Phase.ASKING, (Segment("a", "Well."),), question=long_question()), 100)
    assert words_in("\n".join(board.texts())) == WORDS
    *earlier, last = (posted.content.keyboard for _, posted in sorted(board.messages.items()))
    assert not any(earlier)
    assert bool(last) is (refusals < 2)
    assert board.broken == []


def test_text_that_is_heard_again_after_a_restart_takes_nothing_back() -> None:
    text = " ".join(Words().take(500))
    board = Board()
    run = Run(surface_for(size=1000), board, iter(()))
    run.reconcile(View(Phase.WRITING, (Segment("a", text[:2500]),)), 50)
    before = board.texts()
    run.shown = run.surface.restore(TelegramShown.model_validate_json(run.shown.model_dump_json()))
    for heard in range(0, 2500, 100):
        assert run.reconcile(View(Phase.WRITING, (Segment("a", text[:heard]),)), 50)
    assert board.texts() == before
    assert run.reconcile(View(Phase.DONE, (Segment("a", text),)), 50)
    assert board.texts()[:2] == before[:2]
    assert tokens(board.texts()) == tokens([text])


def test_a_draft_is_kept_alive_with_a_change_and_its_last_frame_begins_the_message() -> None:
    board = Board()
    surface = surface_for(drafts=True)
    run = Run(surface, board, iter(()))
    view = View(Phase.WORKING, (Segment("a", "Let me look."),), steps=STEPS[7:8])
    assert run.reconcile(view, 5)
    (later,) = surface.plan(view, run.shown, 1.0)
    assert isinstance(later, Draft)
    assert later.not_before == run.shown.draft.at + 20 if run.shown.draft else False
    assert later.body != board.drafts[later.id]
    assert run.reconcile(View(Phase.DONE, (Segment("a", "Let me look. Found it."),), steps=STEPS[7:8]), 5)
    (message,) = board.messages.values()
    assert message.content.body.text.startswith(board.drafts[later.id].text)
    assert not any(isinstance(op, Edit) for op in board.calls)


def test_the_last_frame_of_a_draft_is_not_held_back_by_the_spacing_of_growth() -> None:
    surface = surface_for(drafts=True)
    run = Run(surface, Board(), iter(()))
    paragraphs = "word " * 700 + "\n\n" + "more " * 100
    run.reconcile(View(Phase.WRITING, (Segment("a", paragraphs),)), 1)
    frame, send = surface.plan(View(Phase.WRITING, (Segment("a", paragraphs + "more " * 100),)), run.shown, 1.0)
    assert isinstance(frame, Draft)
    assert isinstance(send, Send)
    assert frame.is_last
    assert frame.urgency is Urgency.FINAL
    assert send.content.body.text.startswith(frame.body.text)
