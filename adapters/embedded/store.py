"""Threads and runs, in the SQLite database that langgraph's own saver keeps its checkpoints in.

One file and one connection on purpose: what a run did to the checkpoints and what is known about the run change in one
transaction, so a process killed at any point leaves either both or neither. The connection locks the file for as long
as it is open: two gateways on one data directory would both carry on the same runs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import aiosqlite
import orjson
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from adapters.embedded import wire
from adapters.embedded.errors import StoreError
from channels.clock import Clock

RunStatus = Literal["pending", "running", "success", "error", "timeout", "interrupted"]
ThreadStatus = Literal["idle", "busy", "interrupted", "error"]
CancelAction = Literal["interrupt", "rollback"]
Json = dict[str, Any]

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS gateway_threads (
    thread_id TEXT PRIMARY KEY,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    state_updated_at TEXT NOT NULL,
    status TEXT NOT NULL,
    metadata TEXT NOT NULL,
    error TEXT
);
CREATE INDEX IF NOT EXISTS gateway_threads_updated ON gateway_threads (updated_at);
CREATE TABLE IF NOT EXISTS gateway_runs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL UNIQUE,
    thread_id TEXT NOT NULL REFERENCES gateway_threads (thread_id) ON DELETE CASCADE,
    assistant_id TEXT NOT NULL,
    status TEXT NOT NULL,
    metadata TEXT NOT NULL,
    kwargs TEXT NOT NULL,
    multitask_strategy TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    cut_off INTEGER NOT NULL DEFAULT 0,
    cancel TEXT,
    error TEXT,
    base_checkpoint TEXT,
    base_head TEXT,
    final_checkpoint TEXT
);
CREATE INDEX IF NOT EXISTS gateway_runs_thread ON gateway_runs (thread_id, seq);
CREATE INDEX IF NOT EXISTS gateway_runs_active ON gateway_runs (status) WHERE status IN ('pending', 'running');
CREATE TABLE IF NOT EXISTS gateway_saved_writes (
    run_id TEXT NOT NULL REFERENCES gateway_runs (run_id) ON DELETE CASCADE,
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    task_path TEXT NOT NULL,
    idx INTEGER NOT NULL,
    channel TEXT NOT NULL,
    type TEXT,
    value BLOB
);
CREATE INDEX IF NOT EXISTS gateway_saved_writes_run ON gateway_saved_writes (run_id);
"""

_SELECT_THREADS = (
    "SELECT thread_id, created_at, updated_at, state_updated_at, status, metadata, error FROM gateway_threads "
)
_SELECT_RUNS = (
    "SELECT run_id, thread_id, assistant_id, status, metadata, kwargs, multitask_strategy, created_at, updated_at, "
    "cancel, error, final_checkpoint FROM gateway_runs "
)
_SELECT_RUNS_WITHOUT_KWARGS = _SELECT_RUNS.replace("kwargs", "'{}'")


class UnknownThread(LookupError):
    """There is no such thread."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation. Times are ISO 8601 in UTC."""

    thread_id: str
    created_at: str
    updated_at: str
    state_updated_at: str
    status: ThreadStatus
    metadata: Json
    error: Json | None

    @classmethod
    def from_row(cls, row: sqlite3.Row | tuple[Any, ...]) -> Thread:
        thread_id, created, updated, state_updated, status, metadata, error = row
        return cls(thread_id, created, updated, state_updated, status, orjson.loads(metadata), _maybe(error))


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of the graph.

    `kwargs` is what the client asked for (see `requests.RunBody.kwargs`); `cancel` is a stop that was asked for;
    `final_checkpoint` is the state the run ended in.
    """

    run_id: str
    thread_id: str
    assistant_id: str
    status: RunStatus
    metadata: Json
    kwargs: Json
    multitask_strategy: str
    created_at: str
    updated_at: str
    cancel: CancelAction | None = None
    error: Json | None = None
    final_checkpoint: str | None = None

    @classmethod
    def from_row(cls, row: sqlite3.Row | tuple[Any, ...]) -> Run:
        run_id, thread_id, assistant_id, status, metadata, kwargs, strategy, created, updated, *rest = row
        cancel, error, final = rest
        return cls(
            run_id,
            thread_id,
            assistant_id,
            status,
            orjson.loads(metadata),
            orjson.loads(kwargs),
            strategy,
            created,
            updated,
            cancel,
            _maybe(error),
            final,
        )

    def as_json(self) -> Json:
        """The run as LangGraph's API shows it."""
        return {
            "run_id": self.run_id,
            "thread_id": self.thread_id,
            "assistant_id": self.assistant_id,
            "metadata": self.metadata,
            "status": self.status,
            "kwargs": self.kwargs,
            "multitask_strategy": self.multitask_strategy,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
        }


