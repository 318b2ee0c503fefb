"""Short names for texts, so that what is shown can be compared without being kept."""

from __future__ import annotations

import hashlib


def text_digest(text: str) -> str:
    """16 hexadecimal digits that stand for the text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def mark_of(text: str, start: int, end: int) -> str:
    """A name for a stretch of the reply's Markdown."""
    return text_digest(text[start:end])


def digest_of(content: object) -> str:
    """A name for what a message or a frame shows: any frozen dataclass."""
    return text_digest(repr(content))
