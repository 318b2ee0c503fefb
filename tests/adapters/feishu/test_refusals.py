"""What the platform refuses for good: another way is found, or at least a word about it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from adapters.feishu.errors import ApiRefusal, Means
from adapters.feishu.ops import Format, Send, SendFile
from channels.model import File, Phase, Segment, View
from tests.adapters.feishu.offline import FORMS, Desk, Fault
from tests.adapters.feishu.strategies import words_of

ANSWERING = ("im.message.reply",)
SENDING = ("im.message.reply", "im.message.create")
NOTE = "Feishu refuses this answer, so it cannot be shown here."
PNG = b"\x89PNG\r\n\x1a\n" + bytes(9)


def view(text: str, phase: Phase = Phase.WRITING, **more: object) -> View:
    body = (Segment("a", text),) if text else ()
    return replace(View(phase=phase, body=body, revision=len(text) + 1), **more)  # type: ignore[arg-type]


def refuse(desk: Desk, code: int, *names: str) -> None:
    """Every call with one of these names is refused from now on."""
    desk.api.trouble = lambda name: Fault(code=code) if name in names else None


@pytest.mark.parametrize("kind", ["p2p", "group"])
@pytest.mark.parametrize("code", [230019, 230050, 230054, 230111, 99992351, 99992354, 99992402, 230001, 230999])
def test_an_answer_to_a_question_that_cannot_be_answered_goes_to_the_chat(kind: str, code: int) -> None:
    desk = Desk(kind=kind, files={"f": b"data"})
    refuse(desk, code, *ANSWERING)
    files = (File("f", "f.bin"),)
    desk.show(view("one"), view("one **two**"), view("one **two** three", Phase.DONE, files=files))
    answer, file = desk.replies
    assert (answer.kind, answer.text, answer.parent_id) == ("interactive", "one **two** three", "")
    assert (file.kind, file.parent_id) == ("file", "")
    assert len(desk.of(Send)) <= 8
    assert not desk.shown.leftovers


@pytest.mark.parametrize("code", [230019, 230050, 230111, 99992354, 99992402, 230028])
def test_files_without_words_go_to_the_chat_when_the_question_cannot_be_answered(code: int) -> None:
    desk = Desk(files={"a": b"data", "b": PNG})
    refuse(desk, code, *ANSWERING)
    desk.show(view("", Phase.DONE, files=(File("a", "a.bin"), File("b", "b.png"))))
    assert [(reply.kind, reply.parent_id) for reply in desk.replies] == [("file", ""), ("image", "")]
    assert len(desk.of(SendFile)) <= 4


@pytest.mark.parametrize("text", ["Yes.", ""])
def test_where_there_are_no_topics_questions_are_answered_without(text: str) -> None:
    desk = Desk(kind="group", in_thread=True, has_topics=False, files={"f": b"data"})
    desk.show(view(text[:2]), view(text, Phase.DONE, files=(File("f", "f.bin"),)))
    assert [reply.kind for reply in desk.replies] == (["interactive", "file"] if text else ["file"])
    assert {(reply.parent_id, reply.thread_id) for reply in desk.replies} == {(desk.question, "")}
    assert desk.api.calls.count("im.message.reply") == len(desk.replies) + 1
    assert not desk.emulator.journal.broken


def test_a_question_among_aggregated_messages_is_answered_without_a_topic() -> None:
    desk = Desk(kind="group", in_thread=True)
    refusals = [Fault(code=230072)]
    desk.api.trouble = lambda name: refusals.pop() if name in ANSWERING and refusals else None
    desk.show(view("Yes.", Phase.DONE))
    (reply,) = desk.replies
    assert (reply.text, reply.parent_id, reply.thread_id) == ("Yes.", desk.question, "")


@pytest.mark.parametrize("first", FORMS)
def test_an_answer_that_may_not_be_sent_in_any_form_is_replaced_by_a_word_about_it(first: Format) -> None:
    desk = Desk(kind="group", first=first)
    desk.emulator.world.audited = {"secret"}
    with capture_logs() as lines:
        desk.show(view("a secret"), view("a secret is no"), view("a secret is no secret", Phase.DONE))
    (reply,) = desk.replies
    assert (reply.text, reply.parent_id) == (NOTE, desk.question)
    assert not reply.generating
    (line,) = [line for line in lines if "refused in every form" in line["event"]]
    assert line["log_level"] == "warning"
    assert "secret" not in str(line)
    desk.crash()
    desk.settle(view("a secret is no secret", Phase.DONE))
    assert len(desk.replies) == 1
    assert not desk.emulator.journal.broken


def test_what_was_shown_of_an_answer_stays_when_the_rest_of_it_may_not_be_sent() -> None:
    desk = Desk(first=Format.POST, card_bytes=10_000)
    desk.emulator.world.audited = {"secret"}
    words = " ".join(f"w{number}x" for number in range(4_000))
    desk.show(view(f"{words} secret", Phase.DONE))
    *shown, last = desk.replies
    assert shown
    assert last.text == NOTE.replace("this", "the rest of this", 1)
    told = [word for reply in shown for word in words_of(reply.text)]
    assert told == words_of(words)[: len(told)]


@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("code", [230028, 230022, 230999, 99992402])
def test_where_nothing_at_all_is_taken_it_ends(first: Format, code: int) -> None:
    desk = Desk(first=first, files={"f": b"data"})
    refuse(desk, code, *SENDING)
    desk.show(view("one"), view("one two", Phase.DONE, files=(File("f", "f.bin"),)))
    assert desk.shown.given_up
    assert desk.replies == []
    assert len(desk.of(Send)) <= 15


@pytest.mark.parametrize(
    ("status", "code", "means"),
    [
        (400, 99992402, Means.REFUSED),
        (400, 99993333, Means.REFUSED),
        (403, 99993333, Means.REFUSED),
        (200, 99993333, Means.REFUSED),
        (500, 99993333, Means.BUSY),
        (503, 0, Means.BUSY),
        (429, 99993333, Means.RATE_APP),
        (400, 99992351, Means.GONE),
        (400, 99992354, Means.GONE),
        (400, 300120, Means.BUSY),
        (400, 231015, Means.BUSY),
        (400, 232096, Means.BUSY),
        (400, 234019, Means.BUSY),
    ],
)
def test_a_code_means_trying_again_only_where_that_can_help(status: int, code: int, means: Means) -> None:
    assert ApiRefusal("trying", status, code, "").means is means


@pytest.mark.parametrize("name", ["cardkit.card.create", "cardkit.element.content", "cardkit.card.update"])
def test_an_error_inside_the_platform_costs_an_answer_none_of_its_form(name: str) -> None:
    desk = Desk()
    errors = [Fault(code=300120)] * 4
    desk.api.trouble = lambda called: errors.pop() if called == name and errors else None
    desk.show(view("**one"), view("**one** two"), view("**one** two.", Phase.DONE))
    (reply,) = desk.replies
    assert (reply.kind, reply.text) == ("interactive", "**one** two.")
    assert '"tag":"markdown"' in reply.card.replace(" ", "")
    assert not errors
    assert not desk.emulator.journal.broken


def test_messages_that_go_away_are_no_refusal_of_the_answer() -> None:
    desk = Desk(first=Format.TEXT)
    left = iter(range(5))
    desk.api.trouble = lambda name: Fault(code=230110) if name in SENDING and next(left, None) is not None else None
    desk.show(View(phase=Phase.DONE, body=(Segment("a", "hello world"),), revision=9))
    assert [reply.text for reply in desk.replies] == ["hello world"]
