"""Whoever waits for work is woken when there is some."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from channels.store import Store, inbox
from channels.store.database import Transaction
from channels.store.records import Lane, TurnState
from tests.channels.store.samples import CHANNEL, accepted, claimed, inbound, owned
from tests.clock import ManualClock


class Ear:
    """Hears wakes and waits for them."""

    def __init__(self, store: Store) -> None:
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self.unsubscribe = store.subscribe(self.heard.put_nowait)

    async def next(self) -> str:
        """The next channel that is woken, leaving out late probes."""
        while (channel := await asyncio.wait_for(self.heard.get(), 10)).startswith("probe"):
            pass
        return channel

    def forget(self) -> None:
        while not self.heard.empty():
            self.heard.get_nowait()


async def test_accepting_finishing_asking_again_and_moving_wake_the_channel(store: Store) -> None:
    lease = await owned(store)
    ear = Ear(store)
    turn = await claimed(store, lease)
    assert await ear.next() == CHANNEL
    await accepted(store, inbound("stop"), Lane.CONTROL)
    assert await ear.next() == CHANNEL
    await store.finish(lease, turn.id, TurnState.DEAD)
    assert await ear.next() == CHANNEL
    await store.requeue(lease, turn.id)
    assert await ear.next() == CHANNEL
    await store.rekey(CHANNEL, "lobby", "hall")
    assert await ear.next() == CHANNEL


async def test_a_duplicate_wakes_nobody(store: Store) -> None:
    def accept(tx: Transaction) -> set[str]:
        inbox.accept(tx, inbound("k1"), Lane.TURN)
        return set(tx.woken)

    assert await store._database.write(accept) == {CHANNEL}
    assert await store._database.write(accept) == set()


async def test_after_unsubscribing_nothing_is_heard(store: Store) -> None:
    silent, ear = Ear(store), Ear(store)
    silent.unsubscribe()
    await accepted(store, inbound("k1"))
    await ear.next()
    assert silent.heard.empty()


async def test_a_listener_that_fails_stops_no_other(store: Store) -> None:
    def fail(channel: str) -> None:
        raise RuntimeError(channel)

    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context["exception"]))
    store.subscribe(fail)
    ear = Ear(store)
    await accepted(store, inbound("k1"))
    assert await ear.next() == CHANNEL
    assert failures


async def test_no_inbound_becomes_claimable_without_a_wake_after_it(store: Store) -> None:
    lease = await owned(store)
    ear = Ear(store)
    for n in range(5):
        accepting = asyncio.create_task(store.accept(inbound(f"k{n}", f"chat{n}"), Lane.TURN))
        await ear.next()
        while not await store.claim(lease, 10):
            await ear.next()
        await accepting


async def test_on_postgresql_an_inbound_on_one_replica_wakes_the_others(postgres_url: str, clock: ManualClock) -> None:
    one, two = await Store.open(postgres_url, clock), await Store.open(postgres_url, clock)
    ear = Ear(two)
    await _until_it_listens(one, ear)
    await accepted(one, inbound("k1", channel="a:channel"))
    assert await ear.next() == "a:channel"
    await one.close()
    await two.close()


async def test_on_postgresql_a_replica_hears_its_own_wakes_once(postgres_url: str, clock: ManualClock) -> None:
    one, two = await Store.open(postgres_url, clock), await Store.open(postgres_url, clock)
    ear, other = Ear(one), Ear(two)
    await _until_it_listens(two, ear)
    await _until_it_listens(one, other)
    ear.forget()
    await accepted(one, inbound("k1"))
    await accepted(two, inbound("last", channel="end"))
    assert [await ear.next(), await ear.next()] == [CHANNEL, "end"]
    await one.close()
    await two.close()


async def test_on_postgresql_a_cut_listener_comes_back_and_catches_up(postgres_url: str, clock: ManualClock) -> None:
    one, two = await Store.open(postgres_url, clock), await Store.open(postgres_url, clock)
    ear = Ear(two)
    await _until_it_listens(one, ear)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    await accepted(one, inbound("k1", channel="meanwhile"))
    assert await ear.next() == "meanwhile"
    await one.close()
    await two.close()


async def _until_it_listens(sender: Store, ear: Ear) -> None:
    """Accept in channels of their own until one is heard: from then on nothing is missed."""
    for n in range(200):
        await accepted(sender, inbound("probe", channel=f"probe{id(ear)}-{n}"))
        try:
            await asyncio.wait_for(ear.heard.get(), 0.1)
        except TimeoutError:
            continue
        await asyncio.sleep(0.05)
        ear.forget()
        return
    pytest.fail("it never listened")
