"""Single ways of a reply: what is planned, and what is shown after it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from adapters.feishu.ops import (
    CARD_BYTES,
    CreateCard,
    EditMessage,
    FeishuShown,
    Format,
    LookFor,
    OpenStreaming,
    SendFile,
    TakeBack,
    UpdateCard,
    UploadFile,
    WriteText,
)
from channels.adapter import Refused, TooLarge, Unknown
from channels.model import File, InboundKind, Option, Phase, Question, Segment, Step, StepKind, StepState, View
from config.channel import Streaming
from tests.adapters.feishu.offline import FORMS, Desk, Fault
from tests.adapters.feishu.strategies import words_of
from tests.long_question import WORDS, long_question, words_in

LONG = " ".join(f"w{number}x" for number in range(9000))


def view(text: str, phase: Phase = Phase.WRITING, **more: object) -> View:
    return replace(View(phase=phase, body=(Segment("a", text),) if text else (), revision=len(text) + 1), **more)  # type: ignore[arg-type]


def names(desk: Desk) -> list[str]:
    return [type(op).__name__ for op, _ in desk.performed]


def test_nothing_is_sent_before_there_is_something_to_show_nor_for_a_final_without_content() -> None:
    desk = Desk()
    desk.show(View(phase=Phase.WAITING), View(phase=Phase.THINKING, revision=1), View(phase=Phase.DONE, revision=2))
    assert desk.performed == []


def test_steps_alone_make_a_card_and_are_folded_under_a_header_that_says_what_is_done() -> None:
    desk = Desk()
    step = Step("1", "search", StepState.RUNNING, StepKind.TOOL, "cats | dogs")
    desk.show(view("", Phase.WORKING, steps=(step,)))
    (reply,) = desk.replies
    assert reply.title == "search…"
    assert [panel.title for panel in reply.panels] == ["Steps 0/1"]
    assert reply.panels[0].text == "◐ search · cats | dogs"
    assert [button.text for button in reply.buttons] == ["Stop"]
    assert reply.text.strip() == ""


def test_a_final_answer_at_first_sight_is_two_calls_and_a_command_one() -> None:
    desk = Desk()
    desk.show(view("Done.", Phase.DONE))
    assert desk.api.calls == ["cardkit.card.create", "im.message.reply"]
    desk = Desk(question_kind=InboundKind.COMMAND)
    desk.show(view("Done.", Phase.DONE))
    assert desk.api.calls == ["im.message.reply"]


def test_growth_streams_and_streaming_is_opened_anew_before_its_ten_minutes_end() -> None:
    desk = Desk()
    desk.show(view("one"))
    for _ in range(4):
        desk.wait(480.0)
        desk.settle(view("one"))
    desk.show(view("one two"), view("one two", Phase.DONE))
    assert names(desk).count("OpenStreaming") == 4
    assert "WriteText" in names(desk)
    assert desk.text == "one two"
    assert not desk.emulator.journal.broken


def test_streaming_that_never_stays_open_gives_way_to_whole_cards() -> None:
    desk = Desk()
    desk.show(view("one"))
    desk.api.trouble = lambda name: Fault(code=300309) if name == "cardkit.element.content" else None
    desk.show(view("one two"), view("one two three"), view("one two three four", Phase.DONE))
    assert len(desk.of(WriteText)) == 3
    assert desk.text == "one two three four"
    assert not desk.emulator.journal.broken


def test_a_text_that_changes_is_replaced_with_streaming_closed() -> None:
    desk = Desk()
    desk.show(view("The answer is 41"), view("The answer is 42, surely"), view("The answer is 42.", Phase.DONE))
    assert desk.text == "The answer is 42."
    assert not desk.emulator.journal.broken


def test_an_answer_that_changes_after_it_has_flowed_on_is_corrected_and_what_is_left_over_goes() -> None:
    desk = Desk(card_bytes=10_000)
    text = LONG[:7000]
    desk.show(view(text))
    assert len(desk.replies) > 2
    desk.show(view("Short.", Phase.DONE))
    assert desk.text == "Short."
    assert desk.of(TakeBack)
    assert not desk.emulator.journal.broken


def test_full_cards_are_not_touched_again_and_only_the_last_one_has_buttons() -> None:
    desk = Desk()
    desk.show(*(view(LONG[:end]) for end in range(5_000, len(LONG), 5_000)), view(LONG, Phase.STOPPED))
    changes = [(op.index, op) for op, _ in desk.performed if isinstance(op, UpdateCard | WriteText | CreateCard)]
    assert all(earlier[0] <= later[0] for earlier, later in pairwise(changes))
    assert len(desk.replies) == 3
    assert [len(reply.buttons) for reply in desk.replies] == [0, 0, 1]
    assert all(len(reply.card.encode()) <= CARD_BYTES for reply in desk.replies)


def test_code_that_goes_on_in_the_next_card_is_closed_and_opened_again() -> None:
    desk = Desk(card_bytes=10_000)
    code = "```python\n" + "\n".join(f"line_{number} = {number}" for number in range(300)) + "\n```"
    desk.show(view(code, Phase.DONE))
    assert len(desk.replies) > 2
    for reply in desk.replies:
        assert reply.text.startswith("```python\n")
        assert reply.text.rstrip().endswith("```")


def test_an_answered_question_is_retouched_in_its_card() -> None:
    desk = Desk()
    question = Question("q", "Which?", (Option("0", "red"), Option("1", "blue")))
    asked = view("Let me see.", Phase.ASKING, question=question)
    desk.show(asked)
    (reply,) = desk.replies
    assert reply.text == "Let me see.\n\nWhich?"
    assert [button.text for button in reply.buttons] == ["red", "blue", "Send"]
    desk.crash()
    desk.show(replace(asked, phase=Phase.DONE, question=replace(question, answer="blue"), revision=99))
    (reply,) = desk.replies
    assert reply.text == "Let me see.\n\nWhich?\n\n➤ blue"
    assert not reply.buttons


def test_a_retouch_that_is_refused_leaves_the_answer_as_it_is() -> None:
    desk = Desk()
    asked = view("x", Phase.ASKING, question=Question("q", "Which?"))
    desk.show(asked)
    desk.api.trouble = lambda _: Fault(Refused("no"))
    desk.show(replace(asked, phase=Phase.DONE, question=Question("q", "Which?", answer="a"), revision=9))
    assert desk.text == "x\n\nWhich?"
    assert len(desk.replies) == 1


def test_options_without_room_on_buttons_are_listed_in_the_text() -> None:
    desk = Desk()
    options = tuple(Option(str(number), f"option {number} " + "long " * 10) for number in range(14))
    desk.show(view("", Phase.ASKING, question=Question("q", "Which?", options)))
    assert "14. option 13" in desk.text
    assert len(desk.replies[0].buttons) == 11


@pytest.mark.parametrize("first", FORMS)
def test_a_question_that_no_message_holds_is_shown_whole_above_its_buttons(first: Format) -> None:
    desk = Desk(first=first)
    desk.show(view("Well.", Phase.ASKING, question=long_question()))
    assert words_in(desk.text) == WORDS
    *earlier, last = (reply.buttons for reply in desk.replies)
    assert earlier
    assert not any(earlier)
    assert bool(last) is (first in (Format.CARD, Format.PATCH))
    assert not desk.emulator.journal.broken


@pytest.mark.parametrize("refused", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("said", ["Well.", "Well. Which colour?", ""])
def test_every_option_of_a_question_can_be_read_whatever_form_the_message_has_taken(
    first: Format, refused: int, said: str
) -> None:
    desk = Desk(first=first)
    refusals = [Fault(Refused("no"))] * refused
    desk.api.trouble = lambda name: refusals.pop() if refusals else None
    question = Question("q", "Which colour?", (Option("0", "red"), Option("1", "blue")))
    desk.show(view(said, Phase.ASKING, question=question))
    if desk.shown.format is Format.NOTE:
        assert first in (Format.POST, Format.TEXT)
        return
    (reply,) = desk.replies
    labels = [button.text for button in reply.buttons]
    for option in question.options:
        assert option.label in labels or option.label in reply.text
    assert reply.text.count("Which colour?") == 1
    assert bool(labels) is (desk.shown.format in (Format.CARD, Format.PATCH))
    desk.show(view(said, Phase.DONE, question=replace(question, answer="blue"), revision=99))
    (reply,) = desk.replies
    assert reply.text.count("Which colour?") == 1
    assert reply.text.endswith("➤ blue")


def test_a_card_that_is_too_large_is_split() -> None:
    desk = Desk()
    refusals = [Fault(code=200860), Fault(TooLarge("too large"))]
    desk.api.trouble = lambda name: refusals.pop() if name == "cardkit.card.create" and refusals else None
    desk.show(view(LONG[:20_000], Phase.DONE))
    assert len(desk.replies) == 2
    assert "".join(desk.text.split()) == "".join(LONG[:20_000].split())


def test_a_refused_construct_loses_its_form_and_then_the_text_its_marks() -> None:
    desk = Desk()
    table = "| a |\n|---|\n| 1 |"
    refusals = [Fault(code=230099, text="ErrCode: 11310; ErrMsg: card table number over limit; ")]
    desk.api.trouble = lambda name: refusals.pop() if name == "cardkit.card.update" and refusals else None
    desk.show(view("x"), view(f"x\n\n{table}", Phase.DONE))
    assert "```" in desk.text
    assert desk.shown.format is Format.CARD


def test_a_lost_send_is_repeated_under_the_same_key_and_found_when_the_hour_is_over() -> None:
    desk = Desk()
    lost = [Fault(Unknown("?"), done=True)]
    desk.api.trouble = lambda name: lost.pop() if name == "im.message.reply" and lost else None
    assert desk.step(view("one"))
    assert desk.step(view("one"))
    desk.crash()
    desk.wait(3700.0)
    desk.api.trouble = lambda name: None
    desk.show(view("one two", Phase.DONE))
    assert len(desk.replies) == 1
    assert desk.text == "one two"


def test_a_question_that_is_gone_is_answered_in_the_chat() -> None:
    desk = Desk()
    desk.emulator.remove_message(desk.question)
    desk.show(view("Yes.", Phase.DONE))
    (reply,) = desk.replies
    assert reply.parent_id == ""
    assert reply.text == "Yes."


def test_files_come_after_the_text_and_a_file_that_cannot_be_sent_is_named() -> None:
    desk = Desk()
    desk.files = {"a": b"data", "b": b"", "c": b"\x89PNG\r\n\x1a\n" + bytes(9)}
    files = tuple(File(name, f"{name}.bin") for name in "abcd")
    desk.settle(view("Here.", Phase.DONE, files=files))
    assert [reply.kind for reply in desk.replies] == ["interactive", "file", "text", "image", "text"]
    assert len(desk.of(UploadFile)) == 3 + 61
    assert len(desk.of(SendFile)) == 4
    assert "d.bin" in desk.replies[-1].text


def test_a_finished_message_is_looked_for_once_and_sent_again_if_it_is_gone() -> None:
    desk = Desk()
    desk.show(view("one"), seconds=60)
    desk.emulator.remove_message(desk.replies[0].message_id)
    desk.show(view("one two", Phase.DONE))
    (reply,) = desk.replies
    assert reply.text == "one two"
    desk.wait(60.0)
    desk.settle(view("one two", Phase.DONE))
    assert len(desk.of(LookFor)) == 1


@pytest.mark.parametrize("form", [Format.POST, Format.TEXT])
def test_a_message_without_a_card_is_edited_as_often_as_the_platform_allows_and_no_oftener(form: Format) -> None:
    desk = Desk(first=form)
    desk.show(*(view(f"The answer is {number}.", Phase.DONE) for number in range(30)))
    assert 15 <= len(desk.of(EditMessage)) <= 20
    assert len(desk.replies) == 1
    assert not desk.emulator.journal.broken


@pytest.mark.parametrize(
    "written", ["w{}x", '"w{}x\\"', "谢w{}x", "<at id=all>w{}x", "| w{}x |\n|---|\n| [a](https://b.c) |\n\n"]
)
@pytest.mark.parametrize("form", FORMS)
def test_no_message_is_larger_than_the_platform_takes(form: Format, written: str) -> None:
    desk = Desk(first=form)
    words = [written.format(number) for number in range(9000)]
    text = " ".join(words)[:60_000]
    desk.show(view(text, Phase.DONE))
    assert len(desk.replies) > 1
    assert words_of(desk.text) == words_of(text)
    assert not desk.emulator.journal.broken


def test_without_streaming_one_message_holds_the_answer() -> None:
    desk = Desk(streaming=Streaming.OFF)
    desk.show(view("one"), view("one two"), view("one two three", Phase.DONE))
    assert desk.api.calls == ["im.message.reply"]
    assert desk.text == "one two three"


def test_a_process_that_starts_anew_takes_nothing_back_while_it_catches_up() -> None:
    desk = Desk()
    whole = "The answer grows and grows. " * 20
    desk.show(*(view(whole[:end]) for end in range(10, len(whole), 40)), seconds=3.0)
    before = desk.text
    desk.crash()
    desk.show(View(phase=Phase.WAITING), view(whole[:15]))
    assert desk.text == before
    desk.show(view(whole, Phase.DONE))
    assert desk.text.strip() == whole.strip()


def test_what_is_shown_survives_json_and_newer_fields() -> None:
    desk = Desk(card_bytes=10_000)
    desk.show(view(LONG[:5000]))
    stored = {**desk.shown.model_dump(mode="json"), "unheard_of": 1}
    assert FeishuShown.model_validate(stored) == desk.shown
    assert len(desk.shown.model_dump_json()) < 3_000
    assert len(desk.surface.messages(desk.shown)) == len(desk.replies)


@pytest.mark.parametrize("reason", ["想" * 5000, "x"])
def test_long_thoughts_and_many_steps_never_make_a_card_too_large(reason: str) -> None:
    desk = Desk()
    steps = tuple(Step(str(n), "读取文件" * 30, StepState.DONE, detail="谢" * 500) for n in range(200))
    desk.show(view(LONG[:12_000], reasoning=reason, steps=steps), view(LONG[:12_000], Phase.FAILED, steps=steps))
    assert all(len(reply.card.encode()) < CARD_BYTES for reply in desk.replies)
    assert not desk.emulator.journal.broken


def test_urgent_things_go_before_growth() -> None:
    desk = Desk()
    (first, *_) = desk.surface.plan(view("x"), desk.shown, 0.0)
    desk.show(view("x"))
    (growth, keep_open) = desk.surface.plan(view("x y"), desk.shown, 0.0)
    (final,) = desk.surface.plan(view("x y", Phase.DONE), desk.shown, 0.0)
    assert isinstance(keep_open, OpenStreaming)
    assert final.urgency < first.urgency < growth.urgency < keep_open.urgency
