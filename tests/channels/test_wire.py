"""The bytes below the SDK: only whole, readable events pass; the SDK's own reconnecting is taken away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph_sdk.client import LangGraphClient

from channels.gateway.wire import EventRepair, GuardedTransport, Wire, attached
from channels.transcript.stream_events import MALFORMED_EVENT, StreamEvent
from tests.channels.captures import events_in
from tests.clock import ManualClock

GOOD = 'event: messages\ndata: ["谢谢 🌍", {"a": 1}]\nid: 7-0\n\n'


def repaired(body: bytes, size: int = 1000) -> bytes:
    repair = EventRepair()
    return b"".join(repair.feed(body[start : start + size]) for start in range(0, len(body), size))


def names(body: bytes) -> list[tuple[str, str | None]]:
    return [(event.name, event.id) for event in events_in(body)]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@given(size=st.integers(1, 40))
def test_whole_events_pass_unchanged_however_the_bytes_are_cut(newline: str, size: int) -> None:
    body = (": heartbeat\n\n" + GOOD + "event: end\ndata: null\n\n").replace("\n", newline).encode() + b"\n"
    assert repaired(body, size) == (GOOD + "event: end\ndata: null\n\n").encode()


@pytest.mark.parametrize("data", ["{broken", "[DONE]", '{"a": 1', "\x00", '["half'])
def test_an_event_without_json_becomes_a_malformed_event_with_its_id(data: str) -> None:
    body = f"event: messages\ndata: {data}\nid: 6-0\n\n{GOOD}".encode()
    assert names(body) == [(MALFORMED_EVENT, "6-0"), ("messages", "7-0")]
    malformed = next(events_in(body))
    assert malformed.data == {"event": "messages"}


@pytest.mark.parametrize(
    "body", ["event: messages\ndata:\n\n", "event: metadata\n\n", 'data: {"a": 1}\n\n', "retry: 5\n\n"]
)
def test_odd_but_lawful_events_pass(body: str) -> None:
    assert repaired(body.encode()) == body.encode()


def test_data_over_several_lines_is_one_value() -> None:
    (event,) = events_in(b'event: custom\ndata: {"a":\ndata: 1}\n\n')
    assert event.data == {"a": 1}


def test_what_python_servers_send_beyond_json_is_mended() -> None:
    (event,) = events_in(
        b'event: custom\ndata: {"score": NaN, "half": "\\ud83c", "whole": "\\ud83c\\udf0d"}\nid: 1\n\n'
    )
    assert event.data == {"score": None, "half": "\ufffd", "whole": "🌍"}
    assert event.id == "1"


def test_a_cut_event_at_the_end_is_held_back() -> None:
    cut = 'event: messages\ndata: ["whole json"]\n'
    assert repaired((GOOD + cut).encode()) == GOOD.encode()


def test_an_event_that_would_fill_the_memory_is_skipped_as_malformed() -> None:
    repair = EventRepair(max_event=100)
    out = b"".join(
        repair.feed(piece) for piece in [b"event: messages\nid: 3\ndata: ", *[b"x" * 50] * 10, b"\n\n", GOOD.encode()]
    )
    assert out.startswith(b"event: bridge-malformed\nid: 3\n")
    assert out.endswith(GOOD.encode())


@given(body=st.binary(max_size=200), size=st.integers(1, 50))
def test_whatever_comes_only_json_passes(body: bytes, size: int) -> None:
    for line in repaired(body, size).split(b"\n"):
        if line.startswith(b"data:") and line[5:].strip():
            orjson.loads(line[5:])


# ---------------------------------------------------------------- the transport


class Body(httpx.AsyncByteStream):
    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece

    async def aclose(self) -> None:
        self.closed = True


class Server(httpx.AsyncBaseTransport):
    """Answers every request with one event stream that has a Location to reconnect to."""

    def __init__(self, *pieces: bytes, kind: str = "text/event-stream") -> None:
        self.requests: list[httpx.Request] = []
        self.body = Body(*pieces)
        self.kind = kind

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        headers = {
            "content-type": self.kind,
            "location": "/threads/t/runs/r/stream",
            "content-location": "/threads/t/runs/r",
        }
        return httpx.Response(200, headers=headers, stream=self.body)


async def read(server: Server, wire: Wire) -> list[StreamEvent]:
    counted: list[int] = []
    client = httpx.AsyncClient(base_url="http://gateway", transport=GuardedTransport(server, counted.append))
    sdk = LangGraphClient(client)
    with attached(wire):
        events = [
            StreamEvent.of(part.event, part.data, part.id)
            async for part in sdk.runs.stream("t", "agent", input={}, stream_mode="updates")
        ]
    assert sum(counted) == wire.body_bytes
    return events


async def test_the_sdk_neither_reconnects_nor_asks_behind_the_bridges_back() -> None:
    async def opened(headers: httpx.Headers) -> None:
        assert headers["content-location"] == "/threads/t/runs/r"

    server = Server(GOOD.encode(), b"event: messages\ndata: [")
    events = await read(server, Wire(ManualClock(), opened))
    assert [event.id for event in events] == ["7-0"]
    assert len(server.requests) == 1
    assert server.requests[0].headers["accept-encoding"] == "identity"
    assert server.requests[0].extensions["timeout"]["read"] is None


async def test_every_byte_is_noticed_heartbeats_too() -> None:
    clock = ManualClock()

    async def opened(headers: httpx.Headers) -> None:
        await clock.advance(10)

    wire = Wire(clock, opened)
    await read(Server(b": heartbeat\n\n"), wire)
    assert wire.body_bytes == len(b": heartbeat\n\n")
    assert wire.last_byte == clock.now()


async def test_what_is_raised_when_the_run_is_known_comes_out_and_closes_the_connection() -> None:
    class LostLease(Exception):
        pass

    async def opened(headers: httpx.Headers) -> None:
        raise LostLease

    server = Server(GOOD.encode())
    with pytest.raises(LostLease):
        await read(server, Wire(ManualClock(), opened))
    assert server.body.closed


async def test_other_requests_are_left_alone() -> None:
    server = Server(json.dumps({"ok": True}).encode(), kind="application/json")
    async with httpx.AsyncClient(transport=GuardedTransport(server, lambda _: None)) as client:
        response = await client.get("http://gateway/info")
        assert response.json() == {"ok": True}
        assert response.headers["location"]
        assert "identity" not in server.requests[0].headers["accept-encoding"]
        await asyncio.sleep(0)
