"""What people do: open chats, write, send files, press buttons, delete, stop, migrate; and what the bot hears of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.emulators.telegram.account import membership_change
from tests.emulators.telegram.backend import Backend
from tests.emulators.telegram.drafts import Drafts
from tests.emulators.telegram.errors import TERMINATED_BY_POLL
from tests.emulators.telegram.presses import Press, Presses
from tests.emulators.telegram.text import Entity, detect_entities
from tests.emulators.telegram.updates import Updates
from tests.emulators.telegram.wire import Json
from tests.emulators.telegram.world import Chat, ChatType, Media, MediaKind, Message, Person, Topic, Version

_FIRST_PERSON = 50_001
_FIRST_GROUP = 4_000_001


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that a person sends. `size` pretends another size than the content has."""

    content: bytes = b"content"
    name: str = "file.bin"
    mime: str = "application/octet-stream"
    kind: str = "document"  # photo | document | audio | video | voice
    caption: str = ""
    size: int | None = None


class People:
    """The people's side of the emulator. `by` is who acts: the first member of the chat when left out."""

    def __init__(self, backend: Backend, updates: Updates, drafts: Drafts, presses: Presses) -> None:
        self._backend = backend
        self._world = backend.world
        self._updates = updates
        self._drafts = drafts
        self._presses = presses

    # people and chats

    def person(self, first_name: str = "Ann", username: str | None = None) -> Person:
        person = Person(_FIRST_PERSON + self._world.number(), first_name, username)
        self._world.people[person.id] = person
        return person

    def known_person(self, person_id: int) -> Person:
        """Raises LookupError for nobody's id."""
        return self._world.people[person_id]

    def private_chat(self, person: Person | None = None) -> int:
        """The chat of a person (a new one when left out) with the bot; its id is the person's id."""
        person = person or self.person()
        return self._add(Chat(person.id, ChatType.PRIVATE, person.first_name, [person], self._world.private_topics))

    def group(self, title: str, *members: Person, basic: bool = False, forum: bool = False, admin: bool = False) -> int:
        """A group with the bot in it; a supergroup unless `basic`, with topics when `forum`."""
        number = _FIRST_GROUP + self._world.number()
        kind = ChatType.GROUP if basic else ChatType.SUPERGROUP
        chat = Chat(
            -number if basic else -(1_000_000_000_000 + number),
            kind,
            title,
            list(members) or [self.person()],
            forum,
            bot_status="administrator" if admin else "member",
        )
        return self._add(chat)

    def topic(self, chat_id: int, name: str, *, by: Person | None = None) -> int:
        """Open a topic; its id is that of the service message which opens it."""
        chat = self._chat(chat_id)
        if not chat.forum:
            raise LookupError(f"chat {chat_id} has no topics")
        if not 1 <= len(name) <= self._backend.limits.topic_name:
            raise ValueError("topic name too long")
        service: Json = {"forum_topic_created": {"name": name, "icon_color": 7322096}}
        message = self._world.post(chat, self._by(chat, by), service=service)
        message.thread_id = message.id
        chat.topics[message.id] = Topic(message.id, name)
        self._tell(chat, message)
        return message.id

    def close_topic(self, chat_id: int, thread_id: int) -> None:
        self._chat(chat_id).topics[thread_id].closed = True
        self._backend.changed()

    def delete_topic(self, chat_id: int, thread_id: int) -> None:
        """Delete a topic with all its messages."""
        chat = self._chat(chat_id)
        chat.topics[thread_id].deleted = True
        for message in chat.messages.values():
            if message.thread_id == thread_id:
                message.deleted = True
        self._backend.changed()

    # writing

    def say(
        self,
        chat_id: int,
        text: str,
        *,
        by: Person | None = None,
        thread_id: int | None = None,
        reply_to: int | None = None,
        entities: Sequence[Entity] | None = None,
    ) -> int:
        """Send a text; commands, mentions and links are marked as the server would, unless `entities` are given."""
        chat = self._chat(chat_id)
        message = self._world.post(
            chat,
            self._by(chat, by),
            text,
            entities=tuple(detect_entities(text) if entities is None else entities),
            thread_id=self._thread(chat, thread_id, reply_to),
            reply_to=self._message(chat, reply_to) if reply_to is not None else None,
        )
        self._tell(chat, message)
        return message.id

    def send_file(
        self,
        chat_id: int,
        upload: Upload,
        *,
        by: Person | None = None,
        thread_id: int | None = None,
        reply_to: int | None = None,
    ) -> int:
        return self._send_upload(chat_id, upload, by, thread_id, reply_to, None)

    def share(
        self,
        chat_id: int,
        content: Json,
        *,
        by: Person | None = None,
        thread_id: int | None = None,
        reply_to: int | None = None,
    ) -> int:
        """Send what is neither text nor file: `content` as the API has it, such as `{"dice": {"emoji": …}}`."""
        chat = self._chat(chat_id)
        message = self._world.post(
            chat,
            self._by(chat, by),
            shared=content,
            thread_id=self._thread(chat, thread_id, reply_to),
            reply_to=self._message(chat, reply_to) if reply_to is not None else None,
        )
        self._tell(chat, message)
        return message.id

    def send_album(
        self, chat_id: int, *uploads: Upload, by: Person | None = None, thread_id: int | None = None
    ) -> list[int]:
        """Send several files as one album: one update for each."""
        album = f"1390{self._world.number():010d}"
        return [self._send_upload(chat_id, upload, by, thread_id, None, album) for upload in uploads]

    def edit(self, chat_id: int, message_id: int, text: str) -> None:
        """A person changes their own message."""
        chat = self._chat(chat_id)
        message = self._message(chat, message_id)
        if message.sender == self._world.bot:
            raise LookupError("people cannot edit the bot's messages")
        message.text, message.entities = text, tuple(detect_entities(text))
        message.edited_at = self._backend.clock.now()
        message.versions.append(Version(message.edited_at, text))
        self._tell(chat, message, kind="edited_message")

    def delete(self, chat_id: int, message_id: int) -> None:
        """Delete a message, the bot's too. Nobody tells the bot."""
        self._message(self._chat(chat_id), message_id).deleted = True
        self._backend.changed()

    # buttons and drafts

    def press(self, chat_id: int, message_id: int, button: str, *, by: Person | None = None) -> Press:
        """Press the button that says `button` or carries it as data. Raises LookupError when there is none."""
        chat = self._chat(chat_id)
        message = self._message(chat, message_id)
        data = next((item.data for row in message.keyboard for item in row if button in (item.text, item.data)), None)
        if data is None:
            raise LookupError(f"no button {button!r} under message {message_id}")
        person = self._by(chat, by)
        press = Press(
            str(4_382_000_000_000 + self._world.number()), chat_id, message_id, person, data, self._backend.clock.now()
        )
        self._presses.all[press.id] = press
        payload: Json = {
            "id": press.id,
            "from": person.to_json(),
            "message": self._world.message_json(message),
            "chat_instance": str(abs(chat_id)),
            "data": data,
        }
        self._updates.push("callback_query", payload, chat_id)
        self._backend.changed()
        return press

    def stop_draft(self, chat_id: int, draft_id: int | None = None) -> int:
        """Press stop on a draft (the newest when none is named); its id. Raises LookupError when there is none."""
        draft, payload = self._drafts.stop(self._chat(chat_id), draft_id)
        self._updates.push("stopped_message_generation", payload, chat_id)
        self._backend.changed()
        return draft.id

    # the life of chats

    def migrate(self, chat_id: int) -> int:
        """Turn a basic group into a supergroup; its new id. The old one refuses every call from now on."""
        old = self._chat(chat_id)
        if old.type is not ChatType.GROUP:
            raise LookupError(f"chat {chat_id} is no basic group")
        new_id = -(1_000_000_000_000 + _FIRST_GROUP + self._world.number())
        new = Chat(new_id, ChatType.SUPERGROUP, old.title, old.members, bot_status=old.bot_status)
        self._world.chats[new_id] = new
        by = old.members[0]
        self._tell(old, self._world.post(old, by, service={"migrate_to_chat_id": new_id}))
        old.migrated_to = new_id
        self._tell(new, self._world.post(new, by, service={"migrate_from_chat_id": old.id}))
        return new_id

    def block(self, chat_id: int) -> None:
        """The person of a private chat blocks the bot."""
        self._change_membership(self._chat(chat_id), "kicked", blocked=True)

    def unblock(self, chat_id: int) -> None:
        self._change_membership(self._chat(chat_id), "member", blocked=False)

    def kick(self, chat_id: int) -> None:
        """The bot is removed from a group."""
        self._change_membership(self._chat(chat_id), "kicked")

    def add_bot(self, chat_id: int, *, admin: bool = False) -> None:
        """The bot is put (back) into a group."""
        self._change_membership(self._chat(chat_id), "administrator" if admin else "member")

    # deliveries

    def hold_updates(self) -> None:
        """Keep updates back until they are released."""
        self._updates.held = True

    def release_updates(self, *, reverse: bool = False) -> None:
        """Hand out what was held back, the newest first when `reverse`."""
        self._updates.release(reverse=reverse)

    def redeliver(self, update_id: int | None = None) -> int:
        """Hand an update out once more, the newest when none is named; its id."""
        return self._updates.redeliver(update_id)

    def flood(self, chat_id: int, seconds: float) -> None:
        """Refuse the next call to this chat with 429 and close the chat for `seconds`."""
        self._backend.flood.plan(chat_id, seconds)

    def set_other_poller(self, running: bool) -> None:
        """Somebody else polls with the same token: every poll ends with 409 as long as that lasts."""
        self._updates.other_poller = running
        if running:
            self._updates.end_poll(TERMINATED_BY_POLL)

    # within

    def _add(self, chat: Chat) -> int:
        self._world.chats[chat.id] = chat
        return chat.id

    def _chat(self, chat_id: int) -> Chat:
        return self._world.chats[chat_id]

    def _message(self, chat: Chat, message_id: int) -> Message:
        message = chat.messages.get(message_id)
        if message is None or message.deleted:
            raise LookupError(f"no message {message_id} in chat {chat.id}")
        return message

    def _by(self, chat: Chat, by: Person | None) -> Person:
        return by or chat.members[0]

    def _thread(self, chat: Chat, thread_id: int | None, reply_to: int | None) -> int | None:
        if thread_id is None and reply_to is not None:
            return self._message(chat, reply_to).thread_id
        if thread_id is not None and thread_id not in chat.topics:
            raise LookupError(f"no topic {thread_id} in chat {chat.id}")
        return thread_id

    def _send_upload(
        self,
        chat_id: int,
        upload: Upload,
        by: Person | None,
        thread_id: int | None,
        reply_to: int | None,
        album: str | None,
    ) -> int:
        chat = self._chat(chat_id)
        file = self._world.store(upload.name, upload.mime, upload.content, upload.size)
        message = self._world.post(
            chat,
            self._by(chat, by),
            upload.caption,
            entities=tuple(detect_entities(upload.caption)),
            thread_id=self._thread(chat, thread_id, reply_to),
            reply_to=self._message(chat, reply_to) if reply_to is not None else None,
            media=Media(MediaKind(upload.kind), file),
            album=album,
        )
        self._tell(chat, message)
        return message.id

    def _tell(self, chat: Chat, message: Message, kind: str = "message") -> None:
        if self._world.bot_sees(chat, message):
            self._updates.push(kind, self._world.message_json(message), chat.id)
        self._backend.changed()

    def _change_membership(self, chat: Chat, status: str, *, blocked: bool | None = None) -> None:
        old = "kicked" if chat.blocked else chat.bot_status
        if blocked is None:
            chat.bot_status = status
        else:
            chat.blocked = blocked
        payload = membership_change(chat, self._world.bot, chat.members[0], old, status, self._backend.clock.now())
        self._updates.push("my_chat_member", payload, chat.id)
        self._backend.changed()
