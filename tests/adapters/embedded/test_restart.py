"""What outlives the process: runs are carried on, nothing is doubled, nothing is lost."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from langgraph.graph import START, StateGraph
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import NotFoundError
from langgraph_sdk.schema import StreamPart

from adapters.embedded import StoreError
from tests.adapters.embedded import sample_graphs
from tests.adapters.embedded.conftest import SAMPLES, Start
from tests.adapters.embedded.talking import Conversation, counted, first, names, text_of


@asynccontextmanager
async def process(data_dir: Path, port: int) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """A gateway process; killed, not stopped, at the end."""
    command = [
        sys.executable,
        "-m",
        "tests.adapters.embedded.serve_process",
        str(data_dir),
        f"{SAMPLES}:chat",
        str(port),
    ]
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert server.stdout is not None
        line = await asyncio.wait_for(server.stdout.readline(), 60)
        yield line.decode().strip(), server
    finally:
        if server.returncode is None:
            server.kill()
        await server.wait()


async def test_a_killed_process_loses_no_answer_and_doubles_no_question(tmp_path: Path) -> None:
    """The SDK's own iterator survives it: it reconnects, sees the run begin anew, and gets the whole answer."""
    async with process(tmp_path, 0) as (url, server):
        client = LangGraphClient(httpx.AsyncClient(base_url=url, timeout=20))
        thread = await client.threads.create()
        talk = Conversation(client, thread["thread_id"])
        await talk.ask("hi")
        parts: list[StreamPart] = []
        stream = talk.stream("drip 20 0.03")
        async for part in stream:
            parts.append(part)
            if len(parts) == 8:
                break
        server.kill()
        await server.wait()
        async with process(tmp_path, int(url.rpartition(":")[2])):
            parts += [part async for part in stream]
            beginnings = [part.data for part in parts if part.event == "metadata"]
            run_id = beginnings[0]["run_id"]
            assert beginnings == [{"run_id": run_id, "attempt": 1}, {"run_id": run_id, "attempt": 2}]
            assert parts[-1].event == "end"
            again = next(index for index, part in enumerate(parts[1:], 1) if part.event == "metadata")
            assert text_of(parts[again:]) == counted(20)
            assert await talk.status(run_id) == "success"
            assert await talk.messages() == [
                ("human", "hi"), ("ai", "re: hi"), ("human", "drip 20 0.03"), ("ai", counted(20)),
            ]  # fmt: skip
            await client.http.client.aclose()


async def test_a_stopped_gateway_leaves_its_runs_to_the_next_one(start: Start) -> None:
    one = await start()
    talk = await one.conversation()
    await talk.ask("hi")
    run_id = await talk.begin("gate g 2 2")
    waiting = await talk.begin("and then")
    await sample_graphs.arrival("g").wait()
    reader = asyncio.create_task(_events_until_closed(one.http, talk.thread_id, run_id))
    await asyncio.sleep(0.05)
    await one.gateway.stop()
    assert "event: end" not in await reader  # the run is not over, so the stream must not say so
    sample_graphs.gate("g").set()
    talk = Conversation((await start()).client, talk.thread_id)
    assert text_of(await talk.join(waiting, "-1")) == "re: and then"
    assert await talk.messages() == [
        ("human", "hi"), ("ai", "re: hi"), ("human", "gate g 2 2"), ("ai", counted(4)),
        ("human", "and then"), ("ai", "re: and then"),
    ]  # fmt: skip
    assert [await talk.status(run_id), await talk.status(waiting)] == ["success", "success"]


async def _events_until_closed(http: httpx.AsyncClient, thread_id: str, run_id: str) -> str:
    headers = {"last-event-id": "-1"}
    return (await http.get(f"/threads/{thread_id}/runs/{run_id}/stream", headers=headers)).text


async def test_a_reader_may_resume_with_an_id_of_the_former_process(start: Start) -> None:
    one = await start()
    talk = await one.conversation()
    parts = await first(talk.stream("gate g 3 3"), 4)
    await one.gateway.stop()
    sample_graphs.gate("g").set()
    talk = Conversation((await start()).client, talk.thread_id)
    rest = await talk.join(parts[0].data["run_id"], parts[-1].id)
    assert names(rest)[0] == "metadata"
    assert text_of(rest) == counted(6)


async def test_orderly_stops_do_not_use_up_a_runs_attempts(start: Start) -> None:
    running = await start()
    talk = await running.conversation()
    run_id = await talk.begin("hold g")
    await sample_graphs.arrival("g").wait()
    for _ in range(5):
        await running.gateway.stop()
        sample_graphs.arrival("g").clear()
        running = await start()
        await sample_graphs.arrival("g").wait()
    sample_graphs.gate("g").set()
    talk = Conversation(running.client, talk.thread_id)
    parts = await talk.join(run_id, "-1")
    assert parts[0].data == {"run_id": run_id, "attempt": 6}
    assert await talk.messages() == [("human", "hold g"), ("ai", "held")]


async def left_running(start: Start, tmp_path: Path, **columns: object) -> tuple[Conversation, str]:
    """What a crash leaves: a run that is `running` and half done, with these columns in its row."""
    running = await start()
    talk = await running.conversation()
    await talk.ask("hi")
    run_id = await talk.begin("gate g 2 2")
    await sample_graphs.arrival("g").wait()
    await running.gateway.stop()
    with sqlite3.connect(tmp_path / "gateway" / "gateway.sqlite") as db:
        row = {"run_id": run_id, "cut_off": 0, "cancel": None, **columns}
        db.execute(
            "UPDATE gateway_runs SET status = 'running', cut_off = :cut_off, cancel = :cancel WHERE run_id = :run_id",
            row,
        )
    db.close()
    sample_graphs.gate("g").set()
    return Conversation((await start()).client, talk.thread_id), run_id


