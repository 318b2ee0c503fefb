"""The people, chats, messages and files of the little tenant that the emulator serves."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from channels.clock import Clock
from tests.emulators.feishu.refusals import Json


class Ids:
    """Random ids in the vendor's forms; different in every emulator, so that no id is ever used twice by accident."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def hex(self, prefix: str = "", length: int = 32) -> str:
        return f"{prefix}{self._random.getrandbits(4 * length):0{length}x}"

    def digits(self, length: int = 19) -> str:
        return "7" + "".join(self._random.choices("0123456789", k=length - 1))

    def choice(self, count: int) -> int:
        return self._random.randrange(count)


@dataclass(slots=True)
class Person:
    """A user of the tenant, or the bot (which has an open_id too)."""

    name: str
    open_id: str
    union_id: str
    user_id: str
    is_bot: bool = False
    available: bool = True  # within the app's availability range

    def ids(self) -> Json:
        return {"open_id": self.open_id, "union_id": self.union_id, "user_id": self.user_id}


@dataclass(slots=True)
class Chat:
    """`kind` is p2p, group, or topic (a group in which every message opens a topic)."""

    chat_id: str
    name: str
    kind: str
    members: set[str] = field(default_factory=set)  # open_ids of people
    bot_in: bool = True
    has_topics: bool = True  # messages can be answered in a topic


@dataclass(frozen=True, slots=True)
class Version:
    """What a message said from a time on."""

    at: float
    text: str


@dataclass(slots=True)
class Reaction:
    reaction_id: str
    emoji: str
    operator: str  # a name; the bot's own reactions carry the bot's
    by_bot: bool
    at: float


@dataclass(slots=True)
class Message:
    """One message as stored; `content` is the JSON string of the API."""

    message_id: str
    chat_id: str
    sender: Person
    msg_type: str
    content: str
    created: float
    updated: float
    root_id: str = ""
    parent_id: str = ""
    thread_id: str = ""
    mentions: list[Json] = field(default_factory=list)
    card_id: str = ""
    edits: int = 0
    gone: str = ""  # "recalled" or "deleted"
    reactions: list[Reaction] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    children: list[str] = field(default_factory=list)  # of a merged forward


@dataclass(frozen=True, slots=True)
class Blob:
    """An uploaded file or picture."""

    key: str
    kind: str  # image, or a file_type of the upload API
    name: str
    data: bytes
    by_bot: bool


class World:
    """Everything that exists, and look-ups in it."""

    def __init__(self, clock: Clock, *, app_id: str, bot_name: str, seed: int | None) -> None:
        self.clock = clock
        self.app_id = app_id
        self.ids = Ids(seed)
        self.tenant_key = self.ids.hex(length=16)
        self.audited: set[str] = set()  # what no message that is sent or changed may contain
        self.people: dict[str, Person] = {}
        self.chats: dict[str, Chat] = {}
        self.messages: dict[str, Message] = {}
        self.blobs: dict[str, Blob] = {}
        self.bot = self._new_person(bot_name)
        self.bot.is_bot = True

    def _new_person(self, name: str) -> Person:
        ids = self.ids
        return Person(name, ids.hex("ou_"), ids.hex("on_"), ids.hex(length=8))

    def add_person(self, name: str) -> Person:
        person = self._new_person(name)
        self.people[person.open_id] = person
        return person

    def person(self, who: Person | str) -> Person:
        """The person with a name or an id; a new name makes a new person."""
        if isinstance(who, Person):
            return who
        for person in (*self.people.values(), self.bot):
            if who in (person.name, person.open_id, person.union_id, person.user_id):
                return person
        if who.startswith(("ou_", "on_")):
            raise KeyError(f"nobody has the id {who}")
        return self.add_person(who)

    def add_chat(
        self, name: str, kind: str, members: set[str], *, bot_in: bool = True, has_topics: bool = True
    ) -> Chat:
        chat = Chat(self.ids.hex("oc_"), name, kind, members, bot_in, has_topics)
        self.chats[chat.chat_id] = chat
        return chat

    def p2p(self, person: Person) -> Chat:
        """The private chat of a person with the bot."""
        for chat in self.chats.values():
            if chat.kind == "p2p" and person.open_id in chat.members:
                return chat
        return self.add_chat(person.name, "p2p", {person.open_id})

    def add_blob(self, kind: str, name: str, data: bytes, *, by_bot: bool) -> Blob:
        prefix = "img_v3_" if kind == "image" else "file_v3_"
        blob = Blob(self.ids.hex(prefix, 24), kind, name, data, by_bot)
        self.blobs[blob.key] = blob
        return blob

    def knows_user(self, user_id: str) -> bool:
        return any(user_id in p.ids().values() for p in (*self.people.values(), self.bot))

    def knows_image(self, image_key: str) -> bool:
        blob = self.blobs.get(image_key)
        return blob is not None and blob.kind == "image"

    def in_chat(self, chat_id: str) -> list[Message]:
        """The messages of a chat, oldest first."""
        return [message for message in self.messages.values() if message.chat_id == chat_id]
