"""What the emulated Telegram hands to the bot, and how: polling, webhooks, people's acts, presses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest
from aiohttp import web
from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, Message, ReplyParameters, Update
from telegram.error import BadRequest, ChatMigrated, Conflict

from channels.clock import Clock
from tests.clock import ManualClock, ScaledClock
from tests.emulators.telegram import Entity, TelegramEmulator, Upload
from tests.emulators.telegram.sdk import bot_for

KEYBOARD = InlineKeyboardMarkup([[InlineKeyboardButton("Stop", callback_data="stop:1")]])


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def emulator(clock: ManualClock) -> AsyncIterator[TelegramEmulator]:
    async with TelegramEmulator(clock) as emulator:
        yield emulator


@pytest.fixture
async def bot(emulator: TelegramEmulator) -> AsyncIterator[Bot]:
    async with bot_for(emulator) as bot:
        yield bot


def texts(updates: Sequence[Update]) -> list[str | None]:
    return [update.effective_message.text if update.effective_message else None for update in updates]


def message_of(update: Update) -> Message:
    assert update.message is not None
    return update.message


async def polling(emulator: TelegramEmulator, bot: Bot, offset: int | None = None) -> asyncio.Task[tuple[Update, ...]]:
    """A long poll that has arrived and waits."""
    task = asyncio.create_task(bot.get_updates(offset, timeout=30))
    await emulator.wait_for(lambda: emulator.is_polled)
    return task


# long polling


async def test_updates_come_again_until_the_offset_moves_past_them(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    emulator.say(chat, "one")
    emulator.say(chat, "two")
    first = await bot.get_updates()
    assert texts(first) == texts(await bot.get_updates()) == ["one", "two"]
    assert texts(await bot.get_updates(limit=1)) == ["one"]
    assert texts(await bot.get_updates(offset=first[1].update_id)) == ["two"]
    assert await bot.get_updates(offset=first[1].update_id + 1) == ()
    assert emulator.pending_updates == []
    assert not emulator.journal.broken


async def test_an_offset_over_updates_never_handed_out_loses_them_and_is_noted(
    emulator: TelegramEmulator, bot: Bot
) -> None:
    chat = emulator.private_chat()
    emulator.say(chat, "one")
    emulator.say(chat, "two")
    assert texts(await bot.get_updates(offset=-1)) == ["two"]
    assert "confirms unseen" in emulator.journal.broken[0]


async def test_a_long_poll_waits_for_its_time_or_the_next_update(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat = emulator.private_chat()
    waiting = await polling(emulator, bot)
    emulator.say(chat, "here")
    (update,) = await waiting
    waiting = await polling(emulator, bot, offset=update.update_id + 1)
    await clock.advance(29)
    assert not waiting.done()
    await clock.advance(1)
    assert await waiting == ()


async def test_a_second_poll_ends_the_first_with_a_conflict(emulator: TelegramEmulator, bot: Bot) -> None:
    first = await polling(emulator, bot)
    async with bot_for(emulator) as other:
        second = asyncio.create_task(other.get_updates(timeout=30))
        with pytest.raises(Conflict, match="terminated by other getUpdates request; make sure that only one bot"):
            await first
        emulator.say(emulator.private_chat(), "here")
        assert texts(await second) == ["here"]


async def test_another_poller_elsewhere_is_a_conflict_as_long_as_it_runs(emulator: TelegramEmulator, bot: Bot) -> None:
    waiting = await polling(emulator, bot)
    emulator.set_other_poller(True)
    with pytest.raises(Conflict):
        await waiting
    with pytest.raises(Conflict):
        await bot.get_updates()
    emulator.set_other_poller(False)
    assert await bot.get_updates() == ()


async def test_a_poll_whose_client_hung_up_takes_no_updates(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    waiting = await polling(emulator, bot)
    waiting.cancel()
    await emulator.wait_for(lambda: not emulator.is_polled)
    emulator.say(chat, "here")
    assert texts(await bot.get_updates()) == ["here"]


async def test_only_the_kinds_asked_for_are_queued(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    await bot.get_updates(allowed_updates=["edited_message"])
    emulator.edit(chat, emulator.say(chat, "unseen"), "seen")
    (update,) = await bot.get_updates()
    assert update.edited_message is not None
    assert update.edited_message.text == "seen"
    await bot.get_updates(offset=update.update_id + 1, allowed_updates=[])  # back to the usual kinds
    emulator.say(chat, "seen again")
    assert texts(await bot.get_updates()) == ["seen again"]


async def test_updates_nobody_fetched_for_24_hours_are_gone(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat = emulator.private_chat()
    emulator.say(chat, "old")
    await clock.advance(23 * 3600)
    emulator.say(chat, "new")
    assert texts(await bot.get_updates()) == ["old", "new"]
    await clock.advance(3600)
    assert texts(await bot.get_updates()) == ["new"]


async def test_after_a_week_without_updates_the_next_id_is_chosen_at_random(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat = emulator.private_chat()
    firsts: list[int] = []
    for week in range(6):
        await clock.advance(7 * 24 * 3600)
        emulator.say(chat, f"{week}a")
        emulator.say(chat, f"{week}b")
        first, second = await bot.get_updates(offset=firsts[-1] + 2 if firsts else None)
        assert texts([first, second]) == [f"{week}a", f"{week}b"]
        assert second.update_id == first.update_id + 1
        firsts.append(first.update_id)
        assert await bot.get_updates(offset=second.update_id + 1) == ()
    assert firsts != sorted(firsts)
    await clock.advance(7 * 24 * 3600 - 1)
    emulator.say(chat, "sooner")
    (update,) = await bot.get_updates()
    assert update.update_id == firsts[-1] + 2
    assert not emulator.journal.broken


@pytest.mark.parametrize("distance", [-2_000_001, 12])
async def test_an_offset_far_from_the_ids_of_now_confirms_nothing_and_is_answered_from_the_oldest_update_on(
    emulator: TelegramEmulator, bot: Bot, distance: int
) -> None:
    chat = emulator.private_chat()
    emulator.say(chat, "one")
    emulator.say(chat, "two")
    newest = emulator.pending_updates[-1]
    for _ in range(2):
        assert texts(await bot.get_updates(offset=newest + distance)) == ["one", "two"]
    assert await bot.get_updates(offset=newest + 11) == ()
    assert emulator.pending_updates == []


async def test_updates_can_be_held_reversed_and_redelivered(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    emulator.hold_updates()
    emulator.say(chat, "one")
    emulator.say(chat, "two")
    assert await bot.get_updates() == ()
    emulator.release_updates(reverse=True)
    updates = await bot.get_updates()
    assert texts(updates) == ["two", "one"]
    newest = updates[0].update_id
    assert await bot.get_updates(offset=newest + 1) == ()
    assert emulator.redeliver(newest - 1) == newest - 1
    again = await bot.get_updates(offset=newest + 1)
    assert [(update.update_id, message_of(update).text) for update in again] == [(newest - 1, "one")]
    assert await bot.get_updates(offset=newest + 1) == ()
    assert not emulator.journal.broken


# webhooks


class Receiver:
    """A bot's webhook: remembers what came, answers as it is told."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.got: list[tuple[dict[str, object], str | None]] = []
        self.statuses: list[int] = []
        self.hold: Callable[[str], Awaitable[None]] | None = None

    def texts(self) -> list[str]:
        return [str(message["text"]) for update, _ in self.got if isinstance(message := update["message"], dict)]

    async def receive(self, request: web.Request) -> web.Response:
        update = await request.json()
        self.got.append((update, request.headers.get("X-Telegram-Bot-Api-Secret-Token")))
        if self.hold is not None:
            await self.hold(update["message"]["text"])
        return web.Response(status=self.statuses.pop(0) if self.statuses else 200)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    app = web.Application()
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    receiver = Receiver("")
    app.router.add_post("/hooks/telegram", receiver.receive)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        await runner.cleanup()


