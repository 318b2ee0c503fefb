"""The log of a web channel in a database: SQLite beside the bridge's own, or PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa

from adapters.web.log import EntryKind, LogAway, Outdated, Record, Upload
from channels.clock import Clock
from channels.store.database import Database, Transaction
from channels.store.migrate import Schema, bring_up_to_date
from channels.store.records import StoreError

_CLOSE_WITHIN = 3.0  # seconds; an adapter has 5 s to stop
_PRUNE_BATCH = 500

_Result = TypeVar("_Result")

_metadata = sa.MetaData()
_entries = sa.Table(
    "web_entries",
    _metadata,
    sa.Column("channel", sa.String(64), primary_key=True),
    sa.Column("conversation", sa.String(64), primary_key=True),
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False, server_default="1"),
    sa.Index("web_entries_by_position", "channel", "conversation", "position", "seq"),
    sa.Index("web_entries_by_age", "channel", "at"),
)
_uploads = sa.Table(
    "web_uploads",
    _metadata,
    sa.Column("channel", sa.String(64), primary_key=True),
    sa.Column("conversation", sa.String(64), primary_key=True),
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("mime", sa.Text, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.Index("web_uploads_by_age", "channel", "at"),
)

SCHEMA = Schema(_metadata, Path(__file__).parent / "migrations", "0002", noted_in="web_alembic_version")


class SqlLog:
    """Keeps one channel's entries in the database at `url`. Nothing here blocks the event loop."""

    def __init__(self, url: str, channel: str, clock: Clock) -> None:
        self._url = url
        self._channel = channel
        self._clock = clock
        self._database: Database | None = None

    async def open(self) -> None:
        if self._database is not None:
            return
        with _log_away():
            # Growth is written at most twice a second for a reply: one connection to write and one to read are enough.
            database = Database(self._url, self._clock, writers=1, readers=1)
            await bring_up_to_date(database, SCHEMA)
        self._database = database

    async def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            await asyncio.wait({asyncio.ensure_future(database.close())}, timeout=_CLOSE_WITHIN)

    async def put(self, conversation: str, record: Record) -> None:
        keys = {"channel": self._channel, "conversation": conversation, "id": record.id}
        values = {
            "kind": str(record.kind),
            "position": record.order,
            "seq": record.seq,
            "at": record.at,
            "body": record.body,
            "version": record.version + 1,
        }

        def replace_it(tx: Transaction) -> None:
            write: sa.Update | sa.Insert
            if record.version:
                same = (*self._is(_entries, conversation, record.id), _entries.c.version == record.version)
                write = sa.update(_entries).where(*same).values(values)
            else:
                write = tx.insert(_entries).values(keys | values).on_conflict_do_nothing()
            if tx.connection.execute(write.returning(_entries.c.id)).first() is None:
                raise Outdated("an entry of the history was written by somebody else")

        await self._do(self._open_database().write(replace_it))

    async def get(self, conversation: str, entry: str) -> Record | None:
        query = sa.select(_entries).where(*self._is(_entries, conversation, entry))
        row = await self._do(self._open_database().read(lambda tx: tx.connection.execute(query).one_or_none()))
        return _record(row) if row is not None else None

    async def newest(self, conversation: str, limit: int, before: tuple[int, int] | None = None) -> Sequence[Record]:
        columns = _entries.c
        query = sa.select(_entries).where(columns.channel == self._channel, columns.conversation == conversation)
        if before is not None:
            query = query.where(sa.tuple_(columns.position, columns.seq) < before)
        query = query.order_by(columns.position.desc(), columns.seq.desc()).limit(limit)
        rows = await self._do(self._open_database().read(lambda tx: tx.connection.execute(query).all()))
        return [_record(row) for row in reversed(rows)]

    async def last_seq(self, conversation: str) -> int:
        columns = _entries.c
        query = sa.select(sa.func.max(columns.seq)).where(
            columns.channel == self._channel, columns.conversation == conversation
        )
        return await self._do(self._open_database().read(lambda tx: tx.connection.execute(query).scalar())) or 0

    async def save_upload(self, conversation: str, upload: Upload, at: float) -> None:
        keys = {"channel": self._channel, "conversation": conversation, "id": upload.id}
        values = {"name": upload.name, "mime": upload.mime, "at": at, "data": upload.data}

        def save(tx: Transaction) -> None:
            new = tx.insert(_uploads).values(keys | values)
            tx.connection.execute(new.on_conflict_do_update(index_elements=list(keys), set_=values))

        await self._do(self._open_database().write(save))

    async def upload(self, conversation: str, upload: str) -> Upload | None:
        query = sa.select(_uploads).where(*self._is(_uploads, conversation, upload))
        row = await self._do(self._open_database().read(lambda tx: tx.connection.execute(query).one_or_none()))
        return Upload(row.id, row.name, row.mime, bytes(row.data)) if row is not None else None

    async def prune(self, before: float) -> int:
        dropped = 0
        for table in (_entries, _uploads):
            while batch := await self._drop_old(table, before):
                dropped += batch
        return dropped

    # ------------------------------------------------------------ inside

    def _is(self, table: sa.Table, conversation: str, entry: str) -> tuple[sa.ColumnElement[bool], ...]:
        columns = table.c
        return (columns.channel == self._channel, columns.conversation == conversation, columns.id == entry)

    async def _drop_old(self, table: sa.Table, before: float) -> int:
        columns = table.c
        old = sa.select(columns.conversation, columns.id).where(columns.channel == self._channel, columns.at < before)

        def drop(tx: Transaction) -> int:
            batch = tx.connection.execute(old.limit(_PRUNE_BATCH)).all()
            for conversation, entry in batch:
                tx.connection.execute(sa.delete(table).where(*self._is(table, conversation, entry)))
            return len(batch)

        return await self._do(self._open_database().write(drop))

    def _open_database(self) -> Database:
        if self._database is None:
            raise LogAway("the history is not open")
        return self._database

    async def _do(self, work: Awaitable[_Result]) -> _Result:
        with _log_away():
            return await work


@contextmanager
def _log_away() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise LogAway(f"the history cannot be used: {error}") from None


def _record(row: sa.Row[tuple[object, ...]]) -> Record:
    return Record(row.id, EntryKind(row.kind), row.position, row.seq, row.at, row.body, row.version)
