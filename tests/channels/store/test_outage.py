"""A database that goes away, and processes that die: nothing that was answered is lost, and it heals by itself."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa

from channels.adapter import StoreAway
from channels.store import Store, database, leases
from channels.store.database import Transaction, create_engine, parse_url
from channels.store.migrate import migrate
from channels.store.records import Lane, Lease, StoreError, StoreUnavailable
from tests.channels.store.samples import CHANNEL, accepted, claimed, contents, inbound, keys, owned
from tests.channels.store.test_wake import Ear
from tests.clock import ManualClock
from tests.databases import PostgresServer, running_postgres


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def server(own_server: PostgresServer) -> PostgresServer:
    """A server that tests may stop; it runs when the test begins."""
    own_server.stop()
    own_server.start()
    return own_server


async def accept_when_back(store: Store, key: str) -> None:
    """As a platform does it: deliver again until it is acknowledged."""
    for _ in range(100):
        try:
            await store.accept(inbound(key), Lane.TURN)
        except StoreAway:
            await asyncio.sleep(0.05)
        else:
            return
    pytest.fail("the store did not heal")


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
async def test_a_stopped_server_is_away_and_all_heals_when_it_is_back(
    crash: bool, server: PostgresServer, clock: ManualClock
) -> None:
    store = await Store.open(server.create(), clock, lease_clock=clock)
    lease = await owned(store)
    turn = await claimed(store, lease, "k1")
    server.kill() if crash else server.stop()
    with pytest.raises(StoreAway):
        await store.accept(inbound("k2"), Lane.TURN)
    for call in (store.ping(), store.renew(lease), store.counts(), store.finish(lease, turn.id)):
        with pytest.raises(StoreUnavailable):
            await call
    server.start()
    ear = Ear(store)
    await accept_when_back(store, "k2")
    assert await ear.next() == CHANNEL
    await store.ping()
    assert await store.unfinished(await store.renew(lease)) == [turn]
    await store.finish(lease, turn.id)
    assert [keys(again) for again in await store.claim(lease, 10)] == [["k2"]]
    await store.close()


async def test_connections_that_the_server_dropped_while_idle_go_unnoticed(
    postgres_url: str, clock: ManualClock
) -> None:
    store = await Store.open(postgres_url, clock)
    await asyncio.gather(*(accepted(store, inbound(f"k{n}")) for n in range(8)))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'channel-bridge' AND query NOT LIKE 'LISTEN%'"
        )
    await asyncio.gather(*(accepted(store, inbound(f"later{n}")) for n in range(8)))
    assert await store.counts() != []
    await store.close()


async def test_a_server_that_is_away_at_start_is_told_in_words(server: PostgresServer, clock: ManualClock) -> None:
    url = server.create()
    server.stop()
    with pytest.raises(StoreUnavailable):
        await Store.open(url, clock)


async def test_closing_while_the_server_is_away_ends(server: PostgresServer, clock: ManualClock) -> None:
    store = await Store.open(server.create(), clock)
    await store.ping()
    server.stop()
    await asyncio.wait_for(store.close(), 10)


async def test_a_replica_paused_inside_a_transaction_does_not_hold_its_channel_and_writes_nothing_when_it_wakes(
    postgres_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_LOCK_WAIT", 0.2)
    paused, other = [await Store.open(postgres_url, clock, lease_clock=clock) for _ in range(2)]
    lease = await owned(paused, "paused")
    inside, go_on = threading.Event(), threading.Event()

    def write_and_pause(tx: Transaction) -> None:
        leases.fence(tx, lease)
        tx.connection.execute(sa.text("INSERT INTO memory (channel, key, value) VALUES ('team', 'late', '1')"))
        inside.set()
        go_on.wait(10)

    writing = asyncio.create_task(paused._database.write(write_and_pause))
    await asyncio.to_thread(inside.wait, 10)
    await clock.advance(16.0)
    taken = await _acquire_when_free(other)
    assert taken.epoch > lease.epoch
    go_on.set()
    with pytest.raises(StoreError):
        await writing
    assert await other.recall("team", "late") is None
    await paused.close()
    await other.close()


async def _acquire_when_free(store: Store) -> Lease:
    for _ in range(20):
        try:
            lease = await store.acquire(CHANNEL, "other")
        except StoreUnavailable:  # waited for the lock as long as one may
            continue
        assert lease is not None
        return lease
    pytest.fail("the channel stayed locked")


ACCEPT_FOREVER = """
import asyncio, sys
from channels.clock import SystemClock
from channels.store import Store, database, leases
from channels.store.records import Lane
from tests.channels.store.samples import inbound

async def main():
    store = await Store.open(sys.argv[1], SystemClock())
    async def accept(n):
        await store.accept(inbound(f"k{n}", f"chat{n % 7}"), Lane.TURN)
        print(n, flush=True)
    for start in range(0, 1_000_000, 10):
        await asyncio.gather(*(accept(n) for n in range(start, start + 10)))

asyncio.run(main())
"""


def test_what_was_answered_before_a_kill_is_there_after_it(database_url: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", ACCEPT_FOREVER, database_url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    answered = [int(process.stdout.readline()) for _ in range(60)]
    process.kill()
    answered += [int(line) for line in process.stdout.read().split("\n") if line]
    process.wait()
    stored = {row[2] for row in contents(database_url)["inbounds"]}
    assert {f"k{n}" for n in answered} <= stored


def test_a_database_is_migrated_after_a_process_died_doing_it(server: PostgresServer) -> None:
    """A transaction is all or nothing, and the lock goes with the session."""
    url = server.create()
    with psycopg.connect(url) as dying:
        dying.execute("SELECT pg_advisory_xact_lock(%s)", [0x6368_6272])
        dying.execute("CREATE TABLE alembic_version (version_num text)")
        dying.cancel()
        dying.rollback()
    engine = create_engine(parse_url(url))
    migrate(engine)
    engine.dispose()
