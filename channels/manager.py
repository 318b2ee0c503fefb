"""The channel manager: which channels this replica owns, from joining to handing over.

A channel is the unit of scale: one replica at a time owns it, by a lease with a fencing epoch that every write
carries. Replicas that share a store share the channels out evenly, and take over those of a dead one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog
from pydantic import JsonValue, TypeAdapter, ValidationError

from channels import neighbours
from channels.adapter import ChannelState, Health
from channels.clock import Clock, wait_until
from channels.inbox import Inbox
from channels.observe import Metrics
from channels.owner import LEASE_SECONDS, ChannelOwner
from channels.shapes import as_object
from channels.store import Store
from channels.store.records import Counts, Lease, LostLease, StoreError, StoreUnavailable
from channels.transcript import _merge_stream_text
from channels.turn import ChannelParts

__all__ = ["ChannelManager", "ManagedChannel", "_merge_stream_text"]

log = structlog.get_logger(__name__)

_ROUND = 0.5  # seconds between two looks at who owns what; the database is asked only for what others own
_RENEW_EVERY = LEASE_SECONDS / 3
_COUNT_EVERY = 5.0
_PRUNE_EVERY = 3600.0
_KEEP_INBOUND_KEYS = 3 * 86_400.0  # seconds; longer than any platform's redelivery (Telegram: 24 h, Feishu: 7.1 h)
_SHUTDOWN = 11.0  # seconds for all channels to be handed over: ops in flight 5, adapters 5
_LAST_ANSWER = 2.0  # seconds for whatever the store is asked while shutting down: a mute one must not hold it up
_FIRST_PAUSE = 2.0  # seconds before a channel that ended unexpectedly is taken up again; doubles each time
_LONGEST_PAUSE = 60.0
_STEADY = 600.0  # seconds of work after which an unexpected end counts as the first one
_ORPHANED = 10.0  # seconds without an owner after which any replica takes a channel: its share does not get it going
_OWNERLESS = "waits for an owner"
_UP = (ChannelState.STARTING, ChannelState.RUNNING)
_CHANNELS = "channels"
_STATES = TypeAdapter(dict[str, Health])  # by channel; what replicas tell each other with their heartbeats


@dataclass(frozen=True, slots=True)
class ManagedChannel:
    """One enabled channel: the sink its adapter was built with, and what its turns share."""

    inbox: Inbox
    parts: ChannelParts


@dataclass(frozen=True, slots=True)
class _Owned:
    owner: ChannelOwner
    task: asyncio.Task[None]


@dataclass(frozen=True, slots=True)
class _Setback:
    """A channel ended unexpectedly here: it is left alone until a moment, longer than after the last time."""

    pause: float
    until: float


class _StoreLog:
    """Says once that the store is away for something and once that it is back: it is asked twice a second."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._cause = ""

    def away(self, error: StoreError) -> None:
        if str(error) != self._cause:
            log.warning("the store is away", part=self._part, cause=str(error))
        self._cause = str(error)

    def answers(self) -> None:
        if self._cause:
            log.info("the store is back", part=self._part)
        self._cause = ""


