"""What a message holds, whatever its kind: its words and its files; and what of another message it is about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from telegram import ExternalReplyInfo, Message, MessageEntity, TextQuote

from channels.markdown import utf16_units
from channels.model import Attachment

Holder = Message | ExternalReplyInfo
"""A message, or what is told of one in another chat: its files, but not its words."""


@dataclass(frozen=True, slots=True)
class Held:
    words: str = ""
    attachments: tuple[Attachment, ...] = ()


def held_by(holder: Holder) -> Held:
    """The words and the files. What is neither (a sticker, a place) is said in words; what a chat says of itself
    (somebody has joined, its title has changed) holds nothing."""
    words = worded(*written_in(holder)) if isinstance(holder, Message) else ""
    return Held(words or _in_words(holder), tuple(_attachments(holder)))


def written_in(message: Message) -> tuple[str, Sequence[MessageEntity]]:
    """What was written, with its entities; below a file, too."""
    return message.text or message.caption or "", message.entities or message.caption_entities


def worded(text: str, entities: Sequence[MessageEntity], *, without: Sequence[MessageEntity] = ()) -> str:
    """The text with its links as Markdown, so that their addresses are told; and `without` some of its entities and
    the gaps that they would leave."""
    for entity in sorted(entities, key=lambda entity: entity.offset, reverse=True):
        before, words, after = around(text, entity)
        if entity in without:
            text = _joined(before, after)
        elif entity.type == MessageEntity.TEXT_LINK and words != entity.url:
            text = f"{before}[{words}]({entity.url}){after}"
    return text.strip() if without else text


def around(text: str, entity: MessageEntity) -> tuple[str, str, str]:
    """What stands before the entity, in it and after it."""
    units, start, end = text.encode("utf-16-le"), 2 * entity.offset, 2 * (entity.offset + entity.length)
    return _decoded(units[:start]), _decoded(units[start:end]), _decoded(units[end:])


def quoted_by(message: Message, replied: Message | None) -> Held:
    """What the message is said about: the part of another message that its writer has marked, else all of that; with
    its files. `replied` is the message of this chat that it replies to; there may be one of another chat instead."""
    source = replied or message.external_reply
    if source is None:
        return Held()
    held = held_by(source)
    marked = _marked(message.quote, source) if message.quote is not None else ""
    names = " ".join(f"[{attachment.name}]" for attachment in held.attachments)
    return Held(marked or held.words or names, held.attachments)


# ---------------------------------------------------------------- inside


def _decoded(units: bytes) -> str:
    # Where a quote begins is only what its writer's app says: it may be within a character.
    return units.decode("utf-16-le", "replace")


def _joined(before: str, after: str) -> str:
    before, after = before.rstrip(" "), after.lstrip(" ")
    if not before.strip():
        after = after.lstrip(",:; ")  # "@bot, what is …"
    is_joint = not before or not after or before[-1] == "\n" or after[0] in "\n.,:;!?"
    return before + ("" if is_joint else " ") + after


def _marked(quote: TextQuote, source: Holder) -> str:
    """The part that was marked. Telegram tells of no links in it, so they are looked for in what it was taken from."""
    part = MessageEntity(MessageEntity.BLOCKQUOTE, quote.position, utf16_units(quote.text))
    text, entities = written_in(source) if isinstance(source, Message) else ("", ())
    if around(text, part)[1] != quote.text:
        return quote.text
    return worded(quote.text, [inner for entity in entities if (inner := _within(part, entity)) is not None])


def _within(part: MessageEntity, entity: MessageEntity) -> MessageEntity | None:
    """As much of the entity as lies in the part, counted from where that begins."""
    start = max(entity.offset, part.offset)
    length = min(entity.offset + entity.length, part.offset + part.length) - start
    return MessageEntity(entity.type, start - part.offset, length, url=entity.url) if length > 0 else None


def _in_words(holder: Holder) -> str:
    """What cannot be handed on, said in words; empty when there is nothing of the kind."""
    if (sticker := holder.sticker) is not None:
        return _said("Sticker", sticker.emoji)
    if (venue := holder.venue) is not None:  # a message with one has its location, too
        return _said("Location", venue.title, venue.address, venue.location.latitude, venue.location.longitude)
    if (location := holder.location) is not None:
        return _said("Location", location.latitude, location.longitude)
    if (contact := holder.contact) is not None:
        return _said("Shared contact", contact.first_name, contact.last_name, contact.phone_number)
    if (poll := holder.poll) is not None:
        return _said("Poll", poll.question, *(option.text for option in poll.options))
    if (checklist := holder.checklist) is not None:
        return _said("Checklist", checklist.title, *(task.text for task in checklist.tasks))
    if (dice := holder.dice) is not None:
        return _said("Dice", dice.emoji, dice.value)
    if (game := holder.game) is not None:
        return _said("Game", game.title)
    return _said("Story") if holder.story is not None else ""


def _said(kind: str, *details: str | float | None) -> str:
    known = [str(detail) for detail in details if detail is not None]
    return f"[{kind}: {', '.join(known)}]" if known else f"[{kind}]"


def _attachments(holder: Holder) -> Iterator[Attachment]:
    if holder.photo:
        photo = holder.photo[-1]  # sizes come in rising order
        yield _attachment(f"photo_{photo.file_unique_id}.jpg", "image/jpeg", photo.file_id, photo.file_size)
    if (document := holder.document) is not None:
        mime = document.mime_type or "application/octet-stream"
        name = document.file_name or f"file_{document.file_unique_id}"
        yield _attachment(name, mime, document.file_id, document.file_size)
    if (audio := holder.audio) is not None:
        name = audio.file_name or f"audio_{audio.file_unique_id}.mp3"
        yield _attachment(name, audio.mime_type or "audio/mpeg", audio.file_id, audio.file_size)
    if (voice := holder.voice) is not None:
        name = f"voice_{voice.file_unique_id}.ogg"
        yield _attachment(name, voice.mime_type or "audio/ogg", voice.file_id, voice.file_size)
    if (video := holder.video) is not None:
        name = video.file_name or f"video_{video.file_unique_id}.mp4"
        yield _attachment(name, video.mime_type or "video/mp4", video.file_id, video.file_size)
    if (note := holder.video_note) is not None:
        yield _attachment(f"video_{note.file_unique_id}.mp4", "video/mp4", note.file_id, note.file_size)


def _attachment(name: str, mime: str, file_id: str, size: int | None) -> Attachment:
    return Attachment(name, mime, {"file_id": file_id}, size)
