"""Steps of the event loop that hold everything else up, by working for long or by waiting for something."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Stall:
    """One step: what it was (the same of every such step), and the seconds for which it worked and waited."""

    what: str
    worked: float
    waited: float


_QUEUED = Path("/proc/thread-self/schedstat")
"""Linux tells here for how long a thread was ready to run and another one had the processor."""


def _spent() -> tuple[float, float]:
    """For how many seconds this thread has worked and waited; only differences mean something. Time for which it was
    kept from running is neither: that is the machine's doing."""
    worked, now = time.thread_time(), time.monotonic()
    queued = int(_QUEUED.read_bytes().split()[1]) / 1e9 if _QUEUED.exists() else 0.0
    return worked, now - worked - queued


def _name_of(handle: asyncio.Handle) -> str:
    """The coroutine that takes the step, or the function that is called."""
    callback = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    named = owner.get_coro() if isinstance(owner, asyncio.Task) else callback
    return str(getattr(named, "__qualname__", type(named).__qualname__))


@contextmanager
def loop_watched(*, worked: float, waited: float) -> Iterator[list[Stall]]:
    """The steps of the running loop that work or wait for longer than so many seconds."""
    stalls: list[Stall] = []
    loop = asyncio.get_running_loop()
    original = asyncio.events.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        what = _name_of(handle)
        worked_before, waited_before = _spent()
        original(handle)
        worked_after, waited_after = _spent()
        stall = Stall(what, worked_after - worked_before, waited_after - waited_before)
        if (stall.worked > worked or stall.waited > waited) and handle._loop is loop:  # type: ignore[attr-defined]
            stalls.append(stall)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio.events.Handle, "_run", timed)
        gc.disable()  # its pauses belong to whatever the tests before this one have left
        try:
            yield stalls
        finally:
            gc.enable()
