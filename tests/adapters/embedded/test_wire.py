"""JSON and server-sent events as LangGraph's server writes them."""

from __future__ import annotations

import datetime
import decimal
import uuid
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessageChunk, HumanMessage
from langgraph.types import Interrupt
from pydantic import BaseModel

from adapters.embedded import wire

# The keys of a streamed chunk and of a human message, in the order of langgraph-api 0.16.7.
HUMAN_KEYS = ["content", "additional_kwargs", "response_metadata", "type", "name", "id"]
CHUNK_KEYS = [*HUMAN_KEYS, "tool_calls", "invalid_tool_calls", "usage_metadata", "tool_call_chunks", "chunk_position"]


def plain(value: object) -> Any:
    return orjson.loads(wire.dumps(value))


def test_messages_have_the_fields_of_langgraphs_server() -> None:
    assert list(plain(AIMessageChunk(content="x"))) == CHUNK_KEYS
    assert list(plain(HumanMessage("x"))) == HUMAN_KEYS


def test_an_event_is_framed_as_langgraphs_server_does() -> None:
    assert wire.frame("messages|a:1", b"[1]", "5-0") == b"event: messages|a:1\r\ndata: [1]\r\nid: 5-0\r\n\r\n"
    assert wire.frame("end", b"null") == b"event: end\r\ndata: null\r\n\r\n"


def test_the_name_of_a_sub_graphs_event_carries_its_namespace_and_cannot_break_the_frame() -> None:
    assert wire.event_name("messages", ("child:1", "deep:2")) == "messages|child:1|deep:2"
    assert wire.event_name("custom", ("a\r\nb",)) == "custom|a  b"


def test_values_lose_langgraphs_internal_keys_and_keep_interrupts() -> None:
    payload = {"n": 1, "__pregel_tasks": [object()], "__interrupt__": (Interrupt(value={"q": 1}, id="i"),)}
    assert orjson.loads(wire.event_data("values", payload)) == {
        "n": 1,
        "__interrupt__": [{"value": {"q": 1}, "id": "i", "response_schema": None}],
    }


def test_message_metadata_loses_internal_keys() -> None:
    data = wire.event_data("messages", (AIMessageChunk(content="x"), {"langgraph_node": "n", "__pregel_x": object()}))
    assert orjson.loads(data)[1] == {"langgraph_node": "n"}


def test_debugging_modes_lose_internal_keys_at_every_depth() -> None:
    payload = {"config": {"configurable": {"thread_id": "t", "__pregel_send": print}}, "list": [{"__pregel_a": 1}]}
    expected = {"config": {"configurable": {"thread_id": "t"}}, "list": [{}]}
    assert orjson.loads(wire.event_data("checkpoints", payload)) == expected


def test_custom_events_pass_as_they_are() -> None:
    assert orjson.loads(wire.event_data("custom", {"__pregel_mine": 1})) == {"__pregel_mine": 1}


class Point(NamedTuple):
    x: int


class Model(BaseModel):
    when: datetime.date


@dataclass
class Plain:
    text: str


class Colour(Enum):
    RED = "red"


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("half an emoji \ud83d", "half an emoji \ufffd"),
        ({"\ud83d": [Plain("\ud83d")]}, {"\ufffd": [{"text": "\ufffd"}]}),
        ("two halves \ud83d\ude00", "two halves 😀"),
        (2**70, str(2**70)),
        (float("nan"), None),
        ({1: "a", None: "b"}, {"1": "a", "null": "b"}),
        ({(1, 2): "a", "\ud83d": 1}, {"(1, 2)": "a", "\ufffd": 1}),
        (CYCLE, ["..."]),
        ({"n": {3}}, {"n": [3]}),
        (b"\xff", "/w=="),
        (Point(1), {"x": 1}),
        (Model(when=datetime.date(2026, 1, 2)), {"when": "2026-01-02"}),
        (Plain("x"), {"text": "x"}),
        (Colour.RED, "red"),
        (ValueError("bad"), {"error": "ValueError", "message": "bad"}),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Path("a/b"), "a/b"),
        (decimal.Decimal("1.5"), "Decimal('1.5')"),
        (Interrupt(value="\ud83d", id="i"), {"value": "\ufffd", "id": "i", "response_schema": None}),
    ],
)
def test_anything_a_graph_may_hold_becomes_json(value: object, expected: object) -> None:
    assert plain(value) == expected


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
    | st.dates(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=())) | st.integers(), inner)
    ),
    max_leaves=20,
)


@given(anything)
def test_json_never_fails_and_is_one_line(value: object) -> None:
    data = wire.dumps(value)
    orjson.loads(data)
    assert b"\n" not in data
    assert b"\r" not in data
