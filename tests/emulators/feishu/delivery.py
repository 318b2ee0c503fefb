"""Delivers events at least once: again after 15 s, 5 min, 1 h and 6 h, until one attempt is acked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from channels.clock import Clock
from tests.emulators.feishu.events import Attempt, Event, Outcome
from tests.emulators.feishu.limits import Limits


class Deliverer:
    """Owns the events and the tasks that bring them to the bridge."""

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        attempt: Callable[[Event], Awaitable[Attempt]],
        on_change: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._attempt = attempt
        self._on_change = on_change
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: list[Event] | None = None
        self.events: list[Event] = []

    def post(self, event: Event) -> None:
        """Take an event in and begin to deliver it (or hold it, see `hold`)."""
        self.events.append(event)
        self._start(event)

    def hold(self) -> None:
        """Keep events back until `release`."""
        if self._held is None:
            self._held = []

    def release(self, *, reverse: bool = False) -> None:
        """Deliver what was held back, in its order or in the opposite one."""
        held, self._held = self._held or [], None
        for event in reversed(held) if reverse else held:
            self._start(event)

    async def try_once(self, event: Event) -> Attempt:
        """One attempt now, outside the schedule."""
        attempt = await self._attempt(event)
        event.attempts.append(attempt)
        self._on_change()
        return attempt

    def start_again(self) -> None:
        """After a stop: go on with what nobody has acked yet."""
        for event in self.events:
            if (
                not event.acked
                and not event.is_callback
                and len(event.attempts) <= len(self._limits.redelivery_seconds)
            ):
                self._start(event)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def _start(self, event: Event) -> None:
        if self._held is not None:
            self._held.append(event)
            return
        task = asyncio.get_running_loop().create_task(self._deliver(event))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, event: Event) -> None:
        delays = (0.0, *self._limits.redelivery_seconds)
        for delay in delays[len(event.attempts) :]:
            if delay:
                await self._clock.sleep(delay)
            if event.acked or (await self.try_once(event)).outcome is Outcome.ACKED:
                return
