"""The log of a web channel in a database: SQLite beside the bridge's own, or PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    func,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool
from sqlalchemy.schema import CreateIndex, CreateTable

from adapters.web.log import EntryKind, LogAway, Record, Upload

_CLOSE_WITHIN = 3.0  # seconds; an adapter has 5 s to stop
_POSTGRES_WAIT = 5.0  # seconds
_PRUNE_BATCH = 500

_Result = TypeVar("_Result")

_metadata = MetaData()
_entries = Table(
    "web_entries",
    _metadata,
    Column("channel", String(64), primary_key=True),
    Column("conversation", String(64), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("position", Integer, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("body", Text, nullable=False),
    Index("web_entries_by_position", "channel", "conversation", "position", "seq"),
    Index("web_entries_by_age", "channel", "at"),
)
_uploads = Table(
    "web_uploads",
    _metadata,
    Column("channel", String(64), primary_key=True),
    Column("conversation", String(64), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("mime", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("web_uploads_by_age", "channel", "at"),
)


class SqlLog:
    """Keeps one channel's entries in the database at `url`. All work is done by one thread, in the order of the calls.

    One thread is enough: growth is written at most twice a second for a reply, and the order of writes is the order
    in which the page saw them.
    """

    def __init__(self, url: str, channel: str) -> None:
        self._url = url
        self._channel = channel
        self._engine: Engine | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"web-log-{self._channel}")
        await self._in_thread(self._open)

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        engine, self._engine = self._engine, None
        if engine is not None:
            disposed = asyncio.get_running_loop().run_in_executor(thread, engine.dispose)
            await asyncio.wait({disposed}, timeout=_CLOSE_WITHIN)
        thread.shutdown(wait=False)

    async def put(self, conversation: str, record: Record) -> None:
        values = {
            "kind": str(record.kind),
            "position": record.order,
            "seq": record.seq,
            "at": record.at,
            "body": record.body,
        }
        await self._do(lambda connection: self._upsert(connection, _entries, conversation, record.id, values))

    async def get(self, conversation: str, entry: str) -> Record | None:
        query = select(_entries).where(*self._is(_entries, conversation, entry))
        row = await self._do(lambda connection: connection.execute(query).one_or_none())
        return _record(row) if row is not None else None

    async def newest(self, conversation: str, limit: int, before: tuple[int, int] | None = None) -> Sequence[Record]:
        columns = _entries.c
        query = select(_entries).where(columns.channel == self._channel, columns.conversation == conversation)
        if before is not None:
            query = query.where(tuple_(columns.position, columns.seq) < before)
        query = query.order_by(columns.position.desc(), columns.seq.desc()).limit(limit)
        rows = await self._do(lambda connection: connection.execute(query).all())
        return [_record(row) for row in reversed(rows)]

    async def last_seq(self, conversation: str) -> int:
        columns = _entries.c
        query = select(func.max(columns.seq)).where(
            columns.channel == self._channel, columns.conversation == conversation
        )
        return await self._do(lambda connection: connection.execute(query).scalar()) or 0

    async def save_upload(self, conversation: str, upload: Upload, at: float) -> None:
        values = {"name": upload.name, "mime": upload.mime, "at": at, "data": upload.data}
        await self._do(lambda connection: self._upsert(connection, _uploads, conversation, upload.id, values))

    async def upload(self, conversation: str, upload: str) -> Upload | None:
        query = select(_uploads).where(*self._is(_uploads, conversation, upload))
        row = await self._do(lambda connection: connection.execute(query).one_or_none())
        return Upload(row.id, row.name, row.mime, bytes(row.data)) if row is not None else None

    async def prune(self, before: float) -> int:
        dropped = 0
        for table in (_entries, _uploads):
            while batch := await self._do(partial(self._drop_old, table, before)):
                dropped += batch
        return dropped

    # ------------------------------------------------------------ in the thread

    def _open(self) -> None:
        engine = _make_engine(self._url)
        try:
            try:
                _create_tables(engine)
            except SQLAlchemyError:
                _create_tables(engine)  # another process was making them at the same moment
        except BaseException:
            engine.dispose()
            raise
        if self._engine is not None:
            self._engine.dispose()
        self._engine = engine

    def _is(self, table: Table, conversation: str, entry: str) -> tuple[ColumnElement[bool], ...]:
        columns = table.c
        return (columns.channel == self._channel, columns.conversation == conversation, columns.id == entry)

    def _upsert(
        self, connection: Connection, table: Table, conversation: str, entry: str, values: dict[str, object]
    ) -> None:
        changed = connection.execute(update(table).where(*self._is(table, conversation, entry)).values(values))
        if not changed.rowcount:
            keys = {"channel": self._channel, "conversation": conversation, "id": entry}
            connection.execute(insert(table).values(keys | values))

    def _drop_old(self, table: Table, before: float, connection: Connection) -> int:
        columns = table.c
        old = connection.execute(
            select(columns.conversation, columns.id)
            .where(columns.channel == self._channel, columns.at < before)
            .limit(_PRUNE_BATCH)
        ).all()
        for conversation, entry in old:
            connection.execute(delete(table).where(*self._is(table, conversation, entry)))
        return len(old)

    # ------------------------------------------------------------ onto the thread

    async def _do(self, work: Callable[[Connection], _Result]) -> _Result:
        def unit() -> _Result:
            if self._engine is None:
                raise LogAway("the history is not open")
            with self._engine.begin() as connection:
                return work(connection)

        return await self._in_thread(unit)

    async def _in_thread(self, unit: Callable[[], _Result]) -> _Result:
        if self._thread is None:
            raise LogAway("the history is not open")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, unit)
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            raise LogAway(f"the history cannot be used: {type(cause).__name__}: {cause}".splitlines()[0]) from None
        except OSError as error:
            raise LogAway(f"the history cannot be used: {error.strerror}") from None


def _make_engine(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        driver = parsed.set(drivername="postgresql+psycopg")
        engine = create_engine(driver, hide_parameters=True, pool_pre_ping=True, pool_size=1, max_overflow=0)
        event.listen(engine, "connect", _prepare_postgres)
        return engine
    database = parsed.database
    if database and database != ":memory:":
        Path(database).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(parsed, hide_parameters=True)
    else:
        engine = create_engine(
            parsed, hide_parameters=True, poolclass=StaticPool, connect_args={"check_same_thread": False}
        )
    event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _create_tables(engine: Engine) -> None:
    with engine.begin() as connection:
        for table in _metadata.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
            for index in table.indexes:
                connection.execute(CreateIndex(index, if_not_exists=True))


def _prepare_postgres(connection: object, _record: object) -> None:
    """Bound every wait; the last one frees the locks of a process that was paused inside a transaction."""
    cursor = connection.cursor()  # type: ignore[attr-defined]
    for setting in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
        cursor.execute(f"SET {setting} = {_POSTGRES_WAIT * 1000:.0f}")
    cursor.close()
    connection.commit()  # type: ignore[attr-defined]


def _prepare_sqlite(connection: object, _record: object) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]
    for pragma in ("busy_timeout=5000", "journal_mode=WAL", "synchronous=FULL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _record(row: Row[tuple[object, ...]]) -> Record:
    return Record(row.id, EntryKind(row.kind), row.position, row.seq, row.at, row.body)
