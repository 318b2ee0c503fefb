"""Threads, state, assistants, and what is refused, through the real SDK."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from langgraph_sdk.errors import (
    AuthenticationError,
    BadRequestError,
    ConflictError,
    NotFoundError,
    UnprocessableEntityError,
)

from tests.adapters.embedded import sample_graphs
from tests.adapters.embedded.conftest import Start
from tests.adapters.embedded.talking import question, text_of

NOWHERE = "00000000-0000-0000-0000-000000000000"
AGENT_ID = "fe096781-5601-53d2-b2f6-0d3403f7e9ca"


# Assistants


async def test_the_graph_is_one_assistant_under_the_id_that_langgraph_gives_it(start: Start) -> None:
    client = (await start()).client
    (assistant,) = await client.assistants.search()
    assert (assistant["assistant_id"], assistant["graph_id"], assistant["name"]) == (AGENT_ID, "agent", "agent")
    assert await client.assistants.get(AGENT_ID) == assistant
    assert await client.assistants.search(graph_id="other") == []
    assert await client.assistants.search(metadata={"created_by": "user"}) == []
    with pytest.raises(NotFoundError):
        await client.assistants.get(NOWHERE)


async def test_a_run_may_name_the_assistant_by_name_or_id_and_no_other(start: Start) -> None:
    running = await start(assistant_id="helper")
    talk = await running.conversation()
    (assistant,) = await running.client.assistants.search()
    for name in ("helper", assistant["assistant_id"]):
        await running.client.runs.wait(talk.thread_id, name, input=question("hi"))
    with pytest.raises(UnprocessableEntityError, match="One of the registered graphs: helper"):
        await running.client.runs.create(talk.thread_id, "agent", input=question("hi"))
    with pytest.raises(NotFoundError, match="Thread or assistant not found"):
        await running.client.runs.create(talk.thread_id, NOWHERE, input=question("hi"))


async def test_health_and_info(start: Start) -> None:
    running = await start()
    assert (await running.http.get("/ok")).json() == {"ok": True}
    assert (await running.http.get("/info")).json()["langgraph_py_version"]


# Threads


async def test_a_new_thread_is_idle_and_empty(start: Start) -> None:
    client = (await start()).client
    thread: Any = await client.threads.create(metadata={"place": "p"})
    assert thread["status"] == "idle"
    assert thread["metadata"] == {"place": "p"}
    assert thread["values"] is None
    assert await client.threads.get(thread["thread_id"]) == thread
    state: Any = await client.threads.get_state(thread["thread_id"])
    assert (state["values"], state["next"], state["checkpoint"]) == ({}, [], None)
    assert await client.threads.get_history(thread["thread_id"]) == []


async def test_creating_a_thread_twice_is_a_conflict_unless_it_may_exist(start: Start) -> None:
    client = (await start()).client
    first = await client.threads.create(thread_id=NOWHERE, metadata={"a": 1})
    with pytest.raises(ConflictError, match="already exists"):
        await client.threads.create(thread_id=NOWHERE)
    again = await client.threads.create(thread_id=NOWHERE, if_exists="do_nothing", metadata={"b": 2})
    assert again == first


async def test_metadata_is_merged_key_by_key(start: Start) -> None:
    client = (await start()).client
    thread = await client.threads.create(metadata={"a": 1, "b": {"x": 1}})
    updated = await client.threads.update(thread["thread_id"], metadata={"b": {"y": 2}, "c": None})
    assert updated["metadata"] == {"a": 1, "b": {"y": 2}, "c": None}
    await client.threads.update(thread["thread_id"], metadata={"d": 1}, return_minimal=True)
    assert (await client.threads.get(thread["thread_id"]))["metadata"] == {"a": 1, "b": {"y": 2}, "c": None, "d": 1}


async def test_threads_are_found_by_metadata_status_and_id_in_pages(start: Start) -> None:
    running = await start("questions")
    search = running.client.threads.search
    metadata: list[dict[str, Any]] = [{"n": 1, "on": True}, {"n": 2, "on": False}, {"n": 2, "tags": ["a", {"b": 1}]}]
    ids = [(await running.client.threads.create(metadata=each))["thread_id"] for each in metadata]
    by = {"sort_by": "created_at", "sort_order": "asc"}

    async def found(**query: Any) -> list[int]:
        return [ids.index(thread["thread_id"]) for thread in await search(**{**by, **query})]

    assert await found() == [0, 1, 2]
    assert await found(metadata={"n": 2}) == [1, 2]
    assert await found(metadata={"n": 2, "on": False}) == [1]
    assert await found(metadata={"on": True}) == [0]
    assert await found(metadata={"tags": ["a", {"b": 1}]}) == [2]
    assert await found(metadata={"n": "2"}) == []
    assert await found(ids=[ids[2], ids[0]]) == [0, 2]
    assert await found(limit=1, offset=1) == [1]
    await running.client.runs.wait(ids[1], "agent", input=question("sure"))
    assert await found(status="interrupted") == [1]
    (thread,) = await search(status="interrupted", select=["thread_id", "interrupts"])
    assert set(thread) == {"thread_id", "interrupts"}
    assert len(thread["interrupts"]) == 1


async def test_a_deleted_thread_is_gone_with_its_state(start: Start) -> None:
    talk = await (await start()).conversation()
    await talk.ask("hi")
    await talk.client.threads.delete(talk.thread_id)
    for gone in (talk.client.threads.get, talk.client.threads.delete, talk.client.threads.get_state):
        with pytest.raises(NotFoundError, match=f"Thread with ID {talk.thread_id} not found"):
            await gone(talk.thread_id)
    await talk.client.threads.create(thread_id=talk.thread_id)
    assert await talk.messages() == []


async def test_runs_need_an_existing_thread_unless_told_to_create_it(start: Start) -> None:
    client = (await start()).client
    with pytest.raises(NotFoundError, match="Thread or assistant not found"):
        await client.runs.create(NOWHERE, "agent", input=question("hi"))
    with pytest.raises(NotFoundError, match="Thread or assistant not found"):
        async for _ in client.runs.stream(NOWHERE, "agent", input=question("hi")):
            pass
    values: Any = await client.runs.wait(NOWHERE, "agent", input=question("hi"), if_not_exists="create")
    assert values["messages"][-1]["content"] == "re: hi"


# State


async def test_the_state_looks_as_langgraphs_does(start: Start) -> None:
    talk = await (await start()).conversation()
    await talk.ask("hi")
    state: Any = await talk.client.threads.get_state(talk.thread_id)
    assert list(state) == [
        "values", "next", "tasks", "metadata", "created_at", "checkpoint", "parent_checkpoint", "interrupts",
        "checkpoint_id", "parent_checkpoint_id",
    ]  # fmt: skip
    assert [message["type"] for message in state["values"]["messages"]] == ["human", "ai"]
    assert state["checkpoint"] == {
        "checkpoint_id": state["checkpoint_id"],
        "thread_id": talk.thread_id,
        "checkpoint_ns": "",
    }
    assert state["metadata"]["step"] == 1
    thread: Any = await talk.client.threads.get(talk.thread_id)
    assert thread["values"] == state["values"]


async def test_parts_of_the_state_can_be_selected(start: Start) -> None:
    talk = await (await start()).conversation()
    await talk.ask("hi")
    state: Any = await talk.client.threads.get_state(talk.thread_id, select=["values.messages", "next"])
    assert set(state) == {"values", "next"}
    assert set(state["values"]) == {"messages"}
    nothing: Any = await talk.client.threads.get_state(talk.thread_id, select=["values.other"])
    assert nothing == {"values": {}}


async def test_history_is_newest_first_and_any_of_its_states_can_be_read(start: Start) -> None:
    talk = await (await start()).conversation()
    await talk.ask("one")
    await talk.ask("two")
    history: list[Any] = await talk.client.threads.get_history(talk.thread_id, limit=100)
    assert [state["metadata"]["step"] for state in history] == [4, 3, 2, 1, 0, -1]
    middle = history[3]
    contents = [message["content"] for message in middle["values"]["messages"]]
    assert contents == ["one", "re: one"]
    threads = talk.client.threads
    assert await threads.get_state(talk.thread_id, checkpoint_id=middle["checkpoint_id"]) == middle
    assert await threads.get_state(talk.thread_id, checkpoint=middle["checkpoint"]) == middle
    for before in (middle["checkpoint"], middle["checkpoint_id"]):
        assert await threads.get_history(talk.thread_id, limit=1, before=before) == [history[4]]
    assert await threads.get_history(talk.thread_id, metadata={"step": 1}) == [middle]


async def test_a_run_may_start_from_an_older_state(start: Start) -> None:
    talk = await (await start()).conversation()
    await talk.ask("one")
    state = await talk.client.threads.get_state(talk.thread_id)
    await talk.ask("two")
    await talk.ask("instead", checkpoint=state["checkpoint"])
    assert await talk.messages() == [("human", "one"), ("ai", "re: one"), ("human", "instead"), ("ai", "re: instead")]


async def test_the_state_can_be_changed_from_outside(start: Start) -> None:
    talk = await (await start()).conversation()
    await talk.ask("hi")
    threads = talk.client.threads
    updated: Any = await threads.update_state(talk.thread_id, {"messages": [{"role": "ai", "content": "PS"}]})
    state: Any = await threads.get_state(talk.thread_id)
    assert updated["checkpoint"] == state["checkpoint"]
    assert (await talk.messages())[-1] == ("ai", "PS")
    with pytest.raises(BadRequestError, match="Node nobody does not exist"):
        await threads.update_state(talk.thread_id, question("x"), as_node="nobody")
    with pytest.raises(NotFoundError):
        await threads.update_state(NOWHERE, question("x"))


async def test_the_state_cannot_be_changed_under_a_run(start: Start) -> None:
    talk = await (await start()).conversation()
    run_id = await talk.begin("hold g")
    await sample_graphs.arrival("g").wait()
    with pytest.raises(ConflictError, match="in-flight"):
        await talk.client.threads.update_state(talk.thread_id, question("x"))
    sample_graphs.gate("g").set()
    await talk.join(run_id)


async def test_a_run_may_pause_before_a_node_and_be_carried_on(start: Start) -> None:
    talk = await (await start("nested")).conversation()
    await talk.ask("hi", interrupt_before=["outer"])
    assert await talk.thread_status() == "interrupted"
    state: Any = await talk.client.threads.get_state(talk.thread_id)
    assert (state["next"], state["interrupts"]) == (["outer"], [])
    assert text_of(await talk.ask(None)) == "whole"
    assert await talk.thread_status() == "idle"


# Refusals


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (
            {"stream_mode": ["values", "messages"]},
            "stream mode 'messages' is not supported; supported are messages-tuple",
        ),
        ({"stream_mode": "events"}, "stream mode 'events' is not supported"),
        ({"stream_mode": 5}, "stream_mode: must be a stream mode or a list"),
        ({"multitask_strategy": "steal"}, "multitask_strategy: Input should be 'reject', 'interrupt', 'rollback'"),
        ({"webhook": "http://x"}, "webhook: this option is not supported"),
        ({"feedback_keys": ["k"]}, "feedback_keys: this option is not supported"),
        ({"after_seconds": 5}, "after_seconds: "),
        ({"config": {"recursion_limit": 0}}, "config.recursion_limit: "),
        ({"input": {}, "assistant_id": None}, "assistant_id: Field required"),
    ],
)
async def test_what_is_not_supported_is_refused_by_name(start: Start, body: dict[str, Any], complaint: str) -> None:
    running = await start()
    talk = await running.conversation()
    body = {"assistant_id": "agent", "input": question("secret words"), **body}
    response = await running.http.post(f"/threads/{talk.thread_id}/runs/stream", json=body)
    assert response.status_code == 422
    assert complaint in response.json()["detail"]
    assert "secret words" not in response.text
    assert await talk.client.runs.list(talk.thread_id) == []


async def test_unknown_fields_and_nulls_are_ignored(start: Start) -> None:
    running = await start()
    talk = await running.conversation()
    body = {"assistant_id": "agent", "input": question("hi"), "stream_mode": None, "webhook": None, "novelty": 1}
    response = await running.http.post(f"/threads/{talk.thread_id}/runs/wait", json=body)
    assert response.json()["messages"][-1]["content"] == "re: hi"


async def test_both_configurable_and_context_is_a_bad_request(start: Start) -> None:
    talk = await (await start()).conversation()
    with pytest.raises(BadRequestError, match="Cannot specify both"):
        await talk.ask("hi", config={"configurable": {"a": 1}}, context={"b": 1})


async def test_a_client_cannot_reach_another_thread_or_langgraphs_internals_by_its_config(start: Start) -> None:
    running = await start()
    talk, other = await running.conversation(), await running.conversation()
    hostile = {"thread_id": other.thread_id, "checkpoint_ns": "x", "__pregel_checkpointer": None, "mine": 1}
    parts = await talk.ask("hi", config={"configurable": hostile})
    assert text_of(parts) == "re: hi"
    assert await other.messages() == []
    assert len(await talk.messages()) == 2
    run: Any = await talk.client.runs.get(talk.thread_id, parts[0].data["run_id"])
    assert run["kwargs"]["config"]["configurable"] == {"mine": 1}


@pytest.mark.parametrize("content", [b"", b"{bad", b"[" * 100_000, b"\xff", b'"text"', b"[1]", b"null"])
async def test_bodies_that_are_no_json_objects_are_refused(start: Start, content: bytes) -> None:
    response = await (await start()).http.post("/threads", content=content)
    assert response.status_code == 422
    assert response.json()["detail"]


async def test_bodies_are_limited_in_size(start: Start) -> None:
    running = await start(max_body=1000)
    response = await running.http.post("/threads", json={"metadata": {"x": "y" * 1000}})
    assert response.status_code == 413
    assert response.json() == {"detail": "The request body is larger than 1000 bytes"}

    async def endless() -> Any:
        for _ in range(100):
            yield b" " * 100

    assert (await running.http.post("/threads", content=endless())).status_code == 413
    assert (await running.http.post("/threads", json={"metadata": {"x": "y" * 900}})).status_code == 200


async def test_ids_must_be_uuids_as_on_langgraphs_server(start: Start) -> None:
    running = await start()
    talk = await running.conversation()
    with pytest.raises(UnprocessableEntityError, match="Invalid thread ID: must be a UUID"):
        await running.client.threads.create(thread_id="telegram:1")
    with pytest.raises(UnprocessableEntityError, match="Invalid thread ID"):
        await running.client.threads.get("x")
    with pytest.raises(UnprocessableEntityError, match="Invalid run ID"):
        await talk.status("x")


async def test_unknown_places_and_methods_are_answered_in_json(start: Start) -> None:
    http = (await start()).http
    missing, wrong = await http.get("/nowhere"), await http.put("/threads")
    assert (missing.status_code, missing.json()) == (404, {"detail": "Not Found"})
    assert (wrong.status_code, wrong.json()) == (405, {"detail": "Method Not Allowed"})


# Who may talk


async def test_with_an_api_key_only_its_holders_are_served(start: Start) -> None:
    running = await start(api_key="k-1")
    talk = await running.conversation()
    assert text_of(await talk.ask("hi")) == "re: hi"
    async with httpx.AsyncClient(base_url=running.url) as stranger:
        for headers in ({}, {"x-api-key": "k-2"}, {"x-api-key": "k-1 "[:3] + "é"}):
            response = await stranger.get("/threads/" + talk.thread_id, headers=_encoded(headers))
            assert response.status_code == 401
            assert "k-1" not in response.text
        assert (await stranger.get("/ok")).status_code == 200
    running.http.headers["x-api-key"] = "wrong"
    with pytest.raises(AuthenticationError):
        await running.client.threads.get(talk.thread_id)


def _encoded(headers: dict[str, str]) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in headers.items()}


async def test_a_web_page_in_the_users_browser_cannot_use_the_gateway(start: Start) -> None:
    running = await start()
    forged = await running.http.post("/threads", json={}, headers={"origin": "http://evil.example"})
    rebound = await running.http.get("/ok", headers={"host": "evil.example:8123"})
    assert (forged.status_code, rebound.status_code) == (403, 403)
    assert (await running.http.get("/ok", headers={"host": "localhost:8123"})).status_code == 200


def test_without_an_api_key_the_gateway_only_listens_on_the_loopback(tmp_path: Any) -> None:
    from adapters.embedded import EmbeddedGateway

    with pytest.raises(ValueError, match="needs an API key"):
        EmbeddedGateway(tmp_path, host="0.0.0.0")
    gateway = EmbeddedGateway(tmp_path, host="0.0.0.0", api_key="k-secret")
    for loopback in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        EmbeddedGateway(tmp_path, host=loopback)
    assert "k-secret" not in repr(gateway._settings)
