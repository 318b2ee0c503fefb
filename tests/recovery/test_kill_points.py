"""Killed with SIGKILL between any two effects and started again: one inbound, one run, one complete final."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from langgraph_sdk import get_client

from adapters.embedded import EmbeddedGateway
from channels.clock import SystemClock
from channels.faults import ENVIRONMENT_VARIABLE, POINTS
from channels.store import Store
from tests.demo import BridgeProcess
from tests.recovery.columns import COLUMNS, Column
from tests.recovery.counting_graph import FILE

_GRAPH = "tests.recovery.counting_graph:graph"


def config_file(folder: Path, gateway: str, columns: list[Column]) -> Path:
    settings = {
        "gateway": {"url": gateway},
        "store": {"url": f"sqlite:///{folder / 'bridge.db'}"},
        "server": {"port": 0},
        "channels": {column.name: column.settings() for column in columns},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


async def runs_at(gateway: str) -> int:
    """How many runs the gateway was asked for."""
    client = get_client(url=gateway, api_key=None)
    try:
        threads = await client.threads.search(limit=100)
        return sum([len(await client.runs.list(thread["thread_id"])) for thread in threads])
    finally:
        await client.aclose()


async def eventually(holds: Callable[[], object], timeout: float = 40.0) -> None:
    async with asyncio.timeout(timeout):
        while True:
            found = holds()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def killed_and_restarted(kind: type[Column], point: str, text: str, folder: Path) -> AsyncIterator[Column]:
    """What a person is left with who asked when the bridge was about to be killed, once there is nothing left to do."""
    column = kind()
    await column.start(folder)
    gateway = EmbeddedGateway(folder / "gateway", _GRAPH)
    gateway_url = await gateway.start()
    config = config_file(folder, gateway_url, [column])
    environment = {**column.environment(), ENVIRONMENT_VARIABLE: point}
    doomed = BridgeProcess("run", "--config", str(config), folder=folder, environment=environment)
    successor = BridgeProcess("run", "--config", str(config), folder=folder, environment=column.environment())
    try:
        await doomed.start()
        await column.ask(doomed.url, text)
        assert await doomed.wait() == -9, "the bridge must have come by this point"
        await successor.start()
        await column.restarted(successor.url)
        await eventually(lambda: column.result(point))
        await eventually(lambda: all_done(folder))
        assert await runs_at(gateway_url) == 1
        yield column
        assert column.broken_rules() == []
    finally:
        await doomed.kill()
        await successor.kill()
        await gateway.stop()
        await column.stop()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", COLUMNS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("point", POINTS)
async def test_killed_here_and_started_again_the_answer_is_there_once(
    point: str, kind: type[Column], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("kill_point", point)
    record_property("kill_platform", kind.name)
    async with killed_and_restarted(kind, point, "count", tmp_path) as column:
        result = await column.result(point)
        assert result is not None
        record_property("kill_result", result)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("kind", "window"), [(kind, window) for kind in COLUMNS for window in kind.file_windows])
async def test_killed_around_its_file_the_answer_and_the_file_are_there_once(
    kind: type[Column], window: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("kill_point", window)
    record_property("kill_platform", kind.name)
    point = kind.file_windows[window]
    async with killed_and_restarted(kind, point, "count, with a file", tmp_path) as column:
        assert await column.result(point) == "complete, once"
        copies = column.files().count(FILE)
        assert copies == len(column.files())
        assert copies == 1 or (copies == 2 and point in kind.sends_may_double)
        record_property("kill_result", "complete, once" if copies == 1 else "complete, beside a torn send")


async def all_done(folder: Path) -> bool:
    store = await Store.open(f"sqlite:///{folder / 'bridge.db'}", SystemClock())
    try:
        return all(counts.waiting == counts.open_turns == counts.dead == 0 for counts in await store.counts())
    finally:
        await store.close()
