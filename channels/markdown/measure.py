"""How long a text is, in the units that platforms count."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from wcwidth import wcswidth

Measure = Callable[[str], int]
"""A length of a text. It never falls when text is added at the end."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def utf16_units(text: str) -> int:
    """UTF-16 code units: what Telegram counts (an emoji beyond the basic plane is two)."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf8_bytes(text: str) -> int:
    """Bytes in UTF-8: what bounds a streamed Slack message."""
    return len(text.encode("utf-8", "surrogatepass"))


def json_utf8_bytes(text: str) -> int:
    r"""Bytes inside a JSON string written as UTF-8 (quotes, backslashes and control characters escaped, nothing
    else as \u), without the enclosing quotes: what a Feishu card's limit is counted on."""
    return utf8_bytes(json.dumps(text, ensure_ascii=False)) - 2


def display_width(text: str) -> int:
    """Columns that `text` takes in a monospace font; control characters take none."""
    if text.isascii() and text.isprintable():
        return len(text)
    return wcswidth(_CONTROL.sub("", text))
