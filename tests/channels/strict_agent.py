"""An agent whose model is as strict as the vendors' are: it refuses a history in which a tool call has no result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolCall, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send

from adapters.embedded import EmbeddedGateway
from channels.model import View
from tests.bench import Bench
from tests.channels.test_core import Room
from tests.clock import ScaledClock
from tests.gateway.turns import gateway_at
from tests.paper import Paper, PaperAdapter

Results = dict[str, list[ToolMessage]]


def refuse_open_calls(messages: Sequence[AnyMessage]) -> None:
    """Raise where a tool call is not directly followed by its result, or a result follows no call."""
    expected: list[str | None] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in expected:
                raise ValueError(f"a result of no call: {message.tool_call_id}")
            expected.remove(message.tool_call_id)
            continue
        if expected:
            raise ValueError(f"tool calls without a result: {expected}")
        expected = [call["id"] for call in message.tool_calls] if isinstance(message, AIMessage) else []
    if expected:
        raise ValueError(f"tool calls without a result: {expected}")


async def _model(state: MessagesState) -> dict[str, list[BaseMessage]]:
    """Calls a tool where somebody speaks of paying. As some do, it numbers its calls anew in each message."""
    messages = state["messages"]
    refuse_open_calls(messages)
    said = str(messages[-1].content)
    if said == "count":
        return {"messages": [await FakeListChatModel(responses=["One, two, three, four"], sleep=0.1).ainvoke(messages)]}
    if said == "what did you say?":
        return {"messages": [AIMessage(f"I said: {messages[-2].text}")]}
    if not said.startswith("pay "):
        return {"messages": [AIMessage(f"Heard: {said}")]}
    receivers = said.removeprefix("pay ").split(" and ")
    calls = [ToolCall(name="transfer", args={"to": to}, id=f"transfer:{n}") for n, to in enumerate(receivers)]
    return {"messages": [AIMessage("", tool_calls=calls)]}


def strict_agent(tools: Callable[[ToolCall], Results | Awaitable[Results]], **compiled: Any) -> Any:
    """A graph of a model and these tools; it knows one, `transfer` with the argument `to`, and calls it in parallel."""
    builder = StateGraph(MessagesState)
    builder.add_node("model", _model)
    builder.add_node("tools", cast(Any, tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", cast(Any, _after_model), ["tools", END])
    builder.add_edge("tools", "model")
    return builder.compile(**compiled)


def _after_model(state: MessagesState) -> list[Send] | str:
    return [Send("tools", call) for call in getattr(state["messages"][-1], "tool_calls", ())] or END


@asynccontextmanager
async def room_with(graph: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    """A room whose agent is a graph (`module:name`), behind the embedded gateway."""
    embedded = EmbeddedGateway(folder / "gateway", graph)
    gateway = gateway_at(await embedded.start())
    papers: dict[str, Paper] = defaultdict(Paper)
    bench = Bench(folder, ScaledClock(20), lambda context: PaperAdapter(context, papers))
    monkeypatch.setattr(bench, "gateway", gateway)
    try:
        async with bench:
            yield Room(bench)
    finally:
        await gateway.aclose()
        await embedded.stop()


async def said(room: Room, text: str) -> View:
    """What there is to see once everything is over that these words have set off."""
    await room.say(text)
    return await shown(room)


async def retried(room: Room) -> View:
    """What there is to see once the last question has been asked and answered again."""
    before = (await room.last()).id
    await room.say("/retry")

    async def is_asked() -> bool:
        return (await room.last()).id != before

    await room.bench.until(is_asked)
    return await shown(room)


async def shown(room: Room) -> View:
    """What there is to see once everything is over."""
    await room.bench.settled()
    final = (await room.last()).final
    assert final is not None
    return final
