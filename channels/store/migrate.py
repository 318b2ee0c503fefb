"""Brings a database to the present schema, once, however many processes start at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
import structlog
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.pool import NullPool

from channels.store.database import Database, as_store_error, sqlstate
from channels.store.records import StoreError
from channels.store.schema import metadata

log = structlog.get_logger(__name__)

_SCRIPTS = Path(__file__).parent / "migrations"


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables, and the way to them.

    `versions` is a folder of Alembic migrations; a database that has the revision `head` needs none of them. Where it
    stands is noted in the table `noted_in`.
    """

    tables: sa.MetaData
    versions: Path
    head: str
    noted_in: str = "alembic_version"


STORE = Schema(metadata, _SCRIPTS / "versions", "0003")

_WAIT = 60.0  # seconds to wait for another process that migrates
_PATIENCE = 300.0  # seconds to try while others are at work with the tables
_LOCK_WAIT = 1.0  # seconds: whoever waits for a table keeps all others from it, and leases last 12 s
_PAUSE = 4.0  # seconds between two tries, for those others
# deadlock, a lock that was waited for too long: replicas of the version before are at work, in another order
_REPEATABLE = frozenset({"40P01", "55P03"})
_LOCK = 0x6368_6272  # any number, the same in every process: "chbr"
# Alembic keeps the migration that runs in global variables.
_alone = threading.Lock()


def migrate(engine: Engine, schema: Schema = STORE, *, to: str | None = None) -> None:
    """Bring the database to the revision `to`, or the newest; blocks: up to a minute while another process does it, and
    up to five minutes while the tables are in use for long, as by a backup.

    Raises `StoreError` when the database was made by a newer version of the bridge.
    """
    to = to or schema.head
    with _alone:
        if engine.dialect.name == "sqlite":
            _prepare_file(engine)
        deadline = time.monotonic() + _PATIENCE
        while revision(engine, schema) != to:
            try:
                with _locked(engine) as connection:
                    _upgrade(connection, schema, to)
                return
            except OperationalError as error:
                if sqlstate(error) not in _REPEATABLE or time.monotonic() > deadline:
                    raise
                log.warning("the tables are in use; the migration is tried again", pause=_PAUSE)
                time.sleep(_PAUSE)


async def bring_up_to_date(database: Database, schema: Schema = STORE) -> None:
    """`migrate` off the event loop; the database is closed when that fails. Raises `StoreError`."""
    try:
        await asyncio.to_thread(migrate, database.engine, schema)
    except BaseException as error:
        await database.close()
        if isinstance(error, Exception):
            raise as_store_error(error, database.url) from None
        raise


def _upgrade(connection: Connection, schema: Schema, to: str) -> None:
    # It takes most of a second to import, which a start that needs no migration can do without.
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.set_main_option("version_locations", str(schema.versions).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes.update(connection=connection, schema=schema)
    try:
        command.upgrade(config, to)
    except CommandError as error:
        raise StoreError(f"the database cannot be migrated to {to}: was it made by a newer version?") from error


@contextlib.contextmanager
def _locked(engine: Engine) -> Iterator[Connection]:
    """A transaction that no other process can be in at the same time."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            # A table that is rebuilt must not take along what refers to it; inside a transaction it is too late.
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.execute("PRAGMA foreign_keys = OFF")
            driver.execute(f"PRAGMA busy_timeout = {_WAIT * 1000:.0f}")
            try:
                with connection.begin():
                    yield connection
            finally:
                driver.execute("PRAGMA foreign_keys = ON")
        else:
            with connection.begin():
                connection.execute(sa.text(f"SET LOCAL lock_timeout = {_WAIT * 1000:.0f}"))
                connection.execute(sa.text("SET LOCAL statement_timeout = 0"))
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
                connection.execute(sa.text(f"SET LOCAL lock_timeout = {_LOCK_WAIT * 1000:.0f}"))
                connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
                yield connection


def revision(engine: Engine, schema: Schema) -> str | None:
    """Where the database stands; None: nothing is there yet."""
    number: sa.ColumnClause[str] = sa.column("version_num")
    noted = sa.select(number).select_from(sa.table(schema.noted_in))
    with engine.connect() as connection:
        try:
            with connection.begin():
                return connection.execute(noted).scalar()
        except (OperationalError, ProgrammingError):
            return None


def _prepare_file(engine: Engine) -> None:
    """What is set once in an SQLite file: pages can be given back, and readers do not stop the writer."""
    if not isinstance(engine.pool, NullPool):
        return
    deadline = time.monotonic() + _WAIT
    while True:
        try:
            with engine.connect() as connection:
                driver = connection.connection.driver_connection
                assert driver is not None
                driver.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only an empty file takes it
                driver.execute("PRAGMA journal_mode = WAL")
            return
        except Exception as error:
            # The change of the mode does not wait for a lock by itself, unlike everything else.
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
