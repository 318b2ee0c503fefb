"""Answers as people see them: the whole way through the core, with the real SDK against the emulated Telegram."""

from __future__ import annotations

import itertools
import re

import pytest
from pydantic import JsonValue

from channels.access import Policy, ShowReasoning
from channels.adapter import FileAway, FileGone
from channels.markdown import display_width
from tests.adapters.telegram.board import tokens
from tests.adapters.telegram.conftest import SPEED, OpenTalk
from tests.emulators.journal import Fault, FaultKind
from tests.emulators.telegram import SeenMessage
from tests.scripted import AskPerson, Fail, GiveFile, Pause, Say, Think, UseTool

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def long_document(sections: int) -> str:
    """Over 2,000 characters a section: styles, code, Chinese, emoji, lists and a table, every word numbered."""
    count = 0

    def words(number: int) -> list[str]:
        nonlocal count
        count += number
        return [f"w{at}w" for at in range(count - number, count)]

    parts = []
    for section in range(sections):
        parts.append(f"## Section {section} {' '.join(words(3))}")
        parts.append(
            " ".join(f"**{word}** text" if at % 7 == 0 else f"{word} plain" for at, word in enumerate(words(60)))
        )
        parts.append("\n".join(["```python", *(f"def {word}(): return '日本 😀'" for word in words(25)), "```"]))
        parts.append("".join(f"汉字测试 {word}。" for word in words(30)))
        parts.append("\n".join(f"- {word} 😀 `code`" for word in words(15)))
        parts.append(
            "\n".join(
                [
                    "| name | 値 |",
                    "|---|---|",
                    *(f"| {word} | 数{'字' * (at % 5)} |" for at, word in enumerate(words(12))),
                ]
            )
        )
    return "\n\n".join(parts)


def stop_buttons(messages: list[SeenMessage]) -> list[str]:
    return [text for message in messages for text in message.button_texts() if "Stop" in text]


# growing


async def test_a_question_is_answered_in_one_message_that_grows(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("Hello **world**, this takes its time. " * 4, pace=0.4)])
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.shows(chat, "takes its time")
    assert stop_buttons(talk.answers(chat))
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert len(answer.versions) > 2
    assert answer.text == ("Hello world, this takes its time. " * 4).strip()
    assert answer.marked("bold") == ["world"] * 4
    assert not answer.buttons
    assert talk.questions == ["hi"]
    assert not talk.emulator.journal.broken


async def test_the_first_text_is_sent_at_the_first_token(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("First words, and then a lot more of them follow slowly.", pace=1.0)])
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.shows(chat, "First")
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert answer.versions[0].text == "First wo"
    assert not talk.emulator.journal.broken


async def test_text_before_a_silent_tool_call_is_shown_within_one_interval(open_talk: OpenTalk) -> None:
    talk = await open_talk(
        [Say("Let me look that up for you. ", pace=0.1), UseTool("search", 60.0), Say("Found.", message="b")]
    )
    chat = talk.emulator.private_chat()
    asked = talk.bench.clock.now()
    talk.emulator.say(chat, "find it")
    await talk.settled()
    (answer,) = talk.answers(chat)
    (shown_at,) = [version.at for version in answer.versions if version.text.endswith("look that up for you.")][:1]
    assert shown_at - asked < 8.0
    assert any("⏳ search" in version.text for version in answer.versions)
    assert answer.text.startswith("✓ search\nLet me look that up for you.\n\nFound.")
    assert not talk.emulator.journal.broken


