"""What exists: people, chats, topics, messages, files; and how the vendor's server describes them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath

from channels.clock import Clock
from tests.emulators.telegram.errors import ApiError, bad_request, forbidden, upgraded
from tests.emulators.telegram.keyboard import Keyboard, keyboard_json
from tests.emulators.telegram.limits import Limits
from tests.emulators.telegram.text import Entity, utf16_slice
from tests.emulators.telegram.wire import Json, Params

# How often a client may run into a wall it was told of: answers under way at the same time learn of it one by one.
_EDITS_OF_A_GONE_MESSAGE = 2
_CALLS_TO_A_FORBIDDEN_CHAT = 3


class ChatType(StrEnum):
    PRIVATE = "private"
    GROUP = "group"
    SUPERGROUP = "supergroup"


class MediaKind(StrEnum):
    PHOTO = "photo"
    DOCUMENT = "document"
    AUDIO = "audio"
    VIDEO = "video"
    VOICE = "voice"


@dataclass(frozen=True, slots=True)
class Person:
    id: int
    first_name: str
    username: str | None = None
    is_bot: bool = False

    def to_json(self) -> Json:
        shown: Json = {"id": self.id, "is_bot": self.is_bot, "first_name": self.first_name}
        if self.username:
            shown["username"] = self.username
        if not self.is_bot:
            shown["language_code"] = "en"
        return shown


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file on the server; `size` may be larger than `content` when a test only pretends a big file."""

    id: str
    unique_id: str
    name: str
    mime: str
    content: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Media:
    kind: MediaKind
    file: StoredFile

    def to_json(self) -> object:
        shown: Json = {"file_id": self.file.id, "file_unique_id": self.file.unique_id, "file_size": self.file.size}
        if self.kind is MediaKind.PHOTO:
            small = {**shown, "file_id": f"{self.file.id}-s", "file_unique_id": f"{self.file.unique_id}s"}
            return [
                {**small, "width": 90, "height": 67, "file_size": min(self.file.size, 1200)},
                {**shown, "width": 1280, "height": 960},
            ]
        shown["mime_type"] = self.file.mime
        if self.kind is not MediaKind.VOICE:
            shown["file_name"] = self.file.name
        if self.kind is not MediaKind.DOCUMENT:
            shown["duration"] = 3
        if self.kind is MediaKind.VIDEO:
            shown |= {"width": 640, "height": 480}
        return shown


@dataclass(frozen=True, slots=True)
class Version:
    """What a message or draft said from moment `at` on."""

    at: float
    text: str


@dataclass(slots=True)
class Message:
    """A message; `text` is the caption when it carries media."""

    chat_id: int
    id: int
    at: float
    sender: Person
    text: str = ""
    entities: tuple[Entity, ...] = ()
    keyboard: Keyboard = ()
    thread_id: int | None = None  # the topic it stands in
    reply_to: int | None = None
    media: Media | None = None
    album: str | None = None
    rich: Json | None = None
    service: Json | None = None
    shared: Json | None = None  # a sticker, a place, a contact, a poll, as the API has it
    link_preview: Json | None = None
    edited_at: float | None = None
    deleted: bool = False
    edits_refused: int = 0  # edits tried after it was gone
    continued_draft: bool = False  # it took the place of a live draft that it begins with
    reactions: tuple[str, ...] = ()  # the bot's
    versions: list[Version] = field(default_factory=list)


@dataclass(slots=True)
class Topic:
    id: int
    name: str
    closed: bool = False
    deleted: bool = False


@dataclass(slots=True)
class Chat:
    id: int
    type: ChatType
    title: str
    members: list[Person]
    forum: bool = False  # has topics; a private chat can have them too
    bot_status: str = "member"  # member | administrator | kicked
    blocked: bool = False
    refused: int = 0  # calls refused since the bot was shut out
    migrated_to: int | None = None
    topics: dict[int, Topic] = field(default_factory=dict)
    messages: dict[int, Message] = field(default_factory=dict)
    action: str = ""
    action_until: float = 0.0

    @property
    def is_private(self) -> bool:
        return self.type is ChatType.PRIVATE

    def to_json(self) -> Json:
        shown: Json = {"id": self.id, "type": self.type.value}
        if self.is_private:
            shown["first_name"] = self.title
            if self.members[0].username:
                shown["username"] = self.members[0].username
        else:
            shown["title"] = self.title
            if self.forum:
                shown["is_forum"] = True
        return shown


