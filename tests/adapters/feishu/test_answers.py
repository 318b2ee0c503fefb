"""Questions and their answers, from a person's message to the card that is complete."""

from __future__ import annotations

import pytest

from channels.access import Policy, ShowReasoning
from channels.adapter import FileAway, FileGone
from tests.adapters.feishu.conftest import Open
from tests.adapters.feishu.strategies import words_of
from tests.clock import ScaledClock
from tests.emulators.feishu import rate_limited, refuse
from tests.emulators.journal import Fault, FaultKind
from tests.scripted import AskPerson, Fail, GiveFile, Pause, Say, Think, UseTool

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def numbered(count: int, filler: str = "") -> str:
    return " ".join(f"w{number}x{filler}" for number in range(count))


async def test_an_answer_is_one_card_that_grows_and_ends_complete(open_room: Open) -> None:
    answer = "Hello! This is **an answer** with `code`, and it goes on for a while.\n" * 6 + "The end."
    room = await open_room([Say(answer, pace=0.1)])
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "hi")
    await room.settled()
    (reply,) = room.replies(chat)
    assert reply.text == answer
    assert len(reply.versions) > 3
    assert not reply.generating
    assert reply.summary.startswith("Hello! This is an answer")
    assert not reply.buttons
    assert room.questions == ["hi"]


async def test_text_before_a_silent_tool_call_is_shown_within_one_interval(open_room: Open) -> None:
    room = await open_room([Say("Let me look"), UseTool("search", 20.0), Say("Found it.", message="b")])
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "find it")
    reply = await room.shows(chat, "Let me look")
    assert "Found" not in reply.text
    shown = await room.reply_that(chat, lambda reply: reply.title == "search…")
    assert shown.panels[0].text.startswith("◐ search")
    await room.settled()
    (reply,) = room.replies(chat)
    assert reply.text == "Let me look\n\nFound it."


async def test_a_construct_that_a_silent_model_left_open_is_shown_after_all(open_room: Open) -> None:
    room = await open_room([Say("Well, **this is"), Pause(30), Say(" it**.")])
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "hi")
    await room.shows(chat, "Well, **this is")
    await room.settled()
    assert room.text(chat) == "Well, **this is it**."


async def test_twelve_thousand_chinese_characters_arrive_whole(open_room: Open) -> None:
    answer = "".join(f"第{number}句，我们来看一个很长的回答是怎样显示的。" for number in range(520))
    room = await open_room([Say(answer, size=200, pace=0.1)])
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "讲一讲")
    await room.settled()
    replies = room.replies(chat)
    assert len(answer) > 12_000
    assert len(replies) == 2
    assert "".join(reply.text for reply in replies) == answer
    assert not any(reply.generating for reply in replies)


async def test_seven_tables_keep_five_and_the_rest_become_code(open_room: Open) -> None:
    table = "| a | b |\n|---|---|\n| w{0}x | 2 |\n\n"
    room = await open_room([Say("".join(table.format(n) for n in range(7)), size=30, pace=0.2)])
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "tables")
    await room.settled()
    (reply,) = room.replies(chat)
    assert reply.text.count("```") == 4
    assert words_of(reply.text) == [f"w{n}x" for n in range(7)]


async def test_reasoning_is_folded_away_and_only_where_the_policy_shows_it(open_room: Open) -> None:
    policy = Policy(show_reasoning=ShowReasoning.FOLDED)
    room = await open_room([Think("let me think"), Say("Done.")], policy=policy)
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "hi")
    await room.settled()
    (reply,) = room.replies(chat)
    (panel,) = reply.panels
    assert panel.text == "let me think"
    assert not panel.expanded
    assert reply.text == "Done."