async def test_a_long_answer_flows_over_several_messages_complete_and_once(open_talk: OpenTalk) -> None:
    document = long_document(6)
    assert len(document) > 12_000
    talk = await open_talk([Say(document, size=150, pace=0.3)])
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "tell me everything")
    await talk.settled(40)
    answers = talk.answers(chat)
    assert len(answers) >= 3
    assert tokens(answer.text for answer in answers) == tokens([document])
    assert all("```" not in answer.text for answer in answers)
    code = [stretch for answer in answers for stretch in answer.marked("pre")]
    assert sum("def w" in stretch for stretch in code) >= 4
    tables = [stretch for stretch in code if "-|-" in stretch]
    assert len(tables) >= 6
    for table in tables:
        assert len({display_width(line.partition("|")[0]) for line in table.split("\n")}) == 1, table
    assert not any(answer.buttons for answer in answers)
    # Once the reply has gone on in a further message, the ones before it stay as they are.
    for before, after in itertools.pairwise(answers):
        assert before.edited_at is None or before.edited_at <= after.first_visible
    assert not talk.emulator.journal.broken


async def test_three_answers_in_one_group_stay_inside_its_limit_and_all_arrive(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("one two three four five six seven eight nine ten. " * 20, pace=0.5)], speed=30.0)
    group = talk.emulator.group("Team", forum=True)
    topics = [talk.emulator.topic(group, f"topic {number}") for number in range(3)]
    for topic in topics:
        talk.emulator.say(group, "@bridge_bot go", thread_id=topic)
    await talk.bench.until(lambda: len(talk.bench.gateway.runs) == 3)
    await talk.settled(40)
    for topic in topics:
        (answer,) = talk.answers(group, topic)
        assert answer.text.count("ten.") == 20
    assert not talk.emulator.journal.broken


async def test_steps_and_reasoning_stand_above_the_answer_and_are_folded_in_the_end(open_talk: OpenTalk) -> None:
    policy = Policy(show_reasoning=ShowReasoning.FOLDED)
    script = [
        Think("I should search twice."),
        UseTool("search", 3.0),
        UseTool("read", 3.0),
        Say("Here it is.", message="b"),
    ]
    talk = await open_talk(script, policy=policy)
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "look")
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert answer.text == "💭 I should search twice.\n✓ search\n✓ read\nHere it is."
    assert answer.marked("expandable_blockquote") == ["💭 I should search twice.", "✓ search\n✓ read"]
    assert not talk.emulator.journal.broken


async def test_without_streaming_the_answer_comes_whole(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("All at once and not before. " * 5, pace=0.5)], streaming="off")
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert len(answer.versions) == 1
    assert not talk.emulator.journal.broken


# trouble


async def test_a_closed_chat_waits_its_whole_time_while_another_goes_on(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("a b c d e f g h " * 20, pace=0.4)])
    closed, free = talk.emulator.private_chat(), talk.emulator.private_chat()
    talk.emulator.say(closed, "hi")
    talk.emulator.say(free, "hi")
    await talk.shows(closed, "a b")
    talk.emulator.flood(closed, 40)
    await talk.emulator.wait_for(lambda: talk.emulator.closed_for(closed) > 0)
    closed_at = talk.bench.clock.now()
    await talk.settled(30)
    (answer,) = talk.answers(free)
    assert answer.edited_at is not None
    assert answer.edited_at < closed_at + 35
    for chat in (closed, free):
        assert talk.text(chat) == ("a b c d e f g h " * 20).strip()
    assert not talk.emulator.journal.broken


async def test_a_message_deleted_in_the_middle_is_sent_anew_with_all_its_text(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("some words that go on and on. " * 10, pace=0.4)])
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.shows(chat, "some words")
    (first,) = talk.answers(chat)
    talk.emulator.delete(chat, first.id)
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert answer.id != first.id
    assert answer.text == ("some words that go on and on. " * 10).strip()
    assert not talk.emulator.journal.broken


async def test_an_unknown_send_may_leave_its_first_words_behind_but_the_answer_is_whole_and_once(
    open_talk: OpenTalk,
) -> None:
    talk = await open_talk([Say("some words that go on and on. " * 6, pace=0.4)])
    chat = talk.emulator.private_chat()
    talk.emulator.faults.plan("sendMessage", Fault(FaultKind.DROP_AFTER))
    talk.emulator.say(chat, "hi")
    await talk.settled()
    left, answer = talk.answers(chat)
    assert answer.text == ("some words that go on and on. " * 6).strip()
    assert answer.text.startswith(left.text)
    assert len(left.text) < 20
    assert not talk.emulator.journal.broken


