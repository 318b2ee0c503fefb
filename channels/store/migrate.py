"""Brings a database to the present schema, once, however many processes start at the same time."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.pool import NullPool

from channels.store.records import StoreError

HEAD = "0002"
"""The newest revision; a database that has it needs no migration."""

_WAIT = 60.0  # seconds to wait for another process that migrates
_LOCK = 0x6368_6272  # any number, the same in every process: "chbr"
_SCRIPTS = Path(__file__).parent / "migrations"
# Alembic keeps the migration that runs in global variables.
_alone = threading.Lock()


def migrate(engine: Engine, to: str = HEAD, scripts: Path = _SCRIPTS) -> None:
    """Bring the database to the revision `to`; blocks, for up to a minute while another process does it.

    Raises `StoreError` when the database was made by a newer version of the bridge.
    """
    with _alone:
        if engine.dialect.name == "sqlite":
            _prepare_file(engine)
        if _revision(engine) == to:
            return
        with _locked(engine) as connection:
            _upgrade(connection, to, scripts)


def _upgrade(connection: Connection, to: str, scripts: Path) -> None:
    # It takes most of a second to import, which a start that needs no migration can do without.
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes["connection"] = connection
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
                yield connection


def _revision(engine: Engine) -> str | None:
    with engine.connect() as connection:
        try:
            with connection.begin():
                return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
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
