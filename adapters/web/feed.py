"""The newest events of one timeline, for pages that follow it and for pages that come back."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from channels.shapes import whole_number


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event. `id` is the cursor from which a page goes on after it."""

    id: str
    name: str
    data: str

    def encode(self) -> bytes:
        return f"id: {self.id}\nevent: {self.name}\ndata: {self.data}\n\n".encode()


class Feed:
    """Numbered events, the oldest forgotten when there are too many or too much.

    A cursor names the life of this feed and an event in it, so that one from before a restart is never taken for
    one of now.
    """

    def __init__(self, *, most_events: int = 2_000, most_chars: int = 2_000_000) -> None:
        self._life = secrets.token_hex(6)
        self._most_events = most_events
        self._most_chars = most_chars
        self._events: deque[Event] = deque()
        self._chars = 0
        self._last = 0
        self._followers: set[asyncio.Event] = set()

    @property
    def last(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._last

    def publish(self, name: str, data: JsonValue) -> None:
        """Add an event and wake every follower."""
        self._last += 1
        event = self.event(name, data)
        self._events.append(event)
        self._chars += len(event.data)
        while len(self._events) > self._most_events or (self._chars > self._most_chars and len(self._events) > 1):
            self._chars -= len(self._events.popleft().data)
        self.wake()

    def event(self, name: str, data: JsonValue) -> Event:
        """An event that stands at the present end of the feed, for one page only."""
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        return Event(f"{self._life}-{self._last}", name, text)

    def number_of(self, cursor: str | None) -> int | None:
        """The number that a cursor names, or None when it is not from this feed."""
        life, _, digits = (cursor or "").rpartition("-")
        number = whole_number(digits)
        return number if life == self._life and number is not None and number <= self._last else None

    def after(self, number: int) -> Sequence[Event] | None:
        """Everything after the event `number`, or None when some of it has been forgotten."""
        missed = self._last - number
        if missed > len(self._events):
            return None
        return list(self._events)[len(self._events) - missed :] if missed else ()

    def wake(self) -> None:
        for follower in self._followers:
            follower.set()

    def join(self) -> asyncio.Event:
        """An event that is set whenever there is something new, until `leave`."""
        woken = asyncio.Event()
        self._followers.add(woken)
        return woken

    def leave(self, woken: asyncio.Event) -> None:
        self._followers.discard(woken)
