"""What an agent has begun and not ended makes no later question fail: a real graph behind the embedded gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langchain_core.messages import ToolMessage
from langgraph.graph import MessagesState
from langgraph.types import interrupt

from channels.model import Phase
from tests.channels.strict_agent import Results, call_of, retried, room_with, said, shown, strict_agent
from tests.channels.test_core import Room

BEGUN: list[str] = []


async def tools(state: MessagesState) -> Results:
    call = call_of(state)
    BEGUN.append(call["args"]["to"])
    match BEGUN[-1]:
        case "slowly":
            await asyncio.sleep(3600)
        case "nobody":
            raise ValueError("there is nobody")
        case "somebody":
            interrupt("Whom?")
        case "twice":
            BEGUN.append(interrupt("How?"))
            await asyncio.sleep(3600)
    return {"messages": [ToolMessage("paid", tool_call_id=call["id"])]}


graph = strict_agent(tools)


@pytest.fixture
async def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    BEGUN.clear()
    async with room_with(f"{__name__}:graph", tmp_path, monkeypatch) as room:
        yield room


async def stopped_in_a_tool(room: Room) -> None:
    await room.say("pay slowly")
    await room.bench.until(lambda: BEGUN == ["slowly"])
    assert (await said(room, "/stop")).phase is Phase.STOPPED


async def hears(room: Room) -> None:
    then = await said(room, "hello")
    assert (then.phase, then.text, then.steps) == (Phase.DONE, "Heard: hello", ())


async def test_the_next_question_after_a_stop_in_a_tool_is_answered(room: Room) -> None:
    await stopped_in_a_tool(room)
    await hears(room)


async def test_the_next_question_after_a_stop_in_a_tool_and_a_crash_is_answered(room: Room) -> None:
    await stopped_in_a_tool(room)
    await room.bench.crash()
    await hears(room)


async def test_what_was_stopped_in_a_tool_can_be_asked_again(room: Room) -> None:
    await stopped_in_a_tool(room)
    await room.say("/retry")
    await room.bench.until(lambda: BEGUN == ["slowly", "slowly"])
    await room.say("/stop")
    assert (await shown(room)).phase is Phase.STOPPED
    await hears(room)


async def test_the_next_question_after_a_tool_that_failed_is_answered(room: Room) -> None:
    assert (await said(room, "pay nobody")).phase is Phase.FAILED
    await hears(room)


async def test_a_question_that_led_to_one_of_the_agents_can_be_asked_again(room: Room) -> None:
    assert (await said(room, "pay somebody")).phase is Phase.ASKING
    assert (await retried(room)).phase is Phase.ASKING
    assert BEGUN == ["somebody", "somebody"]
    assert (await said(room, "Bob")).text == "Heard: paid"
    await hears(room)


async def test_an_answer_that_is_stopped_in_a_tool_spoils_nothing(room: Room) -> None:
    assert (await said(room, "pay twice")).phase is Phase.ASKING
    await room.say("slowly")
    await room.bench.until(lambda: BEGUN[-1] == "slowly")
    assert (await said(room, "/stop")).phase is Phase.STOPPED
    await hears(room)
