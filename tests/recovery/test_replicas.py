"""Real processes that share channels: restarted one after the other, and with the database away for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from tests.databases import PostgresServer, running_postgres
from tests.recovery.cluster import Cluster, eventually
from tests.recovery.crowds import CROWDS, Crowd, TelegramCrowd, WebCrowd
from tests.recovery.verdicts import judge

OpenCluster = Callable[..., Awaitable[Cluster]]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
async def open_cluster(server: PostgresServer, tmp_path: Path) -> AsyncIterator[OpenCluster]:
    async with AsyncExitStack() as stack:

        async def open_(*crowds: Crowd, pace: float) -> Cluster:
            cluster = Cluster(tmp_path, server, crowds, ["one", "two"], pace=pace)
            stack.push_async_callback(cluster.stop)
            await cluster.start()
            await asyncio.gather(*(cluster.start_replica(name) for name in cluster.names))
            await cluster.shared_out()
            return cluster

        yield open_


async def read(crowd: Crowd, person: str) -> str:
    return "\n".join(await crowd.messages(person))


@pytest.mark.timeout(240)
async def test_a_rolling_restart_in_the_middle_of_answers_is_not_seen(open_cluster: OpenCluster) -> None:
    crowds = [kind(f"{kind.platform}-{number}") for kind in CROWDS for number in (1, 2)]
    cluster = await open_cluster(*crowds, pace=0.15)
    people = {crowd: crowd.person() for crowd in crowds}
    questions = {crowd: f"q{number} 120" for number, crowd in enumerate(crowds)}
    for crowd, person in people.items():
        await crowd.ask(person, questions[crowd])
    for crowd, person in people.items():
        await eventually(lambda crowd=crowd, person=person: read(crowd, person))
    for name in cluster.names:
        began = time.monotonic()
        assert await cluster.processes[name].stop(timeout=20) == 0
        assert time.monotonic() - began < 15.0, "calls in flight have 5 s, closing what is open as many"
        await cluster.start_replica(name)
    await cluster.shared_out()
    await eventually(lambda: nothing_unfinished(cluster))
    for crowd, person in people.items():
        verdict = judge([questions[crowd]], await crowd.messages(person))
        assert verdict.is_right, (crowd.name, verdict, cluster.logs())
        assert await crowd.left_open(person) == []
        assert crowd.broken_rules() == []
    assert await cluster.count_runs() == len(crowds), "each question had one run"


async def nothing_unfinished(cluster: Cluster) -> bool:
    return await cluster.unfinished() == 0


@pytest.mark.timeout(240)
async def test_a_database_that_goes_away_for_a_while_costs_nothing_but_time(open_cluster: OpenCluster) -> None:
    web, telegram = WebCrowd("web"), TelegramCrowd("telegram")
    cluster = await open_cluster(web, telegram, pace=0.25)
    ann, bob = web.person(), telegram.person()
    await asyncio.gather(web.ask(ann, "a1 60"), telegram.ask(bob, "b1 60"))
    await eventually(lambda: read(telegram, bob))
    await eventually(lambda: read(web, ann))

    cluster.server.stop()
    grown = await read(telegram, bob)
    await telegram.ask(bob, "b2 5")
    asking = asyncio.create_task(web.ask(ann, "a2 5"))
    await eventually(lambda: tells_that_the_store_is_away(cluster))
    assert len(await read(telegram, bob)) > len(grown), "what is known goes on growing"
    assert not asking.done(), "the page was not told that its message is taken"
    assert telegram.unconfirmed == 1, "the platform was not acknowledged"

    cluster.server.start()
    await asking
    await eventually(lambda: nothing_unfinished(cluster))
    await eventually(lambda: telegram.unconfirmed == 0)
    await eventually(lambda: nothing_unfinished(cluster))
    for crowd, person, asked in ((web, ann, ["a1 60", "a2 5"]), (telegram, bob, ["b1 60", "b2 5"])):
        verdict = judge(asked, await crowd.messages(person))
        assert verdict.is_right, (crowd.name, verdict, cluster.logs())
        assert await crowd.left_open(person) == []
    await eventually(lambda: everybody_is_ready(cluster))
    assert telegram.broken_rules() == []


async def readiness(url: str) -> tuple[int, bool]:
    """The status of `/readyz`, and whether it says that the store can be used."""
    async with httpx.AsyncClient(timeout=10) as client:
        answer = await client.get(f"{url}/readyz")
    return answer.status_code, bool(answer.json()["store"]["ok"])


async def tells_that_the_store_is_away(cluster: Cluster) -> bool:
    return all([await readiness(url) == (503, False) for url in cluster.urls()])


async def everybody_is_ready(cluster: Cluster) -> bool:
    return all([await readiness(url) == (200, True) for url in cluster.urls()])
