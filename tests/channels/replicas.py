"""Several replicas in one process on one PostgreSQL database, with channels of paper and a scripted gateway.

Time stands still while anybody works: it moves on, to the next moment somebody waits for, once every replica is idle.
So what takes 15 s here takes 15 s on any machine.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from channels.access import Policy
from channels.adapter import Context, Op, Receipt, ReplyTarget
from channels.clock import Clock
from channels.inbox import Inbox
from channels.manager import ChannelManager, ManagedChannel
from channels.model import Inbound, InboundKind, Place, Sender
from channels.observe import Metrics
from channels.pacing import Pacer
from channels.store import Store
from channels.store.records import StoreUnavailable
from channels.turn import ChannelParts
from tests.clock import ManualClock
from tests.paper import Paper, PaperAdapter, PaperSurface
from tests.scripted import Act, ScriptedGateway

_LOOP_TURNS = 25  # after so many turns of the loop without work for a database, everybody waits for time to pass


class PausableClock:
    """The time of one process, which stands still while the process is paused."""

    def __init__(self, inner: Clock) -> None:
        self._inner = inner
        self._paused_at: float | None = None
        self._running = asyncio.Event()
        self._running.set()

    def now(self) -> float:
        return self._inner.now() if self._paused_at is None else self._paused_at

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)
        await self._running.wait()

    def pause(self) -> None:
        self._paused_at = self._inner.now()
        self._running.clear()

    def resume(self) -> None:
        self._paused_at = None
        self._running.set()


@dataclass(frozen=True, slots=True)
class Written:
    """One call that a platform got."""

    at: float
    replica: str
    channel: str
    chat: str


class World:
    """What all replicas share: time, the database, the platforms and the gateway."""

    def __init__(self, url: str, clock: ManualClock, channels: Sequence[str], *script: Act) -> None:
        self.url = url
        self.clock = clock
        self.channels = list(channels)
        self.papers: dict[str, dict[str, Paper]] = {channel: defaultdict(Paper) for channel in channels}
        self.gateway = ScriptedGateway(clock, script)
        self.written: list[Written] = []
        self.replicas: list[Replica] = []
        self.calls_under_way = 0
        self.accepted = 0

    async def join(self, name: str) -> Replica:
        """Start one more replica."""
        replica = Replica(self, name)
        await replica.start()
        self.replicas.append(replica)
        return replica

    async def close(self) -> None:
        for replica in self.replicas:
            await replica.end()

    # ---------------------------------------------------------------- time

    async def idle(self) -> None:
        """Return once nobody does anything but wait for time to pass."""
        quiet = 0
        while quiet < 2:
            for _ in range(_LOOP_TURNS):
                await asyncio.sleep(0)
            if self.calls_under_way:
                quiet = 0
                await asyncio.sleep(0.001)
            else:
                quiet += 1

    async def pass_time(self, seconds: float) -> None:
        """Let `seconds` pass, with everybody doing what they do meanwhile."""
        await self.until(lambda: False, seconds, fail=False)

    async def until(self, holds: Callable[[], bool], within: float, *, fail: bool = True) -> float:
        """Let time pass until `holds`; returns the seconds that took. Fails when it takes longer than `within`."""
        began = self.clock.now()
        await self.idle()
        while not holds():
            left = began + within - self.clock.now()
            if left <= 0:
                assert not fail, f"not within {within:g} s"
                break
            wake = self.clock.next_wake()
            step = left if wake is None else min(left, max(0.0, wake - self.clock.now()))
            await self.clock.advance(step, settle=1)
            await self.idle()
        return self.clock.now() - began

    # ---------------------------------------------------------------- what is seen

    def owners(self) -> dict[str, list[str]]:
        """Who works on each channel."""
        return {
            channel: [replica.name for replica in self.replicas if channel in replica.owned]
            for channel in self.channels
        }

    def shares(self) -> list[int]:
        """How many channels each living replica works on."""
        return [len(replica.owned) for replica in self.replicas if replica.is_alive]

    @property
    def is_shared_out(self) -> bool:
        """Every channel has one owner, and nobody has more than one channel more than another."""
        shares = self.shares()
        return all(len(owners) == 1 for owners in self.owners().values()) and max(shares) - min(shares) <= 1

    def text(self, channel: str, chat: str = "room") -> str:
        return self.papers[channel][chat].text()

    def writers(self, channel: str) -> list[str]:
        """Who wrote to the channel, in order, each once for a row of calls."""
        names = [written.replica for written in self.written if written.channel == channel]
        return [name for index, name in enumerate(names) if index == 0 or names[index - 1] != name]

    def last_written(self, replica: Replica) -> float:
        return max((written.at for written in self.written if written.replica == replica.name), default=0.0)


class Replica:
    """One process of the bridge, as far as it can be one of several in this process."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.clock = PausableClock(world.clock)
        self.is_alive = False
        self._database_away = False
        self._database_mute = False

    async def start(self) -> None:
        world, clock = self.world, self.clock
        self.store = await Store.open(world.url, clock, lease_clock=world.clock)
        self._watch_the_store()
        self.gateway = ScriptedGateway(clock)
        self.gateway.runs, self.gateway.scripts = world.gateway.runs, world.gateway.scripts
        self.metrics = Metrics()
        self.inboxes: dict[str, Inbox] = {}
        self.adapters: dict[str, Pens] = {}
        managed = {channel: self._channel(channel) for channel in world.channels}
        self.manager = ChannelManager(managed, self.store, clock, self.metrics, keep_seconds=30 * 86_400.0)
        self._running = asyncio.create_task(self.manager.run())
        self.is_alive = True

    def _channel(self, name: str) -> ManagedChannel:
        policy = Policy()
        inbox = self.inboxes[name] = Inbox(name, policy, self.store, self.clock, self.metrics)
        context = Context(name, inbox, self.clock, self.gateway.open_file)
        adapter = self.adapters[name] = Pens(context, self)
        parts = ChannelParts(
            name=name,
            platform="paper",
            adapter=adapter,
            pacer=Pacer(adapter.budgets, self.clock),
            store=self.store,
            gateway=self.gateway,
            clock=self.clock,
            metrics=self.metrics,
            policy=policy,
            assistant_id="agent",
            run_config={},
            run_context={},
            run_timeout=None,
            attachment_bytes=1_000,
            give_up_after=86_400.0,
        )
        return ManagedChannel(inbox, parts)

    def _watch_the_store(self) -> None:
        world, database = self.world, self.store._database
        submit = database._submit

        async def watched(workers: object, work: object) -> object:
            if self._database_mute:
                await self.clock.sleep(25.0)
            if self._database_away or self._database_mute:
                raise StoreUnavailable("the test took it away")
            world.calls_under_way += 1
            try:
                return await submit(workers, work)  # type: ignore[arg-type]
            finally:
                world.calls_under_way -= 1

        database._submit = watched  # type: ignore[assignment,method-assign]

    # ---------------------------------------------------------------- fate

    def lose_the_database(self) -> None:
        """From now on this replica alone cannot reach it."""
        self._database_away, self._database_mute = True, False

    def mute_the_database(self) -> None:
        """From now on it answers this replica no more; each call is given up after 25 s."""
        self._database_mute = True

    def find_the_database(self) -> None:
        self._database_away = self._database_mute = False

    async def stop(self) -> None:
        """An orderly end: hand everything over, then disconnect."""
        self.manager.shut_down()
        await self.world.until(self._running.done, 60.0)
        await self._running
        await self.end()

    async def die(self) -> None:
        """End at once, without a word to anybody."""
        self.lose_the_database()
        self.clock.pause()
        self.is_alive = False
        for owned in list(self.manager._owned.values()):
            owned.owner.lose()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def end(self) -> None:
        if self.is_alive:
            await self.die()
        self.is_alive = False
        await self.store.close()

    # ---------------------------------------------------------------- what it does

    @property
    def owned(self) -> list[str]:
        """The channels it works on."""
        return sorted(self.manager._owned) if self.is_alive else []

    async def hear(self, channel: str, text: str, chat: str = "room") -> None:
        """A person writes, and the platform tells this replica."""
        self.world.accepted += 1
        number = self.world.accepted
        inbound = Inbound(
            place=Place(channel, chat, private=True),
            sender=Sender("u1", "Ann"),
            event_key=f"e{number}",
            kind=InboundKind.MESSAGE,
            text=text,
            received_at=self.clock.now(),
            message_id=f"m{number}",
        )
        await self.inboxes[channel].accept(replace(inbound))


class Pens(PaperAdapter):
    """Paper that remembers who wrote on it. `pens_down` makes every call wait."""

    def __init__(self, context: Context, replica: Replica) -> None:
        super().__init__(context, replica.world.papers[context.channel])
        self.replica = replica
        self.channel = context.channel
        self.pens_down: Callable[[], asyncio.Future[None]] | None = None
        self.stopped_at: float | None = None

    async def stop(self) -> None:
        self.stopped_at = self.replica.world.clock.now()

    def surface(self, target: ReplyTarget) -> PenSurface:
        return PenSurface(self, target)


class PenSurface(PaperSurface):
    def __init__(self, pens: Pens, target: ReplyTarget) -> None:
        super().__init__(pens.papers[target.place.chat], target.turn)
        self._pens = pens
        self._chat = target.place.chat

    async def perform(self, op: Op) -> Receipt:
        pens = self._pens
        if pens.pens_down is not None:
            await pens.pens_down()
        world = pens.replica.world
        world.written.append(Written(world.clock.now(), pens.replica.name, pens.channel, self._chat))
        return await super().perform(op)
