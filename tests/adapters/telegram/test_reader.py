"""Updates as they are read: who wrote, where, and whether it is for the bot."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from telegram import Update

from adapters.telegram.client import Identity
from adapters.telegram.inbound import Reader, migration_of, where_of
from adapters.telegram.ops import Where
from channels.model import Inbound, InboundKind
from tests.emulators.telegram import Entity
from tests.emulators.telegram.text import detect_entities

BOT = Identity(9, "bridge_bot", "Bridge", False)
GROUP = {"id": -100, "type": "supergroup", "title": "Team"}
ANN = {"id": 5, "is_bot": False, "first_name": "Ann", "last_name": "Lee"}


def message(text: str = "hi", **fields: object) -> dict[str, object]:
    entities = [entity.to_json() for entity in detect_entities(text)]
    return {"message_id": 3, "date": 1, "chat": GROUP, "from": ANN, "text": text, "entities": entities, **fields}


def bare() -> dict[str, object]:
    return {key: value for key, value in message().items() if key not in ("text", "entities")}


def read(payload: Mapping[str, object], kind: str = "message") -> Inbound | None:
    return Reader("tg").read(update(payload, kind), BOT, 77.0)


def update(payload: Mapping[str, object], kind: str = "message") -> Update:
    return Update.de_json({"update_id": 1, kind: dict(payload)}, None)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("@bridge_bot hi", "hi"),
        ("@Bridge_Bot, hi", "hi"),
        ("@bridge_bot: hi", "hi"),
        ("hi @bridge_bot", "hi"),
        ("hi @bridge_bot there", "hi there"),
        ("hi @bridge_bot, there", "hi, there"),
        ("😀 @bridge_bot 日本 @bridge_bot?", "😀 日本?"),
        ("line\n@bridge_bot\nline", "line\n\nline"),
        ("@bridge_bot", "@bridge_bot"),
        ("/new@bridge_bot now", "/new now"),
    ],
)
def test_the_bots_name_is_taken_out_of_the_text(text: str, rest: str) -> None:
    inbound = read(message(text))
    assert inbound is not None
    assert (inbound.text, inbound.mentions_bot) == (rest, True)


def test_other_names_stay_and_are_no_mention() -> None:
    inbound = read(message("ask @other_bot or @bridge_bot_two"))
    assert inbound is not None
    assert (inbound.text, inbound.mentions_bot) == ("ask @other_bot or @bridge_bot_two", False)
    assert read(message("/new@other_bot")) is None


PRIVATE = {"id": 5, "type": "private", "first_name": "Ann"}


@pytest.mark.parametrize("chat", [GROUP, PRIVATE])
@pytest.mark.parametrize("text", ["/list@example.com bounces, why?", "/srv@host/data is full", "/tmp/a@b is full"])
def test_what_only_looks_like_a_command_for_another_bot_is_a_question(text: str, chat: dict[str, object]) -> None:
    inbound = read(message(text, chat=chat))
    assert inbound is not None
    assert inbound.text == text


@pytest.mark.parametrize("text", ["/list@example", "/list@example, please", "/list@other_bot."])
def test_a_command_for_another_bot_is_left_to_it_in_a_group_only(text: str) -> None:
    assert read(message(text)) is None
    private = read(message(text, chat=PRIVATE))
    assert private is not None
    assert private.text == text


def link(offset: int, length: int, url: str = "https://example.com/a") -> dict[str, object]:
    return {"type": "text_link", "offset": offset, "length": length, "url": url}


@pytest.mark.parametrize(
    ("text", "entities", "told"),
    [
        ("Summarise this article", [link(10, 12)], "Summarise [this article](https://example.com/a)"),
        ("😀 one and two", [link(3, 3), link(11, 3, "tg://b")], "😀 [one](https://example.com/a) and [two](tg://b)"),
        ("see https://example.com/a", [link(4, 21)], "see https://example.com/a"),
        (
            "@bridge_bot, is this 😀 right @bridge_bot?",
            [
                {"type": "mention", "offset": 0, "length": 11},
                link(16, 7),
                {"type": "bold", "offset": 16, "length": 4},
                {"type": "mention", "offset": 30, "length": 11},
            ],
            "is [this 😀](https://example.com/a) right?",
        ),
        (
            "/new@bridge_bot read this",
            [{"type": "bot_command", "offset": 0, "length": 15}, link(21, 4)],
            "/new read [this](https://example.com/a)",
        ),
    ],
)
@pytest.mark.parametrize("forwarded", [False, True])
@pytest.mark.parametrize("is_caption", [False, True])
def test_the_address_of_a_link_is_told(
    text: str, entities: list[object], told: str, forwarded: bool, is_caption: bool
) -> None:
    origin = {"type": "channel", "date": 1, "chat": {"id": -1, "type": "channel"}, "message_id": 5}
    fields: dict[str, object] = {"forward_origin": origin} if forwarded else {}
    names = ("caption", "caption_entities") if is_caption else ("text", "entities")
    inbound = read({**bare(), **fields, **dict(zip(names, (text, entities), strict=True))})
    assert inbound is not None
    assert inbound.text == told


@pytest.mark.parametrize(
    ("text", "is_meant"),
    [
        ("/stop", True),
        ("/new what is it?", True),
        ("/help me", False),
        ("/weather", False),
        ("!stop", False),
        ("what is /help?", False),
    ],
)
def test_a_command_of_the_bridge_needs_no_name_in_a_group_and_anything_else_does(text: str, is_meant: bool) -> None:
    inbound = read(message(text))
    assert inbound is not None
    assert (inbound.text, inbound.mentions_bot) == (text, is_meant)


def test_a_sender_is_who_wrote_also_as_an_anonymous_admin() -> None:
    plain, anonymous = read(message()), read(message(sender_chat=GROUP))
    assert plain is not None
    assert anonymous is not None
    assert (plain.sender.id, plain.sender.name, plain.place.chat) == ("5", "Ann Lee", "-100")
    assert (anonymous.sender.id, anonymous.sender.name, anonymous.sender.is_bot) == ("-100", "Team", False)
    assert read(message(is_automatic_forward=True, sender_chat={"id": -7, "type": "channel"})) is None


def test_a_thread_id_counts_only_in_a_topic() -> None:
    in_topic, in_group = (
        read(message(message_thread_id=8, is_topic_message=True)),
        read(message(message_thread_id=8)),
    )
    assert in_topic is not None
    assert in_group is not None
    assert (in_topic.place.thread, where_of(in_topic)) == ("8", Where("-100", "8"))
    assert (in_group.place.thread, where_of(in_group)) == (None, Where("-100"))


def test_the_message_that_opened_a_topic_is_not_what_somebody_replied_to() -> None:
    opening = {**message(message_id=8), "from": {"id": 9, "is_bot": True, "first_name": "Bridge"}}
    topic = {"message_thread_id": 8, "is_topic_message": True}
    in_topic = read({**message(reply_to_message=opening), **topic})
    reply = read({**message(reply_to_message={**opening, "message_id": 20}), **topic})
    assert in_topic is not None
    assert reply is not None
    assert (in_topic.reply_to, in_topic.mentions_bot) == (None, False)
    assert (reply.reply_to, reply.mentions_bot) == ("20", True)


STICKER = {"file_id": "s", "file_unique_id": "s", "width": 1, "height": 1, "is_animated": False, "is_video": False}
PLACE = {"latitude": 52.5, "longitude": 13.4}
POLL = {
    **{"id": "1", "question": "Lunch?", "type": "regular"},
    "options": [{"text": text, "voter_count": 0, "persistent_id": text} for text in ("Pizza", "Soup")],
    **{"total_voter_count": 0, "is_closed": False, "is_anonymous": True, "allows_multiple_answers": False},
    **{"allows_revoting": False, "members_only": False},
}
CHECKLIST = {"title": "Trip", "tasks": [{"id": 1, "text": "tickets"}, {"id": 2, "text": "hotel"}]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"sticker": {**STICKER, "type": "regular", "emoji": "👍"}}, "[Sticker: 👍]"),
        ({"sticker": {**STICKER, "type": "regular"}}, "[Sticker]"),
        ({"location": PLACE}, "[Location: 52.5, 13.4]"),
        (
            {"location": PLACE, "venue": {"location": PLACE, "title": "Café", "address": "Here 1"}},
            "[Location: Café, Here 1, 52.5, 13.4]",
        ),
        ({"contact": {"phone_number": "+49 1", "first_name": "Bob"}}, "[Shared contact: Bob, +49 1]"),
        ({"poll": POLL}, "[Poll: Lunch?, Pizza, Soup]"),
        ({"checklist": CHECKLIST}, "[Checklist: Trip, tickets, hotel]"),
        ({"dice": {"emoji": "🎲", "value": 4}}, "[Dice: 🎲, 4]"),
        ({"game": {"title": "Chess", "description": "", "photo": []}}, "[Game: Chess]"),
        ({"story": {"chat": GROUP, "id": 1}}, "[Story]"),
    ],
)
def test_what_is_neither_text_nor_file_is_said_in_words(content: dict[str, object], said: str) -> None:
    alone = read({**bare(), **content})
    replied = read(message("@bridge_bot what is this?", reply_to_message={**bare(), **content}))
    assert alone is not None
    assert replied is not None
    assert (alone.text, alone.quote, replied.quote) == (said, "", said)


FROM_ANN = {**message("die Katze sitzt auf dem Dach"), "message_id": 2}
DOCUMENT = {"file_id": "f", "file_unique_id": "u", "file_name": "plan.pdf", "mime_type": "application/pdf"}
ELSEWHERE = {"origin": {"type": "hidden_user", "sender_user_name": "Bob", "date": 1}, "document": DOCUMENT}


@pytest.mark.parametrize(
    ("fields", "quote", "files"),
    [
        ({}, "", []),
        ({"reply_to_message": FROM_ANN}, "die Katze sitzt auf dem Dach", []),
        ({"reply_to_message": FROM_ANN, "quote": {"text": "Katze", "position": 4, "is_manual": True}}, "Katze", []),
        ({"reply_to_message": {**FROM_ANN, "text": None, "document": DOCUMENT}}, "[plan.pdf]", ["plan.pdf"]),
        (
            {"reply_to_message": {**FROM_ANN, "text": None, "document": DOCUMENT, "caption": "the plan"}},
            "the plan",
            ["plan.pdf"],
        ),
        ({"reply_to_message": {**FROM_ANN, "from": {"id": 9, "is_bot": True, "first_name": "Bridge"}}}, "", []),
        (
            {"reply_to_message": {**FROM_ANN, "from": {"id": 8, "is_bot": True, "first_name": "Other"}}},
            FROM_ANN["text"],
            [],
        ),
        ({"external_reply": ELSEWHERE}, "[plan.pdf]", ["plan.pdf"]),
        ({"external_reply": ELSEWHERE, "quote": {"text": "page 3", "position": 0}}, "page 3", ["plan.pdf"]),
    ],
)
def test_what_a_question_replies_to_comes_with_it_unless_the_bot_wrote_it(
    fields: dict[str, object], quote: str, files: list[str]
) -> None:
    inbound = read(message("@bridge_bot translate this", **fields))
    assert inbound is not None
    assert (inbound.text, inbound.quote) == ("translate this", quote)
    assert [file.name for file in inbound.attachments] == files


@pytest.mark.parametrize(
    ("quote", "told"),
    [
        (None, "😀 read [this article](https://example.com/a) today"),
        (("read this article", 3), "read [this article](https://example.com/a)"),
        (("article today", 13), "[article](https://example.com/a) today"),
        (("today", 21), "today"),
        (("this article", 2), "this article"),  # the place is wrong
        (("this article", 1), "this article"),  # it is within a character
        (("this article", 900), "this article"),
    ],
)
def test_the_address_of_a_link_in_a_quote_is_told(quote: tuple[str, int] | None, told: str) -> None:
    replied = {**FROM_ANN, "text": "😀 read this article today", "entities": [link(8, 12)]}
    marked = {} if quote is None else {"quote": {"text": quote[0], "position": quote[1]}}
    inbound = read(message("@bridge_bot summarise", reply_to_message=replied, **marked))
    assert inbound is not None
    assert inbound.quote == told


def test_every_part_of_an_album_brings_what_it_replies_to() -> None:
    part = {**bare(), "media_group_id": "1", "document": DOCUMENT, "reply_to_message": FROM_ANN}
    first, second = read({**part, "caption": "@bridge_bot"}), read(part)
    assert first is not None
    assert second is not None
    assert (first.quote, second.quote) == (FROM_ANN["text"], FROM_ANN["text"])


def test_keys_are_what_a_redelivery_repeats() -> None:
    first, again = read(message()), read(message())
    edited = read(message(edit_date=50), "edited_message")
    later = read(message(edit_date=60), "edited_message")
    assert first is not None
    assert again is not None
    assert edited is not None
    assert later is not None
    assert first.event_key == again.event_key
    assert len({first.event_key, edited.event_key, later.event_key}) == 3
    assert (first.kind, edited.kind) == (InboundKind.MESSAGE, InboundKind.EDITED)


def test_a_press_carries_its_turn_and_one_that_is_not_ours_is_nothing() -> None:
    ours, other = (
        read({"id": "1", "from": ANN, "message": message(), "chat_instance": "x", "data": data}, "callback_query")
        for data in (f"s:{'a' * 32}:", "something else")
    )
    assert ours is not None
    assert ours.press is not None
    assert (ours.press.turn, ours.reply_to, ours.event_key) == ("a" * 32, "3", "c1")
    assert other is None


def test_a_stopped_draft_names_its_place() -> None:
    chat = {"id": 5, "type": "private", "first_name": "Ann"}
    inbound = read({"chat": chat, "draft_id": "42", "message_thread_id": 8}, "stopped_message_generation")
    assert inbound is not None
    assert (inbound.kind, inbound.place.chat, inbound.place.thread) == (InboundKind.STOPPED, "5", "8")
    assert inbound.place.private


def test_service_messages_say_nothing_but_a_move_is_noticed() -> None:
    quiet = bare()
    assert read({**quiet, "new_chat_title": "New"}) is None
    assert migration_of(update({**quiet, "migrate_to_chat_id": -200})) == ("-100", "-200")
    assert migration_of(update({**quiet, "migrate_from_chat_id": -50})) == ("-50", "-100")
    assert migration_of(update(message())) is None


def test_of_an_album_the_part_that_names_the_bot_says_so() -> None:
    named, other = (read(message(text, media_group_id="g")) for text in ("@bridge_bot look", "and this"))
    assert named is not None
    assert other is not None
    assert (named.mentions_bot, other.mentions_bot) == (True, False)
    assert named.group == other.group == "album:g"


def test_entities_are_counted_in_utf16() -> None:
    text = "😀😀 @bridge_bot hi"
    entity = Entity("mention", 5, 11)
    inbound = read({**message(text), "entities": [entity.to_json()]})
    assert inbound is not None
    assert inbound.text == "😀😀 hi"
