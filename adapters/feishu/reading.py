"""What a message says: its text for the agent and the files that came with it, whatever its type."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from adapters.feishu.events import Mention, Message
from channels.model import Attachment
from channels.shapes import whole_number
from channels.strict_json import read_json

EVERYBODY = "@_all"

Content = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Read:
    """A message as the agent gets it. `needs_children`: it is a bundle whose messages have to be asked for."""

    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    needs_children: bool = False


def read_message(message: Message, own_id: str) -> Read:
    """The text and the files of a message. The bot's own mention is left out, others are names."""
    return read_content(message.message_id, message.message_type, message.content, message.mentions, own_id)


def read_content(message_id: str, kind: str, text: str, mentions: Sequence[Mention], own_id: str) -> Read:
    """As `read_message`, of the parts."""
    content = _object(text)
    names = _Names(mentions, own_id)
    match kind:
        case "text":
            return Read(names.put_into(_text(content.get("text"))))
        case "post":
            return _Post(message_id, names).read(content)
        case "image":
            return Read(attachments=(_image(message_id, _text(content.get("image_key"))),))
        case "file" | "folder":
            return Read(attachments=(_file(message_id, content, "file"),))
        case "audio":
            return Read(attachments=(_file(message_id, content, "audio.opus", "audio/ogg"),))
        case "media":
            return Read(attachments=(_file(message_id, content, "video.mp4", "video/mp4"),))
        case "merge_forward":
            return Read("[Forwarded messages]", needs_children=True)
        case "interactive":
            return _Post(message_id, names).read(content)
        case _:
            return Read(_in_words(kind, content))


def mentions_of(message: Message, own_id: str) -> bool:
    """Whether the bot itself is mentioned."""
    return any(mention.id.open_id == own_id for mention in message.mentions)


# ---------------------------------------------------------------- inside


@dataclass(frozen=True, slots=True)
class _Names:
    mentions: Sequence[Mention]
    own_id: str

    def put_into(self, text: str) -> str:
        """The text with names in the place of mention keys."""
        # Longer keys first: @_user_1 is the beginning of @_user_10.
        for mention in sorted(self.mentions, key=lambda one: -len(one.key)):
            text = text.replace(mention.key, self._shown(mention))
        return text.replace(EVERYBODY, "@all").strip()

    def of(self, key: str, name: str) -> str:
        """The mention with this key or id, as text."""
        for mention in self.mentions:
            if key in (mention.key, mention.id.open_id):
                return self._shown(mention)
        if key in (EVERYBODY, "all"):
            return "@all"
        return f"@{name or key}"

    def _shown(self, mention: Mention) -> str:
        is_own = bool(self.own_id) and mention.id.open_id == self.own_id
        return "" if is_own else f"@{mention.name or mention.key.lstrip('@')}"


@dataclass(slots=True)
class _Post:
    """Rich text: a title and paragraphs of nodes; with a level of languages above where it was sent by an app."""

    message_id: str
    names: _Names
    attachments: list[Attachment] = field(default_factory=list)

    def read(self, content: Content) -> Read:
        body = content
        if not any(key in content for key in ("content", "elements")):
            body = next((value for value in content.values() if isinstance(value, dict)), {})
        title = _text(body.get("title")).strip()
        paragraphs = body.get("content") or body.get("elements")
        lines = [self._paragraph(nodes) for nodes in paragraphs] if isinstance(paragraphs, list) else []
        text = "\n".join(lines).strip()
        return Read(f"{title}\n\n{text}".strip() if title else text, tuple(self.attachments))

    def _paragraph(self, nodes: JsonValue) -> str:
        found = nodes if isinstance(nodes, list) else [nodes]
        return "".join(self._node(node) for node in found if isinstance(node, dict))

    def _node(self, node: Content) -> str:
        match node.get("tag"):
            case "at":
                return self.names.of(_text(node.get("user_id")), _text(node.get("user_name")))
            case "a":
                label, address = _text(node.get("text")), _text(node.get("href"))
                return label if label == address or not address else f"[{label}]({address})"
            case "img":
                self.attachments.append(_image(self.message_id, _text(node.get("image_key"))))
                return ""
            case "media":
                self.attachments.append(_file(self.message_id, node, "video.mp4", "video/mp4"))
                return ""
            case "emotion":
                return f":{_text(node.get('emoji_type'))}:"
            case "hr":
                return "---"
            case "code_block":
                return f"\n```{_text(node.get('language')).lower()}\n{_text(node.get('text'))}\n```\n"
            case _:
                return _text(node.get("text"))


def _image(message_id: str, key: str) -> Attachment:
    return Attachment("image.png", "image/png", {"message": message_id, "key": key, "type": "image"})


def _file(message_id: str, content: Content, name: str, mime: str = "") -> Attachment:
    name = _text(content.get("file_name")) or name
    mime = mime or mimetypes.guess_type(name)[0] or "application/octet-stream"
    size = content.get("file_size")
    reference: dict[str, JsonValue] = {"message": message_id, "key": _text(content.get("file_key")), "type": "file"}
    return Attachment(name, mime, reference, whole_number(_text(size)))


def _in_words(kind: str, content: Content) -> str:
    """What cannot be handed on, said in words."""
    said = _SAID.get(kind)
    if said is None:
        return f"[A message of the type {kind or 'unknown'}]"
    words, keys = said
    details = [_text(content.get(key)).strip() for key in keys]
    return f"[{': '.join([words, ', '.join(detail for detail in details if detail)]).rstrip(': ')}]"


_SAID: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "sticker": ("Sticker", ()),
    "share_chat": ("Shared chat", ("chat_name", "chat_id")),
    "share_user": ("Shared contact", ("user_name", "user_id")),
    "location": ("Location", ("name", "latitude", "longitude")),
    "share_calendar_event": ("Shared calendar event", ("summary", "start_time", "end_time")),
    "calendar": ("Calendar event", ("summary", "start_time", "end_time")),
    "general_calendar": ("Calendar event", ("summary", "start_time", "end_time")),
    "video_chat": ("Video meeting", ("topic", "start_time")),
    "todo": ("Task", ("task_id", "due_time")),
    "vote": ("Vote", ("topic",)),
    "hongbao": ("Red packet", ("text",)),
    "system": ("System message", ()),
}
"""For each type: its words, and the fields that say more."""


def _object(text: str) -> Content:
    try:
        found = read_json(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
