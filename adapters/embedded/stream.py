"""The stream bridge: what a run publishes, kept for a while, replayed and fanned out to any number of readers."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from adapters.embedded import wire
from channels.clock import Clock


class EventId(NamedTuple):
    """`<ms>-<seq>`: milliseconds since the epoch, and the event's number within its run. Orders as it compares."""

    ms: int
    seq: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"

    @classmethod
    def parse(cls, text: str) -> EventId | None:
        """The id that `text` spells, or None."""
        ms, dash, seq = text.strip().partition("-")
        return cls(int(ms), int(seq)) if dash and _digits(ms) and _digits(seq) else None


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


@dataclass(frozen=True, slots=True)
class Frame:
    """One published event: its id, its mode (`messages`, `values`, `error` …) and its bytes on the wire."""

    id: EventId
    mode: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Gap:
    """Events between `requested` and `earliest` are no longer kept: the reader must reload the durable state."""

    run_id: str
    requested: str
    earliest: EventId | None
    latest: EventId | None

    def frame(self) -> bytes:
        """The `gap` event. It has no id, so that a reader's last event id stays what it was."""
        data = {
            "code": "stream_replay_gap",
            "run_id": self.run_id,
            "requested_event_id": self.requested,
            "earliest_available_event_id": str(self.earliest) if self.earliest else None,
            "latest_available_event_id": str(self.latest) if self.latest else None,
            "recovery": "reload_durable_state",
        }
        return wire.frame("gap", wire.dumps(data))


class Signal(Enum):
    """What a subscription may say besides events."""

    HEARTBEAT = auto()  # nothing was published for the heartbeat interval
    END = auto()  # the run is over and everything has been read
    CLOSED = auto()  # the subscription or the bridge was closed; the run may go on


Batch = list[Frame] | Gap | Signal

# Asks for everything that is still kept, as LangGraph's server understands it.
FROM_START = "-1"
_FROM_START = frozenset({FROM_START, "0"})


class Subscription(ABC):
    """One reader of one run."""

    @property
    @abstractmethod
    def gap(self) -> Gap | None:
        """The gap that `next` would report now, if any."""

    @abstractmethod
    async def next(self) -> Batch:
        """Wait for the next events (at least one), a gap, or a signal. A gap, END and CLOSED are the last."""

    @abstractmethod
    def close(self) -> None:
        """Stop reading: a waiting `next` returns CLOSED. May be called more than once."""


class StreamBridge(ABC):
    """Where runs publish and readers subscribe. A backend keeps a bounded number of events per run."""

    @abstractmethod
    def open(self, run_id: str) -> None:
        """Begin the stream of a run, empty. A stream of that run that is still kept is dropped."""

    @abstractmethod
    async def publish(self, run_id: str, mode: str, data: bytes, namespace: Collection[str] = ()) -> EventId:
        """Append one event with the JSON `data`."""

    @abstractmethod
    async def end(self, run_id: str) -> None:
        """Mark the run as over. Its events stay readable for the retention time, then are dropped."""

    @abstractmethod
    def subscribe(self, run_id: str, after: str | None, modes: Collection[str] | None = None) -> Subscription | None:
        """Read the events after the id `after` ("-1" or "0": all that are kept; None: only what comes from now on).

        `modes` limits what is read to these modes; `metadata` and `error` always pass. None: nothing is kept of the
        run, because it was never opened or its time is over.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close every subscription and stop all timers."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of a run is kept, and for how long.

    Attributes:
        events: events kept for readers that are not connected; 256 as in DeerFlow's gateway.
        size: bytes kept for them, whichever is reached first (the newest event is always kept).
        lag: bytes that may be kept beyond that while a connected reader has not been given them yet. A reader that
            falls behind further gets a gap.
        seconds: how long the events stay after the end of the run; 60 s as in DeerFlow's gateway.
        heartbeat: seconds of silence after which a reader is sent a heartbeat.
    """

    events: int = 256
    size: int = 4 * 1024 * 1024
    lag: int = 32 * 1024 * 1024
    seconds: float = 60.0
    heartbeat: float = 15.0