class Beginning(NamedTuple):
    """The number of the attempt that begins, and how many before it ended with the process and without a word."""

    attempt: int
    cut_off: int


def _maybe(text: str | None) -> Json | None:
    return None if text is None else orjson.loads(text)


def _text(value: object) -> str:
    return wire.dumps(value).decode()


class Store:
    """Threads, runs and the rollback of what a run wrote. All methods commit before they return."""

    def __init__(self, saver: AsyncSqliteSaver, clock: Clock) -> None:
        self.saver = saver
        self._db = saver.conn
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path, clock: Clock, *, busy_seconds: float) -> AsyncIterator[Store]:
        """Open or create the database at `path`, waiting `busy_seconds` for another process to let go of it.

        Raises:
            StoreError: the file is in use by another process, not a database, or written by a newer version.
        """
        async with aiosqlite.connect(path, timeout=busy_seconds) as db:
            try:
                # NORMAL loses nothing when the process dies, at worst the last moments when the machine does.
                for pragma in ("locking_mode = EXCLUSIVE", "synchronous = NORMAL", "foreign_keys = ON"):
                    await db.execute(f"PRAGMA {pragma}")
                saver = AsyncSqliteSaver(db)
                await saver.setup()
                await _create_schema(db, path)
            except sqlite3.DatabaseError as error:
                hint = "it is in use by another gateway" if "locked" in str(error) else str(error)
                raise StoreError(f"cannot use the gateway's database {path}: {hint}") from error
            yield cls(saver, clock)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[aiosqlite.Connection]:
        # The saver's own lock: its statements on this connection must not end up inside this transaction.
        async with self.saver.lock:
            try:
                yield self._db
                await self._db.commit()
            except BaseException:
                # Also when it is the commit that fails: what was refused must not be committed with the next write.
                await self._db.rollback()
                raise

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now(), UTC).isoformat(timespec="microseconds")

    # Threads

    async def create_thread(self, thread_id: str, metadata: Mapping[str, Any]) -> tuple[Thread, bool]:
        """Create a thread, or return the one that has this id; the flag says whether it is new."""
        now = self._now()
        thread = Thread(thread_id, now, now, now, "idle", dict(metadata), None)
        async with self._transaction() as db:
            cursor = await db.execute(
                "INSERT INTO gateway_threads (thread_id, created_at, updated_at, state_updated_at, status, metadata) "
                "VALUES (?, ?, ?, ?, 'idle', ?) ON CONFLICT DO NOTHING",
                (thread_id, now, now, now, _text(metadata)),
            )
        is_new = cursor.rowcount == 1
        return (thread if is_new else await self.thread(thread_id)), is_new

    async def thread(self, thread_id: str) -> Thread:
        """Raises UnknownThread."""
        rows = await self._rows(_SELECT_THREADS + "WHERE thread_id = ?", (thread_id,))
        if not rows:
            raise UnknownThread(thread_id)
        return Thread.from_row(rows[0])

    async def threads(
        self,
        *,
        metadata: Mapping[str, Any],
        status: str | None,
        ids: list[str] | None,
        order: str,
        limit: int,
        offset: int,
    ) -> list[Thread]:
        """Threads whose metadata has all the given top-level values. `order` is an ORDER BY clause of this module."""
        where, parameters = ["TRUE"], list[Any]()
        for key, value in metadata.items():
            nested = isinstance(value, dict | list)
            where.append("json_extract(metadata, ?) IS " + ("json(?)" if nested else "?"))
            parameters += ['$."' + key.replace('"', "") + '"', _text(value) if nested else value]
        if status is not None:
            where.append("status = ?")
            parameters.append(status)
        if ids is not None:
            where.append("thread_id IN (SELECT value FROM json_each(?))")
            parameters.append(_text(ids))
        rows = await self._rows(
            _SELECT_THREADS + f"WHERE {' AND '.join(where)} ORDER BY {order} LIMIT ? OFFSET ?",
            (*parameters, limit, offset),
        )
        return [Thread.from_row(row) for row in rows]

    async def update_thread(self, thread_id: str, metadata: Mapping[str, Any]) -> Thread:
        """Merge `metadata` into the thread's, key by key. Raises UnknownThread."""
        thread = await self.thread(thread_id)
        async with self._transaction() as db:
            await db.execute(
                "UPDATE gateway_threads SET metadata = ?, updated_at = ? WHERE thread_id = ?",
                (_text({**thread.metadata, **metadata}), self._now(), thread_id),
            )
        return await self.thread(thread_id)

    async def touch_thread(self, thread_id: str, status: ThreadStatus) -> None:
        """Note that the thread's state was changed from outside of a run; it stays `busy` with a run to come."""
        async with self._transaction() as db:
            await self._set_status(db, thread_id, status, None)

    async def delete_thread(self, thread_id: str) -> None:
        """Delete the thread with its runs and its checkpoints. Raises UnknownThread."""
        async with self._transaction() as db:
            cursor = await db.execute("DELETE FROM gateway_threads WHERE thread_id = ?", (thread_id,))
            await db.execute("DELETE FROM checkpoints WHERE thread_id = ?", (thread_id,))
            await db.execute("DELETE FROM writes WHERE thread_id = ?", (thread_id,))
        if cursor.rowcount == 0:
            raise UnknownThread(thread_id)

    async def _set_status(
        self, db: aiosqlite.Connection, thread_id: str, status: ThreadStatus, error: Json | None
    ) -> ThreadStatus:
        """Set the thread's status, and return it: `busy` as long as one of its runs is not over, else `status`."""
        rows = await db.execute_fetchall(
            "UPDATE gateway_threads SET status = CASE WHEN EXISTS (SELECT 1 FROM gateway_runs WHERE thread_id = ?1 "
            "AND status IN ('pending', 'running')) THEN 'busy' ELSE ?2 END, error = ?3, updated_at = ?4, "
            "state_updated_at = ?4 WHERE thread_id = ?1 RETURNING status",
            (thread_id, status, None if error is None else _text(error), self._now()),
        )
        for (stored,) in rows:
            status = stored
        return status

    # Runs

    async def insert_run(self, run: Run) -> Run:
        """Store a new pending run and make its thread busy; returns it with its dates. Raises UnknownThread."""
        now = self._now()
        run = replace(run, created_at=now, updated_at=now)
        labels = {key: run.metadata[key] for key in ("graph_id", "assistant_id") if key in run.metadata}
        async with self._transaction() as db:
            try:
                await db.execute(
                    "INSERT INTO gateway_runs (run_id, thread_id, assistant_id, status, metadata, kwargs, "
                    "multitask_strategy, created_at, updated_at) VALUES (?, ?, ?, 'pending', ?, ?, ?, ?, ?)",
                    (
                        run.run_id,
                        run.thread_id,
                        run.assistant_id,
                        _text(run.metadata),
                        _text(run.kwargs),
                        run.multitask_strategy,
                        now,
                        now,
                    ),
                )
            except sqlite3.IntegrityError as error:
                raise UnknownThread(run.thread_id) from error
            await db.execute(
                "UPDATE gateway_threads SET status = 'busy', updated_at = ?, metadata = json_patch(metadata, ?) "
                "WHERE thread_id = ?",
                (now, _text(labels), run.thread_id),
            )
        return run

    async def run(self, thread_id: str, run_id: str) -> Run | None:
        rows = await self._rows(_SELECT_RUNS + "WHERE thread_id = ? AND run_id = ?", (thread_id, run_id))
        return Run.from_row(rows[0]) if rows else None

    async def runs(
        self, thread_id: str, *, status: str | None, limit: int, offset: int, with_kwargs: bool
    ) -> list[Run]:
        """The thread's runs, newest first. Their `kwargs` hold the whole input, files and all; without them they are
        empty, and nothing of that size is read."""
        rows = await self._rows(
            (_SELECT_RUNS if with_kwargs else _SELECT_RUNS_WITHOUT_KWARGS)
            + "WHERE thread_id = ? AND status = coalesce(?, status) ORDER BY seq DESC LIMIT ? OFFSET ?",
            (thread_id, status, limit, offset),
        )
        return [Run.from_row(row) for row in rows]

    async def unfinished(self) -> list[Run]:
        """The runs that a former process left, in the order in which they were asked for."""
        rows = await self._rows(_SELECT_RUNS + "WHERE status IN ('pending', 'running') ORDER BY seq", ())
        return [Run.from_row(row) for row in rows]

    async def note_cancel(self, run_id: str, action: CancelAction) -> None:
        """Remember that the run is to be stopped, so that a crash cannot bring it back."""
        async with self._transaction() as db:
            await db.execute("UPDATE gateway_runs SET cancel = ? WHERE run_id = ?", (action, run_id))

    async def begin(self, run: Run) -> Beginning | None:
        """Mark the run as running and remember what it starts from. None: the run has been deleted.

        What a former attempt wrote is undone first.

        Checkpoint ids are UUIDv6, so they sort by age: everything above `base_checkpoint` is the run's own work. The
        pending writes of the thread's head, of sub-graphs paused under it, and of the checkpoint that the client named
        can be added to or replaced (the answer to an interrupt lands there), so these are copied.
        """
        async with self._transaction() as db:
            rows = await db.execute_fetchall(
                "UPDATE gateway_runs SET status = 'running', updated_at = ?1, attempt = attempt + 1, "
                "cut_off = cut_off + 1, base_checkpoint = coalesce(base_checkpoint, (SELECT max(checkpoint_id) "
                "FROM checkpoints WHERE thread_id = ?2), ''), "
                "base_head = coalesce(base_head, (SELECT max(checkpoint_id) FROM checkpoints "
                "WHERE thread_id = ?2 AND checkpoint_ns = ''), '') WHERE run_id = ?3 RETURNING attempt, cut_off",
                (self._now(), run.thread_id, run.run_id),
            )
            for attempt, begun in rows:
                if attempt > 1:
                    await self._undo(db, run.run_id)
                else:
                    await db.execute(
                        "INSERT INTO gateway_saved_writes SELECT run.run_id, w.thread_id, w.checkpoint_ns, "
                        "w.checkpoint_id, w.task_id, w.task_path, w.idx, w.channel, w.type, w.value FROM writes AS w "
                        "JOIN gateway_runs AS run ON run.run_id = ? AND w.thread_id = run.thread_id "
                        "WHERE w.checkpoint_id >= run.base_head "
                        "OR w.checkpoint_id = json_extract(run.kwargs, '$.checkpoint_id')",
                        (run.run_id,),
                    )
                return Beginning(attempt, cut_off=begun - 1)
        return None

    async def _undo(self, db: aiosqlite.Connection, run_id: str) -> None:
        """Put the thread's checkpoints and pending writes back to what they were when the run began."""
        await db.execute(
            "DELETE FROM checkpoints WHERE (thread_id, checkpoint_ns, checkpoint_id) IN ("
            "SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id FROM checkpoints AS c JOIN gateway_runs AS run "
            "ON run.run_id = ? AND c.thread_id = run.thread_id AND c.checkpoint_id > run.base_checkpoint)",
            (run_id,),
        )
        await db.execute(
            "DELETE FROM writes WHERE (thread_id, checkpoint_ns, checkpoint_id) IN ("
            "SELECT w.thread_id, w.checkpoint_ns, w.checkpoint_id FROM writes AS w JOIN gateway_runs AS run "
            "ON run.run_id = ? AND run.attempt > 0 AND w.thread_id = run.thread_id "
            "AND (w.checkpoint_id >= run.base_head OR w.checkpoint_id = json_extract(run.kwargs, '$.checkpoint_id')))",
            (run_id,),
        )
        await db.execute(
            "INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, "
            "value) SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value "
            "FROM gateway_saved_writes WHERE run_id = ?",
            (run_id,),
        )

    async def finish(
        self, run: Run, status: RunStatus, thread_status: ThreadStatus, error: Json | None, thread_error: Json | None
    ) -> None:
        """Record how the run ended and in which state. The thread stays `busy` with another run to come."""
        async with self._transaction() as db:
            await db.execute(
                "UPDATE gateway_runs SET status = ?, error = ?, updated_at = ?, final_checkpoint = (SELECT "
                "max(checkpoint_id) FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = '') WHERE run_id = ?",
                (status, None if error is None else _text(error), self._now(), run.thread_id, run.run_id),
            )
            await db.execute("DELETE FROM gateway_saved_writes WHERE run_id = ?", (run.run_id,))
            await self._set_status(db, run.thread_id, thread_status, thread_error)

    async def roll_back(self, run: Run) -> ThreadStatus:
        """Undo everything the run wrote and forget the run. Returns what its thread is now: `busy` with another run to
        come, else `idle` until the caller says otherwise."""
        async with self._transaction() as db:
            await self._undo(db, run.run_id)
            await db.execute("DELETE FROM gateway_runs WHERE run_id = ?", (run.run_id,))
            return await self._set_status(db, run.thread_id, "idle", None)

    async def delete_run(self, run_id: str) -> None:
        """Forget a finished run; what it wrote stays."""
        async with self._transaction() as db:
            await db.execute("DELETE FROM gateway_runs WHERE run_id = ?", (run_id,))

    async def requeue(self, run_ids: list[str]) -> None:
        """Put runs back for the next process. An orderly stop does not count as cut off."""
        async with self._transaction() as db:
            await db.executemany(
                "UPDATE gateway_runs SET status = 'pending', cut_off = cut_off - 1 "
                "WHERE run_id = ? AND status = 'running'",
                [(run_id,) for run_id in run_ids],
            )

    async def _rows(self, query: str, parameters: tuple[Any, ...]) -> list[sqlite3.Row]:
        async with self.saver.lock:
            return list(await self._db.execute_fetchall(query, parameters))


async def _create_schema(db: aiosqlite.Connection, path: Path) -> None:
    ((version,),) = await db.execute_fetchall("PRAGMA user_version")
    if version > _SCHEMA_VERSION:
        raise StoreError(f"the gateway's database {path} was written by a newer version (schema {version})")
    await db.executescript(_SCHEMA + f"PRAGMA user_version = {_SCHEMA_VERSION};")
    await db.commit()
