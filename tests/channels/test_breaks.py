"""What an agent has begun and not ended makes no later question fail: a real graph behind the embedded gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolCall, ToolMessage
from langgraph.types import interrupt

from channels.gateway.link import Link, ThreadState
from channels.gateway.troubles import Trouble, TroubleKind
from channels.model import Phase, Place, ThreadId
from channels.turn import TurnCarrier
from tests.channels.strict_agent import Results, retried, room_with, said, shown, strict_agent
from tests.channels.test_core import Room

BEGUN: list[str] = []
PLACE = Place("bench", "room", private=True)


async def tools(call: ToolCall) -> Results:
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


async def stopped_in_a_tool(room: Room, others: str = "") -> None:
    begun = len(BEGUN) + 1 + others.count(" and ")
    await room.say(f"pay {others}slowly")
    await room.bench.until(lambda: len(BEGUN) == begun)
    assert (await said(room, "/stop")).phase is Phase.STOPPED


async def hears(room: Room, words: str = "hello") -> None:
    then = await said(room, words)
    assert (then.phase, then.text, then.steps) == (Phase.DONE, f"Heard: {words}", ())


async def test_the_next_question_after_a_stop_in_a_tool_is_answered(room: Room) -> None:
    for words in ("hello", "hello again"):
        await stopped_in_a_tool(room)
        await hears(room, words)
    await hears(room, "and once more")


@pytest.mark.parametrize("end", ["slowly", "nobody", "somebody"])
async def test_a_call_that_has_its_result_beside_one_that_has_none_spoils_nothing(room: Room, end: str) -> None:
    if end == "slowly":
        await stopped_in_a_tool(room, "Bob and ")
    else:
        await said(room, f"pay Bob and {end}")
        await retried(room)
    await hears(room) if end != "somebody" else await said(room, "/new hello")
    await hears(room, "hello again")


async def test_what_was_read_before_a_stop_is_known_to_the_agent(room: Room) -> None:
    await room.say("count")
    await room.shows("One, two")
    assert (await said(room, "/stop")).phase is Phase.STOPPED
    then = await said(room, "what did you say?")
    assert then.phase is Phase.DONE
    assert then.text.startswith("I said: One, two")


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


async def test_a_break_that_was_missed_is_mended_by_the_next_question_but_one(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stopped_in_a_tool(room)
    with monkeypatch.context() as patched:

        async def refused(self: Link, thread: ThreadId) -> ThreadState:
            raise Trouble(TroubleKind.REFUSED, "not this state")

        patched.setattr(Link, "state", refused)
        assert (await said(room, "hello")).phase is Phase.FAILED
    await hears(room, "hello again")


async def test_a_break_is_mended_although_its_state_is_away_for_a_moment(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stopped_in_a_tool(room)
    state, troubles = Link.state, [TroubleKind.FAILING, TroubleKind.CUT, TroubleKind.UNREACHED]

    async def away(self: Link, thread: ThreadId) -> ThreadState:
        if troubles:
            raise Trouble(troubles.pop(), "away")
        return await state(self, thread)

    monkeypatch.setattr(Link, "state", away)
    await hears(room)
    assert not troubles


async def test_a_turn_that_fails_by_a_fault_of_ours_leaves_a_break(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    until_over = TurnCarrier._until_over
    with monkeypatch.context() as patched:

        async def broken(self: TurnCarrier, *tasks: Any) -> None:
            if self.turn.final is None:
                await room.bench.until(lambda: bool(BEGUN))
                raise RuntimeError("a fault of ours")
            await until_over(self, *tasks)

        patched.setattr(TurnCarrier, "_until_over", broken)
        assert (await said(room, "pay slowly")).phase is Phase.FAILED
    turn = await room.last()
    assert turn.thread_id is not None
    assert turn.run_id is not None
    await room.bench.gateway.cancel(turn.thread_id, turn.run_id)
    await hears(room)


@pytest.mark.parametrize("words", ["pay somebody", "pay nobody"])
async def test_the_first_question_after_the_conversation_was_forgotten_is_answered(room: Room, words: str) -> None:
    await said(room, words)
    store, far = room.bench.store, room.bench.clock.now() + 1e6
    while await store.conversation_at(PLACE) is not None:
        await store.prune(turns_before=far, inbounds_before=far)
    await hears(room)
