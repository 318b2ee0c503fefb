"""The schema is brought up to date at start, with the data, whoever starts at the same time."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg import sql
from sqlalchemy.engine import Engine

from channels.model import Place
from channels.store import Store
from channels.store.codec import inbound_to_json
from channels.store.database import create_engine, parse_url
from channels.store.migrate import STORE, Schema, migrate
from channels.store.records import StoreError
from channels.store.schema import metadata
from tests.channels.store.samples import contents, inbound, owned
from tests.clock import ManualClock

REVISIONS = [script.revision for script in ScriptDirectory(str(STORE.versions.parent)).walk_revisions()][::-1]

NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "next"
down_revision = "{head}"


def upgrade() -> None:
    with op.batch_alter_table("turns") as turns:
        turns.add_column(sa.Column("attempts", sa.Integer, nullable=False, server_default="1"))
        turns.alter_column("note", nullable=True)
    op.execute("UPDATE turns SET attempts = attempts + 1")
"""


@pytest.fixture
def engine(empty_database_url: str) -> Iterator[Engine]:
    engine = create_engine(parse_url(empty_database_url))
    yield engine
    engine.dispose()


def with_next(folder: Path, script: str) -> Schema:
    """The schema with one more revision."""
    versions = folder / "versions"
    shutil.copytree(STORE.versions, versions, ignore=shutil.ignore_patterns("__pycache__"))
    (versions / "next.py").write_text(script)
    return replace(STORE, versions=versions)


def rows(engine: Engine, table: str) -> list[dict[str, object]]:
    with engine.begin() as connection:
        return [dict(row) for row in connection.execute(sa.text(f"SELECT * FROM {table}")).mappings()]  # noqa: S608


def fill(engine: Engine) -> dict[str, list[dict[str, object]]]:
    """Put a row into every table, as they are at this revision; returns what is there."""
    now = sa.MetaData()
    now.reflect(engine)
    with engine.begin() as connection:
        for table in now.sorted_tables:
            if table.name == "alembic_version":
                continue
            row: dict[str, object] = {}
            for column in table.columns:
                text = '"text"' if column.name in _JSON else "text"
                row[column.name] = text if isinstance(column.type, sa.Text) else 1
                if isinstance(column.type, sa.Boolean):
                    row[column.name] = True
            connection.execute(table.insert().values(row))
    return {table.name: rows(engine, table.name) for table in now.sorted_tables if table.name != "alembic_version"}


_JSON = {column.name for table in metadata.tables.values() for column in table.columns if "Json" in repr(column.type)}


async def test_a_new_database_gets_the_whole_schema(
    engine: Engine, empty_database_url: str, clock: ManualClock
) -> None:
    await (await Store.open(empty_database_url, clock)).close()
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_the_newest_revision_is_the_one_that_a_start_expects() -> None:
    assert REVISIONS[-1] == STORE.head


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_database_of_each_version_is_upgraded_with_its_data(
    revision: str, engine: Engine, empty_database_url: str, clock: ManualClock
) -> None:
    migrate(engine, to=revision)
    before = fill(engine)
    store = await Store.open(empty_database_url, clock)
    await owned(store, channel="works")
    await store.close()
    for table, old_rows in before.items():
        kept = [{name: row[name] for name in old_rows[0] if name in row} for row in rows(engine, table)]
        for old in old_rows:
            assert {name: value for name, value in old.items() if name in kept[0]} in kept


async def test_what_the_version_before_had_begun_goes_on_as_it_was_meant(
    engine: Engine, empty_database_url: str, clock: ManualClock
) -> None:
    migrate(engine, to="0001")
    place = json.dumps({"channel": "team", "chat": "lobby", "thread": "t1", "user": None, "private": False})
    payload = json.dumps(inbound_to_json(inbound("k1", thread="t1")))
    with engine.begin() as connection:
        for statement in (
            "INSERT INTO conversations (id, channel, chat, place_key, place, generation, pending, moved, created_at)"
            " VALUES (1, 'team', 'lobby', 'key', :place, 0, '\"open\"', false, 1)",
            "INSERT INTO inbounds (id, channel, event_key, conversation_id, lane, state, ready_at, accepted_at,"
            " payload) VALUES (1, 'team', 'k1', 1, 'turn', 'taken', 1, 1, :payload)",
            "INSERT INTO turns (number, id, channel, conversation_id, holds, generation, state, note, created_at)"
            " VALUES (1, 'turn1', 'team', 1, 1, 0, 'claimed', '', 1)",
            "INSERT INTO turn_inbounds (turn, inbound) VALUES (1, 1)",
        ):
            values = {"place": place, "payload": payload}
            connection.execute(sa.text(statement), {name: values[name] for name in values if f":{name}" in statement})
    store = await Store.open(empty_database_url, clock)
    lease = await owned(store, channel="team")
    (turn,) = await store.unfinished(lease)
    assert turn.resumes == "open", "it answers the question that is open, and asks nothing new"
    assert await store.takes_part(Place("team", "lobby", "t1"))
    assert not await store.takes_part(Place("team", "lobby", "t2"))
    await store.close()


