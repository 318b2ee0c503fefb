"""The emulated Telegram's rules on messages and files, each broken once and kept once, with the real SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from telegram import (
    Bot,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaDocument,
    InputMediaPhoto,
    Message,
    MessageEntity,
    ReplyParameters,
)
from telegram.error import BadRequest, EndPointNotFound, InvalidToken, NetworkError

from tests.clock import ManualClock
from tests.emulators.telegram import Checks, Entity, Limits, TelegramEmulator, Upload, Window, utf16_length
from tests.emulators.telegram.sdk import bot_for
from tests.emulators.telegram.text import settle_text, utf16_slice

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
# These tests are not about speed.
NO_WINDOWS = Limits(
    private_windows=(Window(1000, 1.0),),
    group_windows=(Window(1000, 1.0),),
    bot_windows=(Window(1000, 1.0),),
    upload_bytes=200_000,
    photo_bytes=100_000,
)


@pytest.fixture
async def emulator() -> AsyncIterator[TelegramEmulator]:
    async with TelegramEmulator(ManualClock(), limits=NO_WINDOWS) as emulator:
        yield emulator


@pytest.fixture
async def bot(emulator: TelegramEmulator) -> AsyncIterator[Bot]:
    async with bot_for(emulator) as bot:
        yield bot


def broken(emulator: TelegramEmulator) -> str:
    """The rules broken so far, which a test then expects to be just one kind of."""
    return "\n".join(emulator.journal.broken)


# what people see


async def test_a_sent_and_edited_message_is_seen_with_its_growth(emulator: TelegramEmulator, bot: Bot) -> None:
    clock = emulator.clock
    assert isinstance(clock, ManualClock)
    chat = emulator.private_chat()
    started = clock.now()
    sent = await bot.send_message(chat, "Hello")
    await clock.advance(2)
    bold = MessageEntity(MessageEntity.BOLD, 0, 5)
    edited = await bot.edit_message_text("Hello there", chat, sent.message_id, entities=[bold])
    (seen,) = emulator.chat(chat).from_bot()
    assert (seen.text, seen.marked("bold")) == ("Hello there", ["Hello"])
    assert [(version.at - started, version.text) for version in seen.versions] == [(0, "Hello"), (2, "Hello there")]
    assert (seen.first_visible, seen.edited_at) == (started, started + 2)
    assert isinstance(edited, Message)
    assert edited.edit_date is not None
    assert [call.method for call in emulator.journal.calls] == ["getMe", "sendMessage", "editMessageText"]
    assert emulator.journal.of("editMessageText")[0].args["entities"] == [{"type": "bold", "offset": 0, "length": 5}]
    assert not emulator.journal.broken


async def test_a_deleted_message_is_no_longer_seen(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    sent = await bot.send_message(chat, "Hello")
    assert await bot.delete_message(chat, sent.message_id)
    assert emulator.chat(chat).messages == ()
    with pytest.raises(BadRequest, match="Message to delete not found"):
        await bot.delete_message(chat, sent.message_id)
    assert not emulator.journal.broken


async def test_the_bot_may_delete_what_others_wrote_only_where_it_is_allowed(
    emulator: TelegramEmulator, bot: Bot
) -> None:
    private, group, administered = (
        emulator.private_chat(),
        emulator.group("Team"),
        emulator.group("Ours", admin=True),
    )
    for allowed in (private, administered):
        assert await bot.delete_message(allowed, emulator.say(allowed, "hi"))
    with pytest.raises(BadRequest, match="Message can't be deleted"):
        await bot.delete_message(group, emulator.say(group, "hi"))
    assert "somebody else" in broken(emulator)


# text and entities


@pytest.mark.parametrize(
    ("text", "description", "rule"),
    [
        ("", "message text is empty", "empty text"),
        (" \n\t ", "text must be non-empty", "white space only"),
        ("x" * 4097, "message is too long", "4097 UTF-16 units"),
        ("😀" * 2049, "message is too long", "4098 UTF-16 units"),
    ],
)
async def test_text_must_not_be_empty_nor_over_4096_utf16_units(
    emulator: TelegramEmulator, bot: Bot, text: str, description: str, rule: str
) -> None:
    with pytest.raises(BadRequest, match=f"(?i){description}"):
        await bot.send_message(emulator.private_chat(), text)
    assert rule in broken(emulator)


@pytest.mark.parametrize("text", ["x", "x" * 4096, "😀" * 2048, "x" * 4096 + "  \n"])
async def test_text_of_1_to_4096_utf16_units_is_accepted(emulator: TelegramEmulator, bot: Bot, text: str) -> None:
    sent = await bot.send_message(emulator.private_chat(), text)
    assert sent.text == text.rstrip()
    assert not emulator.journal.broken


async def test_an_edit_that_is_too_long_is_refused_in_the_words_of_edits(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    sent = await bot.send_message(chat, "Hello")
    with pytest.raises(BadRequest, match="Message_too_long"):
        await bot.edit_message_text("x" * 4097, chat, sent.message_id)
    assert "4097 UTF-16 units" in broken(emulator)


@pytest.mark.parametrize(
    ("entities", "description"),
    [
        ([(MessageEntity.BOLD, 6, 1)], "entity begins after the end of the text at UTF-16 offset 6"),
        ([(MessageEntity.BOLD, 2, 5)], "offset 2 ends after the end of the text at UTF-16 offset 7"),
        ([(MessageEntity.BOLD, 1, 2)], "entity begins in a middle of a UTF-16 symbol"),
        ([(MessageEntity.BOLD, 0, 1)], "entity ends in a middle of a UTF-16 symbol"),
        ([(MessageEntity.BOLD, 0, 0)], "incorrect length 0"),
        ([(MessageEntity.BOLD, -1, 2)], "incorrect offset -1"),
        ([(MessageEntity.BOLD, 0, 4), (MessageEntity.ITALIC, 2, 4)], "offset 2 ends after the end of the text"),
        ([("sparkling", 0, 2)], "can't parse MessageEntity: Unsupported type"),
        ([(MessageEntity.TEXT_LINK, 0, 2)], 'Can\'t find field "url"'),
    ],
)
async def test_entities_out_of_range_or_crossing_are_refused(
    emulator: TelegramEmulator, bot: Bot, entities: list[tuple[str, int, int]], description: str
) -> None:
    wanted = [MessageEntity(kind, offset, length) for kind, offset, length in entities]
    with pytest.raises(BadRequest, match=f"(?i){description}"):
        await bot.send_message(emulator.private_chat(), "😀abcd", entities=wanted)
    assert len(emulator.journal.broken) == 1


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("pre", "bold"), ("code", "italic"), ("bold", "code"), ("blockquote", "blockquote"), ("code", "text_link")],
)
async def test_illegal_nesting_is_noted_and_repaired(
    emulator: TelegramEmulator, bot: Bot, outer: str, inner: str
) -> None:
    chat = emulator.private_chat()
    url = "https://example.com" if inner == "text_link" else None
    entities = [MessageEntity(outer, 0, 6), MessageEntity(inner, 2, 2, url=url)]
    await bot.send_message(chat, "abcdef", entities=entities)
    (seen,) = emulator.chat(chat).from_bot()
    assert [entity.type for entity in seen.entities] == [outer]
    assert f"entity {inner} at 2 inside {outer}" in broken(emulator)


async def test_legal_nesting_is_kept(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    nested = [("expandable_blockquote", 0, 9), ("bold", 0, 6), ("italic", 2, 2), ("code", 7, 2), ("pre", 9, 1)]
    entities = [MessageEntity(kind, offset, length) for kind, offset, length in nested]
    await bot.send_message(chat, "abcdef ghi", entities=entities)
    (seen,) = emulator.chat(chat).from_bot()
    assert [(entity.type, entity.offset, entity.length) for entity in seen.entities] == nested
    assert not emulator.journal.broken


async def test_more_than_100_entities_are_noted_and_the_rest_ignored(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    entities = [MessageEntity(MessageEntity.BOLD, place, 1) for place in range(101)]
    await bot.send_message(chat, "x" * 101, entities=entities[:100])
    assert not emulator.journal.broken
    await bot.send_message(chat, "x" * 101, entities=entities)
    assert "101 entities" in broken(emulator)
    assert len(emulator.chat(chat).from_bot()[1].entities) == 100


async def test_parse_mode_is_noted_unless_the_test_does_not_mind(emulator: TelegramEmulator, bot: Bot) -> None:
    await bot.send_message(emulator.private_chat(), "<b>x</b>", parse_mode="HTML")
    assert "parse_mode HTML" in broken(emulator)
    async with TelegramEmulator(checks=Checks(parse_mode=False)) as lenient, bot_for(lenient) as other:
        await other.send_message(lenient.private_chat(), "<b>x</b>", parse_mode="HTML")
        assert not lenient.journal.broken


async def test_outer_space_and_control_characters_are_removed_and_entities_follow(
    emulator: TelegramEmulator, bot: Bot
) -> None:
    chat = emulator.private_chat()
    text = "\n  a\r\nb\tc \n"
    entities = [MessageEntity(MessageEntity.BOLD, 6, 1), MessageEntity(MessageEntity.ITALIC, 8, 3)]
    await bot.send_message(chat, text, entities=entities)
    (seen,) = emulator.chat(chat).from_bot()
    assert (seen.text, seen.marked("bold"), seen.marked("italic")) == ("a\nb c", ["b"], ["c"])
    assert not emulator.journal.broken


@given(st.text("ab \n\r\t😀文", min_size=1), st.data())
def test_entities_cover_the_same_characters_after_cleaning(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    entity = Entity("bold", utf16_length(text[:start]), utf16_length(text[start:end]))
    cleaned, kept = settle_text(text, [entity], pytest.fail)
    covered = "".join(utf16_slice(cleaned, item.offset, item.length) for item in kept)
    marked = text[start:end].replace("\r", "").replace("\t", " ")
    assert marked.startswith(covered)
    assert not marked[len(covered) :].strip()
    assert cleaned.strip() == text.replace("\r", "").replace("\t", " ").strip()


# edits


async def test_an_edit_that_changes_nothing_is_not_modified(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    keyboard = InlineKeyboardMarkup([[InlineKeyboardButton("Stop", callback_data="s")]])
    sent = await bot.send_message(chat, "Hello", reply_markup=keyboard)
    for text in ("Hello", "Hello  "):  # what the server trims is no change either
        with pytest.raises(BadRequest, match="Message is not modified: specified new message content and reply"):
            await bot.edit_message_text(text, chat, sent.message_id, reply_markup=keyboard)
    with pytest.raises(BadRequest, match="Message is not modified"):
        await bot.edit_message_reply_markup(chat, sent.message_id, reply_markup=keyboard)
    await bot.edit_message_text("Hello", chat, sent.message_id)  # leaving the keyboard out removes it
    (seen,) = emulator.chat(chat).from_bot()
    assert seen.buttons == ()
    assert not emulator.journal.broken


async def test_an_edit_of_what_was_deleted_is_not_found_and_hammering_it_is_noted(
    emulator: TelegramEmulator, bot: Bot
) -> None:
    chat = emulator.private_chat()
    sent = await bot.send_message(chat, "Hello")
    emulator.delete(chat, sent.message_id)
    for _ in range(2):
        with pytest.raises(BadRequest, match="Message to edit not found"):
            await bot.edit_message_text("Hello there", chat, sent.message_id)
    assert not emulator.journal.broken
    with pytest.raises(BadRequest, match="Message to edit not found"):
        await bot.edit_message_text("Hello there", chat, sent.message_id)
    assert "known to be gone" in broken(emulator)


async def test_an_edit_of_what_never_was_or_is_not_the_bots_is_noted(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    with pytest.raises(BadRequest, match="Message to edit not found"):
        await bot.edit_message_text("Hello", chat, 999_999)
    with pytest.raises(BadRequest, match="Message can't be edited"):
        await bot.edit_message_text("Hello", chat, emulator.say(chat, "mine"))
    assert "never existed" in emulator.journal.broken[0]
    assert "not the bot's" in emulator.journal.broken[1]


async def test_a_caption_is_edited_as_a_caption(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    sent = await bot.send_document(chat, b"abc", filename="a.txt", caption="old")
    await bot.edit_message_caption(chat, sent.message_id, caption="new")
    assert emulator.chat(chat).text() == "new"
    assert not emulator.journal.broken
    with pytest.raises(BadRequest, match="There is no text in the message to edit"):
        await bot.edit_message_text("newer", chat, sent.message_id)
    assert "text edit of file" in broken(emulator)


# keyboards


def keyboard(*rows: int, text: str = "b", data: str = "d") -> InlineKeyboardMarkup:
    return InlineKeyboardMarkup([[InlineKeyboardButton(text, callback_data=data)] * count for count in rows])


@pytest.mark.parametrize(
    ("markup", "description"),
    [
        (keyboard(*[8] * 12, 5), "reply markup is too long"),
        (keyboard(9), "REPLY_MARKUP_INVALID"),
        (keyboard(1, data="é" * 33), "BUTTON_DATA_INVALID"),
        (keyboard(1, data=""), "BUTTON_DATA_INVALID"),
        (keyboard(1, text=" "), "Button text must be non-empty"),
        (InlineKeyboardMarkup([[InlineKeyboardButton("b")]]), "Text buttons are unallowed"),
        (InlineKeyboardMarkup([[InlineKeyboardButton("b", url="nowhere")]]), "BUTTON_URL_INVALID"),
    ],
)
async def test_keyboards_beyond_the_limits_are_refused(
    emulator: TelegramEmulator, bot: Bot, markup: InlineKeyboardMarkup, description: str
) -> None:
    with pytest.raises(BadRequest, match=f"(?i){description}"):
        await bot.send_message(emulator.private_chat(), "Hello", reply_markup=markup)
    assert len(emulator.journal.broken) == 1


async def test_keyboards_at_the_limits_are_shown(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    await bot.send_message(chat, "Hello", reply_markup=keyboard(*[8] * 12, 4, data="é" * 32))
    (seen,) = emulator.chat(chat).from_bot()
    assert len(seen.button_texts()) == 100
    assert not emulator.journal.broken


# replies and topics


async def test_a_reply_needs_its_message_unless_it_allows_otherwise(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    asked = emulator.say(chat, "?")
    await bot.send_message(chat, "one", reply_parameters=ReplyParameters(asked))
    emulator.delete(chat, asked)
    with pytest.raises(BadRequest, match="Message to be replied not found"):
        await bot.send_message(chat, "two", reply_parameters=ReplyParameters(asked))
    await bot.send_message(chat, "three", reply_parameters=ReplyParameters(asked, allow_sending_without_reply=True))
    assert [message.reply_to for message in emulator.chat(chat).from_bot()] == [asked, None]
    assert not emulator.journal.broken
    with pytest.raises(BadRequest, match="Message to be replied not found"):
        await bot.send_message(chat, "four", reply_parameters=ReplyParameters(999))
    assert "reply to message 999, which never existed" in broken(emulator)


async def test_a_topic_must_exist_and_the_general_topic_has_no_number(emulator: TelegramEmulator, bot: Bot) -> None:
    forum = emulator.group("Lab", forum=True)
    plans, bugs = emulator.topic(forum, "Plans"), emulator.topic(forum, "Bugs")
    await bot.send_message(forum, "in plans", message_thread_id=plans)
    await bot.send_message(forum, "in general")
    await bot.send_message(forum, "follows", reply_parameters=ReplyParameters(emulator.say(forum, "?", thread_id=bugs)))
    assert [message.thread_id for message in emulator.chat(forum).from_bot()] == [plans, None, bugs]
    emulator.close_topic(forum, bugs)
    with pytest.raises(BadRequest, match="Topic_closed"):
        await bot.send_message(forum, "late", message_thread_id=bugs)
    emulator.delete_topic(forum, plans)
    with pytest.raises(BadRequest, match="Message thread not found"):
        await bot.send_message(forum, "late", message_thread_id=plans)
    assert not emulator.journal.broken
    for chat, thread in ((forum, 1), (emulator.group("Team"), 7), (emulator.private_chat(), 7)):
        with pytest.raises(BadRequest, match="Message thread not found"):
            await bot.send_message(chat, "lost", message_thread_id=thread)
    assert len(emulator.journal.broken) == 3


async def test_a_private_chat_can_have_topics() -> None:
    async with TelegramEmulator(private_topics=True) as emulator, bot_for(emulator) as bot:
        assert bot.bot.has_topics_enabled
        chat = emulator.private_chat()
        topic = emulator.topic(chat, "Recipes")
        sent = await bot.send_message(chat, "in recipes", message_thread_id=topic)
        assert (sent.message_thread_id, sent.is_topic_message) == (topic, True)
        assert not emulator.journal.broken


# files


async def test_files_arrive_with_name_caption_and_content(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    document = await bot.send_document(chat, b"abc", filename="a.txt", caption="see")
    await bot.send_photo(chat, PNG, filename="p.png")
    await bot.send_audio(chat, b"mp3", filename="s.mp3")
    await bot.send_video(chat, b"mp4", filename="v.mp4")
    await bot.send_voice(chat, b"ogg", filename="o.ogg")
    assert document.document is not None
    await bot.send_document(chat, document.document.file_id)  # again, by its id
    seen = emulator.chat(chat).from_bot()
    assert [message.file for message in seen] == [
        "document a.txt",
        "photo p.png",
        "audio s.mp3",
        "video v.mp4",
        "voice o.ogg",
        "document a.txt",
    ]
    assert (seen[0].text, seen[0].content, seen[-1].content) == ("see", b"abc", b"abc")
    assert not emulator.journal.broken


async def test_uploads_beyond_the_limits_are_refused(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    with pytest.raises(NetworkError, match="Request Entity Too Large"):
        await bot.send_document(chat, bytes(200_001))
    with pytest.raises(BadRequest, match="File of size 100040 bytes is too big for a photo"):
        await bot.send_photo(chat, PNG + bytes(100_040 - len(PNG)))
    with pytest.raises(BadRequest, match="Image_process_failed"):
        await bot.send_photo(chat, b"no image")
    with pytest.raises(BadRequest, match="File must be non-empty"):
        await bot.send_document(chat, b"")
    with pytest.raises(BadRequest, match="Message caption is too long"):
        await bot.send_document(chat, b"abc", caption="x" * 1025)
    with pytest.raises(BadRequest, match="Wrong file identifier"):
        await bot.send_document(chat, "no-such-file-id")
    assert len(emulator.journal.broken) == 6
    assert emulator.chat(chat).messages == ()


async def test_an_album_is_several_messages_with_one_group_id(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    await bot.send_media_group(chat, [InputMediaPhoto(PNG, caption="one"), InputMediaPhoto(PNG)])
    first, second = emulator.chat(chat).from_bot()
    assert (first.text, second.text) == ("one", "")
    assert first.album == second.album is not None
    assert not emulator.journal.broken


async def test_an_album_has_2_to_10_items_of_kinds_that_mix(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    for count in (1, 11):
        with pytest.raises(BadRequest, match="Wrong number of items"):
            await bot.send_media_group(chat, [InputMediaDocument(b"abc")] * count)
    with pytest.raises(BadRequest, match="Can't use the media of the specified type in the album"):
        await bot.send_media_group(chat, [InputMediaPhoto(PNG), InputMediaDocument(b"abc")])
    assert len(emulator.journal.broken) == 3


async def test_a_persons_file_is_downloaded_while_its_link_is_fresh(emulator: TelegramEmulator, bot: Bot) -> None:
    clock = emulator.clock
    assert isinstance(clock, ManualClock)
    emulator.send_file(emulator.private_chat(), Upload(b"hello", name="a.txt", mime="text/plain"))
    (update,) = await bot.get_updates()
    assert update.message is not None
    assert update.message.document is not None
    file = await bot.get_file(update.message.document.file_id)
    assert await file.download_as_bytearray() == b"hello"
    await clock.advance(3601)
    with pytest.raises(InvalidToken):  # the SDK's reading of 404
        await file.download_as_bytearray()
    with pytest.raises(BadRequest, match="Invalid file_id"):
        await bot.get_file("nothing")
    assert "unknown file_id" in broken(emulator)


async def test_files_over_20_mb_cannot_be_downloaded(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    for size in (20 * 1024 * 1024, 20 * 1024 * 1024 + 1):
        emulator.send_file(chat, Upload(size=size))
    fits, too_big = [update.message for update in await bot.get_updates()]
    assert fits is not None
    assert too_big is not None
    assert fits.document is not None
    assert too_big.document is not None
    await bot.get_file(fits.document.file_id)
    assert not emulator.journal.broken
    with pytest.raises(BadRequest, match="File is too big"):
        await bot.get_file(too_big.document.file_id)
    assert "download of 20971521 bytes" in broken(emulator)


# rich messages


async def test_rich_messages_can_be_sent_edited_and_drafted_when_the_server_knows_them(
    emulator: TelegramEmulator, bot: Bot
) -> None:
    emulator.rich_messages = True
    chat = emulator.private_chat()
    rich = {"markdown": "| a | b |"}
    draft = {"chat_id": chat, "draft_id": 1, "rich_message": {"markdown": "|"}}
    await bot.do_api_request("sendRichMessageDraft", draft)
    sent = await bot.do_api_request("sendRichMessage", {"chat_id": chat, "rich_message": rich})
    (seen,) = emulator.chat(chat).from_bot()
    assert (seen.text, seen.is_rich, seen.continued_draft) == ("| a | b |", True, True)
    with pytest.warns(UserWarning, match="editMessageText"):
        await bot.do_api_request(
            "editMessageText",
            {"chat_id": chat, "message_id": sent["message_id"], "rich_message": {"html": "<table></table>"}},
        )
    assert emulator.chat(chat).text() == "<table></table>"
    assert not emulator.journal.broken


async def test_rich_messages_are_unknown_methods_on_an_older_server(emulator: TelegramEmulator, bot: Bot) -> None:
    chat = emulator.private_chat()
    for method in ("sendRichMessage", "sendRichMessageDraft"):
        with pytest.raises(EndPointNotFound):
            await bot.do_api_request(method, {"chat_id": chat, "draft_id": 1, "rich_message": {"markdown": "x"}})
    assert emulator.journal.of("sendRichMessage")[0].status == 404
    assert not emulator.journal.broken


@pytest.mark.parametrize(
    "rich",
    [
        {},
        {"markdown": "x", "html": "x"},
        {"markdown": "x" * 32_769},
        {"blocks": [{"type": "paragraph"}] * 501},
        {"blocks": [{"type": "quote", "blocks": [{"type": "quote", "blocks": []}]}] * 251},
    ],
)
async def test_rich_messages_have_one_form_and_limits(
    emulator: TelegramEmulator, bot: Bot, rich: dict[str, object]
) -> None:
    emulator.rich_messages = True
    with pytest.raises(BadRequest, match="Can't parse rich message"):
        await bot.do_api_request("sendRichMessage", {"chat_id": emulator.private_chat(), "rich_message": rich})
    assert "rich message" in broken(emulator)
