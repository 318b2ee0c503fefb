"""A graph that stops before a step: a real one, behind the embedded gateway, with the whole core in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langchain_core.messages import ToolCall, ToolMessage
from langgraph.types import interrupt

from channels.adapter import Transient
from channels.model import Action, Attachment, Phase
from channels.questions import LEFT_NOTICE
from tests.channels.strict_agent import Results, retried, room_with, said, shown, strict_agent
from tests.channels.test_core import Room

PAID: list[str] = []


def tools(call: ToolCall) -> Results:
    PAID.append(str(interrupt("How much?")))
    return {"messages": [ToolMessage(f"paid {PAID[-1]}", tool_call_id=call["id"])]}


graph = strict_agent(tools, interrupt_before=["tools"])


@pytest.fixture
async def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    """A person has asked for a payment, and the graph stands before it."""
    PAID.clear()
    async with room_with(f"{__name__}:graph", tmp_path, monkeypatch) as room:
        view = await said(room, "pay Bob")
        assert view.phase is Phase.ASKING
        assert view.question is not None
        assert view.question.text == (
            "The agent has stopped before “tools”. Shall it go on?\n\nThe agent wants to run “transfer”.\n\n- to: `Bob`"
        )
        assert PAID == []
        yield room


@pytest.mark.parametrize("words", ["no, do not!", None])
async def test_a_step_that_is_left_is_not_run_and_the_next_question_begins_anew(room: Room, words: str | None) -> None:
    asked = await room.last()
    if words is None:
        await room.press(Action.ANSWER, asked.id, "1")
        left = await shown(room)
    else:
        left = await said(room, words)
    assert (left.phase, left.notice) == (Phase.DONE, LEFT_NOTICE)
    answered = await room.bench.store.turn(asked.id)
    assert answered is not None
    assert answered.final is not None
    assert answered.final.question is not None
    assert answered.final.question.answer == "Leave it"
    await room.press(Action.ANSWER, asked.id, "0")  # too late
    await room.bench.settled()
    then = await said(room, "hello")
    assert (then.phase, then.text, then.question, then.steps) == (Phase.DONE, "Heard: hello", None, ())
    same = await retried(room)
    assert (same.phase, same.text) == (Phase.DONE, "Heard: hello")
    again = await said(room, "pay Ann")
    assert again.phase is Phase.ASKING
    assert PAID == []


async def test_a_step_that_was_left_is_settled_by_the_next_run_whatever_becomes_of_the_questions_before_it(
    room: Room,
) -> None:
    await said(room, "no")
    room.adapter.troubles = [Transient("later")] * 50
    await room.say("see", attachments=(Attachment("f.txt", "text/plain", {"name": "f.txt"}),))
    await room.bench.until(lambda: len(room.adapter.troubles) < 50)
    stopped = await said(room, "/stop")
    assert stopped.phase is Phase.STOPPED
    room.adapter.troubles = []
    then = await said(room, "hello")
    assert (then.phase, then.text) == (Phase.DONE, "Heard: hello")
    assert PAID == []


async def test_going_on_answers_nothing_that_the_step_asks(room: Room) -> None:
    asking = await said(room, "go on")
    assert asking.phase is Phase.ASKING
    assert asking.question is not None
    assert asking.question.text == "How much?"
    assert PAID == []
    done = await said(room, "5")
    assert (done.phase, done.text) == (Phase.DONE, "Heard: paid 5")
    assert PAID == ["5"]


async def test_words_that_do_not_decide_run_nothing_and_the_question_is_asked_again(room: Room) -> None:
    again = await said(room, "yes, but how much is it?")
    assert again.phase is Phase.ASKING
    assert again.question is not None
    assert [option.label for option in again.question.options] == ["Go on", "Leave it"]
    assert PAID == []
