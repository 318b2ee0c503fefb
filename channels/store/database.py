"""The database behind the store: threads that run units of work, so that the event loop never waits for a disk.

A unit is a function of a `Transaction`. On SQLite one thread writes: it takes every unit that waits and commits them
together (one fsync for all), each in a savepoint of its own, so that a unit that fails does not spoil the others. On
PostgreSQL a few threads commit unit by unit; the server groups the commits.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, StaticPool

from channels.clock import Clock
from channels.store.records import StoreError, StoreUnavailable, Unstorable

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

_LOCK_WAIT = 5.0  # seconds a statement waits for a lock
_STATEMENT = 10.0  # seconds a statement may run on PostgreSQL
_CONNECT = 5  # seconds to reach PostgreSQL
_QUEUED = 10.0  # seconds a unit may wait for its turn
_UNIT = 25.0  # seconds after which the caller is told, whatever the thread is doing
_BATCH = 256  # units that SQLite commits together
_SQLITE_READERS = 2
# deadlock, serialization failure: nothing was done, and a second try meets another order
_REPEATABLE = frozenset({"40P01", "40001"})

# A lost network is noticed within about 10 s, and a standby is not mistaken for the primary. The url may overrule.
_POSTGRES_PARAMETERS = {
    "connect_timeout": str(_CONNECT),
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "target_session_attrs": "read-write",
    "application_name": "channel-bridge",
}


@dataclass(slots=True)
class Transaction:
    """What a unit of work sees: a connection inside a transaction, the time, and whom to wake after the commit."""

    connection: Connection
    now: float
    lease_clock: Clock | None
    woken: set[str] = field(default_factory=set)

    def wake(self, channel: str) -> None:
        """Tell the listeners of the channel once this is committed."""
        self.woken.add(channel)

    @property
    def lease_now(self) -> sa.ColumnElement[float]:
        """The time that decides about leases: replicas on several machines share the database's clock."""
        if self.lease_clock is None:
            return sa.func.extract("epoch", sa.func.clock_timestamp()).cast(sa.Double)
        return sa.literal(self.lease_clock.now(), sa.Double)

    def insert(self, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
        """An INSERT that can say what to do about a conflict, which both databases do in the same words."""
        if self.connection.dialect.name == "postgresql":
            return postgresql.insert(table)
        return sqlite.insert(table)


Work = Callable[[Transaction], T]


class OnCommit(Protocol):
    """What happens around the commit of units that wake channels."""

    def announce(self, connection: Connection, channels: set[str]) -> None:
        """Inside the transaction, before its commit."""
        ...

    def committed(self, channels: set[str]) -> None:
        """After the commit, on the thread that made it."""
        ...


@dataclass(slots=True)
class _Unit(Generic[T]):
    work: Work[T]
    future: concurrent.futures.Future[T]
    deadline: float

    def begin(self) -> bool:
        """Whether the unit is still wanted; a caller that was told it failed must not find it done later."""
        if not self.future.set_running_or_notify_cancel():
            return False
        if time.monotonic() > self.deadline:
            self.future.set_exception(StoreUnavailable("the database is too slow"))
            return False
        return True

    def attempt(self, transaction: Transaction) -> Callable[[], None]:
        """Do the work; what is returned tells the caller, to be called once it is committed."""
        value = self.work(transaction)
        return lambda: self.future.set_result(value)


class _Workers:
    """Threads that run units from one queue, each on a connection of its own that is renewed when it breaks."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        clock: Clock,
        lease_clock: Clock | None,
        hooks: OnCommit | None,
        *,
        count: int,
        batch: int,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._lease_clock = lease_clock
        self._hooks = hooks
        self._batch = batch
        self._units: queue.SimpleQueue[_Unit[object] | None] = queue.SimpleQueue()
        self._sockets: dict[int, Connection] = {}
        self._threads = [threading.Thread(target=self._serve, name=f"{name}-{n}", daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Work[T]) -> concurrent.futures.Future[T]:
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        unit = _Unit(work, future, time.monotonic() + _QUEUED)
        self._units.put(unit)  # type: ignore[arg-type]  # a queue of units of every result
        return future

    def ask_to_stop(self) -> None:
        for _ in self._threads:
            self._units.put(None)

    def join(self, timeout: float) -> None:
        """Wait for the threads; a thread that hangs on its socket has it cut."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for connection in list(self._sockets.values()):
            _cut(connection)
        for thread in self._threads:
            thread.join(0.5)
        while True:
            try:
                unit = self._units.get_nowait()
            except queue.Empty:
                return
            if unit is not None and unit.future.set_running_or_notify_cancel():
                unit.future.set_exception(_closed())

    def _serve(self) -> None:
        connection: Connection | None = None
        more = True
        while more:
            units, more = self._take()
            connection = self._run([unit for unit in units if unit.begin()], connection)
        _discard(connection)
        self._sockets.pop(threading.get_ident(), None)

    def _take(self) -> tuple[list[_Unit[object]], bool]:
        """The units that wait, at least one and at most a batch; and whether to go on afterwards."""
        units: list[_Unit[object]] = []
        while len(units) < self._batch:
            try:
                unit = self._units.get(block=not units)
            except queue.Empty:
                break
            if unit is None:
                return units, False
            units.append(unit)
        return units, True

    def _run(self, units: Sequence[_Unit[object]], connection: Connection | None) -> Connection | None:
        """Run the units and tell their callers. Returns the connection to go on with."""
        if not units:
            return connection
        for last_try in (False, True):
            committing = False
            try:
                if connection is None:
                    connection = self._engine.connect()
                    self._sockets[threading.get_ident()] = connection
                with connection.begin():
                    tellers, woken = self._attempt(connection, units)
                    if woken and self._hooks is not None:
                        self._hooks.announce(connection, woken)
                    committing = True
            except Exception as error:  # noqa: BLE001  whatever it is, the callers must hear of it
                # A connection that broke while idle is found out by the next unit: that unit is tried again. After a
                # failed COMMIT nobody knows what holds, and only the caller can look.
                again = _is_broken(error) or sqlstate(error) in _REPEATABLE
                if isinstance(as_store_error(error, self._engine.url), StoreUnavailable):
                    _discard(connection)
                    connection = None
                if again and not committing and not last_try:
                    continue
                for unit in units:
                    unit.future.set_exception(as_store_error(error, self._engine.url))
                return connection
            if woken and self._hooks is not None:
                self._hooks.committed(woken)
            for tell in tellers:
                tell()
            return connection
        return connection

    def _attempt(
        self, connection: Connection, units: Sequence[_Unit[object]]
    ) -> tuple[list[Callable[[], None]], set[str]]:
        tellers: list[Callable[[], None]] = []
        woken: set[str] = set()
        alone = len(units) == 1
        for unit in units:
            transaction = Transaction(connection, self._clock.now(), self._lease_clock)
            try:
                with contextlib.nullcontext() if alone else connection.begin_nested():
                    tellers.append(unit.attempt(transaction))
            except Exception as error:
                if alone or not connection.in_transaction() or _spoils_the_transaction(error):
                    raise
                tellers.append(_teller_of(unit, as_store_error(error, self._engine.url)))
            else:
                woken |= transaction.woken
        return tellers, woken


class Database:
    """One database: its engines and the threads that work on it; `writers` and `readers` are those on PostgreSQL.

    Raises `StoreError` for a URL that cannot be used.
    """

    def __init__(
        self,
        url: str,
        clock: Clock,
        lease_clock: Clock | None = None,
        hooks: OnCommit | None = None,
        *,
        writers: int = 12,
        readers: int = 2,
    ) -> None:
        self.url = parse_url(url)
        self._closed = False
        self.is_postgres = self.url.get_backend_name() == "postgresql"
        lease_time = lease_clock if self.is_postgres else (lease_clock or clock)
        if self.is_postgres:
            engine = create_engine(self.url)
            self._engines = [engine]
            self._writers = _Workers("store-write", engine, clock, lease_time, hooks, count=writers, batch=1)
            self._readers = _Workers("store-read", engine, clock, lease_time, hooks, count=readers, batch=1)
            self._keepers = _Workers("store-lease", engine, clock, lease_time, hooks, count=2, batch=1)
        elif is_in_memory(self.url):
            engine = create_engine(self.url)
            self._engines = [engine]
            self._writers = _Workers("store", engine, clock, lease_time, hooks, count=1, batch=_BATCH)
            self._readers = self._keepers = self._writers
        else:
            engine, reading = create_engine(self.url), create_engine(self.url, read_only=True)
            self._engines = [engine, reading]
            self._writers = _Workers("store-write", engine, clock, lease_time, hooks, count=1, batch=_BATCH)
            self._readers = _Workers("store-read", reading, clock, lease_time, hooks, count=_SQLITE_READERS, batch=1)
            self._keepers = self._writers

    @property
    def engine(self) -> Engine:
        """The engine that writes; for migrations."""
        return self._engines[0]

    async def write(self, work: Work[T]) -> T:
        """Run a unit in a transaction of its own and return once it is committed.

        Raises what the unit raises, `StoreUnavailable` when the database is away (then it may or may not have been
        committed), `StoreError` for everything else. Bounded to 25 s.
        """
        return await self._submit(self._writers, work)

    async def keep(self, work: Work[T]) -> T:
        """Like `write` for who owns a channel; on PostgreSQL it does not wait behind other writes."""
        return await self._submit(self._keepers, work)

    async def read(self, work: Work[T]) -> T:
        """Like `write` for a unit that only reads; does not wait for writers on SQLite."""
        return await self._submit(self._readers, work)

    async def _submit(self, workers: _Workers, work: Work[T]) -> T:
        if self._closed:
            raise _closed()
        try:
            # not wait_for: on Python 3.11 it forgets a cancellation that meets the result
            async with asyncio.timeout(_UNIT):
                return await asyncio.wrap_future(workers.submit(work))
        except TimeoutError:
            raise StoreUnavailable("the database does not answer") from None

    async def close(self) -> None:
        """Let the units that were submitted end and close every connection; bounded to about 6 s."""
        if self._closed:
            return
        self._closed = True
        groups = {id(group): group for group in (self._writers, self._readers, self._keepers)}.values()
        for group in groups:
            group.ask_to_stop()
        await asyncio.gather(*(asyncio.to_thread(group.join, 5.0) for group in groups))
        for engine in self._engines:
            await asyncio.to_thread(engine.dispose)


# ---------------------------------------------------------------- engines


def parse_url(url: str) -> URL:
    """The engine's form of a configured URL. Raises `StoreError` for a database this bridge does not know."""
    try:
        parsed = sa.make_url(url)
    except (SQLAlchemyError, ValueError):
        raise StoreError("the url of the database cannot be read") from None  # its text may hold a password
    backend = parsed.get_backend_name()
    if backend in ("postgresql", "postgres"):
        query = {**_POSTGRES_PARAMETERS, **parsed.query, "client_encoding": "utf8"}
        return parsed.set(drivername="postgresql+psycopg", query=query)
    if backend == "sqlite":
        return parsed.set(drivername="sqlite")
    raise StoreError(f"the store can be sqlite or postgresql, not {backend}")


def is_in_memory(url: URL) -> bool:
    return url.database in (None, "", ":memory:")


def create_engine(url: URL, *, read_only: bool = False) -> Engine:
    """An engine whose sessions are durable and bounded in time. SQLite: creates the folder of the file."""
    if url.get_backend_name() == "postgresql":
        engine = sa.create_engine(url, poolclass=NullPool, hide_parameters=True)
        sa.event.listen(engine, "connect", _prepare_postgres)
        return engine
    if is_in_memory(url):
        engine = sa.create_engine(
            url, poolclass=StaticPool, hide_parameters=True, connect_args={"check_same_thread": False}
        )
    else:
        try:
            Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{_place(url)}: the folder cannot be made: {error.strerror}") from None
        engine = sa.create_engine(
            url,
            poolclass=NullPool,
            hide_parameters=True,
            connect_args={"check_same_thread": False, "timeout": _LOCK_WAIT},
        )
    sa.event.listen(engine, "connect", _prepare_sqlite)
    # A transaction that reads first and writes later cannot wait for another writer: a writer locks at once.
    begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _prepare_postgres(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    driver = cast("psycopg.Connection", connection)
    encoding = driver.info.parameter_status("server_encoding")
    if encoding not in ("UTF8", None):  # the first emoji could not be stored, nor what it was said with
        raise StoreError(
            f"the database {driver.info.dbname} has the encoding {encoding}, it must be UTF8: make another one with"
            " CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )
    with contextlib.closing(connection.cursor()) as cursor:
        # The last one frees the locks of a process that was paused inside a transaction, so that others can take over.
        cursor.execute(f"SET statement_timeout = {_STATEMENT * 1000:.0f}")
        cursor.execute(f"SET lock_timeout = {_LOCK_WAIT * 1000:.0f}")
        cursor.execute(f"SET idle_in_transaction_session_timeout = {_LOCK_WAIT * 1000:.0f}")
    connection.commit()


def _prepare_sqlite(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver begins no transaction by itself; see the "begin" event
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA journal_size_limit = 67108864")


# ---------------------------------------------------------------- trouble


def _closed() -> StoreError:
    return StoreUnavailable("the store is closed")


def as_store_error(error: Exception, url: URL) -> Exception:
    """What a caller gets for a failure: database trouble in the store's words, the unit's own errors as they are."""
    if not isinstance(error, SQLAlchemyError | OSError):
        return error
    reason = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror
    if isinstance(error, DBAPIError) and error.orig is not None:
        # only the first line: the next ones quote values
        text = str(error.orig).strip().splitlines()
        reason = f"{type(error.orig).__name__}: {text[0][:200]}" if text else type(error.orig).__name__
    match error:
        case IntegrityError() | DataError():
            kind: type[StoreError] = Unstorable
        case ProgrammingError():
            kind = StoreError
        case _:
            kind = StoreUnavailable
    # Where it happened, but not the driver's own error, which would be printed with the values it quotes.
    return kind(f"{_place(url)}: {reason}").with_traceback(error.__traceback__)


def _place(url: URL) -> str:
    """The configured URL without its password and without our parameters."""
    return url.set(drivername=url.get_backend_name(), query={}).render_as_string(hide_password=True)


def _teller_of(unit: _Unit[object], failure: Exception) -> Callable[[], None]:
    return lambda: unit.future.set_exception(failure)


def _is_broken(error: Exception) -> bool:
    return isinstance(error, DBAPIError) and error.connection_invalidated


def sqlstate(error: Exception) -> str | None:
    """PostgreSQL's code for what went wrong, where it was PostgreSQL that said so."""
    state = getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None
    return state if isinstance(state, str) else None


def _spoils_the_transaction(error: Exception) -> bool:
    """SQLite may roll everything back by itself when the disk is full or fails; then no other unit is safe either."""
    return isinstance(error, DBAPIError) and not isinstance(error, IntegrityError | ProgrammingError | DataError)


def _discard(connection: Connection | None) -> None:
    if connection is None:
        return
    with contextlib.suppress(Exception):
        connection.invalidate()
    with contextlib.suppress(Exception):
        connection.close()


def _cut(connection: Connection) -> None:
    """End a network connection that a thread waits on, from outside."""
    with contextlib.suppress(Exception):
        descriptor = connection.connection.driver_connection.fileno()  # type: ignore[union-attr]
        with socket.socket(fileno=socket.dup(descriptor)) as twin:
            twin.shutdown(socket.SHUT_RDWR)