async def test_a_run_that_ended_with_the_process_three_times_is_given_up(start: Start, tmp_path: Path) -> None:
    talk, run_id = await left_running(start, tmp_path, cut_off=3)
    parts = await talk.join(run_id, "-1")
    assert names(parts) == ["error", "end"]
    assert parts[0].data["error"] == "RunAbandoned"
    assert await talk.status(run_id) == "error"
    assert await talk.messages() == [("human", "hi"), ("ai", "re: hi")]


async def test_a_stop_that_was_asked_for_before_the_crash_is_not_forgotten(start: Start, tmp_path: Path) -> None:
    talk, run_id = await left_running(start, tmp_path, cancel="interrupt")
    await talk.join(run_id)
    assert await talk.status(run_id) == "interrupted"
    assert await talk.messages() == [("human", "hi"), ("ai", "re: hi"), ("human", "gate g 2 2")]


async def test_a_rollback_that_was_asked_for_before_the_crash_is_finished(start: Start, tmp_path: Path) -> None:
    talk, run_id = await left_running(start, tmp_path, cancel="rollback")
    await talk.join(run_id)
    with pytest.raises(NotFoundError):
        await talk.status(run_id)
    assert await talk.messages() == [("human", "hi"), ("ai", "re: hi")]
    assert await talk.thread_status() == "idle"


async def test_finished_conversations_are_still_there(start: Start) -> None:
    one = await start("questions")
    talk = await one.conversation(metadata={"place": "p"})
    parts = await talk.ask("sure")
    await one.gateway.stop()
    talk = Conversation((await start("questions")).client, talk.thread_id)
    assert await talk.thread_status() == "interrupted"
    assert await talk.status(parts[0].data["run_id"]) == "success"
    assert names(await talk.join(parts[0].data["run_id"], "-1")) == ["end"]
    await talk.ask(command={"resume": "yes"})
    assert (await talk.messages())[-1] == ("tool", "sure=yes")


async def test_two_gateways_cannot_share_a_data_directory(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    from adapters.embedded import serving

    monkeypatch.setattr(serving, "_DATABASE_WAIT_SECONDS", 0.1)
    one = await start()
    with pytest.raises(StoreError, match="in use by another gateway"):
        await start()
    assert (await one.http.get("/ok")).status_code == 200


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"no database at all, but text" * 99, "not a database"), (None, "written by a newer version")],
)
async def test_a_database_that_is_not_the_gateways_is_refused(
    start: Start, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    file = tmp_path / "gateway" / "gateway.sqlite"
    file.parent.mkdir()
    if content is not None:
        file.write_bytes(content)
    else:
        with sqlite3.connect(file) as db:
            db.execute("PRAGMA user_version = 99")
        db.close()
    with pytest.raises(StoreError, match=reason):
        await start()


async def test_stopping_is_quick_also_with_streams_waits_and_stubborn_runs(start: Start) -> None:
    running = await start("tests.adapters.embedded.test_restart:stubborn")
    talk = await running.conversation()
    run_id, following = await talk.begin("hi"), await talk.begin("next")
    reader = asyncio.create_task(_events_until_closed(running.http, talk.thread_id, run_id))
    waiter = asyncio.create_task(running.http.get(f"/threads/{talk.thread_id}/runs/{following}/join"))
    await sample_graphs.arrival("stubborn").wait()
    loop = asyncio.get_running_loop()
    begin = loop.time()
    await running.gateway.stop()
    assert loop.time() - begin < 5
    sample_graphs.gate("stubborn").set()
    assert "event: end" not in await reader
    with pytest.raises(httpx.RemoteProtocolError):  # cut, so that nobody takes half a body for an answer
        await waiter


async def test_a_gateway_starts_once_and_stops_as_often_as_one_likes(start: Start) -> None:
    running = await start()
    with pytest.raises(RuntimeError, match="already running"):
        await running.gateway.start()
    await running.gateway.stop()
    await running.gateway.stop()
    url = await running.gateway.start()
    async with httpx.AsyncClient(base_url=url) as http:
        assert (await http.get("/ok")).status_code == 200


async def test_a_busy_port_is_an_error_and_leaves_nothing_behind(start: Start, tmp_path: Path) -> None:
    port = int((await start()).url.rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        await start(data_dir=tmp_path / "other", port=port)
    await start(data_dir=tmp_path / "other")


async def test_the_signals_and_the_log_levels_of_the_process_stay_as_they_are(start: Start) -> None:
    import signal

    before = signal.getsignal(signal.SIGTERM), logging.getLogger("uvicorn.error").level
    await start()
    assert (signal.getsignal(signal.SIGTERM), logging.getLogger("uvicorn.error").level) == before


async def _never_mind(state: sample_graphs.Chat) -> sample_graphs.Chat:
    sample_graphs.arrival("stubborn").set()
    while not sample_graphs.gate("stubborn").is_set():
        with suppress(asyncio.CancelledError):
            await sample_graphs.gate("stubborn").wait()
    return {"messages": []}


stubborn = StateGraph(sample_graphs.Chat)
stubborn.add_node("n", _never_mind)
stubborn.add_edge(START, "n")
