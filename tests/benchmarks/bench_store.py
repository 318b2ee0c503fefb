"""How many inbounds a second an SQLite store commits when they come one by one, and when they come at once.

Run it with `python -m tests.benchmarks.bench_store`. What counts is the ratio: the disk decides the rest.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time

from channels.clock import SystemClock
from channels.model import Inbound, InboundKind, Place, Sender
from channels.store import Store
from channels.store.records import Lane


def inbound(number: int) -> Inbound:
    return Inbound(
        place=Place("bench", f"chat-{number % 50}"),
        sender=Sender("u1"),
        event_key=f"k{number}",
        kind=InboundKind.MESSAGE,
        text="What is the weather like in the city I told you about yesterday?",
        received_at=0.0,
        message_id=f"m{number}",
    )


async def measure(url: str, count: int) -> tuple[float, float]:
    """Accepts a second, one by one and all at once."""
    store = await Store.open(url, SystemClock())
    await store.accept(inbound(-1), Lane.TURN)
    started = time.perf_counter()
    for number in range(count):
        await store.accept(inbound(number), Lane.TURN)
    singly = time.perf_counter() - started
    started = time.perf_counter()
    await asyncio.gather(*(store.accept(inbound(number), Lane.TURN) for number in range(count, 2 * count)))
    at_once = time.perf_counter() - started
    await store.close()
    return count / singly, count / at_once


def main(count: int = 1000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        singly, at_once = asyncio.run(measure(f"sqlite:///{folder}/bridge.db", count))
    lines = [
        f"one by one: {singly:8.0f} accepts/s",
        f"at once:    {at_once:8.0f} accepts/s",
        f"ratio:      {at_once / singly:8.1f}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
