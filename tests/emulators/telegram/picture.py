"""What people see now, as plain frozen values, and as text for a failed test."""

from __future__ import annotations

from dataclasses import dataclass

from tests.emulators.telegram.drafts import Draft
from tests.emulators.telegram.keyboard import Keyboard
from tests.emulators.telegram.text import Entity, utf16_slice
from tests.emulators.telegram.world import Chat, Message, Version


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message as people see it; `text` is the caption when there is a file."""

    id: int
    thread_id: int | None
    sender: str
    from_bot: bool
    text: str
    entities: tuple[Entity, ...]
    buttons: Keyboard
    file: str | None  # "kind name" of an attached file
    content: bytes | None  # what is in that file
    album: str | None
    reply_to: int | None
    is_rich: bool
    first_visible: float
    edited_at: float | None
    versions: tuple[Version, ...]
    reactions: tuple[str, ...]
    continued_draft: bool

    def marked(self, kind: str) -> list[str]:
        """The stretches of text under entities of this type."""
        return [utf16_slice(self.text, item.offset, item.length) for item in self.entities if item.type == kind]

    def button_texts(self) -> list[str]:
        return [button.text for row in self.buttons for button in row]


@dataclass(frozen=True, slots=True)
class SeenDraft:
    """A draft that is on the screen now: text still growing."""

    id: int
    thread_id: int | None
    text: str
    can_stop: bool
    first_visible: float
    versions: tuple[Version, ...]


@dataclass(frozen=True, slots=True)
class SeenChat:
    id: int
    type: str
    title: str
    messages: tuple[SeenMessage, ...]
    drafts: tuple[SeenDraft, ...]
    action: str | None  # "typing" and the like, while it lasts

    def from_bot(self, thread_id: int | None = None) -> list[SeenMessage]:
        """The bot's messages, of one topic when it is named."""
        return [message for message in self.messages if message.from_bot and thread_id in (None, message.thread_id)]

    def text(self, thread_id: int | None = None) -> str:
        """The bot's messages joined by line feeds: an answer that flowed over several of them, read in one piece."""
        return "\n".join(message.text for message in self.from_bot(thread_id))

    def dump(self) -> str:
        lines = [f"chat {self.id} ({self.type}) {self.title}" + (f" … {self.action}" if self.action else "")]
        for message in self.messages:
            place = f" topic {message.thread_id}" if message.thread_id is not None else ""
            file = f" [{message.file}]" if message.file else ""
            buttons = f" {message.button_texts()}" if message.buttons else ""
            versions = f" ({len(message.versions)} versions)" if len(message.versions) > 1 else ""
            lines.append(f"  #{message.id}{place} {message.sender}:{file} {message.text!r}{buttons}{versions}")
        lines += [f"  draft {draft.id}: {draft.text!r}" for draft in self.drafts]
        return "\n".join(lines)


def picture_of(chat: Chat, drafts: list[Draft], now: float) -> SeenChat:
    return SeenChat(
        id=chat.id,
        type=chat.type.value,
        title=chat.title,
        messages=tuple(_seen(message) for message in chat.messages.values() if not message.deleted),
        drafts=tuple(
            SeenDraft(
                draft.id, draft.thread_id, draft.text, draft.can_stop, draft.versions[0].at, tuple(draft.versions)
            )
            for draft in drafts
        ),
        action=chat.action if chat.action and now < chat.action_until else None,
    )


def _seen(message: Message) -> SeenMessage:
    media = message.media
    return SeenMessage(
        id=message.id,
        thread_id=message.thread_id,
        sender=message.sender.first_name,
        from_bot=message.sender.is_bot,
        text=message.text if message.service is None else f"<{next(iter(message.service))}>",
        entities=message.entities,
        buttons=message.keyboard,
        file=None if media is None else f"{media.kind} {media.file.name}",
        content=None if media is None else media.file.content,
        album=message.album,
        reply_to=message.reply_to,
        is_rich=message.rich is not None,
        first_visible=message.at,
        edited_at=message.edited_at,
        versions=tuple(message.versions),
        reactions=message.reactions,
        continued_draft=message.continued_draft,
    )
