"""Custom events reach the custom stream first and callbacks after it, each exactly once and with the same content."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from adapters.embedded.events import aemit, emit
from tests.adapters.embedded.conftest import Start
from tests.adapters.embedded.sample_graphs import Chat

EVENT = {"type": "task_started", "task_id": "t-1", "nested": {"é": ["✓", 1.5, None]}}


def _plain_node(state: Chat) -> Chat:
    emit(EVENT)
    return {"messages": []}


async def _async_node(state: Chat) -> Chat:
    await aemit(EVENT)
    return {"messages": []}


def graph_of(node: Any) -> CompiledStateGraph[Chat, None, Chat, Chat]:
    builder = StateGraph(Chat)
    builder.add_node("n", node)
    builder.add_edge(START, "n")
    return builder.compile()


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, Any]] = []


class Handler(BaseCallbackHandler, Log):
    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        self.lines.append((name, data))


class AsyncHandler(AsyncCallbackHandler, Log):
    async def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        self.lines.append((name, data))


class FailingHandler(BaseCallbackHandler):
    raise_error = True

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        raise OSError("nobody listens")


@pytest.mark.parametrize("node", [_plain_node, _async_node])
@pytest.mark.parametrize("handler_type", [Handler, AsyncHandler])
async def test_each_consumer_gets_the_event_once_with_the_same_content(
    node: Any, handler_type: type[Handler] | type[AsyncHandler]
) -> None:
    handler = handler_type()
    config: Any = {"callbacks": [handler]}
    streamed = [part async for part in graph_of(node).astream({"messages": []}, config, stream_mode="custom")]
    assert streamed == [EVENT]
    assert handler.lines == [("task_started", EVENT)]


@pytest.mark.parametrize("node", [_plain_node, _async_node])
async def test_astream_events_shows_it_once_beside_the_custom_stream(node: Any) -> None:
    events = [
        event
        async for event in graph_of(node).astream_events({"messages": []}, version="v2", stream_mode="custom")
        if event["event"] == "on_custom_event"
    ]
    assert [(event["name"], event["data"]) for event in events] == [("task_started", EVENT)]


async def test_the_custom_stream_comes_first() -> None:
    order: list[str] = []

    class Ordered(BaseCallbackHandler):
        def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
            order.append("callback")

    async def node(state: Chat) -> Chat:
        writer = get_stream_writer()

        def noting(event: Any) -> None:
            order.append("stream")
            writer(event)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("adapters.embedded.events.get_stream_writer", lambda: noting)
            await aemit(EVENT)
        return {"messages": []}

    config: Any = {"callbacks": [Ordered()]}
    await graph_of(node).ainvoke({"messages": []}, config)
    assert order == ["stream", "callback"]


@pytest.mark.parametrize("node", [_plain_node, _async_node])
async def test_a_callback_that_fails_harms_neither_the_stream_nor_the_node(node: Any) -> None:
    config: Any = {"callbacks": [FailingHandler()]}
    streamed = [part async for part in graph_of(node).astream({"messages": []}, config, stream_mode="custom")]
    assert streamed == [EVENT]


def test_a_plain_graph_run_without_a_loop_emits_too() -> None:
    handler = Handler()
    config: Any = {"callbacks": [handler]}
    assert list(graph_of(_plain_node).stream({"messages": []}, config, stream_mode="custom")) == [EVENT]
    assert handler.lines == [("task_started", EVENT)]


@pytest.mark.parametrize("event", [{}, {"type": ""}, {"type": "  "}, {"type": None}, {"type": 5}, {"kind": "x"}])
async def test_an_event_without_a_type_is_refused_before_anybody_sees_it(event: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="non-empty 'type'"):
        emit(event)
    with pytest.raises(ValueError, match="non-empty 'type'"):
        await aemit(event)


async def test_outside_of_a_graph_it_is_an_error() -> None:
    with pytest.raises(RuntimeError):
        await aemit(EVENT)


async def test_through_the_gateway_the_event_arrives_as_it_was_sent(start: Start) -> None:
    talk = await (await start("nested")).conversation()
    parts = await talk.ask("hi", stream_mode="custom", stream_subgraphs=True)
    events = [(part.event.partition(":")[0], part.data) for part in parts if part.event.startswith("custom")]
    assert events == [
        ("custom|child", {"type": "inner", "n": 1}),
        ("custom", {"type": "outer", "nested": {"é": ["✓", 1.5, None]}}),
    ]
