"""Rates, penalties, drafts and planned faults of the emulated Telegram; and the emulator as a tool."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, InputMediaDocument, MessageEntity
from telegram.error import BadRequest, NetworkError, RetryAfter

from tests.clock import ManualClock
from tests.emulators.journal import Fault, FaultKind
from tests.emulators.telegram import (
    TOKEN,
    Checks,
    DraftEnd,
    Limits,
    RemoteTelegram,
    TelegramEmulator,
    Window,
)
from tests.emulators.telegram.errors import ApiError
from tests.emulators.telegram.sdk import bot_for
from tests.emulators.telegram.windows import FloodControl

# The wall must not decide anything here.
LIMITS = Limits(grace_wall_seconds=0.0)
pytestmark = pytest.mark.filterwarnings("ignore:Deprecated since version v22.2")  # the type of retry_after


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def emulator(clock: ManualClock) -> AsyncIterator[TelegramEmulator]:
    async with TelegramEmulator(clock, limits=LIMITS) as emulator:
        yield emulator


@pytest.fixture
async def bot(emulator: TelegramEmulator) -> AsyncIterator[Bot]:
    async with bot_for(emulator) as bot:
        yield bot


def seconds_of(refused: pytest.ExceptionInfo[RetryAfter]) -> int:
    return int(str(refused.value.retry_after))


async def refused_for(call: Coroutine[object, object, object]) -> int:
    """The retry_after that a call is refused with."""
    with pytest.raises(RetryAfter) as refused:
        await call
    return seconds_of(refused)


# windows


async def test_a_private_chat_takes_a_small_burst_and_then_one_call_a_second(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat = emulator.private_chat()
    sent = await bot.send_message(chat, "0")
    for number in range(1, 4):
        await bot.edit_message_text(str(number), chat, sent.message_id)
    for number in range(4, 44):
        await clock.advance(1)
        await bot.edit_message_text(str(number), chat, sent.message_id)
    assert len(emulator.chat(chat).from_bot()[0].versions) == 44
    assert not emulator.journal.broken


async def test_a_private_chat_refuses_a_larger_burst(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    sent = await bot.send_message(chat, "0")
    for number in range(1, 5):
        await bot.edit_message_text(str(number), chat, sent.message_id)
    assert await refused_for(bot.edit_message_text("5", chat, sent.message_id)) == 3
    assert "more than 5 calls in 1 s" in emulator.journal.broken[0]
    assert emulator.chat(chat).text() == "4"


async def test_a_private_chat_refuses_two_calls_a_second_before_long(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat = emulator.private_chat()
    for number in range(9):
        await bot.send_message(chat, str(number))
        await clock.advance(0.5)
    assert await refused_for(bot.send_message(chat, "9")) == 3
    assert "more than 9 calls in 5 s" in emulator.journal.broken[0]


async def test_a_group_takes_20_calls_a_minute_over_all_its_topics(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    forum, other = emulator.group("Lab", forum=True), emulator.group("Team")
    topics = [emulator.topic(forum, "Plans"), emulator.topic(forum, "Bugs")]
    sent = [await bot.send_message(forum, "0", message_thread_id=topic) for topic in topics]
    for number in range(1, 10):
        for message in sent:
            await bot.edit_message_text(str(number), forum, message.message_id)
    assert not emulator.journal.broken
    await clock.advance(20)
    assert await refused_for(bot.edit_message_text("10", forum, sent[0].message_id)) == 40
    assert "more than 20 calls" in emulator.journal.broken[0]
    await bot.send_message(other, "another group goes on")
    await clock.advance(40)
    await bot.edit_message_text("10", forum, sent[0].message_id)
    assert len(emulator.journal.broken) == 1


async def test_an_album_counts_as_its_items(emulator: TelegramEmulator, bot: Bot) -> None:
    group = emulator.group("Team")
    await bot.send_media_group(group, [InputMediaDocument(b"abc")] * 10)
    await bot.send_media_group(group, [InputMediaDocument(b"abc")] * 9)
    await refused_for(bot.send_media_group(group, [InputMediaDocument(b"abc")] * 2))
    assert len(emulator.chat(group).from_bot()) == 19


async def test_the_bot_takes_30_calls_a_second_over_all_chats(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chats = [emulator.private_chat() for _ in range(16)]
    for chat in chats[:15]:
        await bot.send_message(chat, "one")
        await bot.send_message(chat, "two")
    assert not emulator.journal.broken
    assert await refused_for(bot.send_message(chats[15], "one too many")) == 1
    assert "more than 30 calls of the bot in 1 s" in emulator.journal.broken[0]
    await clock.advance(1)
    await bot.send_message(chats[15], "one")
    assert len(emulator.journal.broken) == 1


async def test_what_does_not_write_is_not_counted(emulator: TelegramEmulator, bot: Bot) -> None:
    group = emulator.group("Team")
    asked = emulator.say(group, "/ask")
    for _ in range(40):
        await bot.get_updates()
        await bot.set_message_reaction(group, asked, "👀")
    assert not emulator.journal.broken


@given(st.lists(st.floats(min_value=0.0, max_value=3.0), min_size=1, max_size=60))
def test_a_call_is_refused_exactly_when_a_window_would_be_too_full(pauses: list[float]) -> None:
    clock = _StoppedClock()
    windows = (Window(3, 1.0), Window(8, 10.0))
    flood = FloodControl(clock, Limits(private_windows=windows, bot_windows=(Window(1000, 1.0),), penalty_seconds=0))
    accepted: list[float] = []
    for pause in pauses:
        clock.time += pause
        now = clock.time
        fits = all(sum(1 for at in accepted if at > now - window.seconds) < window.calls for window in windows)
        try:
            flood.admit_message(1, "send", private=True)
        except ApiError as refused:
            assert not fits
            clock.time += refused.parameters["retry_after"]  # an obedient client is never refused twice
            flood.admit_message(1, "send", private=True)
        else:
            assert fits
        accepted.append(clock.time)


class _StoppedClock:
    time = 1000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


# penalties


async def test_a_call_during_a_penalty_is_noted_and_makes_it_longer(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat, other = emulator.private_chat(), emulator.private_chat()
    emulator.flood(chat, 40)
    assert await refused_for(bot.send_message(chat, "one")) == 40
    assert not emulator.journal.broken
    await clock.advance(10)
    await bot.send_message(other, "goes on")
    assert await refused_for(bot.send_message(chat, "two")) == 70
    assert await refused_for(bot.send_chat_action(chat, "typing")) == 110
    assert emulator.closed_for(chat) == 110
    assert [rule.split(maxsplit=1)[1] for rule in emulator.journal.broken] == [
        f"send in chat {chat} called 30.0 s before its penalty ended",
        f"chat action in chat {chat} called 70.0 s before its penalty ended",
    ]
    await clock.advance(110)
    await bot.send_message(chat, "three")
    assert emulator.chat(chat).text() == "three"


async def test_a_planned_penalty_that_is_obeyed_is_nobodys_fault(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat = emulator.private_chat()
    emulator.flood(chat, 40)
    assert await refused_for(bot.send_message(chat, "one")) == 40
    await clock.advance(40)
    await bot.send_message(chat, "one")
    assert not emulator.journal.broken


async def test_a_call_already_under_way_when_the_chat_closed_is_forgiven(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat = emulator.private_chat()
    emulator.flood(chat, 40)
    await refused_for(bot.send_message(chat, "one"))
    await clock.advance(0.2)
    assert await refused_for(bot.send_message(chat, "two")) == 40
    assert not emulator.journal.broken


async def test_a_429_planned_as_a_fault_closes_the_chat_too(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat = emulator.private_chat()
    body = {"ok": False, "error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": 9}}
    emulator.faults.plan("sendMessage", Fault(FaultKind.ANSWER, status=429, body=body))
    assert await refused_for(bot.send_message(chat, "one")) == 9
    await clock.advance(5)
    assert await refused_for(bot.send_message(chat, "two")) == 13
    assert "called 4.0 s before its penalty ended" in emulator.journal.broken[0]


# drafts


async def test_a_draft_grows_and_becomes_the_message_that_begins_with_it(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat = emulator.private_chat()
    for text in ("", "Hel", "Hello"):
        await bot.send_message_draft(chat, 42, text)
        await clock.advance(1)
    (draft,) = emulator.chat(chat).drafts
    assert (draft.id, draft.text, [version.text for version in draft.versions]) == (42, "Hello", ["", "Hel", "Hello"])
    await bot.send_message(chat, "Hello there")
    assert emulator.chat(chat).drafts == ()
    (final,) = emulator.chat(chat).from_bot()
    assert final.continued_draft
    assert [log.ended for log in emulator.draft_log(chat)] == [DraftEnd.FINAL]
    assert not emulator.journal.broken


async def test_a_draft_after_its_final_is_a_ghost(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    await bot.send_message_draft(chat, 42, "Hello")
    await bot.send_message(chat, "Hello there")
    await bot.send_message_draft(chat, 43, "Another answer")
    assert not emulator.journal.broken
    await bot.send_message_draft(chat, 42, "Hello the")
    assert "ghost: draft 42" in emulator.journal.broken[0]


async def test_a_draft_number_can_be_used_again_for_another_answer(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat = emulator.private_chat()
    for answer in ("Hello there", "Bye now", "Bye for good"):
        await bot.send_message_draft(chat, 42, answer[:3])
        await bot.send_message(chat, answer)
        emulator.say(chat, "and now?")
    await clock.advance(60)
    assert not emulator.journal.broken


async def test_a_draft_that_comes_back_after_a_message_displaced_it_must_get_a_final(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat, other = emulator.private_chat(), emulator.private_chat()
    for place in (chat, other):
        await bot.send_message_draft(place, 42, "Hello")
        await bot.send_message(place, "Status: busy")
        assert not emulator.chat(place).from_bot()[0].continued_draft
        await bot.send_message_draft(place, 42, "Hello th")
    await bot.send_message(chat, "Hello there")
    await clock.advance(30)
    assert [rule.split(maxsplit=1)[1] for rule in emulator.journal.broken] == [
        f"ghost: draft 42 in chat {other} came back after a message took its place"
    ]


async def test_a_draft_vanishes_after_30_seconds_unless_it_is_renewed(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat = emulator.private_chat()
    await bot.send_message_draft(chat, 42, "Hello")
    await clock.advance(29)
    await bot.send_message_draft(chat, 42, "Hello…")
    await clock.advance(29)
    assert len(emulator.chat(chat).drafts) == 1
    await clock.advance(1)
    assert emulator.chat(chat).drafts == ()
    assert [log.ended for log in emulator.draft_log(chat)] == [DraftEnd.EXPIRED]
    assert not emulator.journal.broken


async def test_drafts_are_for_private_chats_and_have_a_number(emulator: TelegramEmulator, bot: Bot) -> None:
    with pytest.raises(BadRequest, match="Textdraft_peer_invalid"):
        await bot.send_message_draft(emulator.group("Team"), 42, "Hello")
    with pytest.raises(BadRequest, match="Draft_id must be non-zero"):
        await bot.send_message_draft(emulator.private_chat(), 0, "Hello")
    with pytest.raises(BadRequest, match="Message is too long"):
        await bot.send_message_draft(emulator.private_chat(), 1, "x" * 4097)
    assert len(emulator.journal.broken) == 3


async def test_drafts_of_two_topics_are_two_drafts() -> None:
    async with TelegramEmulator(private_topics=True) as emulator, bot_for(emulator) as bot:
        chat = emulator.private_chat()
        topic = emulator.topic(chat, "Recipes")
        await bot.send_message_draft(chat, 42, "Hello")
        await bot.send_message_draft(chat, 42, "Flour", message_thread_id=topic)
        await bot.send_message(chat, "Flour and water", message_thread_id=topic)
        assert [draft.text for draft in emulator.chat(chat).drafts] == ["Hello"]


async def test_drafts_and_chat_actions_share_20_calls_in_5_s_and_40_in_30_s(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat = emulator.private_chat()
    for _ in range(2):
        for number in range(10):
            await bot.send_message_draft(chat, 42, str(number))
            await bot.send_chat_action(chat, "typing")
        await clock.advance(5)
    assert not emulator.journal.broken
    assert await refused_for(bot.send_message_draft(chat, 42, "too many")) == 3
    assert "more than 40 drafts and actions in 30 s" in emulator.journal.broken[0]
    await bot.send_message(chat, "messages go on")
    assert len(emulator.journal.broken) == 1


async def test_a_person_stops_a_draft_that_can_be_stopped(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    await bot.get_updates(allowed_updates=["message", "stopped_message_generation"])
    await bot.send_message_draft(chat, 41, "cannot be stopped")
    with pytest.raises(LookupError):
        emulator.stop_draft(chat)
    await bot.send_message_draft(chat, 42, "Hello", api_kwargs={"can_stop": True})
    await bot.send_message_draft(chat, 43, "Stays", api_kwargs={"can_stop": True, "keep_on_stop": True})
    assert [emulator.stop_draft(chat, draft_id) for draft_id in (42, 43)] == [42, 43]
    updates = await bot.get_updates()
    stopped = [update.api_kwargs["stopped_message_generation"] for update in updates]
    assert [(item["chat"]["id"], item["draft_id"]) for item in stopped] == [(chat, "42"), (chat, "43")]
    assert [draft.id for draft in emulator.chat(chat).drafts] == [41, 43]
    assert not emulator.journal.broken


async def test_a_stopped_draft_is_told_only_to_a_bot_that_asked(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    await bot.send_message_draft(chat, 42, "Hello", api_kwargs={"can_stop": True})
    emulator.stop_draft(chat)
    assert await bot.get_updates() == ()


# planned faults


async def test_a_planned_answer_takes_the_place_of_the_call(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    emulator.faults.plan("sendMessage", Fault(FaultKind.ANSWER, status=502, body="<html>Bad Gateway</html>"))
    with pytest.raises(NetworkError, match="Bad Gateway"):
        await bot.send_message(chat, "Hello")
    assert emulator.chat(chat).messages == ()
    await bot.send_message(chat, "Hello")
    assert [call.status for call in emulator.journal.of("sendMessage")] == [502, 200]
    assert not emulator.journal.broken


@pytest.mark.parametrize(("kind", "seen"), [(FaultKind.DROP_BEFORE, ""), (FaultKind.DROP_AFTER, "Hello")])
async def test_a_dropped_connection_leaves_the_work_undone_or_done(
    emulator: TelegramEmulator, bot: Bot, kind: FaultKind, seen: str
) -> None:
    chat = emulator.private_chat()
    emulator.faults.plan("sendMessage", Fault(kind))
    with pytest.raises(NetworkError):
        await bot.send_message(chat, "Hello")
    assert emulator.chat(chat).text() == seen


async def test_a_delayed_call_is_carried_out_even_when_its_client_gave_up(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat = emulator.private_chat()
    emulator.faults.plan("sendMessage", Fault(FaultKind.DELAY, seconds=60))
    sending = asyncio.create_task(bot.send_message(chat, "Hello"))
    await emulator.wait_for(clock.next_wake)
    sending.cancel()
    await clock.advance(59)
    assert emulator.chat(chat).text() == ""
    await clock.advance(1)
    assert emulator.chat(chat).text() == "Hello"


# the emulator as a tool


async def test_waiting_returns_what_was_waited_for_or_fails_with_a_picture(
    emulator: TelegramEmulator, bot: Bot
) -> None:
    chat = emulator.private_chat()

    def first_text() -> str:
        return emulator.chat(chat).from_bot()[0].text

    waiting = asyncio.create_task(emulator.wait_for(first_text))
    await bot.send_message(chat, "Hello")
    assert await waiting == "Hello"
    with pytest.raises(AssertionError) as failed:
        await emulator.wait_for(lambda: emulator.chat(chat).drafts, timeout=0.01)
    assert "Bridge: 'Hello'" in str(failed.value)
    assert "sendMessage" in str(failed.value)


async def test_house_rules_can_be_switched_off(clock: ManualClock) -> None:
    checks = Checks(dropped_updates=False, entity_count=False, unanswered_presses=False)
    async with TelegramEmulator(clock, checks=checks) as emulator, bot_for(emulator) as bot:
        emulator.say(emulator.private_chat(), "lost")
        await bot.delete_webhook(drop_pending_updates=True)
        assert not emulator.journal.broken


async def test_it_runs_as_its_own_process_with_a_control_api_and_a_page() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.emulators.telegram",
        "--rich-messages",
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env=dict(os.environ),
    )
    assert process.stdout is not None
    url = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
    try:
        async with RemoteTelegram(url) as remote, Bot(TOKEN, base_url=f"{url}/bot") as bot:
            await _play(remote, bot)
        async with httpx.AsyncClient() as browser:
            page = (await browser.get(url)).text
        assert "<b>Hi</b> &lt;Cy&gt;" in page
    finally:
        process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 10) == 0


async def _play(remote: RemoteTelegram, bot: Bot) -> None:
    person = await remote.act("person", first_name="Cy")
    assert isinstance(person, dict)
    chat = await remote.act("private_chat", person=person["id"])
    assert isinstance(chat, int)
    assert chat == person["id"]
    await remote.act("say", chat_id=chat, text="/start", by=person["id"])
    await remote.act("send_file", chat_id=chat, upload={"content_base64": "YWJj", "name": "a.txt"})
    group = await remote.act("group", title="Crew", members=[person["id"]], forum=True)
    assert isinstance(group, int)
    updates = await bot.get_updates()
    assert [update.message and update.message.text for update in updates[-2:]] == ["/start", None]
    await remote.plan_fault("sendMessage", Fault(FaultKind.ANSWER, status=500, body="broken"))
    with pytest.raises(NetworkError):
        await bot.send_message(chat, "Hi <Cy>")
    keyboard = InlineKeyboardMarkup([[InlineKeyboardButton("Stop", callback_data="s")]])
    sent = await bot.send_message(chat, "Hi <Cy>", entities=[MessageEntity("bold", 0, 2)], reply_markup=keyboard)
    await remote.act("press", chat_id=chat, message_id=sent.message_id, button="Stop")
    with pytest.raises(LookupError, match="no button"):
        await remote.act("press", chat_id=chat, message_id=sent.message_id, button="Go")
    with pytest.raises(LookupError, match="no such act"):
        await remote.act("stop")

    def shown(state: dict[str, object]) -> object:
        chats = state["chats"]
        assert isinstance(chats, list)
        return [message["text"] for item in chats if item["id"] == chat for message in item["messages"]]

    assert await remote.wait_for(shown) == ["/start", "", "Hi <Cy>"]
    state = await remote.state()
    journal = state["journal"]
    assert isinstance(journal, dict)
    assert journal["broken"] == []
    assert [call["method"] for call in journal["calls"]] == ["getMe", "getUpdates", "sendMessage", "sendMessage"]
