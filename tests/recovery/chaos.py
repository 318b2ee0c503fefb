"""What goes wrong in a chaos run, by the roll of dice: replicas killed and paused, everything around them ill."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field

import psycopg

from tests.recovery.cluster import Cluster
from tests.recovery.crowds import Crowd

LEASE_ENDS = (7.0, 15.0)
"""Seconds after a kill between which leases run out; the database stays up then, for it is what takeover waits for."""
_LOOK_EVERY = 0.1


@dataclass(frozen=True, slots=True)
class Takeover:
    """A channel that changed hands because its owner was killed or paused; seconds from there on.

    `stalled` is for how much of that time the machine kept this process from running when it was due: what it takes
    from everybody is nobody's slowness.
    """

    channel: str
    cause: str
    acquired: float
    acted: float
    stalled: float


@dataclass
class Record:
    """What happened."""

    counts: dict[str, int] = field(default_factory=dict)
    takeovers: list[Takeover] = field(default_factory=list)
    late_writes: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)

    def note(self, kind: str, detail: str = "") -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.story.append(f"{time.monotonic():.1f} {kind} {detail}".rstrip())


class Chaos:
    """`run` makes trouble for so many seconds, and leaves everything up and running."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self._cluster = cluster
        self._dice = dice
        self.record = Record()
        self._struck_at = -100.0
        self._gateway_struck_at = 0.0
        self._stalls: list[tuple[float, float]] = []
        self._watching: list[asyncio.Task[None]] = []

    async def run(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        ticking = asyncio.create_task(self._tick())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._strike_replicas(ends))
            group.create_task(self._strike_what_they_need(ends))
            group.create_task(self._strike_platforms(ends))
        await asyncio.gather(*self._watching)
        ticking.cancel()

    async def _tick(self) -> None:
        while True:
            due = time.monotonic() + _LOOK_EVERY
            await asyncio.sleep(_LOOK_EVERY)
            self._stalls.append((due, time.monotonic() - due))

    def _stalled(self, begin: float, end: float) -> float:
        return sum(late for due, late in self._stalls if begin <= due <= end)

    # ---------------------------------------------------------------- replicas

    async def _strike_replicas(self, ends: float) -> None:
        """One at a time, so that there is somebody to take over. The first two strikes last longer than a lease."""
        kinds = [self._leave_dead, self._pause]
        self._dice.shuffle(kinds)
        while time.monotonic() < ends:
            await asyncio.sleep(self._dice.uniform(1.0, 3.0))
            strike = kinds.pop() if kinds else self._dice.choice([self._leave_dead, self._pause, self._kill])
            name = self._dice.choice(self._cluster.names)
            await strike(name)
            await self._cluster.shared_out()

    async def _kill(self, name: str) -> None:
        """Killed, and started again at once, as by a supervisor."""
        self.record.note("replica killed, restarted at once", name)
        await self._cluster.processes[name].kill()
        await self._cluster.start_replica(name)

    async def _leave_dead(self, name: str) -> None:
        """Killed, and gone for longer than its leases."""
        self.record.note("replica killed, gone for a while", name)
        owned = await self._owned_by(name)
        self._struck_at = time.monotonic()
        await self._cluster.processes[name].kill()
        await self._watch_takeovers(name, owned, "killed")
        await self._cluster.start_replica(name)

    async def _pause(self, name: str) -> None:
        """SIGSTOP, and SIGCONT when others have its channels."""
        self.record.note("replica paused", name)
        owned = await self._owned_by(name)
        self._struck_at = time.monotonic()
        self._cluster.pause(name)
        await self._watch_takeovers(name, owned, "paused")
        self._watching.append(asyncio.create_task(self._watch_for_late_writes(name, owned, time.monotonic())))
        self._cluster.resume(name)

    async def _owned_by(self, name: str) -> dict[str, int]:
        """The channels of a replica with the epochs of its ownership."""
        pid = self._cluster.processes[name].pid
        while True:
            try:
                return {
                    channel: held.epoch for channel, held in (await self._cluster.held()).items() if held.pid == pid
                }
            except psycopg.OperationalError:
                await asyncio.sleep(_LOOK_EVERY)

    async def _watch_takeovers(self, name: str, owned: dict[str, int], cause: str) -> None:
        struck_at = self._struck_at
        acquired: dict[str, tuple[float, str]] = {}
        acted: dict[str, float] = {}
        async with asyncio.timeout(40.0):
            while len(acted) < len(owned):
                await asyncio.sleep(_LOOK_EVERY)
                try:
                    held = await self._cluster.held()
                except psycopg.OperationalError:
                    continue
                for channel, epoch in owned.items():
                    heir = self._cluster.pids.get(held[channel].pid or 0)
                    if channel not in acquired and heir not in (None, name) and held[channel].epoch > epoch:
                        acquired[channel] = (time.monotonic(), str(heir))
                    if channel in acquired and channel not in acted:
                        await self._see_whether_it_acts(channel, acquired[channel][1], acted)
        for channel, (at, _) in acquired.items():
            stalled = self._stalled(struck_at, acted[channel])
            self.record.takeovers.append(Takeover(channel, cause, at - struck_at, acted[channel] - struck_at, stalled))

    async def _see_whether_it_acts(self, channel: str, heir: str, acted: dict[str, float]) -> None:
        if not self._cluster.is_up(heir):
            return
        url = self._cluster.processes[heir].url
        found = await self._cluster.crowds[channel].acted_at(heir, url, self._struck_at)
        if found is not None:
            acted[channel] = found

    async def _watch_for_late_writes(self, name: str, owned: dict[str, int], woke_at: float) -> None:
        """A replica that wakes writes nothing in the channels it had until it has got them anew."""
        crowds = {channel: self._cluster.crowds[channel] for channel in owned}
        pid = self._cluster.processes[name].pid
        again: dict[str, float] = {}
        while time.monotonic() < woke_at + 8.0:
            looked_at = time.monotonic()
            try:
                held = await self._cluster.held()
            except psycopg.OperationalError:
                held = {}
            for channel in owned:
                if channel in held and held[channel].pid == pid:
                    again.setdefault(channel, looked_at - 2 * _LOOK_EVERY)
            await asyncio.sleep(_LOOK_EVERY)
        for channel, crowd in crowds.items():
            until = again.get(channel, woke_at + 8.0)
            late = [at for at in crowd.writes(name) if woke_at < at < until]
            self.record.late_writes.extend(f"{name} in {channel}, {at - woke_at:.3f} s after it woke" for at in late)

    # ---------------------------------------------------------------- the rest of the world

    async def _strike_what_they_need(self, ends: float) -> None:
        while time.monotonic() < ends:
            await asyncio.sleep(self._dice.uniform(3.0, 7.0))
            if self._dice.random() < 0.5 and await self._gateway_is_over_it():
                await self._restart_gateway()
            else:
                await self._restart_database()

    async def _gateway_is_over_it(self) -> bool:
        """Whether no run is left that was cut off by the last kill: after three of them the gateway gives a run up."""
        try:
            return await self._cluster.unfinished(asked_before=self._gateway_struck_at) == 0
        except psycopg.OperationalError:
            return False

    async def _restart_database(self) -> None:
        if LEASE_ENDS[0] < (since := time.monotonic() - self._struck_at) < LEASE_ENDS[1]:
            await asyncio.sleep(LEASE_ENDS[1] - since)
        crash = self._dice.random() < 0.5
        self.record.note("database " + ("killed" if crash else "stopped"))
        server = self._cluster.server
        await asyncio.to_thread(server.kill if crash else server.stop)
        await asyncio.sleep(self._dice.uniform(0.2, 1.5))
        await asyncio.to_thread(server.start)

    async def _restart_gateway(self) -> None:
        self.record.note("gateway killed")
        self._gateway_struck_at = time.time()
        await self._cluster.gateway.kill()
        await asyncio.sleep(self._dice.uniform(0.2, 1.5))
        await self._cluster.gateway.start()

    async def _strike_platforms(self, ends: float) -> None:
        crowds: list[Crowd] = list(self._cluster.crowds.values())
        while time.monotonic() < ends:
            await asyncio.sleep(self._dice.uniform(0.5, 2.0))
            self.record.note("platform ill")
            self._dice.choice(crowds).trouble(self._dice)
