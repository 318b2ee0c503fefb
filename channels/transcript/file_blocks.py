"""Files inside a message's content, in the forms in which model providers' packages leave them there.

With their bytes in base64: LangChain's own blocks, Anthropic's `source`, data URIs (Google's `image_url`) and what
OpenAI's image tool made. With an address only: then a reader gets the address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from pydantic import JsonValue

from channels.shapes import as_object, as_text, first_text

_KINDS = frozenset({"image", "image_url", "file", "audio", "video", "media"})
_MADE_IMAGE = "image_generation_call"
_UNKNOWN_MIME = "application/octet-stream"

_HEAD = 512
"""So many characters of a data URI are looked at for its type."""
_DATA_URI = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w.+-]+=[^;,]*)*;base64,", re.IGNORECASE | re.ASCII)
_ADDRESS = re.compile(r"https?://[^\s<>\\]+", re.IGNORECASE)
_KEPT_IN_ADDRESS = "!#$%&'*+,-./:;=?@[]_~"
"""What may stand unquoted in the target of a Markdown link: parentheses may not."""


@dataclass(frozen=True, slots=True)
class FileBlock:
    """A file inside a message: the position of its block and its type."""

    block: int
    mime: str
    name: str


def file_block(position: int, block: Mapping[str, JsonValue]) -> FileBlock | None:
    """The file that a block holds, its bytes unread; None when it holds none."""
    held = _held(block)
    if held is None:
        return None
    name = as_text(block.get("filename")) or as_text(as_object(block.get("extras")).get("filename"))
    return FileBlock(position, held[0], name)


def file_base64(block: Mapping[str, JsonValue]) -> str:
    """The bytes of the file that a block holds, in base64; empty when it holds none."""
    held = _held(block)
    if held is None:
        return ""
    _, encoded, start = held
    return encoded[start:]


def file_link(block: Mapping[str, JsonValue]) -> str:
    """A Markdown link to the file that a block has the address of; empty when it has none."""
    kind = as_text(block.get("type"))
    address = _address(block) if kind in _KINDS else ""
    if not _ADDRESS.fullmatch(address):
        return ""
    label = "Picture" if kind.startswith("image") else "File"
    return f"[{label}]({quote(address, safe=_KEPT_IN_ADDRESS)})"


def _held(block: Mapping[str, JsonValue]) -> tuple[str, str, int] | None:
    """Type, text and where in the text the base64 begins: it is long, and is not copied to look at it."""
    kind = as_text(block.get("type"))
    if kind == _MADE_IMAGE:
        made = as_text(block.get("result"))
        return (f"image/{as_text(block.get('output_format')) or 'png'}", made, 0) if made else None
    if kind not in _KINDS:
        return None
    source = as_object(block.get("source"))
    encoded = as_text(block.get("base64")) or as_text(block.get("data")) or as_text(source.get("data"))
    if encoded and as_text(source.get("type")) in ("", "base64"):
        return first_text(block, "mime_type") or first_text(source, "media_type") or _UNKNOWN_MIME, encoded, 0
    address = _address(block)
    head = _DATA_URI.match(address[:_HEAD])
    if head is None or head.end() == len(address):
        return None
    return head.group(1) or first_text(block, "mime_type") or _UNKNOWN_MIME, address, head.end()


def _address(block: Mapping[str, JsonValue]) -> str:
    """The `url` of a block, wherever its form has it."""
    picture = block.get("image_url")
    return (
        as_text(block.get("url"))
        or as_text(picture)
        or as_text(as_object(picture).get("url"))
        or as_text(as_object(block.get("source")).get("url"))
    )
