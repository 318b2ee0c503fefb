"""What it costs to take in many replies at once, and to let them through as budget comes.

Run it with `python -m tests.benchmarks.bench_pacer`. The clock is moved by hand, so all that is measured is work.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

from channels.adapter import Budget, Draw, Op, Urgency
from channels.pacing import Pacer
from tests.clock import ManualClock

BUDGETS = {"all": Budget(30, 1.0, burst=30), "chat": Budget(20, 60.0, burst=5)}
SECONDS = 2.0


class Final:
    """A reply that has one last thing to show."""

    held_until = 0.0

    def __init__(self, number: int) -> None:
        self.stale_since = float(number)
        self._ops = [Op(urgency=Urgency.FINAL, draws=(Draw("all"), Draw("chat", str(number))))]

    def offers(self, now: float) -> Sequence[Op]:
        return self._ops


async def measure(count: int) -> tuple[float, float]:
    """Seconds of work for `count` replies that begin in one turn of the loop, and for the next `SECONDS` of waiting."""
    clock = ManualClock()
    pacer = Pacer(BUDGETS, clock)
    replies = [asyncio.create_task(pacer.admit(Final(number))) for number in range(count)]
    started = time.perf_counter()
    await asyncio.sleep(0)
    begun = time.perf_counter()
    running = asyncio.create_task(pacer.run())
    await clock.advance(SECONDS)
    ended = time.perf_counter()
    for task in (running, *replies):
        task.cancel()
    await asyncio.gather(running, *replies, return_exceptions=True)
    return begun - started, ended - begun


def main(counts: Sequence[int] = (100, 1_000, 10_000)) -> None:
    for count in counts:
        begin, wait = asyncio.run(measure(count))
        line = f"{count:6d} replies: {begin * 1000:8.1f} ms to begin, {wait * 1000:8.1f} ms for {SECONDS:g} s on"
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
