"""What a model gets of the files that people send along: as they are, as text, or only by name.

A file that a vendor does not take makes it refuse the question, and every later one, as the file stays in the thread.
"""

from __future__ import annotations

import base64
import codecs
import mimetypes
from collections.abc import Sequence

from charset_normalizer import from_bytes
from pydantic import JsonValue

from channels.inputs import InputFile
from channels.strict_json import strict_text

_MOST_TEXT = 100_000
"""Characters of one text file: some 25,000 tokens."""

_GUESSED_BY = 50_000
"""Bytes by which an encoding is guessed."""

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before the next, with which it begins
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml", "application/x-yaml")


def message_blocks(text: str, files: Sequence[InputFile], types: Sequence[str]) -> list[JsonValue]:
    """The content of a message with files. `types` are the MIME types that the model takes, `audio/*` all of a kind."""
    if not text.strip():  # some vendors refuse an empty text, others a document without any
        text = f"(Sent without words: {', '.join(strict_text(file.name) for file in files)})"
    return [{"type": "text", "text": text}, *(_block(file, types) for file in files)]


def remark_on(files: Sequence[InputFile], types: Sequence[str]) -> str:
    """What to tell who has sent them; empty: the model gets all of all."""
    named, begun = [], []
    for file in files:
        if _is_taken(_type_of(file), types):
            continue
        found = _text_of(file)
        if found is None:
            named.append(file.name)
        elif not found[1]:
            begun.append(file.name)
    remarks = []
    if named:
        remarks.append(f"The agent cannot read {', '.join(named)} and was only told the name.")
    if begun:
        remarks.append(f"The agent got only the beginning of {', '.join(begun)}.")
    return " ".join(remarks)


def _block(file: InputFile, types: Sequence[str]) -> JsonValue:
    name, mime = strict_text(file.name), strict_text(_type_of(file))
    if _is_taken(mime, types):
        encoded = base64.b64encode(file.data).decode()
        kind = mime.partition("/")[0]
        if kind == "image":
            return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{encoded}"}}
        if kind in ("audio", "video"):
            return {"type": kind, "mime_type": mime, "base64": encoded}
        return {"type": "file", "mime_type": mime, "base64": encoded, "extras": {"filename": name}}
    found = _text_of(file)
    if found is None:
        said = f"(The file “{name}” of type {mime or 'unknown'} was sent along. You cannot be given what is in it.)"
    else:
        text, is_whole = found
        goes_on = "" if is_whole else f"\n\n(The file goes on: it has {len(file.data):,} bytes.)"
        said = f"File “{name}”:\n\n{text}{goes_on}"
    return {"type": "text", "text": f"\n\n{said}"}


def _is_taken(mime: str, types: Sequence[str]) -> bool:
    return mime in types or f"{mime.partition('/')[0]}/*" in types


def _type_of(file: InputFile) -> str:
    """What the data says, where it says it, else what the platform says."""
    if file.data[:4] == b"RIFF" and file.data[8:12] == b"WEBP":
        return "image/webp"
    known = (mime for magic, mime in _MAGIC if file.data.startswith(magic))
    return next(known, file.mime.partition(";")[0].strip().lower())


def _text_of(file: InputFile) -> tuple[str, bool] | None:
    """The file as text, and whether that is all of it; None: it is no text."""
    sample = file.data[: 4 * _MOST_TEXT]
    text = _decoded(file, sample)
    if text is None:
        return None
    is_whole = len(sample) == len(file.data) and len(text) <= _MOST_TEXT
    return text[:_MOST_TEXT].replace("\0", ""), is_whole


def _decoded(file: InputFile, sample: bytes) -> str | None:
    for mark, encoding in _MARKS:
        if sample.startswith(mark):
            return sample[len(mark) :].decode(encoding, "replace")
    if b"\0" in sample:
        return None
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(sample, len(sample) == len(file.data))
    except UnicodeDecodeError:
        pass
    guessed = mimetypes.guess_type(file.name)[0] or ""
    if not (file.mime.startswith(_TEXT_TYPES) or guessed.startswith(_TEXT_TYPES)):
        return None
    best = from_bytes(sample[:_GUESSED_BY]).best()
    return sample.decode(best.encoding if best is not None else "utf-8", "replace")