async def test_a_webhook_gets_updates_with_its_secret_and_keeps_them_from_polls(
    emulator: TelegramEmulator, bot: Bot
) -> None:
    chat = emulator.private_chat()
    emulator.say(chat, "early")
    waiting = await polling(emulator, bot, offset=emulator.pending_updates[0] + 1)
    async with receiving() as receiver:
        await bot.set_webhook(
            f"{receiver.url}/hooks/telegram", secret_token="s3cret_-", allowed_updates=["message"], max_connections=2
        )
        with pytest.raises(Conflict, match="terminated by setWebhook request"):
            await waiting
        with pytest.raises(Conflict, match="can't use getUpdates method while webhook is active"):
            await bot.get_updates()
        emulator.say(chat, "hello")
        await emulator.wait_for(lambda: receiver.got and not emulator.pending_updates)
        assert receiver.texts() == ["hello"]
        assert receiver.got[0][1] == "s3cret_-"
        info = await bot.get_webhook_info()
        assert (info.url, info.max_connections, info.allowed_updates) == (
            f"{receiver.url}/hooks/telegram",
            2,
            ("message",),
        )
        await bot.delete_webhook()
        emulator.say(chat, "polled")
        assert texts(await bot.get_updates()) == ["polled"]
    assert [rule.split(maxsplit=1)[1][:23] for rule in emulator.journal.broken] == ["pending updates dropped"]