async def test_an_unknown_edit_is_repeated_and_a_server_error_passes(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("some words that go on and on. " * 6, pace=0.4)])
    chat = talk.emulator.private_chat()
    dropped, sick = Fault(FaultKind.DROP_AFTER), Fault(FaultKind.ANSWER, status=502, body="<html>Bad Gateway</html>")
    talk.emulator.faults.plan("editMessageText", dropped, sick, Fault(FaultKind.DROP_BEFORE), dropped)
    talk.emulator.faults.plan("sendMessage", sick)
    talk.emulator.say(chat, "hi")
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert answer.text == ("some words that go on and on. " * 6).strip()
    assert not talk.emulator.journal.broken


async def test_refused_entities_make_the_answer_plain_and_never_lose_it(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("**bold** and `code`")])
    chat = talk.emulator.private_chat()
    body = {"ok": False, "error_code": 400, "description": "Bad Request: can't parse entities: whatever"}
    talk.emulator.faults.plan("sendMessage", Fault(FaultKind.ANSWER, status=400, body=body))
    talk.emulator.say(chat, "hi")
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert answer.text == "bold and code"
    assert not answer.entities
    assert not talk.emulator.journal.broken


async def test_an_answer_that_is_refused_in_every_form_is_a_dead_letter(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("words")])
    chat = talk.emulator.private_chat()
    body = {"ok": False, "error_code": 400, "description": "Bad Request: whatever it is"}
    talk.emulator.faults.plan("sendMessage", *[Fault(FaultKind.ANSWER, status=400, body=body)] * 50)
    talk.emulator.say(chat, "hi")
    await talk.settled()
    (letter,) = await talk.bench.store.dead_letters()
    assert "refuses it in every form" in letter.note


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_a_restart_in_the_middle_goes_on_in_the_same_message(open_talk: OpenTalk, how: str) -> None:
    talk = await open_talk([Say("The beginning of an answer, ", pace=0.2), Pause(30), Say("and its end.", message="a")])
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.shows(chat, "of an answer")
    (first,) = talk.answers(chat)
    await (talk.bench.restart() if how == "restart" else talk.bench.crash())
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert answer.id == first.id
    assert answer.text == "The beginning of an answer, and its end."
    assert len(talk.bench.gateway.runs) == 1
    assert not talk.emulator.journal.broken


async def test_a_blocked_bot_stops_writing_there_and_serves_the_others(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("words and words. " * 10, pace=0.4)])
    gone, here = talk.emulator.private_chat(), talk.emulator.private_chat()
    talk.emulator.say(gone, "hi")
    await talk.shows(gone, "words")
    talk.emulator.block(gone)
    talk.emulator.say(here, "hi")
    await talk.settled()
    assert talk.text(here) == ("words and words. " * 10).strip()
    assert not talk.emulator.journal.broken


async def test_a_group_that_becomes_a_supergroup_gets_its_answer_there(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("words and words. " * 12, pace=0.5)], [Say("again")])
    group = talk.emulator.group("Old", basic=True)
    talk.emulator.say(group, "@bridge_bot hi")
    await talk.shows(group, "words")
    moved = talk.emulator.migrate(group)
    await talk.settled()
    (answer,) = talk.answers(moved)
    assert answer.text == ("words and words. " * 12).strip()
    talk.emulator.say(moved, "and now?", reply_to=answer.id)
    await talk.shows(moved, "again")
    await talk.settled()
    assert len({run.request.thread for run in talk.bench.gateway.runs}) == 1
    assert not talk.emulator.journal.broken


# the end of an answer


