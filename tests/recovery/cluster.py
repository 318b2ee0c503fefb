"""Replicas of one bridge as processes, on one PostgreSQL server and one gateway, with crowds that talk to them."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg
import yaml

from tests.databases import PostgresServer
from tests.demo import BridgeProcess
from tests.recovery import chaos_graph
from tests.recovery.crowds import Crowd

_GRAPH = "tests.recovery.chaos_graph:graph"
_REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Held:
    """Who owns a channel: the number of the process, and the epoch. `pid` is None when nobody does."""

    pid: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class Taken:
    """How the bridge took a question: accepted and claimed at these moments, as the so manieth of all turns."""

    accepted_at: float
    claimed_at: float
    turn: int


class GatewayProcess:
    """The embedded gateway in a process of its own, always at the same address."""

    def __init__(self, folder: Path, pace: float) -> None:
        self._folder = folder
        self._pace = pace
        self._process: asyncio.subprocess.Process | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        with (self._folder / "gateway.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.adapters.embedded.serve_process"),
                *(str(self._folder / "gateway"), _GRAPH, str(self._port)),
                cwd=_REPOSITORY,
                env={"PYTHONPATH": str(_REPOSITORY), chaos_graph.PACE_VARIABLE: str(self._pace)},
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            assert await self._process.stdout.readline(), (self._folder / "gateway.log").read_text()[-2000:]

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


class Cluster:
    """`replicas` are the names of the processes; each of them has a configuration and a folder of its own."""

    def __init__(
        self, folder: Path, server: PostgresServer, crowds: Sequence[Crowd], replicas: Sequence[str], *, pace: float
    ) -> None:
        self.server = server
        self.crowds = {crowd.name: crowd for crowd in crowds}
        self.names = list(replicas)
        self.gateway = GatewayProcess(folder, pace)
        self.database = server.create()
        self._folder = folder
        self.processes: dict[str, BridgeProcess] = {}
        self.paused: set[str] = set()
        self.pids: dict[int, str] = {}
        """Every process there ever was, by its number."""

    async def start(self) -> None:
        """Everything but the replicas."""
        await self.gateway.start()
        for crowd in self.crowds.values():
            await crowd.start(self.names, self.urls, self.database)

    async def stop(self) -> None:
        for name, process in self.processes.items():
            self.resume(name)
            await process.kill()
        for crowd in self.crowds.values():
            await crowd.stop()
        await self.gateway.kill()

    # ---------------------------------------------------------------- replicas

    async def start_replica(self, name: str) -> None:
        """Start a process, or start it again; returns when it listens."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        config = folder / "config.yaml"
        settings = {
            "gateway": {"url": self.gateway.url},
            "store": {"url": self.database},
            "server": {"port": 0},
            "channels": {crowd.name: crowd.settings(name) for crowd in self.crowds.values()},
        }
        config.write_text(yaml.safe_dump(settings))
        process = self.processes[name] = BridgeProcess("run", "--config", str(config), folder=folder)
        while True:
            try:
                await process.start()
                break
            except AssertionError:
                # A supervisor starts it again when the database was just away.
                if process.is_alive:
                    raise
        self.pids[process.pid] = name

    def is_up(self, name: str) -> bool:
        process = self.processes.get(name)
        return process is not None and process.is_alive and bool(process.url) and name not in self.paused

    def urls(self) -> list[str]:
        return [self.processes[name].url for name in self.names if self.is_up(name)]

    def pause(self, name: str) -> None:
        self.paused.add(name)
        self.processes[name].send(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self.processes[name].send(signal.SIGCONT)
        self.paused.discard(name)

    # ---------------------------------------------------------------- looking

    async def held(self) -> dict[str, Held]:
        """Who owns each channel now. Raises `psycopg.OperationalError` while the database is away."""
        rows = await self._query(
            "SELECT channel, CASE WHEN expires_at > extract(epoch FROM clock_timestamp()) THEN owner END, epoch"
            " FROM leases"
        )
        return {
            str(channel): Held(int(str(owner).split(":")[1]) if owner else None, int(str(epoch)))
            for channel, owner, epoch in rows
        }

    async def shared_out(self, timeout: float = 60.0) -> None:
        """Wait until every channel has an owner, and all that are up have their share."""
        await eventually(self._is_shared_out, timeout)

    async def _is_shared_out(self) -> bool:
        held = await self.held()
        up = [name for name in self.names if self.is_up(name)]
        shares = dict.fromkeys(up, 0)
        for channel in self.crowds:
            owner = self.pids.get(held[channel].pid or 0) if channel in held else None
            if owner not in shares:
                return False
            shares[owner] += 1
        return max(shares.values()) - min(shares.values()) <= 1

    async def unfinished(self, asked_before: float = math.inf) -> int:
        """How many inbounds wait and how many turns are open, together; of those from before a moment."""
        rows = await self._query(
            "SELECT (SELECT count(*) FROM inbounds WHERE state = 'waiting' AND accepted_at < %(before)s)"
            " + (SELECT count(*) FROM turns WHERE state NOT IN ('done', 'dead') AND created_at < %(before)s)",
            before=asked_before,
        )
        return int(str(rows[0][0]))

    async def dead_letters(self) -> int:
        rows = await self._query("SELECT count(*) FROM turns WHERE state = 'dead'")
        return int(str(rows[0][0]))

    async def stored(self) -> int:
        """How many inbounds were ever accepted."""
        return int(str((await self._query("SELECT count(*) FROM inbounds"))[0][0]))

    async def taken(self) -> dict[str, Taken]:
        """Every question that became a turn, by its text."""
        rows = await self._query(
            "SELECT payload, accepted_at, min(turns.created_at), min(turns.number) FROM inbounds"
            " JOIN turn_inbounds ON turn_inbounds.inbound = inbounds.id JOIN turns ON turns.number = turn_inbounds.turn"
            " GROUP BY inbounds.id"
        )
        return {
            str(json.loads(str(payload))["text"]): Taken(float(str(accepted)), float(str(claimed)), int(str(turn)))
            for payload, accepted, claimed, turn in rows
        }

    async def count_runs(self) -> int:
        """End the gateway, which lets nobody else look, and return how many runs it was ever asked for."""
        await self.gateway.kill()
        with closing(sqlite3.connect(self._folder / "gateway" / "gateway.sqlite")) as database:
            return int(database.execute("SELECT count(*) FROM gateway_runs").fetchone()[0])

    async def _query(self, statement: LiteralString, **values: object) -> list[tuple[object, ...]]:
        async with await psycopg.AsyncConnection.connect(self.database, autocommit=True, connect_timeout=5) as database:
            return await (await database.execute(statement, values)).fetchall()

    def logs(self, lines: int = 40) -> str:
        """The end of every replica's log."""
        texts = []
        for name, process in self.processes.items():
            log = process.log.read_text(errors="replace").splitlines() if process.log.exists() else []
            texts.append("\n".join([f"---- {name}", *log[-lines:]]))
        return "\n".join(texts)


async def eventually(holds: object, timeout: float = 60.0, every: float = 0.1) -> float:
    """Wait until the (asynchronous) function `holds` returns something true; returns the seconds it took.

    A database that is away counts as not yet.
    """
    assert callable(holds)
    began = time.monotonic()
    async with asyncio.timeout(timeout):
        while True:
            try:
                found = holds()
                if asyncio.iscoroutine(found):
                    found = await found
            except psycopg.OperationalError:
                found = None
            if found:
                return time.monotonic() - began
            await asyncio.sleep(every)