async def test_a_refused_delivery_is_repeated_with_growing_pauses(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat = emulator.private_chat()
    async with receiving() as receiver:
        receiver.statuses = [500, 401, 503]
        await bot.set_webhook(f"{receiver.url}/hooks/telegram")
        emulator.say(chat, "one")
        emulator.say(chat, "two")

        def waits_after(tries: int) -> bool:
            return len(receiver.got) == tries and clock.next_wake() is not None

        for tries, pause in ((1, 1), (2, 2), (3, 4)):
            await emulator.wait_for(partial(waits_after, tries))
            await clock.advance(pause - 0.1)
            assert len(receiver.got) == tries
            await clock.advance(0.1)
        await emulator.wait_for(lambda: not emulator.pending_updates)
        assert receiver.texts() == ["one"] * 4 + ["two"]  # in order within a chat
        info = await bot.get_webhook_info()
        assert info.last_error_message == "Wrong response from the webhook: 503"
    assert not emulator.journal.broken


async def test_a_slow_delivery_holds_up_only_its_own_chat(emulator: TelegramEmulator, bot: Bot) -> None:
    slow, quick = emulator.private_chat(), emulator.private_chat()
    async with receiving() as receiver:
        may_go_on = asyncio.Event()

        async def hold(text: str) -> None:
            if text == "slow":
                await may_go_on.wait()

        receiver.hold = hold
        await bot.set_webhook(f"{receiver.url}/hooks/telegram")
        emulator.say(slow, "slow")
        emulator.say(slow, "after slow")
        emulator.say(quick, "quick")
        await emulator.wait_for(lambda: set(receiver.texts()) == {"slow", "quick"})
        may_go_on.set()
        await emulator.wait_for(lambda: "after slow" in receiver.texts())


async def test_deliveries_can_go_to_a_local_port_instead_of_the_public_name(
    emulator: TelegramEmulator, bot: Bot
) -> None:
    async with receiving() as receiver:
        emulator.deliver_webhooks_to = receiver.url
        await bot.set_webhook("https://bridge.example.com/hooks/telegram")
        emulator.say(emulator.private_chat(), "hello")
        await emulator.wait_for(lambda: receiver.texts() == ["hello"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"url": "http://bridge.example.com/x"}, "An HTTPS URL must be provided"),
        ({"url": "https://bridge.example.com:8080/x"}, "only on ports 80, 88, 443 or 8443"),
        ({"secret_token": "no spaces"}, "Secret token contains unallowed characters"),
        ({"secret_token": "x" * 257}, "Secret token is too long"),
        ({"max_connections": 101}, "Invalid max_connections"),
    ],
)
async def test_webhook_settings_have_rules(
    emulator: TelegramEmulator, bot: Bot, arguments: dict[str, object], reason: str
) -> None:
    allowed: dict[str, object] = {"url": "https://bridge.example.com:8443/x", "secret_token": "x" * 256}
    await bot.set_webhook(**allowed)  # type: ignore[arg-type]
    assert not emulator.journal.broken
    with pytest.raises(BadRequest, match=f"(?i){reason}"):
        await bot.set_webhook(**(allowed | arguments))  # type: ignore[arg-type]
    assert len(emulator.journal.broken) == 1


@pytest.mark.parametrize("setting", [True, False])
async def test_dropping_pending_updates_is_noted(emulator: TelegramEmulator, bot: Bot, setting: bool) -> None:
    emulator.say(emulator.private_chat(), "lost")
    if setting:
        await bot.set_webhook("https://bridge.example.com/x", drop_pending_updates=True)
    else:
        await bot.delete_webhook(drop_pending_updates=True)
    assert emulator.pending_updates == []
    assert "pending updates dropped" in emulator.journal.broken[0]


