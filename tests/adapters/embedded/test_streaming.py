"""Runs followed through the real SDK over a real socket: events, resume, gaps, heartbeats, fan-out."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator

import httpx
import orjson
import pytest

from tests.adapters.embedded import sample_graphs
from tests.adapters.embedded.conftest import Start
from tests.adapters.embedded.talking import MODES, Conversation, counted, first, names, question, text_of
from tests.clock import ManualClock


async def test_tokens_arrive_one_by_one_between_metadata_and_end(start: Start) -> None:
    running = await start()
    talk = await running.conversation()
    parts = await talk.ask("count 5")
    assert names(parts) == ["metadata", *["messages"] * 6, "updates", "end"]
    assert [part.data[0]["content"] for part in parts if part.event == "messages"] == ["0 ", "1 ", "2 ", "3 ", "4 ", ""]
    metadata = parts[0].data
    assert metadata == {"run_id": metadata["run_id"], "attempt": 1}
    assert not parts[-1].data
    assert await talk.status(metadata["run_id"]) == "success"


async def test_a_chunk_and_its_metadata_look_like_langgraphs(start: Start) -> None:
    talk = await (await start()).conversation(metadata={"turn": "t-1"})
    parts = await talk.ask("count 2")
    chunk, meta = parts[1].data
    assert list(chunk) == [
        "content", "additional_kwargs", "response_metadata", "type", "name", "id", "tool_calls", "invalid_tool_calls",
        "usage_metadata", "tool_call_chunks", "chunk_position",
    ]  # fmt: skip
    assert chunk["type"] == "AIMessageChunk"
    assert chunk["id"].startswith("lc_run--")
    wanted = {
        "thread_id": talk.thread_id,
        "run_id": parts[0].data["run_id"],
        "graph_id": "agent",
        "assistant_id": "fe096781-5601-53d2-b2f6-0d3403f7e9ca",
        "run_attempt": 1,
        "turn": "t-1",
        "langgraph_node": "model",
        "langgraph_step": 1,
    }
    assert {key: meta.get(key) for key in wanted} == wanted
    assert not [key for key in meta if key.startswith("__")]


async def test_the_end_event_spares_the_sdk_its_check_of_the_run(start: Start) -> None:
    running = await start()
    talk = await running.conversation()
    await talk.ask("count 3", stream_resumable=True)
    assert running.requests == ["POST /threads", f"POST /threads/{talk.thread_id}/runs/stream"]


async def test_the_run_is_announced_by_headers_before_its_first_event(start: Start) -> None:
    running = await start()
    talk = await running.conversation()
    created: list[str] = []
    stream = talk.stream("hold here", on_run_created=lambda run: created.append(run["run_id"]))
    (metadata,) = await first(stream, 1)
    assert created == [metadata.data["run_id"]]
    body = {
        "assistant_id": "agent",
        "input": question("hi"),
        "stream_mode": "updates",
        "multitask_strategy": "interrupt",
    }
    response = await running.http.post(f"/threads/{talk.thread_id}/runs/stream", json=body)
    path = f"/threads/{talk.thread_id}/runs/{_run_id(response.text)}"
    assert response.headers["content-location"] == path
    assert response.headers["location"] == path + "/stream"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"


def _run_id(body: str) -> str:
    match = re.search(r'"run_id":"([^"]+)"', body)
    assert match
    return match.group(1)


async def test_lines_end_with_crlf_and_every_event_has_an_id_but_the_end(start: Start) -> None:
    running = await start()
    talk = await running.conversation()
    body = {"assistant_id": "agent", "input": question("count 3"), "stream_mode": MODES}
    raw = (await running.http.post(f"/threads/{talk.thread_id}/runs/stream", json=body)).text
    assert "\n" not in raw.replace("\r\n", "")
    *events, end = raw.removesuffix("\r\n\r\n").split("\r\n\r\n")
    assert end == "event: end\r\ndata: null"
    for event in events:
        assert re.fullmatch(r"event: [^\r\n]+\r\ndata: [^\r\n]+\r\nid: \d+-\d+", event)


async def test_only_the_modes_that_were_asked_for_are_sent(start: Start) -> None:
    talk = await (await start()).conversation()
    assert names(await talk.ask("count 2", stream_mode="updates")) == ["metadata", "updates", "end"]
    assert names(await talk.ask("count 2", stream_mode=["values"])) == ["metadata", "values", "values", "end"]
    tuples = await talk.ask("count 2", stream_mode="messages-tuple")
    assert set(names(tuples)) == {"metadata", "messages", "end"}


async def test_sub_graphs_are_heard_with_their_namespace_only_when_asked_for(start: Start) -> None:
    talk = await (await start("nested")).conversation()
    quiet = await talk.ask("count 2")
    assert names(quiet) == ["metadata", "messages", "updates", "custom", "messages", "updates", "end"]
    assert text_of(quiet) == "0 1 whole"
    loud = await talk.ask("count 2", stream_subgraphs=True)
    inner = [part for part in loud if "|" in part.event]
    assert {re.sub(r":[0-9a-f-]{36}$", "", part.event) for part in inner} == {
        "messages|child", "updates|child", "custom|child",
    }  # fmt: skip
    assert [part.data[0]["content"] for part in inner if part.event.startswith("messages")] == ["0 ", "1 ", ""]


async def test_the_debugging_modes_are_streamed_without_langgraphs_internals(start: Start) -> None:
    talk = await (await start()).conversation()
    parts = await talk.ask("count 2", stream_mode=["tasks", "checkpoints", "debug"])
    assert set(names(parts)) == {"metadata", "tasks", "checkpoints", "debug", "end"}
    assert not [part for part in parts if "__pregel_" in orjson.dumps(_keys(part.data)).decode()]


def _keys(value: object) -> list[object]:
    if isinstance(value, dict):
        return [*value, *map(_keys, value.values())]
    return [_keys(item) for item in value] if isinstance(value, list) else []


# Resume


async def test_a_reader_may_come_back_after_any_event_and_misses_and_repeats_nothing(start: Start) -> None:
    talk = await (await start()).conversation()
    parts = await talk.ask("count 30")
    run_id, events = parts[0].data["run_id"], parts[:-1]
    assert len({part.id for part in events}) == len(events)
    for position, part in enumerate(events):
        *rest, end = await talk.join(run_id, part.id)
        assert rest == events[position + 1 :]
        assert end.event == "end"
    assert await talk.join(run_id, "-1") == parts
    assert await talk.join(run_id, "0") == parts


@pytest.mark.parametrize("seed", range(4))
async def test_a_live_stream_that_drops_at_random_and_is_resumed_adds_up_to_the_same_text(
    start: Start, seed: int
) -> None:
    dice = random.Random(seed)
    talk = await (await start()).conversation()
    parts = await first(talk.stream("drip 60 0.002"), dice.randint(1, 15))
    run_id = parts[0].data["run_id"]
    while parts[-1].event != "end":
        parts += await first(talk.joined(run_id, parts[-1].id), dice.randint(1, 25))
    assert text_of(parts) == counted(60)
    ids = [part.id for part in parts if part.event != "end"]
    assert len(ids) == len(set(ids))


async def test_joining_without_an_id_goes_live_and_replays_nothing(start: Start) -> None:
    talk = await (await start()).conversation()
    run_id = await talk.begin("gate g 3 2")
    await sample_graphs.arrival("g").wait()
    joined = asyncio.create_task(talk.join(run_id))
    # Not before the reader is connected; its request is answered before the next one is.
    await asyncio.sleep(0.1)
    sample_graphs.gate("g").set()
    parts = await joined
    assert "metadata" not in names(parts)
    assert text_of(parts) == "3 4 "
    assert names(await talk.join(run_id)) == ["end"]


async def test_joining_with_modes_filters_and_takes_them_repeated_or_as_json(start: Start) -> None:
    talk = await (await start()).conversation()
    parts = await talk.ask("count 2", stream_mode=[*MODES, "values"])
    run_id = parts[0].data["run_id"]
    for options in (
        {"stream_mode": ["values", "updates"]},
        {"params": {"stream_mode": orjson.dumps(["values", "updates"]).decode()}},
    ):
        found = names(await talk.join(run_id, "-1", **options))
        assert sorted(found) == ["end", "metadata", "updates", "values", "values"]
    assert set(names(await talk.join(run_id, "-1", stream_mode="messages-tuple"))) == {"metadata", "messages", "end"}


async def test_a_replay_of_a_failed_run_includes_the_error(start: Start) -> None:
    talk = await (await start()).conversation()
    parts = await talk.ask("boom oh no")
    assert names(parts) == ["metadata", "messages", "error", "end"]
    assert await talk.join(parts[0].data["run_id"], "-1") == parts


# Gaps and retention


async def test_an_id_too_old_gets_a_gap_and_no_way_back_into_it(start: Start) -> None:
    running = await start(retain_events=10)
    talk = await running.conversation()
    parts = await talk.ask("count 40")
    run_id, events = parts[0].data["run_id"], parts[:-1]
    assert len(events) == 43  # a connected reader misses nothing, whatever the retention
    running.requests.clear()
    (gap,) = await talk.join(run_id, events[3].id)
    assert gap.event == "gap"
    assert gap.data == {
        "code": "stream_replay_gap",
        "run_id": run_id,
        "requested_event_id": events[3].id,
        "earliest_available_event_id": events[-10].id,
        "latest_available_event_id": events[-1].id,
        "recovery": "reload_durable_state",
    }
    assert running.requests == [f"GET /threads/{talk.thread_id}/runs/{run_id}/stream"]  # no reconnect, no check
    assert [part.id for part in await talk.join(run_id, events[-11].id)][:-1] == [part.id for part in events[-10:]]


async def test_a_gap_is_recovered_by_joining_at_the_latest_id(start: Start) -> None:
    talk = await (await start(retain_events=8)).conversation()
    parts = await first(talk.stream("gate g 30 3"), 31)
    run_id = parts[0].data["run_id"]
    (gap,) = await talk.join(run_id, parts[0].id)
    assert gap.data["latest_available_event_id"] == parts[-1].id
    resumed = asyncio.create_task(talk.join(run_id, gap.data["latest_available_event_id"]))
    sample_graphs.gate("g").set()
    rest = await resumed
    assert text_of(rest) == "30 31 32 "
    assert rest[-1].event == "end"


async def test_a_gap_does_not_count_as_the_reader_leaving(start: Start) -> None:
    talk = await (await start(retain_events=5)).conversation()
    (metadata,) = await first(talk.stream("gate g 30 3"), 1)
    await sample_graphs.arrival("g").wait()
    run_id = metadata.data["run_id"]
    assert names(await talk.join(run_id, metadata.id, cancel_on_disconnect=True)) == ["gap"]
    sample_graphs.gate("g").set()
    await talk.join(run_id)
    assert await talk.status(run_id) == "success"


async def test_after_the_retention_a_join_yields_just_the_end(start: Start) -> None:
    clock = ManualClock()
    talk = await (await start(clock=clock)).conversation()
    parts = await talk.ask("count 3")
    run_id = parts[0].data["run_id"]
    await clock.advance(59)
    assert await talk.join(run_id, "-1") == parts
    await clock.advance(2)
    for after in (None, "-1", parts[2].id):
        assert names(await talk.join(run_id, after)) == ["end"]


# Heartbeats


async def test_a_silent_run_sends_a_heartbeat_every_15_seconds_to_every_reader(start: Start) -> None:
    clock = ManualClock()
    running = await start(clock=clock)
    talk = await running.conversation()
    body = {"assistant_id": "agent", "input": question("hold g"), "stream_mode": MODES}
    path = f"/threads/{talk.thread_id}/runs/stream"
    async with running.http.stream("POST", path, json=body) as one:
        lines = one.aiter_lines()
        while (line := await anext(lines)) != "":
            last = line
        assert last.startswith("id: ")
        async with running.http.stream("GET", one.headers["location"]) as two:
            other = two.aiter_lines()
            for _ in range(2):
                await clock.advance(15)
                assert [await _heard(lines), await _heard(other)] == [": heartbeat"] * 2
            sample_graphs.gate("g").set()
            assert (await _heard(other)).startswith("event: messages")


async def _heard(lines: AsyncIterator[str]) -> str:
    while not (line := await asyncio.wait_for(anext(lines), 5)):
        pass
    return line


async def test_waiting_for_a_result_keeps_the_connection_alive_with_blank_lines(start: Start) -> None:
    clock = ManualClock()
    running = await start(clock=clock)
    talk = await running.conversation()
    body = {"assistant_id": "agent", "input": question("hold g")}
    async with running.http.stream("POST", f"/threads/{talk.thread_id}/runs/wait", json=body) as response:
        chunks = response.aiter_raw()
        await sample_graphs.arrival("g").wait()
        await clock.advance(15)
        assert await anext(chunks) == b"\n"
        sample_graphs.gate("g").set()
        rest = b"".join([chunk async for chunk in chunks])
    assert orjson.loads(b"\n" + rest)["messages"][-1]["content"] == "held"


# Many readers, many runs


async def test_two_readers_of_one_run_see_the_same(start: Start) -> None:
    talk = await (await start()).conversation()
    run_id = await talk.begin("gate g 2 20")
    await sample_graphs.arrival("g").wait()
    readers = [asyncio.create_task(talk.join(run_id, "-1")) for _ in range(2)]
    await asyncio.sleep(0.05)
    sample_graphs.gate("g").set()
    one, two = await asyncio.gather(*readers)
    assert one == two
    assert text_of(one) == counted(22)


async def test_fifty_conversations_stream_at_once(start: Start) -> None:
    running = await start()
    talks: list[Conversation] = [await running.conversation() for _ in range(50)]
    answers = await asyncio.gather(*(talk.ask("count 40") for talk in talks))
    assert [text_of(parts) for parts in answers] == [counted(40)] * 50
    assert {parts[-1].event for parts in answers} == {"end"}


async def test_a_reader_that_reads_slowly_misses_nothing(start: Start) -> None:
    running = await start(retain_events=5)
    talk = await running.conversation()
    body = {"assistant_id": "agent", "input": question("count 2000"), "stream_mode": ["messages-tuple"]}
    path = f"/threads/{talk.thread_id}/runs/stream"
    async with running.http.stream("POST", path, json=body) as response:
        run_id = response.headers["content-location"].rpartition("/")[2]
        await running.client.runs.join(talk.thread_id, run_id)  # the run is over before the first line is read
        text = "".join([chunk async for chunk in response.aiter_text()])
    assert text.count("event: messages") == 2001
    assert text.endswith("event: end\r\ndata: null\r\n\r\n")


async def test_unknown_runs_are_reported_in_the_stream_as_langgraph_does(start: Start) -> None:
    talk = await (await start()).conversation()
    (error,) = await talk.join("00000000-0000-0000-0000-000000000000")
    assert (error.event, error.data) == ("error", {"error": "HTTPException", "message": "404: Run not found"})


async def test_an_answer_does_not_wait_for_the_clients_acknowledgement(start: Start) -> None:
    # Without TCP_NODELAY each small answer on a kept-alive connection costs about 40 ms.
    running = await start()
    await running.http.get("/ok")
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for _ in range(20):
        assert (await running.http.get("/ok")).json() == {"ok": True}
    assert loop.time() - begin < 0.5


def test_httpx_is_the_version_whose_behaviour_these_tests_rely_on() -> None:
    assert httpx.__version__.startswith("0.28.")
