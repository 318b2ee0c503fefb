"""Writes that fail: the disk is full or away for a moment. A run that has begun ends, in the store as in its stream."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

import aiosqlite
import pytest
from langgraph.pregel import Pregel
from langgraph_sdk.errors import InternalServerError, NotFoundError

from adapters.embedded.store import Store
from tests.adapters.embedded import sample_graphs
from tests.adapters.embedded.conftest import Running, Start
from tests.adapters.embedded.talking import Conversation, counted, names, question, text_of
from tests.clock import ScaledClock

OVER = {"success", "error", "interrupted"}


class Disk:
    """The disk under the gateway's database: commits fail on it while it is full, and the one that is `doomed`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self.doomed: int | None = None
        self.refused = asyncio.Event()
        self._commits = itertools.count(1)
        real = aiosqlite.Connection.commit

        async def commit(connection: aiosqlite.Connection) -> None:
            if self.is_full or next(self._commits) == self.doomed:
                self.refused.set()
                raise sqlite3.OperationalError("database or disk is full")
            await real(connection)

        monkeypatch.setattr(aiosqlite.Connection, "commit", commit)

    def fail_once(self, nth: int) -> None:
        """Let the `nth` commit from now on fail."""
        self.refused.clear()
        self._commits, self.doomed = itertools.count(1), nth


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(monkeypatch)
    yield disk
    disk.is_full, disk.doomed = False, None


async def quick(start: Start, **settings: Any) -> Running:
    """A gateway whose seconds are short."""
    return await start(clock=ScaledClock(200), **settings)


async def half_done(start: Start, running: Running | None = None) -> tuple[Conversation, str, asyncio.Task[list[Any]]]:
    """A conversation, its run that waits at the gate g, and that run's reader."""
    talk = await (running or await quick(start)).conversation()
    run_id = await talk.begin("gate g 2 2")
    reader = asyncio.create_task(talk.join(run_id, "-1"))
    await sample_graphs.arrival("g").wait()
    return talk, run_id, reader


async def turn(talk: Conversation, gate: str, stop: Literal["interrupt", "rollback"] | None) -> None:
    """Ask, stop the run in the midst of it if wanted, and follow it to the `end`. Raises what the gateway refuses."""
    run_id = await talk.begin(f"gate {gate} 1 1")
    reader = asyncio.create_task(talk.join(run_id, "-1"))
    arrival = asyncio.create_task(sample_graphs.arrival(gate).wait())
    await asyncio.wait({reader, arrival}, return_when=asyncio.FIRST_COMPLETED)
    arrival.cancel()
    if stop is not None:
        with suppress(NotFoundError):  # over already
            await talk.client.runs.cancel(talk.thread_id, run_id, wait=True, action=stop)
    sample_graphs.gate(gate).set()
    assert names(await reader)[-1] == "end"


@pytest.mark.parametrize("stop", [None, "interrupt", "rollback"])
async def test_whichever_write_of_a_run_fails_once_the_run_ends_and_so_does_its_stream(
    start: Start, disk: Disk, stop: Literal["interrupt", "rollback"] | None
) -> None:
    running = await quick(start)
    for nth in itertools.count(1):
        talk = await running.conversation()
        disk.fail_once(nth)
        with suppress(InternalServerError):
            await asyncio.wait_for(turn(talk, f"g{nth}", stop), 10)
        if not disk.refused.is_set():
            break
        assert {run["status"] for run in await talk.client.runs.list(talk.thread_id)} <= OVER
        assert await talk.thread_status() != "busy"
        assert text_of(await talk.ask("and?", multitask_strategy="reject")) == "re: and?"
    assert nth > 4  # the run was stored, begun, kept a state and finished


async def test_while_the_end_cannot_be_stored_nobody_is_told_of_it(start: Start) -> None:
    talk, run_id, reader = await half_done(start)
    following = await talk.begin("and then")
    waiter = asyncio.create_task(talk.client.runs.join(talk.thread_id, run_id))
    refused = asyncio.Event()
    with pytest.MonkeyPatch.context() as broken:

        async def finish(*_: object) -> None:
            refused.set()
            raise sqlite3.OperationalError("disk I/O error")

        broken.setattr(Store, "finish", finish)
        sample_graphs.gate("g").set()
        for _ in range(3):
            refused.clear()
            await asyncio.wait_for(refused.wait(), 5)
        assert not reader.done()
        assert not waiter.done()
        assert [await talk.status(run_id), await talk.status(following)] == ["running", "pending"]
    parts = await reader
    assert (text_of(parts), parts[-1].event) == (counted(4), "end")
    assert (await waiter)["messages"][-1]["content"] == counted(4)
    await talk.join(following)
    assert [await talk.status(run_id), await talk.status(following)] == ["success", "success"]
    assert [text for _, text in await talk.messages()] == ["gate g 2 2", counted(4), "and then", "re: and then"]


