"""The log keeps entries in order, once, and for as long as it should, in memory and in a database alike."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.engine import Engine

from adapters.web import sqllog
from adapters.web.log import EntryKind, LogAway, MemoryLog, Outdated, Record, Upload, WebLog
from adapters.web.sqllog import SCHEMA, SqlLog
from channels.store.database import create_engine, parse_url
from channels.store.migrate import migrate
from tests.clock import ManualClock


def _record(number: int, *, order: int | None = None, at: float = 0.0, body: str = "{}") -> Record:
    return Record(f"e{number}", EntryKind.ASK, number if order is None else order, number, at, body)


@pytest.fixture(params=["memory", "sqlite", "sqlite in memory", "postgresql"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[WebLog]:
    log: WebLog
    match request.param:
        case "memory":
            log = MemoryLog()
        case "sqlite":
            log = SqlLog(f"sqlite:///{tmp_path}/new/folder/web.db", "web", ManualClock())
        case "sqlite in memory":
            log = SqlLog("sqlite://", "web", ManualClock())
        case _:
            log = SqlLog(request.getfixturevalue("empty_postgres_url"), "web", ManualClock())
    await log.open()
    yield log
    await log.close()


async def test_entries_come_back_in_their_order_and_by_pages(log: WebLog) -> None:
    for number in (3, 1, 2, 5):
        await log.put("anna", _record(number))
    await log.put("anna", _record(4, order=2))
    assert [record.seq for record in await log.newest("anna", 3)] == [4, 3, 5]
    assert [record.seq for record in await log.newest("anna", 3, before=(2, 4))] == [1, 2]
    assert await log.last_seq("anna") == 5


async def test_an_entry_is_replaced_by_who_has_seen_its_newest_version_only(log: WebLog) -> None:
    await log.put("anna", _record(1, body='"first"'))
    first = await log.get("anna", "e1")
    assert first is not None
    await log.put("anna", replace(first, body='"second"'))
    for outdated in (first, _record(1), replace(first, version=7)):
        with pytest.raises(Outdated):
            await log.put("anna", replace(outdated, body='"from somebody who was paused"'))
    assert [record.body for record in await log.newest("anna", 10)] == ['"second"']


async def test_positions_are_moments(log: WebLog) -> None:
    now = 1_900_000_000_000_000  # microseconds
    await log.put("anna", _record(2, order=now + 1))
    await log.put("anna", _record(1, order=now))
    assert [record.order for record in await log.newest("anna", 10)] == [now, now + 1]


async def test_conversations_do_not_see_each_other(log: WebLog) -> None:
    await log.put("anna", _record(1))
    await log.save_upload("anna", Upload("u", "a.txt", "text/plain", b"x"), 0.0)
    assert await log.newest("bert", 10) == []
    assert await log.get("bert", "e1") is None
    assert await log.upload("bert", "u") is None
    assert await log.last_seq("bert") == 0


async def test_uploads_come_back_as_they_were(log: WebLog) -> None:
    upload = Upload("m.0", "ä b.bin", "application/x-test", bytes(range(256)) * 100)
    await log.save_upload("anna", upload, 1.0)
    await log.save_upload("anna", upload, 1.0)
    assert await log.upload("anna", "m.0") == upload


async def test_only_what_is_old_is_dropped(log: WebLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqllog, "_PRUNE_BATCH", 7)
    for number in range(40):
        await log.put("anna", _record(number, at=float(number)))
    await log.save_upload("anna", Upload("old", "a", "text/plain", b"x"), 1.0)
    await log.save_upload("anna", Upload("new", "a", "text/plain", b"x"), 50.0)
    assert await log.prune(30.0) == 31
    assert [record.seq for record in await log.newest("anna", 100)] == list(range(30, 40))
    assert await log.upload("anna", "old") is None
    assert await log.upload("anna", "new") is not None


async def test_a_closed_log_can_be_opened_again(tmp_path: Path) -> None:
    log = SqlLog(f"sqlite:///{tmp_path}/web.db", "web", ManualClock())
    for number in range(2):
        await log.open()
        await log.put("anna", _record(number))
        await log.close()
    with pytest.raises(LogAway):
        await log.put("anna", _record(2))


async def test_what_was_put_is_there_after_the_process_has_died(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/web.db"
    first = SqlLog(url, "web", ManualClock())
    await first.open()
    await first.put("anna", _record(1, body='"kept"'))
    second = SqlLog(url, "web", ManualClock())  # the first is never closed
    await second.open()
    assert [record.body for record in await second.newest("anna", 10)] == ['"kept"']
    await second.close()
    await first.close()


async def test_channels_share_a_database_without_seeing_each_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/web.db"
    logs = [SqlLog(url, name, ManualClock()) for name in ("one", "two")]
    await asyncio.gather(*(log.open() for log in logs))
    await logs[0].put("anna", _record(1))
    assert await logs[1].newest("anna", 10) == []
    assert await logs[1].prune(10.0) == 0
    assert len(await logs[0].newest("anna", 10)) == 1
    for log in logs:
        await log.close()


async def test_no_database_work_is_done_on_the_event_loop(tmp_path: Path) -> None:
    threads: set[int] = set()

    def note(*_: object) -> None:
        threads.add(threading.get_ident())

    sa.event.listen(Engine, "before_cursor_execute", note)
    try:
        log = SqlLog(f"sqlite:///{tmp_path}/web.db", "web", ManualClock())
        await log.open()
        await log.put("anna", _record(1))
        await log.newest("anna", 1)
        await log.close()
    finally:
        sa.event.remove(Engine, "before_cursor_execute", note)
    assert threads
    assert threading.get_ident() not in threads


_BEFORE_REVISIONS = """
CREATE TABLE web_entries (channel VARCHAR(64) NOT NULL, conversation VARCHAR(64) NOT NULL, id VARCHAR(64) NOT NULL,
kind VARCHAR(16) NOT NULL, position INTEGER NOT NULL, seq INTEGER NOT NULL, at FLOAT NOT NULL, body TEXT NOT NULL,
PRIMARY KEY (channel, conversation, id));
CREATE INDEX web_entries_by_position ON web_entries (channel, conversation, position, seq)
"""


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_database_of_the_version_before_is_taken_over_with_its_order(
    empty_database_url: str, is_new: bool
) -> None:
    """`is_new`: the first revision made its tables; otherwise a version that kept no note of revisions."""
    engine = create_engine(parse_url(empty_database_url))
    if is_new:
        migrate(engine, SCHEMA, to="0001")
    old = [
        ("q1", "ask", 1, 1, 1_700_000_001.25),
        ("q2", "ask", 2, 2, 1_700_000_002.5),
        ("r1", "reply", 1, 3, 1_700_000_003.0),
        ("r2", "reply", 2, 4, 1_700_000_004.0),
        ("again", "reply", 5, 5, 1_700_000_005.0),
    ]
    with engine.begin() as connection:
        for statement in () if is_new else _BEFORE_REVISIONS.split(";"):
            connection.execute(sa.text(statement))
        for entry in old:
            values = dict(zip(("id", "kind", "position", "seq", "at"), entry, strict=True))
            insert = "INSERT INTO web_entries VALUES ('web', 'anna', :id, :kind, :position, :seq, :at, '{}')"
            connection.execute(sa.text(insert), values)
    engine.dispose()
    log = SqlLog(empty_database_url, "web", ManualClock())
    await log.open()
    kept = await log.newest("anna", 10)
    assert [record.id for record in kept] == ["q1", "r1", "q2", "r2", "again"]
    assert [record.order for record in kept] == [
        1_700_000_001_250_000,
        1_700_000_001_250_000,
        1_700_000_002_500_000,
        1_700_000_002_500_000,
        1_700_000_005_000_000,
    ]
    await log.put("anna", replace(kept[1], body='"goes on"'))
    await log.close()


def test_the_tables_are_those_of_the_newest_revision(empty_database_url: str) -> None:
    engine = create_engine(parse_url(empty_database_url))
    migrate(engine, SCHEMA)
    with engine.connect() as connection:
        options = {"compare_type": True, "version_table": SCHEMA.noted_in}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, SCHEMA.tables) == []
    engine.dispose()


@pytest.mark.parametrize("url", ["sqlite:////proc/no/such/folder/web.db", "nonsense"])
async def test_a_database_that_cannot_be_opened_is_said_to_be_away(url: str) -> None:
    log = SqlLog(url, "web", ManualClock())
    with pytest.raises(LogAway):
        await log.open()
    await log.close()


async def test_a_database_that_breaks_is_said_to_be_away_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / "web.db"
    log = SqlLog(f"sqlite:///{path}", "web", ManualClock())
    await log.open()
    await log.close()
    path.write_bytes(b"not a database" * 100)
    for name in ("web.db-wal", "web.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    with pytest.raises(LogAway):
        await log.open()
    with pytest.raises(LogAway) as caught:
        await log.put("anna", _record(1, body='"private words"'))
    assert "private words" not in str(caught.value)
    await log.close()
    with pytest.raises(LogAway):
        await log.get("anna", "e1")
