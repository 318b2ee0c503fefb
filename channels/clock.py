"""Time as an argument: everything that waits or dates something asks a `Clock`, so that tests can move it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A source of time and of waiting. Times are seconds since the Unix epoch, as floats."""

    def now(self) -> float:
        """The present moment. Never goes backwards within one process."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed on this clock (at once, after one loop turn, when it is not positive)."""
        ...


class SystemClock:
    """Wall-clock seconds that advance with the time since the machine was started, so a changed system time cannot
    stall a wait."""

    def __init__(self) -> None:
        self._offset = time.time() - _since_boot()

    def now(self) -> float:
        return self._offset + _since_boot()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def _since_boot() -> float:
    """Linux's monotonic clock stands still while the machine is suspended; a lease runs out meanwhile all the same."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


async def wait_until(clock: Clock, when: float | None, wake: asyncio.Event) -> bool:
    """Wait for `wake` or for the moment `when` (None: for ever). True when `wake` was what ended it."""
    if wake.is_set():
        return True
    if when is None:
        await wake.wait()
        return True
    woken = asyncio.ensure_future(wake.wait())
    timer = asyncio.ensure_future(clock.sleep(when - clock.now()))
    try:
        await asyncio.wait({woken, timer}, return_when=asyncio.FIRST_COMPLETED)
        return wake.is_set()
    finally:
        woken.cancel()
        timer.cancel()