# what people do


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("/start", [("bot_command", 0, 6)]),
        ("😀 /stop@bridge_bot now", [("bot_command", 3, 16)]),
        ("hi @bridge_bot", [("mention", 3, 11)]),
        ("see https://a.b/@c /d", [("url", 4, 14), ("bot_command", 19, 2)]),
        ("a/b and me@home.org", []),
    ],
)
async def test_commands_mentions_and_links_are_marked_in_utf16_units(
    emulator: TelegramEmulator, bot: Bot, text: str, marked: list[tuple[str, int, int]]
) -> None:
    emulator.say(emulator.private_chat(), text)
    (update,) = await bot.get_updates()
    entities = message_of(update).entities
    assert [(entity.type, entity.offset, entity.length) for entity in entities] == marked


async def test_in_privacy_mode_a_group_tells_the_bot_only_what_is_meant_for_it(
    emulator: TelegramEmulator, bot: Bot
) -> None:
    group = emulator.group("Team")
    answer = await bot.send_message(group, "I am here")
    question = emulator.say(group, "just talk")
    emulator.say(group, "to @somebody_else")
    emulator.say(group, "/cmd@other_bot")
    emulator.say(group, "a reply", reply_to=question)
    emulator.say(group, "/cmd")
    emulator.say(group, "/cmd@bridge_bot")
    emulator.say(group, "hey @Bridge_Bot")
    emulator.say(group, "you", entities=[Entity("text_mention", 0, 3, {"user": emulator.bot.to_json()})])
    emulator.say(group, "and you?", reply_to=answer.message_id)
    heard = await bot.get_updates()
    assert texts(heard) == ["/cmd", "/cmd@bridge_bot", "hey @Bridge_Bot", "you", "and you?"]
    emulator.add_bot(group, admin=True)
    emulator.say(group, "just talk")
    assert texts(await bot.get_updates(offset=heard[-1].update_id + 1))[-1] == "just talk"


async def test_without_privacy_mode_the_bot_hears_everything() -> None:
    async with TelegramEmulator(privacy_mode=False) as emulator, bot_for(emulator) as bot:
        assert bot.bot.can_read_all_group_messages
        emulator.say(emulator.group("Team"), "just talk")
        assert texts(await bot.get_updates()) == ["just talk"]


async def test_a_reply_carries_its_message_and_outside_topics_the_number_of_its_reply_thread(
    emulator: TelegramEmulator, bot: Bot
) -> None:
    group = emulator.group("Team")
    answer = await bot.send_message(group, "I am here")
    emulator.say(group, "and you?", reply_to=answer.message_id)
    (update,) = await bot.get_updates()
    message = message_of(update)
    assert message.reply_to_message is not None
    assert message.reply_to_message.text == "I am here"
    assert (message.message_thread_id, message.is_topic_message) == (answer.message_id, None)


async def test_a_message_in_a_forum_topic_names_the_topic_and_answers_its_opening(
    emulator: TelegramEmulator, bot: Bot
) -> None:
    forum = emulator.group("Lab", forum=True)
    topic = emulator.topic(forum, "Plans")
    emulator.say(forum, "/ask", thread_id=topic)
    opening, asked = (message_of(update) for update in await bot.get_updates())
    assert opening.forum_topic_created is not None
    assert (asked.message_thread_id, asked.is_topic_message, asked.chat.is_forum) == (topic, True, True)
    assert asked.reply_to_message is not None
    assert asked.reply_to_message.message_id == opening.message_id == topic


async def test_an_album_comes_as_several_updates_with_one_group_id(emulator: TelegramEmulator, bot: Bot) -> None:
    emulator.send_album(
        emulator.private_chat(), Upload(kind="photo", mime="image/jpeg", caption="look"), Upload(kind="video")
    )
    first, second = (message_of(update) for update in await bot.get_updates())
    assert first.media_group_id == second.media_group_id is not None
    assert (first.caption, len(first.photo)) == ("look", 2)
    assert second.video is not None


