"""What goes over the wire: LangChain objects as JSON, and events as server-sent-event bytes."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any

import orjson
from pydantic import BaseModel

HEARTBEAT = b": heartbeat\r\n\r\n"

# langgraph's own bookkeeping inside configs and states; it holds live objects and means nothing to a client.
_INTERNAL_PREFIX = "__pregel_"
_INTERNAL_EXACT = frozenset({"__start__", "__previous__"})


def dumps(value: object) -> bytes:
    """JSON of anything a graph may stream or keep, as UTF-8. Never raises: what has no JSON form becomes its `repr`.

    Lone surrogates (models do emit halves of emoji) become U+FFFD and NaN or infinity become null, because the
    client's parser refuses both.
    """
    try:
        return orjson.dumps(value, _default, orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        return orjson.dumps(_cleaned(value))


def event_data(mode: str, payload: Any) -> bytes:
    """The JSON of one streamed item of the langgraph stream mode `mode`.

    `messages` items are `[message, metadata]`; `values` and `updates` lose langgraph's internal channels but keep
    `__interrupt__`; `custom` items belong to the graph's author and pass as they are; the debugging modes carry whole
    configs and are stripped all the way down.
    """
    match mode:
        case "custom":
            return dumps(payload)
        case "messages":
            message, metadata = payload
            return dumps((message, _outer(metadata)))
        case "values" | "updates":
            return dumps(_outer(payload))
        case _:
            return dumps(without_internals(payload))


def without_internals(value: Any) -> Any:
    """A copy of nested mappings and lists without langgraph's internal keys."""
    if isinstance(value, Mapping):
        return {key: without_internals(item) for key, item in value.items() if not _is_internal(key)}
    if isinstance(value, list | tuple) and not hasattr(value, "_asdict"):
        return [without_internals(item) for item in value]
    return value


def event_name(mode: str, namespace: Iterable[str] = ()) -> str:
    """The event's name: the mode, and for a sub-graph `mode|node:task|node:task`. Line ends cannot break the frame."""
    return "|".join((mode, *namespace)).replace("\r", " ").replace("\n", " ")


def frame(name: str, data: bytes, event_id: str | None = None) -> bytes:
    """One server-sent event with the line ends and the field order of LangGraph's server."""
    head = b"event: " + name.encode() + b"\r\ndata: " + data
    return head + (b"\r\nid: " + event_id.encode() if event_id else b"") + b"\r\n\r\n"


def _is_internal(key: object) -> bool:
    return isinstance(key, str) and (key.startswith(_INTERNAL_PREFIX) or key in _INTERNAL_EXACT)


def _outer(value: Any) -> Any:
    if isinstance(value, Mapping) and any(_is_internal(key) for key in value):
        return {key: item for key, item in value.items() if not _is_internal(key)}
    return value


def _default(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, BaseException):
        return {"error": type(value).__name__, "message": str(value)}
    if isinstance(value, set | frozenset):
        return list(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and hasattr(value, "__len__"):
        return list(value)
    return repr(value)


# Deeper than any honest state, and less than orjson's own limit of 254 levels.
_MAX_DEPTH = 200


def _cleaned(value: Any, parents: tuple[int, ...] = ()) -> Any:
    """The slow way to JSON, for what orjson refuses: surrogates, huge integers, odd keys, cycles, endless nesting."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if len(parents) >= _MAX_DEPTH or id(value) in parents:
        return "..."
    inside = (*parents, id(value))
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _cleaned(getattr(value, field.name), inside) for field in fields(value)}
    if isinstance(value, Mapping):
        return {_cleaned(str(key)): _cleaned(item, inside) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item, inside) for item in value]
    try:
        return orjson.loads(orjson.dumps(value))  # dates, UUIDs, enums: orjson knows them
    except TypeError:
        return _cleaned(_default(value), inside)
