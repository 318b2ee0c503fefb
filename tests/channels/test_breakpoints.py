"""A graph that stops before a step: a real one, behind the embedded gateway, with the whole core in front of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, ToolCall, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from adapters.embedded import EmbeddedGateway
from channels.adapter import Transient
from channels.model import Action, Attachment, Phase, View
from channels.questions import LEFT_NOTICE
from tests.bench import Bench
from tests.channels.test_core import Room
from tests.clock import ScaledClock
from tests.gateway.turns import gateway_at
from tests.paper import Paper, PaperAdapter

PAID: list[str] = []


def model(state: MessagesState) -> dict[str, list[AIMessage]]:
    """Calls a tool where somebody speaks of paying. As models do, it wants one result of each call in the history."""
    messages = state["messages"]
    called = [call["id"] for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
    if called != [message.tool_call_id for message in messages if isinstance(message, ToolMessage)]:
        raise ValueError("not every tool call has one result")
    said = str(messages[-1].content)
    if not said.startswith("pay "):
        return {"messages": [AIMessage(f"Heard: {said}")]}
    call = ToolCall(name="transfer", args={"to": said.removeprefix("pay ")}, id=f"call-{len(messages)}")
    return {"messages": [AIMessage("", tool_calls=[call])]}


def tools(state: MessagesState) -> dict[str, list[ToolMessage]]:
    last = state["messages"][-1]
    assert isinstance(last, AIMessage)
    (call,) = last.tool_calls
    PAID.append(str(interrupt("How much?")))
    return {"messages": [ToolMessage(f"paid {PAID[-1]}", tool_call_id=call["id"])]}


def after_model(state: MessagesState) -> str:
    return "tools" if getattr(state["messages"][-1], "tool_calls", ()) else END


_builder = StateGraph(MessagesState)
_builder.add_node("model", model)
_builder.add_node("tools", tools)
_builder.add_edge(START, "model")
_builder.add_conditional_edges("model", after_model, ["tools", END])
_builder.add_edge("tools", "model")
graph = _builder.compile(interrupt_before=["tools"])


@pytest.fixture
async def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    """A person has asked for a payment, and the graph stands before it."""
    PAID.clear()
    embedded = EmbeddedGateway(tmp_path / "gateway", f"{__name__}:graph")
    gateway = gateway_at(await embedded.start())
    papers: dict[str, Paper] = defaultdict(Paper)
    bench = Bench(tmp_path, ScaledClock(20), lambda context: PaperAdapter(context, papers))
    monkeypatch.setattr(bench, "gateway", gateway)
    try:
        async with bench:
            room = Room(bench)
            view = await said(room, "pay Bob")
            assert view.phase is Phase.ASKING
            assert view.question is not None
            assert view.question.text == (
                "The agent has stopped before “tools”. Shall it go on?\n\n"
                "The agent wants to run “transfer”.\n\n- to: `Bob`"
            )
            assert PAID == []
            yield room
    finally:
        await gateway.aclose()
        await embedded.stop()


async def said(room: Room, text: str) -> View:
    """What there is to see once everything is over that these words have set off."""
    await room.say(text)
    return await shown(room)


async def shown(room: Room) -> View:
    await room.bench.settled()
    final = (await room.last()).final
    assert final is not None
    return final


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
    retried = await said(room, "/retry")
    assert (retried.phase, retried.text) == (Phase.DONE, "Heard: hello")
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