async def test_files_of_people_come_with_name_type_and_size(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    emulator.send_file(chat, Upload(b"abc", "a.txt", "text/plain"))
    emulator.send_file(chat, Upload(b"ogg", mime="audio/ogg", kind="voice"))
    document, voice = (message_of(update) for update in await bot.get_updates())
    assert document.document is not None
    assert (document.document.file_name, document.document.mime_type, document.document.file_size) == (
        "a.txt",
        "text/plain",
        3,
    )
    assert voice.voice is not None
    assert voice.voice.mime_type == "audio/ogg"


async def test_a_migrated_group_tells_both_sides_and_refuses_its_old_id(emulator: TelegramEmulator, bot: Bot) -> None:
    old = emulator.group("Team", basic=True)
    new = emulator.migrate(old)
    to_new, from_old = (message_of(update) for update in await bot.get_updates())
    assert (to_new.chat.id, to_new.migrate_to_chat_id) == (old, new)
    assert (from_old.chat.id, from_old.migrate_from_chat_id) == (new, old)
    with pytest.raises(ChatMigrated) as refused:
        await bot.send_message(old, "Hello")
    assert refused.value.new_chat_id == new
    await bot.send_message(new, "Hello")
    assert not emulator.journal.broken


async def test_blocking_and_kicking_are_told(emulator: TelegramEmulator, bot: Bot) -> None:
    private, group = emulator.private_chat(), emulator.group("Team")
    emulator.block(private)
    emulator.kick(group)
    changes = [update.my_chat_member for update in await bot.get_updates()]
    assert [change and (change.chat.id, change.new_chat_member.status) for change in changes] == [
        (private, "kicked"),
        (group, "kicked"),
    ]


# presses


async def test_a_press_is_answered_once_and_in_time(emulator: TelegramEmulator, bot: Bot, clock: ManualClock) -> None:
    chat = emulator.private_chat()
    sent = await bot.send_message(chat, "Working", reply_markup=KEYBOARD)
    emulator.press(chat, sent.message_id, "Stop")
    (update,) = await bot.get_updates()
    query = update.callback_query
    assert query is not None
    assert (query.data, query.message and query.message.message_id) == ("stop:1", sent.message_id)
    await clock.advance(15)
    await bot.answer_callback_query(query.id, "Stopping", show_alert=True)
    (press,) = emulator.presses
    assert (press.answer, press.as_alert) == ("Stopping", True)
    await clock.advance(60)
    assert not emulator.journal.broken
    with pytest.raises(BadRequest, match="Query is too old and response timeout expired or query id is invalid"):
        await bot.answer_callback_query(query.id)
    assert "answered twice" in emulator.journal.broken[0]


async def test_a_press_not_answered_in_time_is_noted_once(
    emulator: TelegramEmulator, bot: Bot, clock: ManualClock
) -> None:
    chat = emulator.private_chat()
    sent = await bot.send_message(chat, "Working", reply_markup=KEYBOARD)
    press = emulator.press(chat, sent.message_id, "stop:1")
    await clock.advance(100)  # not handed out yet: the bot was away
    assert not emulator.journal.broken
    await bot.get_updates()
    await clock.advance(15.1)
    assert "not answered in 15 s" in emulator.journal.broken[0]
    with pytest.raises(BadRequest, match="Query is too old"):
        await bot.answer_callback_query(press.id)
    assert len(emulator.journal.broken) == 1


async def test_answers_to_presses_are_short_and_to_real_presses(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    sent = await bot.send_message(chat, "Working", reply_markup=KEYBOARD)
    press = emulator.press(chat, sent.message_id, "Stop")
    with pytest.raises(BadRequest, match="Message_too_long"):
        await bot.answer_callback_query(press.id, "x" * 201)
    with pytest.raises(BadRequest, match="Query is too old"):
        await bot.answer_callback_query("12345")
    assert len(emulator.journal.broken) == 2
    await bot.answer_callback_query(press.id, "x" * 200)
    assert len(emulator.journal.broken) == 2


async def test_only_what_is_there_can_be_pressed(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    sent = await bot.send_message(chat, "Working", reply_markup=KEYBOARD)
    with pytest.raises(LookupError, match="no button 'Go on'"):
        emulator.press(chat, sent.message_id, "Go on")
    emulator.delete(chat, sent.message_id)
    with pytest.raises(LookupError, match="no message"):
        emulator.press(chat, sent.message_id, "Stop")


async def test_the_bots_own_replies_in_a_forum_stay_out_of_its_updates(emulator: TelegramEmulator, bot: Bot) -> None:
    forum = emulator.group("Lab", forum=True)
    await bot.send_message(forum, "one", reply_parameters=ReplyParameters(emulator.say(forum, "/ask")))
    assert texts(await bot.get_updates()) == ["/ask"]


@pytest.mark.parametrize("clock_for", [ManualClock, lambda: ScaledClock(50)])
async def test_the_server_can_go_away_and_come_back_on_its_port(clock_for: Callable[[], Clock]) -> None:
    emulator = TelegramEmulator(clock_for())
    await emulator.start()
    port = int(emulator.url.rpartition(":")[2])
    chat = emulator.private_chat()
    emulator.say(chat, "kept")
    await emulator.stop()
    await emulator.start(port)
    async with bot_for(emulator) as bot:
        assert texts(await bot.get_updates()) == ["kept"]
    await emulator.stop()
