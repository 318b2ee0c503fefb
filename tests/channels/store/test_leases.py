"""A channel has one owner at a time, and an outdated owner writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import psycopg
import pytest

from channels.model import RunId, ThreadId
from channels.store import Store
from channels.store.leases import REPLICA_TTL
from channels.store.records import Lane, Lease, LostLease, Turn, TurnState
from tests.channels.store.conftest import OpenStore
from tests.channels.store.samples import (
    ANSWER,
    CHANNEL,
    accepted,
    answered,
    claimed,
    contents,
    inbound,
    known,
    owned,
)
from tests.clock import ManualClock

# ---------------------------------------------------------------- owning


async def test_a_channel_has_one_owner(store: Store, clock: ManualClock) -> None:
    lease = await store.acquire(CHANNEL, "one", ttl=15.0)
    assert lease == Lease(CHANNEL, "one", 1, clock.now() + 15.0)
    assert await store.acquire(CHANNEL, "two") is None
    assert await store.owners([CHANNEL, "other"]) == {CHANNEL: "one", "other": None}


async def test_an_owner_that_asks_again_keeps_its_epoch_and_gains_time(store: Store, clock: ManualClock) -> None:
    first = await owned(store)
    await clock.advance(10.0)
    again = await owned(store)
    assert (again.epoch, again.expires_at) == (first.epoch, first.expires_at + 10.0)


async def test_an_expired_lease_passes_to_whoever_comes_with_a_higher_epoch(store: Store, clock: ManualClock) -> None:
    first = await owned(store)
    await clock.advance(REPLICA_TTL + 0.1)
    assert await store.owners([CHANNEL]) == {CHANNEL: None}
    second = await owned(store, "two")
    assert second.epoch > first.epoch
    with pytest.raises(LostLease):
        await store.renew(first)


async def test_a_lease_of_a_time_before_the_clock_was_set_back_is_over(store: Store, clock: ManualClock) -> None:
    first = await owned(store)
    await store.heartbeat("one")
    await clock.advance(-1_800.0)  # a machine without a clock of its own, after a power cut
    assert await store.owners([CHANNEL]) == {CHANNEL: None}
    assert await store.heartbeat("two") == ["two"]
    assert (await owned(store, "two")).epoch > first.epoch
    with pytest.raises(LostLease):
        await store.renew(first)


async def test_the_same_owner_gets_a_higher_epoch_after_its_lease_expired(store: Store, clock: ManualClock) -> None:
    first = await owned(store)
    await clock.advance(REPLICA_TTL + 0.1)
    assert (await owned(store)).epoch > first.epoch


async def test_a_renewed_lease_does_not_expire(store: Store, clock: ManualClock) -> None:
    lease = await owned(store)
    for _ in range(4):
        await clock.advance(10.0)
        lease = await store.renew(lease)
        assert lease.expires_at == clock.now() + REPLICA_TTL
        assert await store.acquire(CHANNEL, "two") is None


async def test_a_late_renewal_holds_when_nobody_came_in_between(store: Store, clock: ManualClock) -> None:
    lease = await owned(store)
    await clock.advance(60.0)
    assert (await store.renew(lease)).epoch == lease.epoch
    assert await store.acquire(CHANNEL, "two") is None


async def test_a_released_channel_is_free_at_once(store: Store) -> None:
    first = await owned(store)
    await store.release(first)
    assert await store.owners([CHANNEL]) == {CHANNEL: None}
    second = await owned(store, "two")
    assert second.epoch > first.epoch


async def test_releasing_a_lost_lease_leaves_the_new_owner_alone(store: Store, clock: ManualClock) -> None:
    first = await owned(store)
    await clock.advance(REPLICA_TTL + 0.1)
    await owned(store, "two")
    await store.release(first)
    assert await store.owners([CHANNEL]) == {CHANNEL: "two"}


async def test_of_owners_that_race_for_a_channel_one_wins(open_store: OpenStore, clock: ManualClock) -> None:
    stores = [await open_store() for _ in range(3)]
    epochs = []
    for _ in range(5):
        leases = await asyncio.gather(*(store.acquire(CHANNEL, f"owner{n}") for n, store in enumerate(stores)))
        (winner,) = (lease for lease in leases if lease is not None)
        epochs.append(winner.epoch)
        await clock.advance(REPLICA_TTL + 0.1)
    assert epochs == sorted(set(epochs))


async def test_a_replica_known_to_be_dead_owns_nothing_at_once(store: Store) -> None:
    await store.heartbeat("one")
    first = await owned(store, "one")
    other = await owned(store, "two", channel="other")
    await store.depose("one")
    assert await store.owners([CHANNEL, "other"]) == {CHANNEL: None, "other": "two"}
    assert await store.heartbeat("two") == ["two"]
    assert (await owned(store, "two")).epoch > first.epoch
    assert (await store.renew(other)).epoch == other.epoch
    with pytest.raises(LostLease):
        await store.claim(first, 1)


# ---------------------------------------------------------------- fencing


@dataclass(frozen=True)
class Todo:
    """A control inbound, a turn at work, and a finished one; another inbound waits."""

    control: int
    turn: Turn
    done: Turn


Write = Callable[[Store, Lease, Todo], Awaitable[object]]

WRITES: dict[str, Write] = {
    "claim": lambda store, lease, todo: store.claim(lease, 10),
    "drop_waiting": lambda store, lease, todo: store.drop_waiting(lease, "lobby", "message-k3"),
    "answer_control": lambda store, lease, todo: store.answer_control(lease, todo.control, ANSWER),
    "control_done": lambda store, lease, todo: store.control_done(lease, todo.control),
    "set_thread": lambda store, lease, todo: store.set_thread(lease, todo.turn.id, ThreadId("late")),
    "run_requested": lambda store, lease, todo: store.run_requested(lease, todo.turn.id),
    "run_started": lambda store, lease, todo: store.run_started(lease, todo.turn.id, RunId("late")),
    "save_shown": lambda store, lease, todo: store.save_shown(lease, todo.turn.id, "late", ["late"]),
    "save_final": lambda store, lease, todo: store.save_final(lease, todo.turn.id, ANSWER, "late", "late"),
    "finish": lambda store, lease, todo: store.finish(lease, todo.turn.id, TurnState.DEAD, "late"),
    "retouch": lambda store, lease, todo: store.retouch(lease, todo.done.id, ANSWER),
    "requeue": lambda store, lease, todo: store.requeue(lease, todo.done.id),
    "new_generation": lambda store, lease, todo: store.new_generation(lease, todo.turn.conversation.id),
    "ask_anew": lambda store, lease, todo: store.ask_anew(lease, todo.control, inbound("anew")),
    "renew": lambda store, lease, todo: store.renew(lease),
}
READS: dict[str, Write] = {
    "unfinished": lambda store, lease, todo: store.unfinished(lease),
    "next_ready": lambda store, lease, todo: store.next_ready(lease),
    "controls": lambda store, lease, todo: store.controls(lease),
}


async def something_to_do(store: Store, lease: Lease) -> Todo:
    done = await answered(store, lease, "k1", "garden")
    turn = await claimed(store, lease, "k2")
    control = await accepted(store, inbound("stop"), Lane.CONTROL)
    await accepted(store, inbound("k3"))
    return Todo(control.id, await known(store, turn), done)


async def test_an_owner_that_was_taken_over_is_refused_everything(
    store: Store, clock: ManualClock, database_url: str
) -> None:
    outdated = await owned(store, "one")
    todo = await something_to_do(store, outdated)
    await clock.advance(REPLICA_TTL + 0.1)
    await owned(store, "two")
    before = contents(database_url)
    for call in (*WRITES.values(), *READS.values()):
        with pytest.raises(LostLease):
            await call(store, outdated, todo)
    assert contents(database_url) == before


async def test_an_earlier_epoch_of_the_same_owner_is_refused(
    store: Store, clock: ManualClock, database_url: str
) -> None:
    outdated = await owned(store)
    todo = await something_to_do(store, outdated)
    await store.release(outdated)
    await owned(store)
    before = contents(database_url)
    for write in WRITES.values():
        with pytest.raises(LostLease):
            await write(store, outdated, todo)
    assert contents(database_url) == before


async def test_the_new_owner_can_do_all_that_the_old_one_could(store: Store, clock: ManualClock) -> None:
    todo = await something_to_do(store, await owned(store))
    await clock.advance(REPLICA_TTL + 0.1)
    lease = await owned(store, "two")
    for call in {**READS, **WRITES}.values():
        if call is not WRITES["new_generation"]:
            await call(store, lease, todo)
    assert await store.dead_letters() != []


async def test_on_postgresql_an_expired_lease_writes_nothing_even_if_nobody_took_over(
    postgres_url: str, clock: ManualClock
) -> None:
    store = await Store.open(postgres_url, clock, lease_clock=clock)
    lease = await owned(store)
    await clock.advance(REPLICA_TTL + 0.1)
    with pytest.raises(LostLease):
        await store.claim(lease, 1)
    await store.claim(await store.renew(lease), 1)
    await store.close()


async def test_on_postgresql_leases_go_by_the_clock_of_the_database(postgres_url: str) -> None:
    # Two machines whose clocks are a day apart.
    early, late = ManualClock(1_000_000_000.0), ManualClock(1_000_086_400.0)
    one, two = await Store.open(postgres_url, early), await Store.open(postgres_url, late)
    lease = await owned(one, "one")
    assert lease.expires_at == early.now() + REPLICA_TTL
    await one.claim(lease, 1)
    assert await two.acquire(CHANNEL, "two") is None
    await one.renew(lease, ttl=0.0)
    taken = await owned(two, "two")
    assert taken.epoch > lease.epoch
    assert taken.expires_at == late.now() + REPLICA_TTL
    assert await one.heartbeat("one") == ["one"]
    assert await two.heartbeat("two") == ["one", "two"]
    await one.close()
    await two.close()


# ---------------------------------------------------------------- replicas


async def test_live_replicas_know_each_other(open_store: OpenStore, clock: ManualClock) -> None:
    one, two = await open_store(), await open_store()
    assert await two.heartbeat("beta", {"version": "1"}) == ["beta"]
    assert await one.heartbeat("alpha") == ["alpha", "beta"]
    assert await one.said_by({"alpha", "beta", "gamma"}) == {"alpha": None, "beta": {"version": "1"}}
    await clock.advance(REPLICA_TTL - 1.0)
    assert await one.heartbeat("alpha") == ["alpha", "beta"]
    await clock.advance(1.1)
    assert await one.heartbeat("alpha") == ["alpha"]
    assert await two.heartbeat("beta") == ["alpha", "beta"]
    await two.leave("beta")
    assert await one.heartbeat("alpha") == ["alpha"]


# ---------------------------------------------------------------- a database that is slow


async def test_writes_of_different_turns_do_not_wait_for_each_other_nor_a_renewal_for_them(
    postgres_url: str, clock: ManualClock
) -> None:
    store = await Store.open(postgres_url, clock, lease_clock=clock)
    lease = await owned(store)
    first, second = await claimed(store, lease, "k1", "one"), await claimed(store, lease, "k2", "two")
    third = await answered(store, lease, "k3", "three")
    with psycopg.connect(postgres_url) as slow:  # a write of the first turn that takes its time
        slow.execute("SELECT epoch FROM leases FOR KEY SHARE")
        slow.execute("SELECT number FROM turns WHERE id = %s FOR UPDATE", [first.id])
        async with asyncio.timeout(5):
            await store.save_shown(lease, second.id, {"message": "m"}, ["m"])
            await store.save_final(lease, second.id, ANSWER, None)
            await store.finish(lease, second.id)
            await store.renew(lease)
        deciding = asyncio.create_task(store.requeue(lease, third.id))
        taking = asyncio.create_task(store.acquire(CHANNEL, "other"))
        await asyncio.sleep(0.3)
        assert not deciding.done(), "whether a question can be asked again depends on what else is written"
        assert not taking.done(), "an owner that is taken over has committed before"
        slow.rollback()
    assert await deciding is not None
    assert await taking is None
    await store.close()


async def test_who_owns_a_channel_is_not_settled_behind_other_writes(postgres_url: str, clock: ManualClock) -> None:
    store = await Store.open(postgres_url, clock, lease_clock=clock)
    lease = await owned(store)
    turn = await claimed(store, lease)
    with psycopg.connect(postgres_url) as slow:
        slow.execute("LOCK TABLE turns IN ACCESS EXCLUSIVE MODE")
        writes = [asyncio.create_task(store.save_shown(lease, turn.id, {"n": n}, [])) for n in range(50)]
        await asyncio.sleep(0.3)
        async with asyncio.timeout(3):
            await store.renew(lease)
            await store.heartbeat("one")
        assert not any(write.done() for write in writes)
        slow.rollback()
    await asyncio.gather(*writes)
    await store.close()
