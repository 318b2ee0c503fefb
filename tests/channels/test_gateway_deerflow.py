"""DeerFlow's dialect: recognised by itself, spoken as it wants, with its uploads, artifacts and clarifications."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels.gateway import Ask, Gateway, InputFile
from channels.model import Attachment, Phase
from channels.questions import next_input
from tests.bench import Bench
from tests.channels.test_core import Room
from tests.clock import ScaledClock
from tests.emulators.gateway import Event, GatewayEmulator, Kind, Say
from tests.gateway.turns import SENDER, gateway_at, new_thread, run_turn
from tests.paper import PaperAdapter

CLARIFICATION = {
    "type": "tool",
    "name": "ask_clarification",
    "id": "clarification:c",
    "tool_call_id": "c",
    "content": "❓ Which city?",
    "artifact": {
        "human_input": {
            "question": "Which city?",
            "options": [{"id": "option-1", "label": "Paris", "value": "Paris"}],
        }
    },
}


@pytest.fixture
async def emulator() -> AsyncIterator[GatewayEmulator]:
    emulator = GatewayEmulator(Kind.DEERFLOW, [Say(("Hel", "lo"))])
    await emulator.start()
    yield emulator
    await emulator.stop()


@pytest.fixture
async def gateway(emulator: GatewayEmulator) -> AsyncIterator[Gateway]:
    gateway = gateway_at(emulator.url, api_key="internal", headers={"X-DeerFlow-Owner-User-Id": "owner"})
    yield gateway
    await gateway.aclose()


async def test_it_is_recognised_and_gets_its_token_owner_and_csrf_pair(
    gateway: Gateway, emulator: GatewayEmulator
) -> None:
    seen = await run_turn(gateway, "Hi")
    assert seen.end.view.text == "Hello"
    (start,) = emulator.asked("POST", "/runs/stream$")
    assert start.headers["x-deerflow-internal-token"] == "internal"
    assert start.headers["x-deerflow-owner-user-id"] == "owner"
    assert start.headers["cookie"] == f"csrf_token={start.headers['x-csrf-token']}"
    assert "x-api-key" not in start.headers
    assert (await gateway.check("agent")).dialect == "deerflow"


async def test_it_is_sent_nothing_that_it_refuses(gateway: Gateway, emulator: GatewayEmulator) -> None:
    await run_turn(gateway, "Hi")
    (body,) = emulator.bodies
    assert body["stream_resumable"] is False
    assert body["on_disconnect"] == "continue"
    assert body["multitask_strategy"] in ("reject", "interrupt")
    assert not {"durability", "checkpoint_during", "after_seconds", "if_not_exists", "webhook"} & set(body)


async def test_hidden_reminders_and_echoes_are_not_the_answer(gateway: Gateway, emulator: GatewayEmulator) -> None:
    echo = {"type": "human", "content": "Hi", "id": "x__user"}
    emulator.script.insert(0, Event("messages", [echo, {"langgraph_node": "DynamicContextMiddleware.before_agent"}]))
    seen = await run_turn(gateway, "Hi")
    assert seen.end.view.text == "Hello"


async def test_a_clarification_is_asked_and_answered_by_the_next_message(
    gateway: Gateway, emulator: GatewayEmulator
) -> None:
    emulator.script[:] = [
        Say((), calls=("ask_clarification",)),
        Event("updates", {"tools": {"messages": [CLARIFICATION]}}),
    ]
    thread = new_thread()
    asked = await run_turn(gateway, "Weather?", thread=thread)
    assert asked.end.view.phase is Phase.ASKING
    assert asked.end.view.question is not None
    assert asked.end.view.question.text == "Which city?"
    assert asked.end.view.steps == ()
    emulator.script[:] = [Say(("Sunny.",))]
    answer = asked.end.interrupts[0].answer("0", pressed=True)
    seen = await run_turn(gateway, next_input(asked.end.interrupts, [answer], sender=SENDER), thread=thread)
    assert seen.end.view.text == "Sunny."
    assert "Paris" in str(emulator.bodies[-1]["input"])
    assert "command" not in emulator.bodies[-1]


async def test_artifacts_become_files(gateway: Gateway, emulator: GatewayEmulator) -> None:
    emulator.script.append(Event("updates", {"tools": {"artifacts": ["/mnt/user-data/outputs/a.md"]}}))
    thread = new_thread()
    seen = await run_turn(gateway, "Hi", thread=thread)
    (file,) = seen.end.view.files
    assert file.name == "a.md"
    assert await gateway.open_file(file) == b"artifact of /mnt/user-data/outputs/a.md"


async def test_files_are_uploaded_before_the_run_and_named_in_the_message(
    gateway: Gateway, emulator: GatewayEmulator
) -> None:
    await run_turn(gateway, Ask("Look", SENDER, (InputFile("notes.txt", "text/plain", b"hi"),)))
    (upload,) = emulator.asked("POST", "/uploads$")
    assert b"notes.txt" in upload.body
    (message,) = emulator.bodies[0]["input"]["messages"]  # type: ignore[index]
    assert message["content"] == "Look"
    assert message["additional_kwargs"]["files"] == [
        {"filename": "notes.txt", "size": 2, "path": "/mnt/user-data/uploads/notes.txt", "status": "uploaded"}
    ]


async def test_the_next_message_answers_a_clarification_with_its_files(
    gateway: Gateway, emulator: GatewayEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator.script[:] = [
        Say((), calls=("ask_clarification",)),
        Event("updates", {"tools": {"messages": [CLARIFICATION]}}),
    ]
    bench = Bench(tmp_path, ScaledClock(20), PaperAdapter)
    monkeypatch.setattr(bench, "gateway", gateway)
    async with bench:
        room = Room(bench)
        await room.say("Analyse it")
        await bench.settled()
        asked = await room.last()
        emulator.script[:] = [Say(("Thanks.",))]
        room.adapter.files["a.csv"] = b"1,2"
        await room.say("", attachments=(Attachment("a.csv", "text/csv", {"name": "a.csv"}),))
        await room.shows("Thanks.")
        await bench.settled()
        question = await bench.store.turn(asked.id)
    (upload,) = emulator.asked("POST", "/uploads$")
    assert b"a.csv" in upload.body
    (message,) = emulator.bodies[-1]["input"]["messages"]  # type: ignore[index]
    assert [file["filename"] for file in message["additional_kwargs"]["files"]] == ["a.csv"]
    assert question is not None
    assert question.final is not None
    assert question.final.question is not None
    assert question.final.question.answer == "a.csv"