async def test_the_stop_button_stops_and_goes_and_retry_asks_again(open_room: Open) -> None:
    room = await open_room([Say("partial "), Pause(3000)], [Say("whole")])
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "hi")
    reply = await room.shows(chat, "partial")
    pressed = await room.emulator.press("Ann", reply.message_id, "Stop")
    assert pressed.toast is not None
    assert pressed.toast["content"] == "Stop requested."
    assert not pressed.failed
    await room.settled()
    (reply,) = room.replies(chat)
    assert reply.title == "Stopped"
    assert "partial" in reply.text
    assert [button.text for button in reply.buttons] == ["Retry"]
    await room.emulator.press("Ann", reply.message_id, "Retry")
    await room.shows(chat, "whole")
    await room.settled()
    assert room.questions == ["hi", "hi"]


@pytest.mark.parametrize("private", [True, False])
async def test_a_typed_stop_stops_the_answer_which_keeps_its_text(open_room: Open, private: bool) -> None:
    room = await open_room([Say("partial "), Pause(3000)], [Say("next")])
    chat = room.emulator.p2p("Ann") if private else room.emulator.add_group("Team", "Ann")
    question = await room.ask("Ann", "hi" if private else "@Bridge hi", chat)
    await room.shows(chat, "partial")
    root = None if private else question
    await room.ask("Ann", "/stop", chat, reply_to=root)
    await room.settled()
    (reply,) = room.replies(chat)
    assert reply.title == "Stopped"
    assert reply.text.startswith("partial")
    assert "Stop" not in [button.text for button in reply.buttons]
    assert not reply.generating
    await room.ask("Ann", "go on", chat, reply_to=root)
    await room.shows(chat, "next")
    await room.settled()
    assert room.questions == ["hi", "go on"]


async def test_a_failed_run_keeps_its_text_and_says_so(open_room: Open) -> None:
    room = await open_room([Say("so far"), Fail("The agent failed. `/retry` asks again.")])
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "hi")
    await room.settled()
    (reply,) = room.replies(chat)
    assert reply.title == "Failed"
    assert reply.text == "so far\nThe agent failed. /retry asks again."


async def test_a_question_is_answered_by_a_button_and_its_buttons_go(open_room: Open) -> None:
    room = await open_room([AskPerson({"question": "Which?", "options": ["red", "blue"]})], [Say("You chose.")])
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "paint")
    await room.settled()
    (asked,) = room.replies(chat)
    assert [button.text for button in asked.buttons][:2] == ["red", "blue"]
    await room.emulator.press("Ann", asked.message_id, "blue")
    await room.shows(chat, "You chose.")
    await room.settled()
    asked = room.emulator.message(asked.message_id)
    assert not asked.buttons
    assert "➤ blue" in asked.text
    assert room.questions == ["paint", "['blue']"]


async def test_a_question_is_answered_through_the_form(open_room: Open) -> None:
    room = await open_room([AskPerson("What is your name?")], [Say("Hello Ann.")])
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "greet me")
    await room.settled()
    (asked,) = room.replies(chat)
    empty = await room.emulator.press("Ann", asked.message_id, "Send", {"reply_text": "  "})
    assert empty.toast is not None
    assert empty.toast["type"] == "warning"
    await room.emulator.press("Ann", asked.message_id, "Send", {"reply_text": "Ann"})
    await room.shows(chat, "Hello Ann.")
    await room.settled()
    assert not room.emulator.message(asked.message_id).inputs
    assert room.questions == ["greet me", "['Ann']"]


async def test_feedback_is_counted_once_for_each_reader(open_room: Open) -> None:
    room = await open_room([Say("Good?")], feedback=True)
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "hi")
    await room.settled()
    (reply,) = room.replies(chat)
    pressed = await room.emulator.press("Ann", reply.message_id, "👍")
    assert pressed.toast
    await room.bench.until(lambda: b'feedback_total{channel="bench",value="up"} 1.0' in room.bench.metrics.render())


async def test_files_follow_the_answer_as_pictures_and_as_files(open_room: Open) -> None:
    room = await open_room([Say("Here."), GiveFile("a.png", PNG), GiveFile("b.csv", b"1,2"), GiveFile("c.txt", b"")])
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "files")
    await room.settled()
    replies = room.replies(chat)
    assert [reply.kind for reply in replies] == ["interactive", "image", "file", "text"]
    assert "c.txt" in replies[3].text


