"""Tells new events from replayed ones after a stream has been joined again."""

from __future__ import annotations

import re
from array import array
from enum import Enum

import orjson

from channels.transcript.stream_events import EventKind, StreamEvent

_SEQUENCE = re.compile(r"(?:_event_|^\d+-)(\d{1,18})\Z")
"""The running number in an event id: Aegra's `RUN_event_7`, DeerFlow's `1796005909256-64`."""


class Verdict(Enum):
    NEW = "new"
    SEEN = "seen"
    AFTER_HOLE = "after_hole"  # new, and events between the last one and this one are missing


class Replay:
    """Remembers what a run's stream has brought.

    Ids alone do not identify events: LangGraph's in-memory server gives equal ids within a millisecond, and repeats
    some events where a replay passes into the live stream. So an event is known again by id, name and data together,
    and only once the stream has been joined: in one unbroken stream equal pieces of text are just that.
    """

    def __init__(self) -> None:
        self._heard = array("q")
        """The events up to the first join, in 8 bytes each: most streams are never joined."""
        self._known: set[int] = set()
        self._was_joined = False
        self._is_first = False
        self._cursor: str | None = None

    @property
    def cursor(self) -> str | None:
        """The id of the last event; None when none had an id."""
        return self._cursor

    def joined(self) -> None:
        """The stream is joined after the cursor; without one, from the start of what the gateway still has."""
        self._was_joined = self._is_first = True
        self._known.update(self._heard)
        self._heard = array("q")

    def skip_to(self, cursor: str) -> None:
        """After a gap: what came up to `cursor` is known from the state. Empty: the gateway tells no such id."""
        self._cursor = cursor or self._cursor

    def admit(self, event: StreamEvent) -> Verdict:
        """Whether the event is new. One that tells nothing always is."""
        if event.kind is EventKind.IGNORED:
            return Verdict.NEW
        if event.id:
            key = hash((event.id, event.name, orjson.dumps(event.data)))
            if key in self._known:
                self._is_first = False
                return Verdict.SEEN
            if self._was_joined:
                self._known.add(key)
            else:
                self._heard.append(key)
        hole = self._is_first and self._is_hole(event)
        self._is_first = False
        self._cursor = event.id or self._cursor
        return Verdict.AFTER_HOLE if hole else Verdict.NEW

    def _is_hole(self, event: StreamEvent) -> bool:
        """Whether the first event after a join does not follow on what is known."""
        if self._cursor is None:
            return event.kind is not EventKind.METADATA
        before, after = _number(self._cursor), _number(event.id)
        return before is not None and after is not None and after > before + 1


def _number(event_id: str | None) -> int | None:
    found = _SEQUENCE.search(event_id or "")
    return int(found.group(1)) if found else None