class ChannelManager:
    """Starts channels, claims conversations and runs turns, for the channels that this replica owns."""

    def __init__(
        self,
        channels: Mapping[str, ManagedChannel],
        store: Store,
        clock: Clock,
        metrics: Metrics,
        *,
        keep_seconds: float,
    ) -> None:
        self.replica = neighbours.new_name()
        self._channels = channels
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._keep_seconds = keep_seconds
        self._owned: dict[str, _Owned] = {}
        self._wake = asyncio.Event()
        self._shutting_down = asyncio.Event()
        self._renewed_at = -LEASE_SECONDS
        self._replicas: list[str] = []
        self._owners: dict[str, str | None] = {}
        self._said: dict[str, Health] = {}
        self._heard: dict[str, Mapping[str, Health]] = {}  # by replica
        self._setbacks: dict[str, _Setback] = {}
        self._free_since: dict[str, float] = {}
        self._adopted: set[str] = set()  # owned beyond the even share

    def health(self) -> Mapping[str, Health]:
        """How every channel is: as whoever owns it says, unless there is trouble with it here."""
        return {name: self._health_of(name, channel.inbox.health) for name, channel in self._channels.items()}

    def _health_of(self, channel: str, here: Health) -> Health:
        owner = self.owner_of(channel)
        if owner in (None, self.replica) or here.state not in _UP:
            return here
        if owner not in self._heard:  # it does not say, but its own `/readyz` does
            return Health(ChannelState.RUNNING, f"owned by {owner}", here.since)
        there = self._heard[owner].get(channel, Health(ChannelState.STARTING, since=here.since))
        return replace(there, reason=f"{there.reason} (owned by {owner})" if there.reason else f"owned by {owner}")

    def owner_of(self, channel: str) -> str | None:
        """Which replica owns the channel, as last seen."""
        return self.replica if channel in self._owned else self._owners.get(channel)

    @property
    def replicas(self) -> list[str]:
        """The live replicas, as last seen."""
        return list(self._replicas)

    async def run(self) -> None:
        """Own channels until `shut_down`; then hand all of them over. A lost store is waited for, not fatal."""
        unsubscribe = self._store.subscribe(self._woken)
        neighbours.here.add(self.replica)
        inboxes = [channel.inbox.store_postponed() for channel in self._channels.values()]
        beside = asyncio.gather(self._keep_house(), *inboxes)
        rounds = asyncio.create_task(self._look_after_channels(), name="rounds")
        rounds.add_done_callback(lambda _: self._shutting_down.set())  # also when it has ended by a fault of ours
        try:
            await self._shutting_down.wait()
            with suppress(StoreUnavailable):
                await self._in_time(rounds)  # it may just be given a lease, which has to be released
        finally:
            unsubscribe()
            rounds.cancel()
            beside.cancel()
            await self._hand_everything_over()
            await asyncio.gather(rounds, beside, return_exceptions=True)
            neighbours.here.discard(self.replica)

    def shut_down(self) -> None:
        """Stop claiming and hand over; `run` returns when that is done."""
        self._shutting_down.set()
        self._wake.set()

    async def _look_after_channels(self) -> None:
        store = _StoreLog("leases")
        await self._depose_dead_neighbours()
        while not self._shutting_down.is_set():
            self._wake.clear()
            try:
                await self._round()
                store.answers()
            except StoreError as error:
                store.away(error)
            except Exception:
                log.exception("looking after the channels failed; trying again")
            await wait_until(self._clock, self._clock.now() + _ROUND, self._wake)

    async def _in_time(self, work: Awaitable[object]) -> None:
        """Wait for what the store is asked, while shutting down. Raises `StoreUnavailable` when that takes too long."""
        task = asyncio.ensure_future(work)
        timer = asyncio.ensure_future(self._clock.sleep(_LAST_ANSWER))
        try:
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise StoreUnavailable(f"no answer within {_LAST_ANSWER:g} s")
            task.result()
        finally:
            task.cancel()
            timer.cancel()
            await asyncio.gather(task, timer, return_exceptions=True)

    def _woken(self, channel: str) -> None:
        if owned := self._owned.get(channel):
            owned.owner.wake()

    # ---------------------------------------------------------------- one round

    async def _round(self) -> None:
        self._reap()
        now = self._clock.now()
        if now - self._renewed_at >= _RENEW_EVERY:
            await self._heartbeat()
            await self._renew_leases()
            self._renewed_at = now
        elif self._said != self._health_here():
            await self._heartbeat()  # others are asked how our channels are
        if len(self._owned) < len(self._channels):
            owners = await self._store.owners(list(self._channels))
            self._owners, self._heard = owners, await self._said_by({owner for owner in owners.values() if owner})
            if any(owner is None for name, owner in self._owners.items() if name not in self._owned):
                await self._heartbeat()  # a dead owner must not count any more
        else:
            self._owners = dict.fromkeys(self._channels, self.replica)
        self._look_at_strays(now)
        share = self._share()
        for name in self._shared()[share:]:
            self._owned[name].owner.halt()  # a replica has joined; `_work` releases the lease once it is handed over
        await self._acquire(share)

    def _health_here(self) -> dict[str, Health]:
        return {name: self._channels[name].inbox.health for name in self._owned}

    async def _heartbeat(self) -> None:
        said = self._health_here()
        states: JsonValue = _STATES.dump_python(said, mode="json")
        replicas = await self._store.heartbeat(self.replica, {_CHANNELS: states})
        self._said = said
        if replicas != self._replicas:
            self._adopted.clear()  # perhaps the newcomer can do what those before it could not
        self._replicas = replicas

    async def _said_by(self, owners: Set[str]) -> dict[str, Mapping[str, Health]]:
        """How the owners say that their channels are. Without those whose version says nothing that means anything."""
        heard: dict[str, Mapping[str, Health]] = {owner: {} for owner in owners}
        for replica, said in (await self._store.said_by(owners)).items():
            try:
                heard[replica] = _STATES.validate_python(as_object(said).get(_CHANNELS))
            except ValidationError:
                del heard[replica]
        return heard

    def _look_at_strays(self, now: float) -> None:
        """Note what nobody owns, and what somebody else got going after it had failed here."""
        stray = [name for name in self._channels if name not in self._owned]
        self._free_since = {name: self._free_since.get(name, now) for name in stray if self._owners.get(name) is None}
        for name in stray:
            if name in self._setbacks and self._owners.get(name) not in (None, self.replica):
                self._channels[name].inbox.report(ChannelState.STARTING, _OWNERLESS)

    def _shared(self) -> list[str]:
        """The channels that count as this replica's share."""
        return sorted(self._owned.keys() - self._adopted)

    def _share(self) -> int:
        """How many channels this replica should own: even shares, one more for those that own the most already."""
        if self.replica not in self._replicas:
            return 0
        holdings = Counter(self._owners.values())
        each, left = divmod(len(self._channels), len(self._replicas))
        favoured = sorted(self._replicas, key=lambda replica: (-holdings[replica], replica))[:left]
        return each + (1 if self.replica in favoured else 0)

    async def _renew_leases(self) -> None:
        """All at once, so that one that waits for a lock does not hold up the others. Raises `StoreError`."""
        renewals = [self._renew(owned.owner) for owned in self._owned.values()]
        for error in await asyncio.gather(*renewals, return_exceptions=True):
            if error is not None:
                raise error

    async def _renew(self, owner: ChannelOwner) -> None:
        asked_at = self._clock.now()
        try:
            owner.renewed(await self._store.renew(owner.current_lease, ttl=LEASE_SECONDS), asked_at)
        except LostLease:
            log.error("lost a channel to another replica", channel=owner.channel)
            owner.lose()

    async def _acquire(self, share: int) -> None:
        for name in sorted(self._channels):
            if name in self._owned or self._owners.get(name) not in (None, self.replica):
                continue
            now = self._clock.now()
            if name in self._setbacks and now < self._setbacks[name].until:
                continue
            is_surplus = len(self._shared()) >= share
            if is_surplus and now - self._free_since.get(name, now) < _ORPHANED:
                continue
            asked_at = self._clock.now()
            lease = await self._store.acquire(name, self.replica, ttl=LEASE_SECONDS)
            if lease is not None and self._owners.get(name) == self.replica:
                # It was ours before, and writes of then may still be on their way: the next epoch shuts them out.
                await self._store.release(lease)
                lease = await self._store.acquire(name, self.replica, ttl=LEASE_SECONDS)
            if lease is not None:
                if is_surplus:
                    self._adopted.add(name)
                self._own(lease, asked_at)

    def _own(self, lease: Lease, asked_at: float) -> None:
        log.info("channel taken", channel=lease.channel, epoch=lease.epoch)
        channel = self._channels[lease.channel]
        owner = ChannelOwner(lease, channel.inbox, channel.parts)
        owner.renewed(lease, asked_at)
        task = asyncio.create_task(self._work(owner), name=f"owner-{lease.channel}")
        task.add_done_callback(lambda _: self._wake.set())
        self._owned[lease.channel] = _Owned(owner, task)

    async def _work(self, owner: ChannelOwner) -> None:
        began = self._clock.now()
        state, reason = ChannelState.STARTING, _OWNERLESS
        try:
            await owner.run()
        except LostLease as error:
            log.warning("channel left to another owner", channel=owner.channel, cause=str(error))
            return
        except Exception as error:
            pause = self._set_back(owner.channel, began)
            log.exception("channel ended unexpectedly; it is taken up again", channel=owner.channel, after=pause)
            state = ChannelState.FAILED
            reason = f"ended unexpectedly ({type(error).__name__}; the log says where); starts again after {pause:g} s"
        finally:
            self._channels[owner.channel].inbox.report(state, reason)
        try:
            await self._in_time(self._store.release(owner.current_lease))
        except StoreError as error:
            log.warning("lease not released; it runs out by itself", channel=owner.channel, cause=str(error))

    def _set_back(self, channel: str, began: float) -> float:
        """Leave the channel alone for a while; returns for how long. Meanwhile any other replica may take it."""
        now = self._clock.now()
        last = self._setbacks.get(channel)
        pause = _FIRST_PAUSE if last is None or now - began > _STEADY else min(_LONGEST_PAUSE, 2 * last.pause)
        self._setbacks[channel] = _Setback(pause, now + pause)
        return pause

    def _reap(self) -> None:
        self._owned = {name: owned for name, owned in self._owned.items() if not owned.task.done()}
        self._adopted &= self._owned.keys()

    async def _hand_everything_over(self) -> None:
        tasks = [owned.task for owned in self._owned.values()]
        try:
            await self._in_time(self._sign_off())
        except StoreError as error:
            log.warning("could not sign off from the store", cause=str(error))
        for owned in self._owned.values():
            owned.owner.halt()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_SHUTDOWN)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _sign_off(self) -> None:
        """Let nobody come in while a channel is handed over, and whoever there is have each of them right after."""
        calls = (self._renew_leases(), self._store.leave(self.replica))
        for error in await asyncio.gather(*calls, return_exceptions=True):
            if error is not None:
                raise error

    async def _depose_dead_neighbours(self) -> None:
        """Leases of a process that died on this machine need not run out: a restart goes on at once."""
        try:
            owners = await self._store.owners(list(self._channels))
            for owner in {owner for owner in owners.values() if owner and neighbours.is_dead(owner)}:
                log.info("taking over from a process that is gone", replica=owner)
                await self._store.depose(owner)
        except StoreError as error:
            log.warning("the store is away", cause=str(error))

    async def _keep_house(self) -> None:
        """Count and prune, apart from the rounds: however long it takes, the leases are renewed in time."""
        pruned_at = 0.0
        store = _StoreLog("housekeeping")
        while True:
            try:
                await self._count()
                if self._clock.now() - pruned_at >= _PRUNE_EVERY and self._replicas[:1] == [self.replica]:
                    pruned_at = self._clock.now()
                    await self._prune(pruned_at)
                store.answers()
            except StoreError as error:
                store.away(error)
            except Exception:
                log.exception("housekeeping failed; it is tried again")
            await self._clock.sleep(_COUNT_EVERY)

    async def _prune(self, now: float) -> None:
        keys_before = now - max(_KEEP_INBOUND_KEYS, self._keep_seconds)
        await self._store.prune(turns_before=now - self._keep_seconds, inbounds_before=keys_before)

    async def _count(self) -> None:
        found = {counts.channel: counts for counts in await self._store.counts()}
        for name in self._channels:  # also where there is nothing any more
            counts = found.get(name, Counts(name))
            self._metrics.waiting.labels(name).set(counts.waiting)
            self._metrics.open_turns.labels(name).set(counts.open_turns)
            self._metrics.dead_letters.labels(name).set(counts.dead)