def test_a_migration_that_rebuilds_a_table_keeps_what_refers_to_it(engine: Engine, tmp_path: Path) -> None:
    extended = with_next(tmp_path, NEXT.format(head=STORE.head))
    migrate(engine)
    before = fill(engine)
    migrate(engine, extended, to="next")
    assert rows(engine, "turns") == [{**before["turns"][0], "attempts": 2}]
    for table in ("turn_inbounds", "feedback"):
        assert rows(engine, table) == before[table]


def test_a_migration_that_fails_leaves_everything_as_it_was(engine: Engine, tmp_path: Path) -> None:
    extended = with_next(tmp_path, NEXT.format(head=STORE.head) + "    raise RuntimeError('in the middle')\n")
    migrate(engine)
    before = fill(engine)
    with pytest.raises(RuntimeError, match="in the middle"):
        migrate(engine, extended, to="next")
    assert rows(engine, "turns") == before["turns"]
    assert rows(engine, "alembic_version") == [{"version_num": STORE.head}]


async def test_a_database_of_a_newer_version_is_refused(
    engine: Engine, empty_database_url: str, clock: ManualClock
) -> None:
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match="newer version"):
        await Store.open(empty_database_url, clock)


def test_a_migration_that_meets_a_replica_of_the_version_before_at_work_is_done_after_it(
    empty_postgres_url: str,
) -> None:
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        database = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET deadlock_timeout = '50ms'").format(database))
    engine = create_engine(parse_url(empty_postgres_url))
    migrate(engine, to="0001")
    with ThreadPoolExecutor(1) as pool, psycopg.connect(empty_postgres_url) as at_work:
        at_work.execute("SET deadlock_timeout = '20s'")  # the migration is the one that is given up
        at_work.execute("SELECT number FROM turns")
        migrating = pool.submit(migrate, engine)
        with psycopg.connect(empty_postgres_url, autocommit=True) as onlooker:
            while onlooker.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is None:
                assert not migrating.done()
        at_work.execute("SELECT id FROM inbounds")
        at_work.rollback()
        migrating.result(30)
    assert rows(engine, "alembic_version") == [{"version_num": STORE.head}]
    engine.dispose()


def test_a_migration_waits_for_whoever_reads_and_keeps_nobody_else_from_it(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.store.migrate._PAUSE", 0.2)
    engine = create_engine(parse_url(empty_postgres_url))
    migrate(engine, to="0001")
    with ThreadPoolExecutor(1) as pool, psycopg.connect(empty_postgres_url) as reader:
        reader.execute("SELECT number FROM turns")  # as a backup does for long
        migrating = pool.submit(migrate, engine)
        with psycopg.connect(empty_postgres_url, autocommit=True) as other:
            other.execute("SET lock_timeout = '4s'")
            waited = 0
            while waited < 2:
                waited += other.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is not None
                other.execute("SELECT number FROM turns")
                assert not migrating.done()
        reader.rollback()
        migrating.result(30)
    assert rows(engine, "alembic_version") == [{"version_num": STORE.head}]
    engine.dispose()


async def test_opening_again_changes_nothing(empty_database_url: str, clock: ManualClock) -> None:
    first = await Store.open(empty_database_url, clock)
    await owned(first)
    await first.close()
    before = contents(empty_database_url)
    await (await Store.open(empty_database_url, clock)).close()
    assert contents(empty_database_url) == before


async def test_stores_of_one_process_can_be_opened_at_once(empty_database_url: str, clock: ManualClock) -> None:
    stores = await asyncio.gather(*(Store.open(empty_database_url, clock) for _ in range(4)))
    assert (await stores[0].acquire("team", "one")) is not None
    assert (await stores[1].acquire("team", "two")) is None
    for store in stores:
        await store.close()


def test_processes_that_start_at_once_migrate_once(empty_database_url: str, engine: Engine) -> None:
    program = (
        "import sys; from channels.store.database import create_engine, parse_url;"
        "from channels.store.migrate import migrate; engine = create_engine(parse_url(sys.argv[1]));"
        "print('ready', flush=True); sys.stdin.readline(); migrate(engine)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, empty_database_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    assert rows(engine, "alembic_version") == [{"version_num": STORE.head}]
