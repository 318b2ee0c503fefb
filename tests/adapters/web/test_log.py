"""The log keeps entries in order, once, and for as long as it should, in memory and in a database alike."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.web import sqllog
from adapters.web.log import EntryKind, LogAway, MemoryLog, Record, Upload, WebLog
from adapters.web.sqllog import SqlLog


def _record(number: int, *, order: int | None = None, at: float = 0.0, body: str = "{}") -> Record:
    return Record(f"e{number}", EntryKind.ASK, number if order is None else order, number, at, body)


@pytest.fixture(params=["memory", "sqlite", "sqlite in memory"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[WebLog]:
    logs: dict[str, WebLog] = {
        "memory": MemoryLog(),
        "sqlite": SqlLog(f"sqlite:///{tmp_path}/new/folder/web.db", "web"),
        "sqlite in memory": SqlLog("sqlite://", "web"),
    }
    log = logs[request.param]
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


async def test_an_entry_with_a_known_id_replaces_it(log: WebLog) -> None:
    await log.put("anna", _record(1, body='"old"'))
    await log.put("anna", _record(1, body='"new"'))
    assert [record.body for record in await log.newest("anna", 10)] == ['"new"']


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
    log = SqlLog(f"sqlite:///{tmp_path}/web.db", "web")
    for _ in range(2):
        await log.open()
        await log.put("anna", _record(1))
        await log.close()
    with pytest.raises(LogAway):
        await log.put("anna", _record(2))


async def test_what_was_put_is_there_after_the_process_has_died(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/web.db"
    first = SqlLog(url, "web")
    await first.open()
    await first.put("anna", _record(1, body='"kept"'))
    second = SqlLog(url, "web")  # the first is never closed
    await second.open()
    assert [record.body for record in await second.newest("anna", 10)] == ['"kept"']
    await second.close()
    await first.close()


async def test_channels_share_a_database_without_seeing_each_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/web.db"
    logs = [SqlLog(url, "one"), SqlLog(url, "two")]
    await asyncio.gather(*(log.open() for log in logs))
    await logs[0].put("anna", _record(1))
    assert await logs[1].newest("anna", 10) == []
    assert await logs[1].prune(10.0) == 0
    assert len(await logs[0].newest("anna", 10)) == 1
    for log in logs:
        await log.close()


async def test_no_database_work_is_done_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SqlLog(f"sqlite:///{tmp_path}/web.db", "web")
    threads: list[threading.Thread] = []
    upsert = SqlLog._upsert

    def watched(self: SqlLog, *args: object) -> None:
        threads.append(threading.current_thread())
        upsert(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(SqlLog, "_upsert", watched)
    await log.open()
    await log.put("anna", _record(1))
    await log.close()
    assert threads
    assert threading.current_thread() not in threads


@pytest.mark.parametrize("url", ["sqlite:////proc/no/such/folder/web.db", "nonsense"])
async def test_a_database_that_cannot_be_opened_is_said_to_be_away(url: str) -> None:
    log = SqlLog(url, "web")
    with pytest.raises(LogAway):
        await log.open()
    await log.close()


async def test_a_database_that_breaks_is_said_to_be_away_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / "web.db"
    log = SqlLog(f"sqlite:///{path}", "web")
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
