"""What people did, read from Telegram's updates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue
from telegram import CallbackQuery, Chat, Message, MessageEntity, Update
from telegram.constants import ChatType

from adapters.telegram.client import Identity
from adapters.telegram.ops import DRAFT_ALIAS, Where
from adapters.telegram.reading import Held, around, held_by, quoted_by, worded, written_in
from channels.commands import is_for_agent, parse_command
from channels.model import Inbound, InboundKind, Place, Press, Sender
from channels.shapes import as_object, as_text

ALBUM_QUIET = 0.6
"""Seconds without another part after which an album is complete."""
THREAD = "thread"
"""In an inbound's `extra`: the topic it was written in, whatever its conversation."""

_NAMED_COMMAND = re.compile(r"(/[A-Za-z0-9_]+)@([A-Za-z0-9_]+)(?!\.\w)")


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the updates of one channel. Of an album, only the part that names the bot says that it is meant."""

    channel: str

    def read(self, update: Update, bot: Identity, now: float) -> Inbound | None:
        """What a person did, or None when it is nothing to answer to."""
        if update.callback_query is not None:
            return self._press(update.callback_query, now)
        if update.message is not None:
            return self._message(update.message, bot, now, InboundKind.MESSAGE)
        if update.edited_message is not None:
            return self._message(update.edited_message, bot, now, InboundKind.EDITED)
        if stopped := update.api_kwargs.get("stopped_message_generation"):
            return self._stopped(stopped, update.update_id, now)
        return None

    # ---------------------------------------------------------------- messages

    def _message(self, message: Message, bot: Identity, now: float, kind: InboundKind) -> Inbound | None:
        sender = _sender_of(message)
        held = held_by(message)
        text = held.words
        if sender is None or not (text.strip() or held.attachments) or message.chat.type == ChatType.CHANNEL:
            return None
        written, entities = written_in(message)
        command = _named_command(written, entities)
        if command is not None and command[2].lower() != bot.username.lower():
            if message.chat.type != ChatType.PRIVATE:
                return None  # it is for another bot
            command = None
        replied = _replied_to(message)
        mentioned = [entity for entity in entities if _names(entity, written, bot)]
        # In groups people type commands without a name; which of several bots they mean, Telegram leaves open.
        is_own_command = text.startswith("/") and parse_command(text) is not None
        is_meant = bool(mentioned or command or is_own_command) or (replied is not None and _is_by(replied, bot))
        if command:
            text = command[1] + text[command.end() :]
        elif mentioned:
            text = worded(written, entities, without=mentioned) or ("" if held.attachments else text)
        album = message.media_group_id
        is_about = (replied is None or not _is_by(replied, bot)) and is_for_agent(text)
        quoted = quoted_by(message, replied) if is_about else Held()
        key = f"m{message.chat.id}:{message.message_id}"
        if kind is InboundKind.EDITED:
            edited = message.edit_date.timestamp() if message.edit_date else 0
            key = f"e{message.chat.id}:{message.message_id}:{edited:.0f}"
        thread = _thread_of(message)
        return Inbound(
            place=self._place(message.chat, thread),
            sender=sender,
            event_key=key,
            kind=kind,
            text=text.strip(),
            received_at=now,
            sent_at=message.date.timestamp(),
            message_id=str(message.message_id),
            attachments=(*held.attachments, *quoted.attachments),
            mentions_bot=is_meant,
            reply_to=str(replied.message_id) if replied is not None else None,
            group=f"album:{album}" if album is not None else None,
            settle=ALBUM_QUIET if album is not None else 0.0,
            quote=quoted.words,
            extra=_extra(thread),
        )

    # ---------------------------------------------------------------- presses and stops

    def _press(self, query: CallbackQuery, now: float) -> Inbound | None:
        press = Press.decode(query.data or "")
        message = query.message
        if press is None or message is None:
            return None
        thread = _thread_of(message) if isinstance(message, Message) else None
        return Inbound(
            place=self._place(message.chat, thread),
            sender=Sender(str(query.from_user.id), query.from_user.full_name, query.from_user.is_bot),
            event_key=f"c{query.id}",
            kind=InboundKind.PRESS,
            text="",
            received_at=now,
            message_id=str(message.message_id),
            reply_to=str(message.message_id),
            press=press,
            extra=_extra(thread),
        )

    def _stopped(self, stopped: JsonValue, update_id: int, now: float) -> Inbound | None:
        """The person pressed the stop control of a draft; only private chats have drafts."""
        chat = as_object(as_object(stopped).get("chat"))
        number = chat.get("id")
        if not isinstance(number, int):
            return None
        topic = as_object(stopped).get("message_thread_id")
        thread = str(topic) if isinstance(topic, int) else None
        draft = as_object(stopped).get("draft_id")
        return Inbound(
            place=Place(self.channel, str(number), thread, private=True),
            sender=Sender(str(number), as_text(chat.get("first_name"))),
            event_key=f"s{number}:{draft}:{update_id}",
            kind=InboundKind.STOPPED,
            text="",
            received_at=now,
            message_id=f"{DRAFT_ALIAS}{draft}" if draft else "",
            extra=_extra(thread),
        )

    def _place(self, chat: Chat, thread: str | None) -> Place:
        return Place(self.channel, str(chat.id), thread, private=chat.type == ChatType.PRIVATE)


def migration_of(update: Update) -> tuple[str, str] | None:
    """The old and the new id of a group that became a supergroup."""
    message = update.message
    if message is None:
        return None
    if message.migrate_to_chat_id is not None:
        return str(message.chat.id), str(message.migrate_to_chat_id)
    if message.migrate_from_chat_id is not None:
        return str(message.migrate_from_chat_id), str(message.chat.id)
    return None


def where_of(inbound: Inbound) -> Where:
    """Where an answer to the inbound goes: the topic it came from, also when a whole chat is one conversation."""
    thread = inbound.extra.get(THREAD)
    return Where(inbound.place.chat, thread if isinstance(thread, str) else inbound.place.thread)


def _extra(thread: str | None) -> Mapping[str, JsonValue]:
    return {} if thread is None else {THREAD: thread}


def _sender_of(message: Message) -> Sender | None:
    if message.is_automatic_forward:
        return None  # a post of the group's channel, which nobody wrote here
    if message.sender_chat is not None:  # an anonymous admin, or somebody who writes as a channel
        return Sender(str(message.sender_chat.id), message.sender_chat.title or "")
    user = message.from_user
    return None if user is None else Sender(str(user.id), user.full_name, user.is_bot)


def _thread_of(message: Message) -> str | None:
    """The topic. A reply in a group without topics carries a thread id too, which is none."""
    return str(message.message_thread_id) if message.is_topic_message and message.message_thread_id else None


def _replied_to(message: Message) -> Message | None:
    """The message that the person replied to. Of every message in a topic Telegram says that it replies to the one
    which opened the topic."""
    replied = message.reply_to_message
    if replied is None or (message.is_topic_message and replied.message_id == message.message_thread_id):
        return None
    return replied


def _is_by(message: Message, bot: Identity) -> bool:
    return message.from_user is not None and message.from_user.id == bot.id


def _named_command(text: str, entities: Sequence[MessageEntity]) -> re.Match[str] | None:
    """A command with the name of a bot at its end. So Telegram marks the beginning of `/list@example.com`, too."""
    found = _NAMED_COMMAND.match(text)
    marked = [entity for entity in entities if entity.type == MessageEntity.BOT_COMMAND and entity.offset == 0]
    return found if found is not None and any(entity.length == found.end() for entity in marked) else None


def _names(entity: MessageEntity, text: str, bot: Identity) -> bool:
    """Whether the entity is a mention of the bot."""
    if entity.type == MessageEntity.TEXT_MENTION:
        return entity.user is not None and entity.user.id == bot.id
    return entity.type == MessageEntity.MENTION and around(text, entity)[1].lower() == f"@{bot.username}".lower()
