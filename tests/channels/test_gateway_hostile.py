"""Whatever a gateway sends, a run ends with a view that can be stored: through the real SDK, from bytes to the end."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import httpx
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue
from sqlalchemy.dialects import sqlite

from channels.gateway import Gateway, Patience, sentences
from channels.model import Phase, View
from channels.questions import Interrupt, next_input
from channels.store.codec import JsonText, view_from_json, view_to_json
from tests.channels.test_transcript_fuzz import NAMES, anything
from tests.clock import ScaledClock
from tests.gateway.turns import SENDER, Seen, run_turn

RUN = "0e0e0e0e-0000-4000-8000-000000000001"
SSE = {"content-type": "text/event-stream", "content-location": f"/threads/t/runs/{RUN}"}
PATIENCE = Patience(idle=1e9)


def nested(levels: int) -> bytes:
    return b"[" * levels + b"1" + b"]" * levels


VALUES = {
    "101 levels": nested(101),
    "254 levels": nested(254),
    "900 levels": nested(900),
    "1000 levels of objects": b'{"value": ' * 1000 + b"1" + b"}" * 1000,
    "1100 levels": nested(1100),
    "20000 levels": nested(20_000),
    "an integer of 65 bits": b"36893488147419103232",
    "an integer that is no float": b"1" * 400,
    "an integer that Python does not read": b"9" * 5000,
    "an infinite number": b"1e400",
    "NaN": b"NaN",
    "Infinity": b"[-Infinity, Infinity]",
    "half an emoji": rb'"\ud83c"',
    "half an emoji in a key": rb'{"question": "\ud83c", "\udf0d": 1}',
    "no UTF-8": b'"\xff"',
    "a null byte": rb'"\u0000"',
}

UNREADABLE = {"1100 levels", "20000 levels", "an integer that Python does not read"}
"""Nobody can read a state with these in it, so nobody can say that the answer is whole."""


def shapes(value: bytes) -> list[tuple[str, bytes]]:
    """Events that hold the value wherever something is read from."""
    calling = b'{"type": "ai", "id": "m0", "content": "", "tool_calls": [{"name": "t", "id": "c", "args": {"a": $}}]}'
    chunk = b'{"type": "AIMessageChunk", "content": "", "id": "m1", "usage_metadata": {"input_tokens": $}}'
    tool = b'{"type": "tool", "id": "t", "content": $, "tool_call_id": "c", "artifact": $}'
    events = [
        ("metadata", b'{"run_id": "' + RUN.encode() + b'", "attempt": $}'),
        ("messages", b"[" + chunk + b', {"langgraph_node": "model", "langgraph_step": $}]'),
        ("messages", b'[{"type": "AIMessageChunk", "content": $}, {"langgraph_step": $}]'),
        ("updates", b'{"model": {"messages": [' + calling + b']}, "other": $}'),
        ("updates", b'{"tools": {"messages": [' + tool + b'], "todos": $, "artifacts": $}}'),
        ("updates|a:1", b'{"tools": {"messages": [' + tool + b"]}}"),
        ("custom", b"$"),
        ("custom", b'{"type": "task_running", "task_id": "1", "message": $}'),
        ("error", b'{"error": "E", "message": $}'),
        ("surprise", b"$"),
    ]
    return [(name, data.replace(b"$", value)) for name, data in events]


IDS = ["r_event_" + "9" * 5000, "1-" + "7" * 5000, "é\ufffd", "²", "a\x7fb", " ", "-1"]


def stream(events: list[tuple[str, bytes]], ids: list[str]) -> bytes:
    kinds = itertools.cycle(ids)
    return b"".join(
        b"event: %s\ndata: %s\nid: %s\n\n" % (name.encode("utf-8", "replace"), data, next(kinds).encode())
        for name, data in events
    )


ANSWER = stream(
    [
        ("messages", b'[{"type": "AIMessageChunk", "content": "Hello", "id": "m1"}, {"langgraph_node": "model"}]'),
        ("updates", b'{"model": {"messages": [{"type": "ai", "content": "Hello", "id": "m1"}]}}'),
    ],
    ["r_event_1"],
)


class Cut(httpx.AsyncByteStream):
    """A body that dies after its bytes, or ends as it should; `size` bytes at a time."""

    def __init__(self, body: bytes, size: int, *, ends: bool) -> None:
        self._body = body
        self._size = size
        self._ends = ends

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), self._size):
            yield self._body[start : start + self._size]
        if not self._ends:
            raise httpx.ReadError("reset")


@dataclass(slots=True)
class Hostile(httpx.AsyncBaseTransport):
    """A gateway that refuses the first start, cuts the first stream, and puts what it is given into every answer.

    `value` goes into the bodies that are read whole; `events` come before the answer and once more when it is joined.
    """

    value: bytes
    events: bytes
    size: int = 1 << 20
    refuses: bool = True
    body: bytes = b""
    question: bytes = b""
    joins: list[str] = field(default_factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith("/state"):
            return self._state()
        if path.endswith("/runs/stream"):
            self.body = await request.aread()
            found = re.search(rb'"id":"(turn-[^"]+)"', self.body)
            self.question = found[1] if found else b""
            if self.refuses:
                self.refuses = False
                headers = {"retry-after": "Mon, 01 Jan 99999999999999 00:00:00 GMT"}
                return httpx.Response(503, headers=headers, content=b'{"detail": %s}' % self.value)
            return httpx.Response(200, headers=SSE, stream=Cut(self.events, self.size, ends=False))
        if path.endswith(f"{RUN}/stream"):
            self.joins.append(request.headers.get("last-event-id", ""))
            body = self.events + ANSWER
            return httpx.Response(200, headers=SSE, stream=Cut(body, self.size, ends=True))
        if path.endswith("/runs"):
            return httpx.Response(200, content=b'[{"run_id": "r", "kwargs": %s}]' % self._parsable())
        if path.endswith(RUN):
            status = b"success" if self.joins else b"running"
            return httpx.Response(200, content=b'{"status": "%s", "error": %s}' % (status, self._parsable()))
        return httpx.Response(200, content=b'{"x": %s}' % self._parsable())

    def _parsable(self) -> bytes:
        """The value, where the SDK can read it: a record that it cannot read is as good as none."""
        try:
            orjson.loads(self.value)
        except orjson.JSONDecodeError:
            return b"null"
        return self.value

    def _state(self) -> httpx.Response:
        body = b"""{"values": {"messages": [
            {"type": "human", "id": "%s", "content": $},
            {"type": "ai", "id": "m1", "content": "Hello", "additional_kwargs": {"x": $}}], "x": $},
            "interrupts": [{"id": "1", "value": $}, {"id": "2", "value": {"options": [$, 1]}}],
            "metadata": {"run_attempt": $}}"""
        return httpx.Response(200, content=(body % self.question).replace(b"$", self.value))


def gateway(server: Hostile) -> Gateway:
    return Gateway(
        "http://gateway.test",
        api_key=None,
        headers={},
        dialect="langgraph",
        clock=ScaledClock(1000.0),
        patience=PATIENCE,
        transport=server,
    )


def assert_storable(seen: Seen) -> None:
    text, dialect = JsonText(), sqlite.dialect()

    def stored(value: JsonValue) -> JsonValue:
        return text.process_result_value(text.process_bind_param(value, dialect), dialect)

    view: View = seen.end.view
    assert view_from_json(stored(view_to_json(view))) == view
    for interrupt in seen.end.interrupts:
        assert Interrupt.model_validate(stored(interrupt.model_dump(mode="json"))) == interrupt


@pytest.mark.parametrize("name", VALUES)
async def test_an_answer_among_events_that_nobody_can_use_is_whole_and_its_questions_can_be_answered(name: str) -> None:
    value = VALUES[name]
    server = Hostile(value, stream(shapes(value), IDS))
    bridge = gateway(server)
    seen = await run_turn(bridge, "Hi")
    if name in UNREADABLE:
        assert (seen.end.view.phase, seen.end.view.notice) == (Phase.FAILED, sentences.UNREAD)
    else:
        assert seen.end.view.phase in (Phase.DONE, Phase.ASKING), seen.end
    assert "Hello" in [segment.text for segment in seen.end.view.body]
    assert_storable(seen)
    assert server.joins
    if seen.end.interrupts:
        answers = [interrupt.answer("0", pressed=True) for interrupt in seen.end.interrupts]
        again = await run_turn(bridge, next_input(seen.end.interrupts, answers, sender=SENDER))
        assert_storable(again)


numbers = st.integers() | st.floats() | st.sampled_from([2**64, -(2**64), 10**400])
events = st.lists(
    st.tuples(
        st.sampled_from([name for name in NAMES if name != "gap"]),
        (anything | numbers | st.text(st.characters(), max_size=5)).map(lambda value: json.dumps(value).encode()),
    ),
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(events=events, ids=st.lists(st.sampled_from(IDS) | st.text(max_size=3), min_size=1), size=st.integers(1, 400))
def test_no_stream_of_events_breaks_a_run(events: list[tuple[str, bytes]], ids: list[str], size: int) -> None:
    plain = [identity.replace("\n", "").replace("\r", "") for identity in ids]
    server = Hostile(b"null", stream(events, plain), size=size)

    async def ask() -> Seen:
        return await run_turn(gateway(server), "Hi")

    seen = asyncio.run(ask())
    assert seen.end.view.phase in (Phase.DONE, Phase.ASKING, Phase.FAILED)
    assert_storable(seen)


def odd_inputs() -> Iterator[tuple[str, JsonValue]]:
    yield "half an emoji", "\ud83c"
    yield "half an emoji in a key", {"\ud83c": "\udf0d"}
    yield "numbers", [float("nan"), float("inf"), 10**400, 2**64, -(2**64)]
    deep: JsonValue = 1
    for _ in range(500):
        deep = [deep]
    yield "levels", deep


@pytest.mark.parametrize("name", dict(odd_inputs()))
async def test_what_people_and_settings_bring_along_can_always_be_sent(name: str) -> None:
    server = Hostile(b"null", b"", refuses=False)
    odd = {"a": dict(odd_inputs())[name]}
    await run_turn(gateway(server), "Hi \ud83c", config={"configurable": odd}, context={"b": odd})
    assert orjson.loads(server.body)["input"]["messages"][0]["content"] == "Hi \ufffd"
