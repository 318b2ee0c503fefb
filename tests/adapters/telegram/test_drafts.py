"""Drafts in private chats, and rich messages: both opt-in, both with a way back."""

from __future__ import annotations

import itertools

from tests.adapters.telegram.conftest import OpenTalk
from tests.emulators.journal import Fault, FaultKind
from tests.emulators.telegram import DraftEnd
from tests.scripted import Pause, Say, UseTool

TABLE = "Here:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nThat is all."


async def test_a_draft_grows_and_becomes_the_message(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("An answer that grows as a draft. " * 6, pace=0.3)], streaming="draft")
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.emulator.wait_for(lambda: talk.emulator.chat(chat).drafts)
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert answer.text == ("An answer that grows as a draft. " * 6).strip()
    assert answer.continued_draft
    assert len(answer.versions) == 1
    (draft,) = talk.emulator.draft_log(chat)
    assert draft.ended is DraftEnd.FINAL
    assert len(draft.versions) > 2
    assert not talk.emulator.journal.broken


async def test_a_draft_lives_through_a_long_tool_call(open_talk: OpenTalk) -> None:
    script = [Say("Let me look. "), UseTool("search", 70.0), Say("Found it.", message="b")]
    talk = await open_talk(script, streaming="draft")
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "find")
    await talk.settled(30)
    (answer,) = talk.answers(chat)
    assert answer.text == "Let me look.\n\nFound it.\n✓ search"
    (draft,) = talk.emulator.draft_log(chat)
    assert draft.ended is DraftEnd.FINAL
    frames = [version.text for version in draft.versions]
    assert all(one != other for one, other in itertools.pairwise(frames))
    assert not talk.emulator.journal.broken


async def test_a_long_answer_leaves_its_draft_for_a_message_and_goes_on_in_another(open_talk: OpenTalk) -> None:
    text = " ".join(f"word{number}" for number in range(1200))
    talk = await open_talk([Say(text, size=120, pace=0.2)], streaming="draft")
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.settled(30)
    answers = talk.answers(chat)
    assert len(answers) == 3
    assert " ".join(answer.text for answer in answers) == text
    assert [draft.ended for draft in talk.emulator.draft_log(chat)] == [DraftEnd.FINAL] * 3
    assert not talk.emulator.journal.broken


async def test_the_stop_control_of_a_draft_stops_the_answer(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("partial text "), Pause(3000)], streaming="draft")
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.emulator.wait_for(lambda: talk.emulator.chat(chat).drafts)
    talk.emulator.stop_draft(chat)
    await talk.shows(chat, "Stopped.")
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert answer.text == "partial text\n\nStopped."
    assert not talk.emulator.journal.broken


async def test_a_draft_that_is_not_possible_turns_into_a_message_that_is_edited(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("An answer that grows. " * 6, pace=0.4)], streaming="draft")
    chat = talk.emulator.private_chat()
    body = {"ok": False, "error_code": 400, "description": "Bad Request: TEXTDRAFT_PEER_INVALID"}
    talk.emulator.faults.plan("sendMessageDraft", Fault(FaultKind.ANSWER, status=400, body=body))
    talk.emulator.say(chat, "hi")
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert len(answer.versions) > 1
    assert len(talk.emulator.journal.of("sendMessageDraft")) == 1
    assert not talk.emulator.journal.broken


async def test_one_failed_frame_does_not_end_a_draft(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("An answer that grows. " * 8, pace=0.4)], streaming="draft")
    chat = talk.emulator.private_chat()
    sick, dropped = Fault(FaultKind.ANSWER, status=500, body="oops"), Fault(FaultKind.DROP_AFTER)
    talk.emulator.faults.plan("sendMessageDraft", sick, dropped)
    talk.emulator.say(chat, "hi")
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert len(answer.versions) == 1
    assert len(talk.emulator.journal.of("sendMessageDraft")) > 3
    assert not talk.emulator.journal.broken


async def test_groups_have_no_drafts(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("An answer that grows. " * 6, pace=0.6)], streaming="draft")
    group = talk.emulator.group("Team")
    talk.emulator.say(group, "@bridge_bot hi")
    await talk.settled()
    assert not talk.emulator.journal.of("sendMessageDraft")
    assert talk.text(group) == ("An answer that grows. " * 6).strip()
    assert not talk.emulator.journal.broken


# rich messages


async def test_an_answer_with_a_table_ends_as_a_rich_message(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say(TABLE, pace=0.3)], emulator={"rich_messages": True}, rich_messages=True)
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert answer.is_rich
    assert answer.text == TABLE
    assert not answer.buttons
    assert not talk.emulator.journal.broken


async def test_an_answer_without_table_or_maths_stays_an_ordinary_message(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("plain **words**")], emulator={"rich_messages": True}, rich_messages=True)
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert not answer.is_rich
    assert not talk.emulator.journal.broken


async def test_a_server_that_does_not_know_rich_messages_gets_the_ordinary_one_and_is_asked_once(
    open_talk: OpenTalk,
) -> None:
    talk = await open_talk([Say(TABLE)], rich_messages=True, streaming="off")
    chat = talk.emulator.private_chat()
    for _ in range(2):
        talk.emulator.say(chat, "hi")
        await talk.settled()
    first, second = talk.answers(chat)
    assert first.marked("pre") == second.marked("pre") == ["a | b\n--|--\n1 | 2"]
    assert len(talk.emulator.journal.of("sendRichMessage")) == 1
    assert not talk.emulator.journal.broken


async def test_a_growing_answer_falls_back_from_a_rich_edit_in_its_own_message(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say(TABLE, pace=0.3)], rich_messages=True)
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.settled()
    (answer,) = talk.answers(chat)
    assert answer.marked("pre") == ["a | b\n--|--\n1 | 2"]
    assert not talk.emulator.journal.broken