async def test_a_file_that_is_gone_is_asked_for_once_and_one_that_is_away_more_often(open_room: Open) -> None:
    files = (GiveFile("gone.png", PNG), GiveFile("away.txt", b"b"))
    room = await open_room([Say("Here."), *files], clock=ScaledClock(50))
    gateway = room.bench.gateway
    gateway.withheld = {"gone.png": FileGone("not there any more"), "away.txt": FileAway("the gateway is away")}
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "files")
    await room.settled()
    words = ["Here.", "gone.png: it could not be sent.", "away.txt: it could not be sent."]
    assert [reply.text for reply in room.replies(chat)] == words
    assert gateway.opened["gone.png"] == 1 < 3 < gateway.opened["away.txt"]


async def test_commands_are_answered_with_one_call(open_room: Open) -> None:
    room = await open_room()
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "/help")
    await room.shows(chat, "/new")
    await room.settled()
    (reply,) = room.replies(chat)
    assert not reply.generating
    assert not room.emulator.journal.of("cardkit.card.create")


async def test_answers_in_a_group_go_to_a_topic_if_the_channel_wants_it(open_room: Open) -> None:
    room = await open_room([Say("Yes.")], reply_in_thread=True)
    group = room.emulator.add_group("Team", "Ann")
    await room.ask("Ann", "@Bridge hi", group)
    reply = await room.shows(group, "Yes.")
    await room.settled()
    assert reply.thread_id
    await room.ask("Ann", "and?", group, reply_to=reply.message_id)
    await room.emulator.wait_for(lambda: len(room.questions) == 2)
    await room.settled()
    assert len({run.request.thread for run in room.bench.gateway.runs}) == 1


async def test_a_question_gets_a_reaction_while_it_is_answered(open_room: Open) -> None:
    room = await open_room([Say("a"), Pause(10), Say("b")], reaction="OnIt", reaction_done="DONE")
    question = await room.ask("Ann", "hi")
    seen = room.emulator.message
    await room.emulator.wait_for(lambda: ("Bridge", "OnIt") in seen(question).reactions)
    await room.settled()
    await room.emulator.wait_for(lambda: seen(question).reactions == (("Bridge", "DONE"),))


# -- trouble


async def test_streaming_that_is_closed_is_opened_again(open_room: Open) -> None:
    room = await open_room([Say("one "), Pause(5), Say("two "), Pause(5), Say("three")])
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "hi")
    reply = await room.shows(chat, "one")
    room.emulator.close_streaming(reply.card_id)
    await room.shows(chat, "two")
    await room.settled()
    (reply,) = room.replies(chat)
    assert reply.text == "one two three"
    assert not reply.generating
    assert room.emulator.journal.of("cardkit.card.settings")


async def test_sequences_rise_after_failed_calls_and_lost_answers_are_not_doubled(open_room: Open) -> None:
    room = await open_room([Say(numbered(120), size=10, pace=0.1)])
    chat = room.emulator.p2p("Ann")
    lost = Fault(FaultKind.DROP_AFTER)
    room.emulator.faults.plan("cardkit.element.content", lost, refuse(300317), Fault(FaultKind.DROP_BEFORE), lost, lost)
    room.emulator.faults.plan("im.message.reply", lost, lost)
    room.emulator.faults.plan("cardkit.card.create", lost)
    await room.ask("Ann", "hi")
    await room.settled()
    (reply,) = room.replies(chat)
    assert reply.text == numbered(120)
    sequences = [call.args["sequence"] for call in room.emulator.journal.calls if "sequence" in call.args]
    assert all(isinstance(number, int) for number in sequences)
    assert sequences == sorted(sequences, key=lambda number: int(str(number)))


async def test_a_rate_refusal_pauses_the_app_and_the_final_comes_after(open_room: Open) -> None:
    room = await open_room([Say("one "), Pause(2), Say("two "), Pause(2), Say("three")])
    chat = room.emulator.p2p("Ann")
    room.emulator.faults.plan("cardkit.element.content", rate_limited(6))
    await room.ask("Ann", "hi")
    await room.settled()
    assert room.text(chat) == "one two three"