class _Log:
    """The kept events of one run. `first` is the number of the oldest one; numbers count from the run's start."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.frames: deque[Frame] = deque()
        self.first = 0
        self.size = 0
        self.last: EventId | None = None
        self.evicted: EventId | None = None
        self.ended = False
        self.readers: set[MemorySubscription] = set()

    @property
    def next(self) -> int:
        return self.first + len(self.frames)

    def append(self, frame: Frame, retention: Retention) -> None:
        self.frames.append(frame)
        self.size += len(frame.data)
        self.last = frame.id
        while len(self.frames) > 1 and self._must_evict(retention):
            oldest = self.frames.popleft()
            self.first += 1
            self.size -= len(oldest.data)
            self.evicted = oldest.id

    def _must_evict(self, retention: Retention) -> bool:
        if len(self.frames) <= retention.events and self.size <= retention.size:
            return False
        awaited = any(reader.cursor <= self.first for reader in self.readers)
        return not awaited or self.size > retention.size + retention.lag

    def since(self, cursor: int) -> list[Frame]:
        return [self.frames[index] for index in range(cursor - self.first, len(self.frames))]

    def place(self, after: EventId) -> int | None:
        """The number of the first event after `after`; None when that cannot be told from what is kept."""
        if (self.evicted and after < self.evicted) or (self.last and after > self.last):
            return None
        behind = sum(1 for frame in self.frames if frame.id <= after)
        return self.first + behind


class MemorySubscription(Subscription):
    """A cursor into the run's log: readers share the events, so one more reader costs nothing per event."""

    def __init__(
        self,
        log: _Log,
        after: str | None,
        modes: Collection[str] | None,
        clock: Clock,
        heartbeat: float,
    ) -> None:
        self._log = log
        self._modes = None if modes is None else frozenset({*modes, "metadata", "error"})
        self._clock = clock
        self._heartbeat = heartbeat
        self._wake = asyncio.Event()
        self._closed = False
        self._beat = False
        self._last_sent = clock.now()
        self._timer: asyncio.Task[None] | None = None
        self._lost: str | None = None
        self._given: EventId | None = None
        self.cursor = log.next
        if after is not None:
            self._place(after)
        log.readers.add(self)

    def _place(self, after: str) -> None:
        if after in _FROM_START:
            self.cursor = self._log.first
            return
        event_id = EventId.parse(after)
        place = self._log.place(event_id) if event_id else None
        if place is None:
            # An id from elsewhere, or one whose successors are gone: a silent replay would hide the hole.
            self._lost = after
        else:
            self.cursor = place

    @property
    def gap(self) -> Gap | None:
        log, requested = self._log, self._lost
        if requested is None and self.cursor < log.first:
            requested = str(self._given) if self._given else FROM_START  # fell behind while connected
        if requested is None:
            return None
        return Gap(log.run_id, requested, log.frames[0].id if log.frames else None, log.last)

    async def next(self) -> Batch:
        if self._timer is None:
            self._timer = asyncio.create_task(self._beats())
        while True:
            if self._closed:
                return self._finish(Signal.CLOSED)
            if gap := self.gap:
                return self._finish(gap)
            if frames := self._take():
                return frames
            if self._log.ended:
                return self._finish(Signal.END)
            if self._beat:
                self._beat = False
                self._last_sent = self._clock.now()
                return Signal.HEARTBEAT
            self._wake.clear()
            await self._wake.wait()

    def _take(self) -> list[Frame]:
        frames = self._log.since(self.cursor)
        self.cursor = self._log.next
        if frames:
            self._given = frames[-1].id
        if self._modes is not None:
            frames = [frame for frame in frames if frame.mode in self._modes]
        if frames:
            self._last_sent = self._clock.now()
            self._beat = False
        return frames

    async def _beats(self) -> None:
        while True:
            quiet = self._clock.now() - self._last_sent
            if quiet >= self._heartbeat:
                self._beat = True
                self._last_sent = self._clock.now()
                self._wake.set()
            else:
                await self._clock.sleep(self._heartbeat - quiet)

    def _finish(self, last: Gap | Signal) -> Gap | Signal:
        self.close()
        return last

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._log.readers.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._wake.set()


class MemoryStreamBridge(StreamBridge):
    """Streams in this process's memory, bounded by `Retention`."""

    def __init__(self, clock: Clock, retention: Retention) -> None:
        self._clock = clock
        self._retention = retention
        self._logs: dict[str, _Log] = {}
        self._cleanups: set[asyncio.Task[None]] = set()
        self._closed = False

    def open(self, run_id: str) -> None:
        self._logs[run_id] = _Log(run_id)

    async def publish(self, run_id: str, mode: str, data: bytes, namespace: Collection[str] = ()) -> EventId:
        log = self._logs[run_id]
        ms = int(self._clock.now() * 1000)
        event_id = EventId(max(ms, log.last.ms), log.last.seq + 1) if log.last else EventId(ms, 0)
        data = wire.frame(wire.event_name(mode, namespace), data, str(event_id))
        log.append(Frame(event_id, mode, data), self._retention)
        for reader in log.readers:
            reader.wake()
        return event_id

    async def end(self, run_id: str) -> None:
        log = self._logs[run_id]
        log.ended = True
        for reader in log.readers:
            reader.wake()
        cleanup = asyncio.create_task(self._forget(log))
        self._cleanups.add(cleanup)
        cleanup.add_done_callback(self._cleanups.discard)

    async def _forget(self, log: _Log) -> None:
        await self._clock.sleep(self._retention.seconds)
        if self._logs.get(log.run_id) is log:
            del self._logs[log.run_id]

    def subscribe(self, run_id: str, after: str | None, modes: Collection[str] | None = None) -> Subscription | None:
        log = self._logs.get(run_id)
        if log is None:
            return None
        reader = MemorySubscription(log, after, modes, self._clock, self._retention.heartbeat)
        if self._closed:
            reader.close()
        return reader

    async def close(self) -> None:
        self._closed = True
        for log in self._logs.values():
            for reader in list(log.readers):
                reader.close()
        tasks = list(self._cleanups)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