async def test_a_failed_answer_keeps_its_text_says_so_and_can_be_tried_again(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("Half an answer"), Fail("The agent failed. /retry asks again.")], [Say("now it works")])
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert answer.text == "Half an answer\n\nThe agent failed. /retry asks again."
    assert answer.marked("italic") == ["The agent failed. /retry asks again."]
    talk.emulator.press(chat, answer.id, "🔁 Try again")
    await talk.shows(chat, "now it works")
    await talk.settled()
    assert [press.answer for press in talk.emulator.presses] == ["Asking again …"]
    assert not talk.emulator.journal.broken


async def test_files_follow_the_text(open_talk: OpenTalk) -> None:
    talk = await open_talk(
        [Say("Here they are."), GiveFile("plot.png", PNG), GiveFile("data.csv", b"a,b"), GiveFile("none.txt", b"")]
    )
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "plot it")
    await talk.settled()
    text, plot, data, empty = talk.answers(chat)
    assert text.text == "Here they are."
    assert (plot.file, plot.content) == ("document plot.png", PNG)
    assert (data.file, data.content) == ("document data.csv", b"a,b")
    assert "none.txt" in empty.text
    assert not talk.emulator.journal.broken


@pytest.mark.parametrize(("how", "copies"), [(FaultKind.DROP_AFTER, 2), (FaultKind.DROP_BEFORE, 0)])
async def test_a_file_of_which_nobody_can_say_whether_it_came_is_sent_twice_at_most_and_then_spoken_of(
    open_talk: OpenTalk, how: FaultKind, copies: int
) -> None:
    talk = await open_talk([Say("Here it is."), GiveFile("big.zip", b"zip")], [Say("next")])
    chat = talk.emulator.private_chat()
    talk.emulator.faults.plan("sendDocument", *[Fault(how)] * 8)
    talk.emulator.say(chat, "zip it")
    talk.emulator.say(chat, "and then?")
    await talk.settled(40)
    text, *files, word, after = talk.answers(chat)
    assert text.text == "Here it is."
    assert [file.file for file in files] == ["document big.zip"] * copies
    assert word.text == "The file big.zip may not have arrived: Telegram does not say."
    assert after.text == "next"
    assert not talk.emulator.journal.broken


async def test_a_file_that_is_gone_is_asked_for_once_and_one_that_is_away_more_often(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("Here."), GiveFile("gone.png", PNG), GiveFile("away.txt", b"b")], speed=60.0)
    gateway = talk.bench.gateway
    gateway.withheld = {"gone.png": FileGone("not there any more"), "away.txt": FileAway("the gateway is away")}
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "both")
    await talk.settled()
    words = ["Here.", "The file gone.png could not be sent.", "The file away.txt could not be sent."]
    assert [answer.text for answer in talk.answers(chat)] == words
    assert gateway.opened["gone.png"] == 1 < gateway.opened["away.txt"]
    assert not talk.emulator.journal.broken


async def test_where_files_may_not_be_sent_the_reader_is_told_so(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("Here it is."), GiveFile("big.zip", b"zip"), GiveFile("small.zip", b"zip")])
    group = talk.emulator.group("Team")
    description = "Bad Request: not enough rights to send documents to the chat"
    refusal = Fault(FaultKind.ANSWER, status=400, body={"ok": False, "error_code": 400, "description": description})
    talk.emulator.faults.plan("sendDocument", refusal)
    talk.emulator.say(group, "@bridge_bot zip it")
    await talk.settled()
    text, word, small = talk.answers(group)
    assert (text.text, word.text) == ("Here it is.", "The file big.zip could not be sent.")
    assert small.file == "document small.zip"
    assert not talk.emulator.journal.broken


