"""Clocks for tests: one that only moves when told to, and one that runs faster than the wall."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time


class ManualClock:
    """Stands still until `advance` or `run` moves it; sleepers wake in the order of their moments."""

    def __init__(self, start: float = 1_750_000_000.0) -> None:
        self._now = start
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._numbers), future))
        await future

    def next_wake(self) -> float | None:
        """The moment of the earliest sleeper, or None when nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    async def advance(self, seconds: float, *, settle: int = 20) -> None:
        """Move the clock, waking each sleeper at its moment and giving the loop `settle` turns after each."""
        await _turns(settle)
        target = self._now + seconds
        while (wake := self.next_wake()) is not None and wake <= target:
            self._now = max(self._now, wake)
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            await _turns(settle)
        self._now = target
        await _turns(settle)


class ScaledClock:
    """Runs `speed` times faster than the wall: real sockets, and minutes that pass in seconds."""

    def __init__(self, speed: float, start: float = 1_750_000_000.0) -> None:
        self.speed = speed
        self._start = start
        self._origin = time.monotonic()

    def now(self) -> float:
        return self._start + (time.monotonic() - self._origin) * self.speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds) / self.speed)


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
