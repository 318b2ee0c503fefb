"""Keeps calls apart that no reply makes: the platform takes 50 of a kind a second."""

from __future__ import annotations

import asyncio

from channels.clock import Clock

_APART = 1 / 40  # seconds


class Spacing:
    """The turns of one kind of calls."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._in_line = asyncio.Lock()
        self._last_at = 0.0

    async def turn(self) -> None:
        """Wait for the next turn. After a stall those in line do not all go at once."""
        async with self._in_line:
            await self._clock.sleep(self._last_at + _APART - self._clock.now())
            self._last_at = self._clock.now()