async def test_a_large_file_may_take_long_to_send(open_talk: OpenTalk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.telegram.client._CALL", 0.2)
    talk = await open_talk([Say("Here it is."), GiveFile("big.zip", bytes(500_000))])
    chat = talk.emulator.private_chat()
    talk.emulator.faults.plan("sendDocument", Fault(FaultKind.DELAY, seconds=0.8 * SPEED))
    talk.emulator.say(chat, "zip it")
    await talk.settled()
    assert [answer.file for answer in talk.answers(chat)] == [None, "document big.zip"]
    assert len(talk.emulator.journal.of("sendDocument")) == 1
    assert not talk.emulator.journal.broken


async def test_feedback_can_be_given_where_it_is_asked_for(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("Done.")], feedback_buttons=True)
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert answer.button_texts() == ["👍", "👎"]
    talk.emulator.press(chat, answer.id, "👍")
    await talk.emulator.wait_for(lambda: talk.emulator.presses[0].answer == "Thank you.")
    talk.emulator.say(chat, "/help")
    await talk.shows(chat, "/retry to ask")
    await talk.settled()
    assert not talk.answers(chat)[-1].buttons
    assert not talk.emulator.journal.broken


# questions


async def test_a_question_is_answered_by_a_button_and_its_buttons_go(open_talk: OpenTalk) -> None:
    talk = await open_talk(
        [Say("Well."), AskPerson({"question": "Which?", "options": ["red", "blue"]})], [Say("You chose blue.")]
    )
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "paint it")
    await talk.settled()
    (asked,) = talk.answers(chat)
    assert asked.button_texts() == ["red", "blue"]
    assert re.match(r"Well\.\n+Which\?", asked.text)
    talk.emulator.press(chat, asked.id, "blue")
    await talk.shows(chat, "You chose blue.")
    await talk.settled()
    asked, _ = talk.answers(chat)
    assert "➜ blue" in asked.text
    assert not asked.buttons
    assert talk.questions == ["paint it", "['blue']"]
    assert [press.answer for press in talk.emulator.presses] == [""]
    assert not talk.emulator.journal.broken


async def test_a_question_is_answered_by_text(open_talk: OpenTalk) -> None:
    talk = await open_talk([AskPerson("What is your name?")], [Say("Hello Ann.")])
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "greet me")
    await talk.settled()
    talk.emulator.say(chat, "Ann")
    await talk.shows(chat, "Hello Ann.")
    await talk.settled()
    assert talk.questions == ["greet me", "['Ann']"]
    assert not talk.emulator.journal.broken


async def test_long_options_stand_in_the_text_and_their_numbers_on_the_buttons(open_talk: OpenTalk) -> None:
    options: list[JsonValue] = ["the quick brown fox jumps over the lazy dog " * 2, "no"]
    talk = await open_talk([AskPerson({"question": "Which?", "options": options})], [Say("ok")])
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "choose")
    await talk.settled()
    (asked,) = talk.answers(chat)
    assert asked.button_texts() == ["1", "2"]
    assert "2. no" in asked.text
    talk.emulator.press(chat, asked.id, "2")
    await talk.shows(chat, "➜ no")
    await talk.settled()
    assert not talk.emulator.journal.broken


# stopping


async def test_stop_by_button_keeps_the_text_and_takes_the_button_away(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("partial text "), Pause(3000)], [Say("next")])
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.shows(chat, "partial text")
    (answer,) = talk.answers(chat)
    talk.emulator.press(chat, answer.id, "⏹ Stop")
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert answer.text == "partial text\n\nStopped."
    assert answer.button_texts() == ["🔁 Try again"]
    assert [press.answer for press in talk.emulator.presses] == ["Stop requested."]
    talk.emulator.say(chat, "go on")
    await talk.shows(chat, "next")
    await talk.settled()
    assert not talk.emulator.journal.broken


async def test_stop_by_command(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("partial text "), Pause(3000)])
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.shows(chat, "partial text")
    talk.emulator.say(chat, "/stop")
    await talk.settled()
    assert talk.text(chat) == "partial text\n\nStopped."
    assert not talk.emulator.journal.broken
