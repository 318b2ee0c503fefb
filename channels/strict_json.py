"""JSON that crosses a border, brought into what everything on this side takes.

Parsers and encoders disagree. `orjson` reads 1,024 levels and writes 254, pydantic takes 255, `json` as many as the
stack has room for. `json` reads NaN, integers of any length and halves of surrogate pairs; `orjson`, the databases and
the sockets refuse them. A value that is strict makes none of them raise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import orjson
from pydantic import JsonValue

MAX_DEPTH = 100
"""The levels of nesting that are kept; what lies deeper becomes null. Honest data has a tenth of them."""


def read_json(text: str | bytes) -> JsonValue:
    """What a JSON text says, strict. Raises `ValueError` for a text that is no JSON or that nobody can read."""
    try:
        return shallow(orjson.loads(text))
    except orjson.JSONDecodeError:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
    try:
        return strict(json.loads(text))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def shallow(value: JsonValue) -> JsonValue:
    """The same value, if it is nested no deeper than `MAX_DEPTH`, else a strict copy. For what `orjson` has read."""
    return value if is_shallow(value) else strict(value)


def is_shallow(value: JsonValue) -> bool:
    """Whether the value is nested no deeper than `MAX_DEPTH`."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return True
    return False


def strict(value: JsonValue, levels: int = MAX_DEPTH) -> JsonValue:
    """A copy without halves of surrogate pairs, numbers that are not finite or too long, and what lies too deep."""
    if isinstance(value, str):
        return strict_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else _rounded(value)
    if isinstance(value, dict):
        return strict_object(value, levels) if levels else None
    if isinstance(value, list):
        return [strict(item, levels - 1) for item in value] if levels else None
    return value


def strict_object(source: Mapping[str, JsonValue], levels: int = MAX_DEPTH) -> dict[str, JsonValue]:
    """`strict`, of an object."""
    return {strict_text(key): strict(item, levels - 1) for key, item in source.items()}


def strict_text(text: str) -> str:
    """The text with every half of a surrogate pair replaced; two halves that belong together become one character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _rounded(value: int) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None
