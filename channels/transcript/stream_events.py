"""One event of a run's stream, as any LangGraph-compatible gateway names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from pydantic import JsonValue

from channels.shapes import as_object, as_text, first_text, shortened


class EventKind(StrEnum):
    METADATA = "metadata"
    MESSAGES = "messages"
    ACCUMULATED = "accumulated"  # messages in the old `messages` mode: each payload is the whole text so far
    UPDATES = "updates"
    VALUES = "values"
    CUSTOM = "custom"
    ERROR = "error"
    GAP = "gap"
    END = "end"
    MALFORMED = "malformed"
    IGNORED = "ignored"
    UNKNOWN = "unknown"


MALFORMED_EVENT = "bridge-malformed"
"""The name under which the wire hands on an event whose data was no JSON."""

_KINDS: Mapping[str, EventKind] = MappingProxyType(
    {
        "metadata": EventKind.METADATA,
        "messages": EventKind.MESSAGES,
        "messages-tuple": EventKind.MESSAGES,
        "messages/partial": EventKind.ACCUMULATED,
        "messages/complete": EventKind.ACCUMULATED,
        "updates": EventKind.UPDATES,
        "values": EventKind.VALUES,
        "custom": EventKind.CUSTOM,
        "error": EventKind.ERROR,
        "gap": EventKind.GAP,
        "end": EventKind.END,
        MALFORMED_EVENT: EventKind.MALFORMED,
        # Known, and nothing that a reply shows.
        "": EventKind.IGNORED,
        "heartbeat": EventKind.IGNORED,
        "ping": EventKind.IGNORED,
        "messages/metadata": EventKind.IGNORED,
        "checkpoints": EventKind.IGNORED,
        "debug": EventKind.IGNORED,
        "events": EventKind.IGNORED,
        "feedback": EventKind.IGNORED,
        "lifecycle": EventKind.IGNORED,
        "tasks": EventKind.IGNORED,
        "tools": EventKind.IGNORED,
    }
)


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """`namespace` is the path of the sub-graph the event comes from; empty: the graph itself."""

    name: str
    data: JsonValue
    id: str | None = None
    kind: EventKind = EventKind.UNKNOWN
    namespace: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, data: JsonValue, id: str | None = None) -> StreamEvent:
        """The event behind a name as sent, `messages|child:4f9a…` included."""
        mode, *namespace = name.split("|")
        return cls(name, data, id, _KINDS.get(mode, EventKind.UNKNOWN), tuple(namespace))


def failure_of(data: JsonValue) -> str:
    """What an error event tells on one line: `{error, message}` (LangGraph) or `{message, name}` (DeerFlow)."""
    source = as_object(data)
    said = (first_text(source, "error", "name", "type"), first_text(source, "message", "detail"), as_text(data))
    return shortened(" ".join(part for part in said if part), 500) or "no cause given"
