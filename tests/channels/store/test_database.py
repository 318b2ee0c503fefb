"""Units of work run off the event loop, are committed together on SQLite, and fail one by one."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
import traceback
import uuid
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from channels.adapter import StoreAway
from channels.store import Store
from channels.store import database as database_module
from channels.store.database import Transaction
from channels.store.probe import probe
from channels.store.records import Lane, LostLease, StoreError, StoreUnavailable, Unstorable
from tests.channels.store.conftest import OpenStore
from tests.channels.store.samples import accepted, contents, inbound, owned
from tests.clock import ManualClock


def commits(store: Store) -> list[object]:
    """A list that grows with every commit of the store."""
    seen: list[object] = []
    sa.event.listen(store._database.engine, "commit", seen.append)
    return seen


def thread_of(_tx: Transaction) -> int:
    return threading.get_ident()


async def test_no_unit_runs_on_the_thread_of_the_event_loop(store: Store) -> None:
    here = threading.get_ident()
    threads = [await store._database.write(thread_of), await store._database.read(thread_of)]
    assert here not in threads


async def test_the_event_loop_goes_on_while_the_database_works(store: Store) -> None:
    running, go_on = threading.Event(), threading.Event()

    def wait(_tx: Transaction) -> bool:
        running.set()
        return go_on.wait(10)

    unit = asyncio.create_task(store._database.write(wait))
    await asyncio.to_thread(running.wait, 10)
    assert not unit.done()
    go_on.set()
    assert await unit


async def test_sqlite_commits_everything_that_waits_at_once(tmp_path: Path, clock: ManualClock) -> None:
    store = await Store.open(f"sqlite:///{tmp_path / 'bridge.db'}", clock)
    seen = commits(store)
    stored = await asyncio.gather(*(store.accept(inbound(f"k{n}"), Lane.TURN) for n in range(100)))
    assert len({one.id for one in stored if one is not None}) == 100
    assert len(seen) <= 5
    await store.close()


async def test_a_unit_that_fails_does_not_spoil_those_committed_with_it(store: Store) -> None:
    lease = await owned(store)
    await store.release(lease)
    results = await asyncio.gather(
        store.accept(inbound("k1"), Lane.TURN),
        store.claim(lease, 1),
        store.remember("team", "key", 1),
        store._database.write(_write_and_fail),
        store.accept(inbound("k2"), Lane.TURN),
        return_exceptions=True,
    )
    assert [type(result).__name__ for result in results] == [
        "StoredInbound",
        "LostLease",
        "NoneType",
        "ZeroDivisionError",
        "StoredInbound",
    ]
    assert await store.accept(inbound("k2"), Lane.TURN) is None
    assert await store.recall("team", "key") == 1
    assert await store.recall("team", "half") is None


def _write_and_fail(tx: Transaction) -> None:
    tx.connection.execute(sa.text("INSERT INTO memory (channel, key, value) VALUES ('team', 'half', '1')"))
    raise ZeroDivisionError


async def test_a_unit_that_fails_wakes_nobody(store: Store) -> None:
    def wake_and_fail(tx: Transaction) -> None:
        tx.wake("never")
        raise ZeroDivisionError

    heard: list[str] = []
    store.subscribe(heard.append)
    with pytest.raises(ZeroDivisionError):
        await store._database.write(wake_and_fail)
    await accepted(store, inbound("k1"))
    await asyncio.sleep(0)
    assert set(heard) <= {"team"}


async def test_what_the_database_refuses_is_an_error_without_the_values(store: Store) -> None:
    def insert_twice(tx: Transaction) -> None:
        for _ in range(2):
            tx.connection.execute(
                sa.text("INSERT INTO memory (channel, key, value) VALUES ('team', :secret, '1')"),
                {"secret": "hunter2"},
            )

    with pytest.raises(StoreError) as caught:
        await store._database.write(insert_twice)
    assert not isinstance(caught.value, StoreUnavailable)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


async def test_a_cancelled_unit_that_has_not_begun_is_not_done(store: Store) -> None:
    threads = len(store._database._writers._threads)
    running, go_on = threading.Barrier(threads + 1, timeout=10), threading.Event()

    def occupy(_tx: Transaction) -> bool:
        running.wait()
        return go_on.wait(10)

    occupied = [asyncio.create_task(store._database.write(occupy)) for _ in range(threads)]
    await asyncio.to_thread(running.wait)
    late = asyncio.create_task(store.accept(inbound("k1"), Lane.TURN))
    await asyncio.sleep(0)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    go_on.set()
    await asyncio.gather(*occupied)
    assert await store.accept(inbound("k1"), Lane.TURN) is not None


async def test_a_caller_is_told_in_time_when_the_database_hangs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "_UNIT", 0.05)
    go_on = threading.Event()
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await store._database.write(lambda tx: go_on.wait(10))
    go_on.set()


async def test_a_unit_that_waited_too_long_is_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "_QUEUED", -1.0)
    with pytest.raises(StoreAway, match="too slow"):
        await store.accept(inbound("k1"), Lane.TURN)
    monkeypatch.undo()
    assert await store.accept(inbound("k1"), Lane.TURN) is not None


async def test_a_closed_store_says_so(open_store: OpenStore) -> None:
    store = await open_store()
    await store.close()
    with pytest.raises(StoreAway, match="closed"):
        await store.accept(inbound("k1"), Lane.TURN)
    with pytest.raises(StoreError, match="closed"):
        await store.ping()


async def test_closing_finishes_what_was_asked_for_before(open_store: OpenStore, database_url: str) -> None:
    store = await open_store()
    asked = [asyncio.create_task(store.accept(inbound(f"k{n}"), Lane.TURN)) for n in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert None not in await asyncio.gather(*asked)
    assert len(contents(database_url)["inbounds"]) == 20


async def test_no_thread_is_left_after_closing(open_store: OpenStore) -> None:
    before = {thread for thread in threading.enumerate() if thread.name.startswith("store")}
    store = await open_store()
    await store.ping()
    await store.close()
    assert {thread for thread in threading.enumerate() if thread.name.startswith("store")} == before


async def test_a_store_in_memory_works_and_is_gone_after_closing(clock: ManualClock) -> None:
    for _ in range(2):
        store = await Store.open("sqlite://", clock)
        await accepted(store, inbound("k1"))
        outdated = await owned(store)
        await store.release(outdated)
        with pytest.raises(LostLease):
            await store.claim(outdated, 1)
        assert len(await store.claim(await owned(store), 10)) == 1
        await store.close()


async def test_the_folder_of_the_file_is_made(tmp_path: Path, clock: ManualClock) -> None:
    store = await Store.open(f"sqlite:///{tmp_path}/data/deep/bridge.db", clock)
    await store.ping()
    await store.close()
    assert (tmp_path / "data" / "deep" / "bridge.db").exists()


async def test_commits_on_sqlite_are_on_the_disk_before_they_are_answered(tmp_path: Path, clock: ManualClock) -> None:
    store = await Store.open(f"sqlite:///{tmp_path / 'bridge.db'}", clock)

    def settings(tx: Transaction) -> list[object]:
        pragmas = ("journal_mode", "synchronous", "foreign_keys", "auto_vacuum")
        return [tx.connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() for pragma in pragmas]

    assert await store._database.write(settings) == ["wal", 2, 1, 2]
    await store.close()


@pytest.mark.parametrize(
    "url", ["mysql://user:hunter2@host/db", "hunter2", "sqlite:////proc/nowhere/hunter2.db", "postgresql://a:b@"]
)
async def test_a_database_that_cannot_be_used_is_refused_in_words(url: str, clock: ManualClock) -> None:
    started = time.monotonic()
    with pytest.raises(StoreError) as caught:
        await Store.open(url, clock)
    assert "user:hunter2" not in str(caught.value)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
async def test_a_database_that_cannot_hold_every_character_is_refused_in_words(
    encoding: str, empty_postgres_url: str, clock: ManualClock
) -> None:
    name = f"in_{encoding.lower()}_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'".encode())
    url = empty_postgres_url.replace(sa.make_url(empty_postgres_url).database or "", name)
    for attempt in (Store.open(url, clock), probe(url)):
        with pytest.raises(StoreError, match=f"{name} has the encoding {encoding}, it must be UTF8"):
            await attempt


async def test_text_is_sent_as_utf8_whatever_the_url_or_the_server_say(postgres_url: str, clock: ManualClock) -> None:
    store = await Store.open(f"{postgres_url}&client_encoding=latin1", clock)
    assert await store.accept(inbound("k1", "lobby \N{GRINNING FACE}"), Lane.TURN) is not None
    await store.close()


async def test_a_value_that_the_database_refuses_is_told_from_a_database_that_is_away(store: Store) -> None:
    with pytest.raises(Unstorable):
        await store.accept(replace(inbound("k1"), event_key=None), Lane.TURN)  # type: ignore[arg-type]


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "bridge.db").write_text("this is a letter, not a database\n" * 50)
    with pytest.raises(StoreError, match="not a database"):
        await Store.open(f"sqlite:///{tmp_path / 'bridge.db'}", clock)


async def test_a_locked_file_is_away_and_heals(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "_LOCK_WAIT", 0.05)
    path = tmp_path / "bridge.db"
    store = await Store.open(f"sqlite:///{path}", clock)
    blocker = sqlite3.connect(path)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreAway, match="locked"):
        await store.accept(inbound("k1"), Lane.TURN)
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.ping()
    assert await store.recall("team", "key") is None  # readers do not wait for it
    blocker.rollback()
    blocker.close()
    assert await store.accept(inbound("k1"), Lane.TURN) is not None
    await store.close()


async def test_a_store_that_can_only_be_read_is_away_and_heals(
    store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "_LOCK_WAIT", 0.05)
    if store._database.is_postgres:
        with psycopg.connect(database_url) as blocker:
            blocker.execute("LOCK TABLE memory IN SHARE MODE")
            await only_read(store)
    else:
        await store._database.write(lambda tx: tx.connection.exec_driver_sql("PRAGMA query_only = ON"))
        await only_read(store)  # its connection is replaced by a new one
    await store.ping()


async def only_read(store: Store) -> None:
    with pytest.raises(StoreUnavailable):
        await store.ping()
    assert await store.recall("team", "key") is None


async def test_a_full_disk_is_away_and_heals(tmp_path: Path, clock: ManualClock) -> None:
    store = await Store.open(f"sqlite:///{tmp_path / 'bridge.db'}", clock)
    large = inbound("k1", "x" * 100_000)
    await store._database.write(lambda tx: tx.connection.exec_driver_sql("PRAGMA max_page_count = 1"))
    with pytest.raises(StoreAway, match="full"):
        await store.accept(large, Lane.TURN)
    # The connection that met the trouble was replaced by a new one, which has no limit.
    assert await store.accept(large, Lane.TURN) is not None
    await store.close()