async def test_a_run_whose_beginning_cannot_be_stored_begins_when_it_can(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await (await quick(start)).conversation()
    real, tries = Store.begin, itertools.count(1)

    async def begin(store: Store, run: Any) -> Any:
        if next(tries) <= 3:
            raise sqlite3.OperationalError("database or disk is full")
        return await real(store, run)

    monkeypatch.setattr(Store, "begin", begin)
    parts = await talk.ask("hi")
    assert parts[0].data["attempt"] == 1
    assert text_of(parts) == "re: hi"
    assert await talk.status(parts[0].data["run_id"]) == "success"


async def test_a_stop_that_cannot_be_noted_stops_the_run_all_the_same(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk, run_id, reader = await half_done(start)

    async def note_cancel(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Store, "note_cancel", note_cancel)
    answer = text_of(await talk.ask("instead", multitask_strategy="interrupt"))
    assert answer == "re: instead"
    assert names(await reader)[-1] == "end"
    assert await talk.status(run_id) == "interrupted"


async def test_a_run_that_was_refused_for_the_disk_is_not_stored_by_the_next_write(start: Start, disk: Disk) -> None:
    running = await quick(start)
    talk = await running.conversation()
    disk.fail_once(1)
    with pytest.raises(InternalServerError):
        await talk.ask("refused")
    await talk.ask("accepted")
    await running.gateway.stop()
    talk = Conversation((await quick(start)).client, talk.thread_id)
    assert text_of(await talk.ask("later")) == "re: later"
    assert len(await talk.client.runs.list(talk.thread_id)) == 2
    assert [text for kind, text in await talk.messages() if kind == "human"] == ["accepted", "later"]


async def test_a_gateway_stops_quickly_on_a_full_disk_and_the_next_one_carries_on(start: Start, disk: Disk) -> None:
    running = await start()
    talk, run_id, reader = await half_done(start, running)
    disk.is_full = True
    sample_graphs.gate("g").set()
    await disk.refused.wait()
    async with asyncio.timeout(2):
        await running.gateway.stop()
    reader.cancel()
    disk.is_full = False
    talk = Conversation((await quick(start)).client, talk.thread_id)
    assert text_of(await talk.join(run_id, "-1")) == counted(4)
    assert await talk.status(run_id) == "success"
    assert [text for _, text in await talk.messages()] == ["gate g 2 2", counted(4)]


async def test_a_thread_that_is_being_deleted_does_not_keep_the_gateway_from_stopping(start: Start, disk: Disk) -> None:
    running = await start()
    talk, _, reader = await half_done(start, running)
    disk.is_full = True
    deleting = asyncio.create_task(running.http.delete(f"/threads/{talk.thread_id}"))
    await disk.refused.wait()
    async with asyncio.timeout(2):
        await running.gateway.stop()
    reader.cancel()
    assert (await deleting).status_code == 503


async def test_a_stateless_run_leaves_no_thread_also_when_deleting_it_fails_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await quick(start)
    real, tries = Store.delete_thread, itertools.count(1)

    async def delete_thread(store: Store, thread_id: str) -> None:
        if next(tries) == 1:
            raise sqlite3.OperationalError("database or disk is full")
        await real(store, thread_id)

    monkeypatch.setattr(Store, "delete_thread", delete_thread)
    values: Any = await running.client.runs.wait(None, "agent", input=question("hi"))
    assert values["messages"][-1]["content"] == "re: hi"
    assert await running.client.threads.search() == []


async def test_a_run_ends_also_when_the_state_it_ended_in_cannot_be_read(start: Start) -> None:
    talk, run_id, reader = await half_done(start)
    waiter = asyncio.create_task(talk.client.runs.join(talk.thread_id, run_id))
    await asyncio.sleep(0)
    with pytest.MonkeyPatch.context() as broken:

        async def aget_state(*_: object, **__: object) -> None:
            raise TypeError("a class of the graph's has changed")

        broken.setattr(Pregel, "aget_state", aget_state)
        sample_graphs.gate("g").set()
        assert names(await reader)[-1] == "end"
        assert (await waiter)["__error__"]["error"] == "InternalError"
    assert await talk.status(run_id) == "success"
    assert await talk.thread_status() == "error"


# Runs that end at the same moment


async def test_a_waiting_run_that_is_cancelled_while_the_one_before_it_ends_ends_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk, run_id, reader = await half_done(start)
    waiting = await talk.begin("never said")
    real, ends, storing, go_on = Store.finish, list[tuple[str, str]](), asyncio.Event(), asyncio.Event()

    async def slow(store: Store, run: Any, status: Any, *how: Any) -> None:
        ends.append((run.run_id, status))
        if run.run_id == waiting:
            storing.set()
            await go_on.wait()
        await real(store, run, status, *how)

    monkeypatch.setattr(Store, "finish", slow)
    cancelling = asyncio.create_task(talk.client.runs.cancel(talk.thread_id, waiting, wait=True))
    await storing.wait()
    sample_graphs.gate("g").set()
    await reader
    go_on.set()
    await cancelling
    assert ends == [(waiting, "interrupted"), (run_id, "success")]
    assert [await talk.status(run_id), await talk.status(waiting)] == ["success", "interrupted"]
    assert await talk.thread_status() == "interrupted"
    assert names(await talk.join(waiting, "-1")) == ["end"]
    assert text_of(await talk.ask("next", multitask_strategy="reject")) == "re: next"


@pytest.mark.parametrize("action", ["interrupt", "rollback"])
async def test_a_thread_is_not_left_busy_by_two_runs_that_end_together(
    start: Start, monkeypatch: pytest.MonkeyPatch, action: Literal["interrupt", "rollback"]
) -> None:
    """Each of them sees the other, still there, when it begins to store its end."""
    talk, run_id, reader = await half_done(start)
    waiting = await talk.begin("never said")
    ends, both = [0], asyncio.Event()

    def together(name: str) -> None:
        real = getattr(Store, name)

        async def end(store: Store, *how: Any) -> Any:
            ends[0] += 1
            if ends[0] == 2:
                both.set()
            await both.wait()
            return await real(store, *how)

        monkeypatch.setattr(Store, name, end)

    together("finish")
    together("roll_back")
    sample_graphs.gate("g").set()
    await talk.client.runs.cancel(talk.thread_id, waiting, wait=True, action=action)
    await reader
    assert await talk.status(run_id) == "success"
    assert await talk.thread_status() == ("interrupted" if action == "interrupt" else "idle")


async def test_a_thread_is_not_left_busy_by_a_run_that_could_not_be_stored(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk, _, reader = await half_done(start)
    storing, go_on = asyncio.Event(), asyncio.Event()

    async def insert_run(*_: object) -> None:
        storing.set()
        await go_on.wait()
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Store, "insert_run", insert_run)
    doomed = asyncio.create_task(talk.begin("doomed"))
    await storing.wait()
    sample_graphs.gate("g").set()
    await reader
    go_on.set()
    with pytest.raises(InternalServerError):
        await doomed
    assert await talk.thread_status() == "idle"


async def test_rolling_back_a_run_that_never_began_touches_nothing(start: Start) -> None:
    """The answer that waits in the checkpoint the run was to start from is not the run's."""
    running = await quick(start, graph="questions")
    talk = await running.conversation()
    await talk.ask("tea milk")
    state: Any = await talk.client.threads.get_state(talk.thread_id)
    ids = {task["interrupts"][0]["value"]["question"]: task["interrupts"][0]["id"] for task in state["tasks"]}
    await talk.ask(command={"resume": {ids["tea?"]: "yes"}})
    before: Any = await talk.client.threads.get_state(talk.thread_id)
    with pytest.MonkeyPatch.context() as paused:
        real, beginning, go_on = Store.begin, asyncio.Event(), asyncio.Event()

        async def begin(store: Store, run: Any) -> Any:
            beginning.set()
            await go_on.wait()
            return await real(store, run)

        paused.setattr(Store, "begin", begin)
        first_run = await talk.begin("tea")
        await beginning.wait()
        at, resume = before["checkpoint_id"], {ids["milk?"]: "no"}
        second = await talk.client.runs.create(talk.thread_id, "agent", command={"resume": resume}, checkpoint_id=at)
        for run_id in (second["run_id"], first_run):
            cancel = talk.client.runs.cancel(talk.thread_id, run_id, wait=True, action="rollback")
            if run_id == first_run:
                go_on.set()
            await cancel
    assert await talk.client.threads.get_state(talk.thread_id) == before