async def test_errors_that_come_with_http_200_are_errors(open_room: Open) -> None:
    room = await open_room([Say("one "), Pause(5), Say("two")])
    room.emulator.codes_as_http_200 = True
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "hi")
    reply = await room.shows(chat, "one")
    room.emulator.close_streaming(reply.card_id)
    await room.settled()
    assert room.text(chat) == "one two"


async def test_a_deleted_answer_is_sent_again_whole(open_room: Open) -> None:
    room = await open_room([Say("one "), Pause(20), Say("two")])
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "hi")
    reply = await room.shows(chat, "one")
    room.emulator.remove_message(reply.message_id)
    await room.settled()
    (again,) = room.replies(chat)
    assert again.message_id != reply.message_id
    assert again.text == "one two"


async def test_an_app_without_card_entities_patches_messages_and_names_the_scope(open_room: Open) -> None:
    room = await open_room([Say("one "), Pause(5), Say("two")])
    room.emulator.revoke_scope("cardkit:card:write")
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "hi")
    await room.settled()
    (reply,) = room.replies(chat)
    assert reply.text == "one two"
    assert room.emulator.journal.of("im.message.patch")
    assert "cardkit:card:write" in room.bench.inbox.health.reason


async def test_cards_that_are_refused_altogether_become_a_post(open_room: Open) -> None:
    room = await open_room([Say("one **two**")])
    chat = room.emulator.p2p("Ann")
    refusals = [refuse(200621)] * 3
    room.emulator.faults.plan("cardkit.card.create", *refusals)
    room.emulator.faults.plan("im.message.reply", refuse(230099))
    await room.ask("Ann", "hi")
    await room.settled()
    (reply,) = room.replies(chat)
    assert reply.kind == "post"
    assert reply.text == "one **two**"


async def test_an_answer_that_is_refused_in_every_form_is_a_dead_letter(open_room: Open) -> None:
    room = await open_room([Say("words")], clock=ScaledClock(60.0))
    for call, code in (("cardkit.card.create", 200621), ("im.message.reply", 230099), ("im.message.create", 230099)):
        room.emulator.faults.plan(call, *[refuse(code)] * 50)
    await room.ask("Ann", "hi")
    await room.settled()
    (letter,) = await room.bench.store.dead_letters()
    assert "refuses it in every form" in letter.note


async def test_a_revoked_token_is_replaced_in_the_middle_of_an_answer(open_room: Open) -> None:
    room = await open_room([Say("one "), Pause(5), Say("two")])
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "hi")
    await room.shows(chat, "one")
    room.emulator.revoke_tokens()
    await room.settled()
    assert room.text(chat) == "one two"


async def test_where_the_bot_was_removed_the_turn_ends(open_room: Open) -> None:
    room = await open_room([Pause(5), Say("x")])
    group = room.emulator.add_group("Team", "Ann")
    await room.ask("Ann", "@Bridge hi", group)
    await room.emulator.wait_for(lambda: room.questions)
    await room.emulator.remove_bot("Ann", group)
    await room.settled()
    assert not room.replies(group)


async def test_a_restart_and_a_crash_go_on_in_the_same_card(open_room: Open) -> None:
    room = await open_room([Say("one "), Pause(30), Say("two "), Pause(30), Say("three")])
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "hi")
    await room.shows(chat, "one")
    await room.bench.restart()
    await room.shows(chat, "two")
    await room.bench.crash()
    await room.settled()
    (reply,) = room.replies(chat)
    assert reply.text == "one two three"
    assert not reply.generating
    assert len(room.bench.gateway.runs) == 1


async def test_a_mention_of_everybody_in_an_answer_notifies_nobody(open_room: Open) -> None:
    room = await open_room([Say('<at id=all></at> and <at user_id="all">all</at>, `<at id=all>`', size=3)])
    chat = room.emulator.p2p("Ann")
    await room.ask("Ann", "hi")
    await room.settled()
    assert "<at" not in room.text(chat)
