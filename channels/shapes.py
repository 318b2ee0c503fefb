"""Reading JSON whose shape nobody guarantees: each reader gives the value if it has the shape, else an empty one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pydantic import JsonValue

_LINE_LIMIT = 120
_NOTHING: Mapping[str, JsonValue] = MappingProxyType({})


def as_object(value: JsonValue | Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """The value if it is an object, else an empty object."""
    return value if isinstance(value, Mapping) else _NOTHING


def as_list(value: JsonValue) -> Sequence[JsonValue]:
    """The value if it is an array, else an empty array."""
    return value if isinstance(value, list) else ()


def as_text(value: JsonValue) -> str:
    """The value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def as_count(value: JsonValue) -> int:
    """The value if it is a whole number of at least zero, else zero."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def whole_number(text: str) -> int | None:
    """The number that at most 18 ASCII digits spell, else None: `int` raises for thousands of them, and for "²"."""
    return int(text) if len(text) <= 18 and text.isascii() and text.isdigit() else None


def first_text(source: Mapping[str, JsonValue], *keys: str) -> str:
    """The first non-blank string under one of the keys, else an empty string."""
    for key in keys:
        if text := as_text(source.get(key)).strip():
            return text
    return ""


def shortened(text: str, limit: int) -> str:
    """The text on one line, cut with an ellipsis at `limit` characters."""
    line = " ".join(text[: limit * 8].split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def in_one_line(args: Mapping[str, JsonValue]) -> str:
    """Arguments in one short line: a lone value as it is, several as `name: value`."""
    shown = [(name, _plain(value)) for name, value in args.items()]
    if len(shown) == 1:
        return shortened(shown[0][1], _LINE_LIMIT)
    return shortened(", ".join(f"{name}: {value}" for name, value in shown), _LINE_LIMIT)


def _plain(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "…"