class World:
    """Everything that exists on this server, looked up with the vendor's errors."""

    def __init__(self, clock: Clock, limits: Limits, bot: Person, *, private_topics: bool, privacy_mode: bool) -> None:
        self._clock = clock
        self._limits = limits
        self.bot = bot
        self.private_topics = private_topics
        self.privacy_mode = privacy_mode
        self.people: dict[int, Person] = {}
        self.chats: dict[int, Chat] = {}
        self.files: dict[str, StoredFile] = {}
        self.links: dict[str, tuple[StoredFile, float]] = {}  # download path -> file, moment it ends
        self._numbers = itertools.count(1)
        # Private chats and basic groups number their messages in one row per account; a supergroup has its own row,
        # and its message 1 is always its creation: the number the General topic goes by.
        self._shared_ids = itertools.count(101)
        self._own_ids: dict[int, itertools.count[int]] = {}

    def number(self) -> int:
        """The next number for ids whose shape does not matter."""
        return next(self._numbers)

    # looking things up, as the vendor would

    def chat_of(self, params: Params) -> Chat:
        """The chat a call names, if the bot may write there. Raises 400 or 403."""
        chat = self.known_chat(params)
        if chat.migrated_to is not None:
            raise upgraded(chat.migrated_to)
        if chat.blocked:
            raise self._shut_out(chat, "bot was blocked by the user")
        if chat.bot_status == "kicked":
            raise self._shut_out(chat, f"bot was kicked from the {chat.type} chat")
        chat.refused = 0
        return chat

    def _shut_out(self, chat: Chat, reason: str) -> ApiError:
        chat.refused += 1
        again = chat.refused > _CALLS_TO_A_FORBIDDEN_CHAT
        return forbidden(reason, rule=f"chat {chat.id}, known to be forbidden, called again" if again else None)

    def known_chat(self, params: Params) -> Chat:
        if not params.has("chat_id"):
            raise bad_request("chat_id is empty", rule="chat_id is missing")
        name = params.text("chat_id")
        if not name.removeprefix("-").isdecimal() or int(name) not in self.chats:
            raise bad_request("chat not found", rule=f"chat {name} does not exist")
        return self.chats[int(name)]

    def thread_for(self, chat: Chat, params: Params, reply_to: Message | None = None) -> int | None:
        """The topic a call writes to; a reply without one follows the message it answers. Raises 400."""
        wanted = params.integer("message_thread_id")
        if not wanted:
            return reply_to.thread_id if reply_to is not None else None
        topic = chat.topics.get(wanted)
        if topic is None:
            raise bad_request("message thread not found", rule=f"topic {wanted} does not exist in chat {chat.id}")
        if topic.deleted:
            raise bad_request("message thread not found")
        if topic.closed and chat.bot_status != "administrator":
            raise bad_request("TOPIC_CLOSED")
        return wanted

    def reply_target(self, chat: Chat, params: Params) -> Message | None:
        """The message that `reply_parameters` names. Raises 400 when it is not there, unless the call allows that."""
        reply = params.json_object("reply_parameters") or {}
        wanted = reply.get("message_id") or params.integer("reply_to_message_id")
        if not wanted:
            return None
        if reply.get("chat_id") not in (None, chat.id):
            raise bad_request("message to be replied not found", rule="reply to a message of another chat")
        message = chat.messages.get(wanted) if isinstance(wanted, int) else None
        if message is not None and not message.deleted:
            return message
        if reply.get("allow_sending_without_reply") is True or params.flag("allow_sending_without_reply"):
            return None
        never = message is None
        raise bad_request(
            "message to be replied not found", rule=f"reply to message {wanted}, which never existed" if never else None
        )

    # changing things

    def next_message_id(self, chat: Chat) -> int:
        if chat.type is ChatType.SUPERGROUP:
            return next(self._own_ids.setdefault(chat.id, itertools.count(2)))
        return next(self._shared_ids)

    def post(
        self,
        chat: Chat,
        sender: Person,
        text: str = "",
        *,
        entities: Sequence[Entity] = (),
        keyboard: Keyboard = (),
        thread_id: int | None = None,
        reply_to: Message | None = None,
        media: Media | None = None,
        album: str | None = None,
        rich: Json | None = None,
        service: Json | None = None,
        shared: Json | None = None,
        link_preview: Json | None = None,
    ) -> Message:
        """Put a new message into a chat."""
        now = self._clock.now()
        message = Message(
            chat_id=chat.id,
            id=self.next_message_id(chat),
            at=now,
            sender=sender,
            text=text,
            entities=tuple(entities),
            keyboard=keyboard,
            thread_id=thread_id,
            reply_to=None if reply_to is None else reply_to.id,
            media=media,
            album=album,
            rich=rich,
            service=service,
            shared=shared,
            link_preview=link_preview,
            versions=[Version(now, text)],
        )
        chat.messages[message.id] = message
        if sender == self.bot:
            chat.action = ""
        return message

    def store(self, name: str, mime: str, content: bytes, size: int | None = None) -> StoredFile:
        number = self.number()
        file = StoredFile(
            f"AgACAgIAAxkBAAM{number:06d}", f"AQAD{number:06d}", name, mime, content, size or len(content)
        )
        self.files[file.id] = file
        self.files[f"{file.id}-s"] = file
        return file

    def link(self, file: StoredFile) -> str:
        """A download path for the file, good for an hour."""
        path = f"{file.mime.partition('/')[0]}/file_{file.unique_id}{PurePath(file.name).suffix}"
        self.links[path] = (file, self._clock.now() + self._limits.file_link_seconds)
        return path

    def linked(self, path: str) -> StoredFile | None:
        file, until = self.links.get(path, (None, 0.0))
        return file if self._clock.now() < until else None

    def bot_sees(self, chat: Chat, message: Message) -> bool:
        """Privacy mode: in a group only commands, mentions, replies to the bot and service messages reach it."""
        if chat.bot_status == "kicked" or chat.blocked:
            return False
        if chat.is_private or not self.privacy_mode or chat.bot_status == "administrator" or message.service:
            return True
        target = chat.messages.get(message.reply_to or 0)
        if target is not None and target.sender == self.bot:
            return True
        return any(self._addresses_bot(message, entity) for entity in message.entities)

    def _addresses_bot(self, message: Message, entity: Entity) -> bool:
        words = utf16_slice(message.text, entity.offset, entity.length).lower()
        name = f"@{self.bot.username}".lower()
        if entity.type == "mention":
            return words == name
        if entity.type == "bot_command":
            return "@" not in words or words.endswith(name)
        user = entity.details.get("user")
        return entity.type == "text_mention" and isinstance(user, dict) and user.get("id") == self.bot.id

    # describing things

    def message_json(self, message: Message, *, nested: bool = False) -> Json:
        chat = self.chats[message.chat_id]
        shown: Json = {
            "message_id": message.id,
            "from": message.sender.to_json(),
            "chat": chat.to_json(),
            "date": int(message.at),
        }
        if message.edited_at is not None:
            shown["edit_date"] = int(message.edited_at)
        shown |= self._place_json(chat, message)
        shown |= self._content_json(message)
        if not nested:
            answered = self._answered(chat, message)
            if answered is not None:
                shown["reply_to_message"] = self.message_json(answered, nested=True)
        if message.keyboard:
            shown["reply_markup"] = keyboard_json(message.keyboard)
        return shown

    def _place_json(self, chat: Chat, message: Message) -> Json:
        if message.thread_id is not None:
            return {"message_thread_id": message.thread_id, "is_topic_message": True}
        if chat.type is ChatType.SUPERGROUP and message.reply_to is not None:
            # A reply outside topics carries the number of its reply thread: an id that is no topic.
            root = message
            while root.reply_to is not None and root.reply_to in chat.messages:
                root = chat.messages[root.reply_to]
            return {"message_thread_id": root.id}
        return {}

    def _answered(self, chat: Chat, message: Message) -> Message | None:
        if message.reply_to is not None:
            return chat.messages.get(message.reply_to)
        # The vendor's server says of any message in a forum topic that it answers the one that opened the topic.
        if message.thread_id is not None and not chat.is_private and message.thread_id != message.id:
            return chat.messages.get(message.thread_id)
        return None

    def _content_json(self, message: Message) -> Json:
        if message.service is not None:
            return message.service
        if message.rich is not None:
            return {"rich_message": message.rich}
        shown: Json = dict(message.shared or {})
        text_field, entities_field = "text", "entities"
        if message.media is not None:
            shown[message.media.kind.value] = message.media.to_json()
            text_field, entities_field = "caption", "caption_entities"
        if message.text:
            shown[text_field] = message.text
        if message.entities:
            shown[entities_field] = [entity.to_json() for entity in message.entities]
        if message.album is not None:
            shown["media_group_id"] = message.album
        if message.link_preview is not None:
            shown["link_preview_options"] = message.link_preview
        return shown


def to_edit(chat: Chat, message_id: int, bot: Person) -> Message:
    """The bot's message to be edited. Raises 400, with a broken rule when the client should have known better."""
    message = chat.messages.get(message_id)
    if message is None:
        raise _not_found(f"edit of message {message_id} of chat {chat.id}, which never existed")
    if message.deleted:
        message.edits_refused += 1
        again = message.edits_refused > _EDITS_OF_A_GONE_MESSAGE
        raise _not_found(f"edit of message {message_id}, known to be gone, tried again" if again else None)
    if message.sender != bot or message.service is not None:
        raise bad_request("message can't be edited", rule=f"edit of message {message_id}, which is not the bot's")
    return message


def _not_found(rule: str | None) -> ApiError:
    return bad_request("message to edit not found", rule=rule)
