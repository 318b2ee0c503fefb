"""Whatever owners do in whatever order, the store agrees with a model of a few lists.

One test takes steps one after the other and predicts each result; the other lets owners run into each other and
checks what must hold afterwards: every accepted inbound is in exactly one turn, the order of a conversation is kept,
and no write of an outdated epoch comes after one of a later epoch.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from channels.model import RunId, ThreadId, TurnId
from channels.store import Store
from channels.store.database import create_engine, parse_url
from channels.store.records import Lane, Lease, LostLease, StoreError, Turn, TurnState
from channels.store.schema import inbounds, turn_inbounds, turns
from tests.channels.store.samples import ANSWER, inbound, keys, place
from tests.clock import ManualClock

OWNERS = ("ada", "bob", "cyd")
TTL = 15.0
BLOCKING = {TurnState.CLAIMED, TurnState.THREAD, TurnState.REQUESTED, TurnState.RUNNING, TurnState.FINAL}

# ---------------------------------------------------------------- one after the other

owners = st.sampled_from(OWNERS)
chats = st.sampled_from(["chat-1", "chat-2"])
step = st.one_of(
    st.tuples(
        st.just("accept"),
        chats,
        st.integers(0, 30),
        st.sampled_from([None, None, "album"]),
        st.sampled_from([0.0, 0.0, 5.0]),
    ),
    st.tuples(st.just("acquire"), owners),
    st.tuples(st.just("renew"), owners),
    st.tuples(st.just("release"), owners),
    st.tuples(st.just("crash"), owners),
    st.tuples(st.just("claim"), owners, st.integers(1, 2)),
    st.tuples(
        st.just("carry"),
        owners,
        st.integers(0, 5),
        st.sampled_from(
            ["thread", "requested", "started", "shown", "final", "done", "done", "dead", "retouch", "requeue"]
        ),
    ),
    st.tuples(st.just("drop"), owners, chats),
    st.tuples(st.just("advance"), st.sampled_from([1.0, 6.0, 16.0])),
)


@dataclass
class Asked:
    """An inbound as the model knows it."""

    key: str
    group: str | None
    ready_at: float
    number: int


@dataclass
class Told:
    """A turn as the model knows it."""

    id: TurnId
    chat: str
    keys: list[str]
    state: TurnState


@dataclass
class Model:
    """What the store should hold of one channel."""

    channel: str
    clock: ManualClock
    is_postgres: bool
    owner: str | None = None
    epoch: int = 0
    expires_at: float = 0.0
    seen: set[str] = field(default_factory=set)
    waiting: dict[str, list[Asked]] = field(default_factory=lambda: {"chat-1": [], "chat-2": []})
    turns: list[Told] = field(default_factory=list)
    held: dict[str, Lease] = field(default_factory=dict)

    def is_live(self) -> bool:
        return self.owner is not None and self.expires_at > self.clock.now()

    def may_renew(self, owner: str) -> bool:
        return self.owner == owner and self.held[owner].epoch == self.epoch

    def may_write(self, owner: str) -> bool:
        return self.may_renew(owner) and (self.is_live() or not self.is_postgres)

    def holder(self, chat: str) -> Told | None:
        return next((turn for turn in self.turns if turn.chat == chat and turn.state in BLOCKING), None)

    def groups(self) -> list[tuple[str, list[Asked]]]:
        """By chat that nobody holds, what its next turn would be made of; oldest first."""
        found = []
        for chat, queue in self.waiting.items():
            if queue and self.holder(chat) is None:
                head = queue[0]
                mates = [one for one in queue if one is head or (head.group and one.group == head.group)]
                found.append((chat, mates))
        return sorted(found, key=lambda group: group[1][0].number)

    def claim(self, limit: int) -> list[tuple[str, list[str]]]:
        claimed: list[tuple[str, list[str]]] = []
        for chat, mates in self.groups():
            if len(claimed) < limit and max(one.ready_at for one in mates) <= self.clock.now():
                self.waiting[chat] = [one for one in self.waiting[chat] if one not in mates]
                claimed.append((chat, [one.key for one in mates]))
        return claimed

    def next_ready(self) -> float | None:
        return min((max(one.ready_at for one in mates) for _, mates in self.groups()), default=None)


class Trial:
    """Takes steps on the stores of three owners and on the model, and compares."""

    def __init__(self, stores: dict[str, Store], reopen: Callable[[str], Awaitable[None]], model: Model) -> None:
        self.stores = stores
        self.reopen = reopen
        self.model = model

    async def take(self, name: str, *arguments: object) -> None:
        await getattr(self, name)(*arguments)

    async def accept(self, chat: str, number: int, group: str | None, settle: float) -> None:
        key = f"k{number}"
        now = self.model.clock.now()
        asked = inbound(key, chat, channel=self.model.channel, group=group, settle=settle, at=now)
        stored = await self.stores[OWNERS[number % 3]].accept(asked, Lane.TURN)
        assert (stored is None) == (key in self.model.seen)
        if stored is not None:
            self.model.seen.add(key)
            self.model.waiting[chat].append(Asked(key, group, now + settle, stored.id))

    async def acquire(self, owner: str) -> None:
        model = self.model
        lease = await self.stores[owner].acquire(model.channel, owner, TTL)
        if model.is_live() and model.owner != owner:
            assert lease is None
            return
        if not model.is_live():
            model.epoch += 1
        model.owner, model.expires_at = owner, model.clock.now() + TTL
        assert lease == Lease(model.channel, owner, model.epoch, model.expires_at)
        model.held[owner] = lease

    async def renew(self, owner: str) -> None:
        if owner in self.model.held:
            renewing = self.stores[owner].renew(self.model.held[owner], TTL)
            if await self.fenced(renewing, self.model.may_renew(owner)):
                self.model.expires_at = self.model.clock.now() + TTL

    async def release(self, owner: str) -> None:
        if owner in self.model.held:
            held = self.model.may_renew(owner)
            await self.stores[owner].release(self.model.held[owner])
            if held:
                self.model.owner = None

    async def crash(self, owner: str) -> None:
        self.model.held.pop(owner, None)
        await self.reopen(owner)

    async def claim(self, owner: str, limit: int) -> None:
        if owner not in self.model.held:
            return
        store, lease, allowed = self.stores[owner], self.model.held[owner], self.model.may_write(owner)
        found: list[Turn] = []
        if await self.fenced(_into(found, store.claim(lease, limit)), allowed):
            expected = self.model.claim(limit)
            assert [(turn.conversation.place.chat, keys(turn)) for turn in found] == expected
            self.model.turns += [
                Told(turn.id, turn.conversation.place.chat, keys(turn), TurnState.CLAIMED) for turn in found
            ]
            assert await store.next_ready(lease) == self.model.next_ready()
            assert [turn.id for turn in await store.unfinished(lease)] == [
                turn.id for turn in self.model.turns if turn.state.is_open
            ]

    async def carry(self, owner: str, index: int, act: str) -> None:
        if owner not in self.model.held or not self.model.turns:
            return
        store, lease, allowed = self.stores[owner], self.model.held[owner], self.model.may_write(owner)
        told = self.model.turns[index % len(self.model.turns)]
        states = {
            "thread": TurnState.THREAD,
            "requested": TurnState.REQUESTED,
            "started": TurnState.RUNNING,
            "final": TurnState.FINAL,
            "done": TurnState.DONE,
            "dead": TurnState.DEAD,
        }
        if act == "requeue":
            await self.requeue(store, lease, told, allowed)
        elif act == "retouch":
            can = told.state in (TurnState.DONE, TurnState.RETOUCH, TurnState.FINAL)
            found: list[Turn | None] = []
            if await self.fenced(_into(found, _listed(store.retouch(lease, told.id, ANSWER))), allowed):
                assert (found[0] is not None) == can
                if told.state is TurnState.DONE:
                    told.state = TurnState.RETOUCH
        elif act in ("done", "dead"):
            if await self.fenced(store.finish(lease, told.id, states[act]), allowed):
                told.state = states[act]
        else:
            works = {
                "thread": lambda: store.set_thread(lease, told.id, ThreadId("t")),
                "requested": lambda: store.run_requested(lease, told.id),
                "started": lambda: store.run_started(lease, told.id, RunId("r")),
                "shown": lambda: store.save_shown(lease, told.id, act, [told.id]),
                "final": lambda: store.save_final(lease, told.id, ANSWER, None),
            }
            can = told.state.is_open if act == "shown" else told.state in BLOCKING
            if await self.fenced(works[act](), allowed, refused=not can):
                told.state = states.get(act, told.state)

    async def requeue(self, store: Store, lease: Lease, told: Told, allowed: bool) -> None:
        found: list[Turn | None] = []
        if await self.fenced(_into(found, _listed(store.requeue(lease, told.id))), allowed):
            can = told.state not in BLOCKING and self.model.holder(told.chat) is None
            assert (found[0] is not None) == can
            if found[0] is not None:
                assert keys(found[0]) == told.keys
                told.state = TurnState.DONE if told.state is TurnState.DEAD else told.state
                self.model.turns.append(Told(found[0].id, told.chat, told.keys, TurnState.CLAIMED))

    async def drop(self, owner: str, chat: str) -> None:
        queue = self.model.waiting[chat]
        if owner in self.model.held and queue:
            dropping = self.stores[owner].drop_waiting(self.model.held[owner], chat, f"message-{queue[-1].key}")
            if await self.fenced(dropping, self.model.may_write(owner)):
                queue.pop()

    async def advance(self, seconds: float) -> None:
        await self.model.clock.advance(seconds)

    async def fenced(self, call: Awaitable[object], allowed: bool, *, refused: bool = False) -> bool:
        """Whether the call was carried out; it must be exactly when the lease allows it and the store can."""
        try:
            await call
        except LostLease:
            assert not allowed
            return False
        except StoreError:
            assert refused
            assert allowed
            return False
        assert allowed
        assert not refused
        return True

    async def compare(self) -> None:
        store = self.stores[OWNERS[0]]
        for told in self.model.turns:
            turn = await store.turn(told.id)
            assert turn is not None
            assert (turn.state, keys(turn)) == (told.state, told.keys)
        for chat, queue in self.model.waiting.items():
            conversation = await store.conversation_at(place(chat, channel=self.model.channel))
            if conversation is not None:
                assert await store.waiting(conversation.id) == len(queue)
                held = await store.open_turn(conversation.id)
                holder = self.model.holder(chat)
                assert (held and held.id) == (holder and holder.id)


async def _into(found: list[Turn] | list[Turn | None], call: Awaitable[list[Turn] | list[Turn | None]]) -> None:
    found.extend(await call)  # type: ignore[arg-type]  # both lists are of the same kind at every call


async def _listed(call: Awaitable[Turn | None]) -> list[Turn | None]:
    return [await call]


def test_the_store_does_what_a_simple_model_says(database_url: str) -> None:
    clock = ManualClock()
    stores: dict[str, Store] = {}
    trials = 0

    async def reopen(owner: str) -> None:
        if owner in stores:
            await stores[owner].close()
        stores[owner] = await Store.open(database_url, clock, lease_clock=clock)

    async def run(steps: list[tuple[object, ...]]) -> None:
        nonlocal trials
        trials += 1
        trial = Trial(stores, reopen, Model(f"team-{trials}", clock, database_url.startswith("postgresql")))
        for owner in OWNERS:
            if owner not in stores:
                await reopen(owner)
        await trial.acquire(OWNERS[0])
        for name, *arguments in steps:
            await trial.take(str(name), *arguments)
        await trial.compare()

    async def close() -> None:
        for store in stores.values():
            await store.close()

    with asyncio.Runner() as runner:

        @settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(step, min_size=10, max_size=40))
        def examples(steps: list[tuple[object, ...]]) -> None:
            runner.run(run(steps))

        try:
            examples()
        finally:
            runner.run(close())


# ---------------------------------------------------------------- all at once


class Replica:
    """An owner that claims, carries on what it finds, loses its lease, and remembers what it was allowed to do."""

    def __init__(self, name: str, store: Store, clock: ManualClock, chance: random.Random) -> None:
        self.name = name
        self.store = store
        self.clock = clock
        self.chance = chance
        self.lease: Lease | None = None
        self.at_work: list[Turn] = []
        self.claims: list[tuple[TurnId, int]] = []
        self.ends: list[tuple[TurnId, int]] = []

    async def run(self, channel: str, steps: int) -> None:
        for _ in range(steps):
            try:
                await self._step(channel)
            except LostLease:
                self.lease, self.at_work = None, []

    async def _step(self, channel: str) -> None:
        if self.lease is None:
            self.lease = await self.store.acquire(channel, self.name, TTL)
            if self.lease is not None:
                self.at_work = await self.store.unfinished(self.lease)
            return
        act = self.chance.random()
        if act < 0.4:
            for turn in await self.store.claim(self.lease, 2):
                self.claims.append((turn.id, self.lease.epoch))
                self.at_work.append(turn)
        elif act < 0.8 and self.at_work:
            turn = self.at_work[0]
            await self.store.save_shown(self.lease, turn.id, self.name, [turn.id])
            await self.store.finish(self.lease, turn.id)
            self.ends.append((turn.id, self.lease.epoch))
            self.at_work.pop(0)
        elif act < 0.86:
            self.lease = await self.store.renew(self.lease, TTL)
        elif act < 0.93:
            await self.store.release(self.lease)
        else:
            await self.clock.advance(self.chance.choice([1.0, 16.0]), settle=0)


async def feed(stores: list[Store], channel: str, chance: random.Random, count: int) -> list[str]:
    """Accept inbounds, some delivered twice and to two replicas at once; returns the keys."""
    for n in range(count):
        asked = inbound(f"k{n}", f"chat-{chance.randrange(3)}", channel=channel)
        chosen = chance.sample(stores, chance.choice([1, 2]))
        await asyncio.gather(*(store.accept(asked, Lane.TURN) for store in chosen))
    return [f"k{n}" for n in range(count)]


def what_happened(url: str, channel: str) -> list[tuple[TurnId, int, int, str]]:
    """Turn, conversation, inbound and event key, in the order in which the turns were made."""
    engine = create_engine(parse_url(url))
    query = (
        sa.select(turns.c.id, turns.c.conversation_id, inbounds.c.id, inbounds.c.event_key)
        .join(turn_inbounds, turn_inbounds.c.turn == turns.c.number)
        .join(inbounds, inbounds.c.id == turn_inbounds.c.inbound)
        .where(turns.c.channel == channel)
        .order_by(turns.c.number)
    )
    try:
        with engine.begin() as connection:
            return [tuple(row) for row in connection.execute(query)]
    finally:
        engine.dispose()


def test_owners_that_run_into_each_other_lose_and_repeat_nothing(database_url: str) -> None:
    clock = ManualClock()
    trials = 0

    async def run(seed: int, stores: list[Store]) -> None:
        nonlocal trials
        trials += 1
        channel, chance = f"busy-{trials}", random.Random(seed)
        replicas = [Replica(name, store, clock, chance) for name, store in zip(OWNERS, stores, strict=True)]
        feeding = asyncio.create_task(feed(stores, channel, chance, 12))
        await asyncio.gather(feeding, *(replica.run(channel, 25) for replica in replicas))
        await clock.advance(2 * TTL)
        last = Replica("last", stores[0], clock, chance)
        while sum(count.waiting + count.open_turns for count in await stores[0].counts()):
            await last.run(channel, 5)
        check(channel, feeding.result(), [*replicas, last])

    def check(channel: str, accepted: list[str], replicas: list[Replica]) -> None:
        happened = what_happened(database_url, channel)
        assert sorted(key for *_, key in happened) == sorted(accepted)
        for conversation in {row[1] for row in happened}:
            order = [number for _, of, number, _ in happened if of == conversation]
            assert order == sorted(order)
        epoch_of = dict(claim for replica in replicas for claim in replica.claims)
        epochs = [epoch_of[turn] for turn, *_ in happened]
        assert epochs == sorted(epochs)
        for turn, epoch in (end for replica in replicas for end in replica.ends):
            assert epoch >= epoch_of[turn]

    with asyncio.Runner() as runner:
        stores = [runner.run(Store.open(database_url, clock, lease_clock=clock)) for _ in OWNERS]

        @settings(max_examples=6, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.integers(0, 2**32))
        def examples(seed: int) -> None:
            runner.run(run(seed, stores))

        try:
            examples()
        finally:
            for store in stores:
                runner.run(store.close())
