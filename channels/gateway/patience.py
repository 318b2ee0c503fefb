"""How long things are tried, and waiting in between: backoff with jitter on the bridge's clock, ended by a stop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from channels.clock import Clock, wait_until
from channels.gateway.troubles import Trouble

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long what is waited for, in seconds, or how often it is tried.

    `idle`: no byte, heartbeats included (LangGraph sends one every 5 s, DeerFlow every 15 s). `run`: how long a run may
    live when its request does not say. `late`: how long one that is found again after its time may still live. `start`:
    how long a gateway that cannot be reached is tried before the turn fails. `busy_grace`: how long a busy thread is
    waited for although the policy rejects: the run before this one may just be ending. `stop`: how long a stopped run
    may take to end. `state`: how long the state of an ended run is asked for when it only confirms what was heard.
    `fruitless`, `gaps`: connections in a row that brought nothing (or only an `end` although the run goes on), gaps in
    a row, after which a run is polled.
    """

    idle: float = 45.0
    run: float = 86_400.0
    late: float = 600.0
    start: float = 3_600.0
    busy_grace: float = 3.0
    stop: float = 10.0
    state: float = 120.0
    first_retry: float = 0.5
    longest_retry: float = 30.0
    notice_after: float = 5.0
    first_poll: float = 1.0
    longest_poll: float = 5.0
    fruitless: int = 5
    gaps: int = 5


class OutOfPatience(Exception):
    """The time for it is over. `stopped`: because a person wanted no more. `trouble` is what stood in the way last."""

    def __init__(self, *, stopped: bool, trouble: Trouble | None) -> None:
        super().__init__(f"{'stopped' if stopped else 'out of time'} {trouble or ''}".rstrip())
        self.stopped = stopped
        self.trouble = trouble


class Perseverance:
    """Tries again what may pass. `say` is given a sentence for the reader when it takes long."""

    def __init__(self, clock: Clock, patience: Patience, stop: asyncio.Event, say: Callable[[str], None]) -> None:
        self._clock = clock
        self._patience = patience
        self._stop = stop
        self._say = say
        self._stopped_at: float | None = None
        self._retries = 0
        self._troubled_since: float | None = None
        self._last: Trouble | None = None

    @property
    def is_troubled(self) -> bool:
        """Whether something has gone wrong since it last went well."""
        return self._troubled_since is not None

    def ends(self, limit: float) -> float:
        """The moment `limit`, or earlier when a stop has had its time by then."""
        if not self._stop.is_set():
            return limit
        if self._stopped_at is None:
            self._stopped_at = self._clock.now()
        return min(limit, self._stopped_at + self._patience.stop)

    def check(self, limit: float) -> None:
        """Raise `OutOfPatience` when the time is over."""
        if self._clock.now() >= self.ends(limit):
            raise OutOfPatience(stopped=self._clock.now() < limit, trouble=self._last)

    def progressed(self) -> bool:
        """It went well: the next trouble begins anew. True when trouble has been told to the reader."""
        told = self._is_told
        self._retries = 0
        self._troubled_since = None
        return told

    @property
    def _is_told(self) -> bool:
        since = self._troubled_since
        return since is not None and self._clock.now() - since >= self._patience.notice_after

    async def wait(self, trouble: Trouble | None, notice: str, limit: float) -> None:
        """Wait before the next try; a stop ends the wait. Raises `OutOfPatience` at the moment `limit`."""
        self._last = trouble or self._last
        now = self._clock.now()
        if self._troubled_since is None:
            self._troubled_since = now
        if self._is_told and notice:
            self._say(notice)
        pause = min(self._patience.first_retry * 2 ** min(self._retries, 16), self._patience.longest_retry)
        if self._stop.is_set():
            pause = self._patience.first_retry
        self._retries += 1
        pause = max(pause * random.uniform(0.75, 1.25), trouble.retry_after if trouble else 0.0)
        await self.pause(pause, limit)

    async def pause(self, seconds: float, limit: float) -> None:
        """Wait so long; a stop ends the wait. Raises `OutOfPatience` at the moment `limit`."""
        until = min(self._clock.now() + seconds, self.ends(limit))
        if self._stop.is_set():
            await self._clock.sleep(until - self._clock.now())
        else:
            await wait_until(self._clock, until, self._stop)
        self.check(limit)

    async def insist(self, call: Callable[[], Awaitable[T]], limit: float, notice: str = "") -> T:
        """Call until it works. Raises `OutOfPatience`, and the `Trouble` when trying again would not help."""
        while True:
            try:
                return await call()
            except Trouble as trouble:
                if not trouble.kind.is_passing:
                    raise
                await self.wait(trouble, notice, limit)
