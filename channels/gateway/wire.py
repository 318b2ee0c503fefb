"""The bytes between the bridge and the gateway.

`langgraph-sdk` reconnects by itself, silently and on its own terms, ends a stream at the first malformed event and
hides heartbeats. This transport sits under it: it takes away what makes the SDK reconnect (the bridge rejoins itself),
hands on only whole events with readable data, and notes when the last byte came.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import httpx
import orjson

from channels.clock import Clock
from channels.strict_json import MAX_DEPTH, is_shallow, read_json
from channels.transcript.stream_events import MALFORMED_EVENT

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""A single event beyond this is skipped as malformed instead of filling the memory."""

_NEWLINE = re.compile(rb"\r\n|\n|\r(?!\Z)")
"""A lone CR at the very end may be half of a CRLF: it waits for the next byte."""

_KEPT = (b"id:", b"event:")

Opened = Callable[[httpx.Headers], Awaitable[None]]


class Wire:
    """One streaming connection, seen from below. `opened` is awaited with the headers of a successful answer."""

    def __init__(self, clock: Clock, opened: Opened) -> None:
        self._clock = clock
        self.opened = opened
        self.last_byte = clock.now()
        self.answered = False
        self.body_bytes = 0

    def touch(self, count: int) -> None:
        self.last_byte = self._clock.now()
        self.body_bytes += count


_current: ContextVar[Wire | None] = ContextVar("wire", default=None)


@contextmanager
def attached(wire: Wire) -> Iterator[None]:
    """Requests made inside, by this task, are this wire's."""
    token = _current.set(wire)
    try:
        yield
    finally:
        _current.reset(token)


class GuardedTransport(httpx.AsyncBaseTransport):
    """Passes everything on, and guards the event streams of requests that have a wire."""

    def __init__(self, inner: httpx.AsyncBaseTransport, received: Callable[[int], None]) -> None:
        self._inner = inner
        self._received = received

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        wire = _current.get()
        streaming = wire is not None and request.headers.get("accept", "").startswith("text/event-stream")
        if wire is None or not streaming:
            return await self._inner.handle_async_request(request)
        request.headers["accept-encoding"] = "identity"
        # How long a stream may be silent is measured on the bridge's clock, not by the socket.
        request.extensions["timeout"] = {**request.extensions.get("timeout", {}), "read": None}
        wire.touch(0)
        response = await self._inner.handle_async_request(request)
        wire.answered = True
        wire.touch(0)
        if response.status_code != httpx.codes.OK:
            return response
        try:
            await wire.opened(response.headers)
        except BaseException:
            await response.aclose()
            raise
        if "text/event-stream" not in response.headers.get("content-type", ""):
            return response
        if not isinstance(response.stream, httpx.AsyncByteStream):
            raise httpx.TransportError("the transport gave no asynchronous stream", request=request)
        headers = httpx.Headers([(k, v) for k, v in response.headers.multi_items() if k.lower() != "location"])
        return httpx.Response(
            response.status_code,
            headers=headers,
            stream=_GuardedStream(response.stream, wire, self._received),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _GuardedStream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, wire: Wire, received: Callable[[int], None]) -> None:
        self._inner = inner
        self._wire = wire
        self._received = received
        self._repair = EventRepair()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._wire.touch(len(chunk))
            self._received(len(chunk))
            if whole := self._repair.feed(chunk):
                yield whole
        # What is left has no blank line after it: a cut event, which the gateway sends again.

    async def aclose(self) -> None:
        await self._inner.aclose()


class EventRepair:
    """Lets whole events through, their data strict JSON; others become events named `MALFORMED_EVENT` with their id."""

    def __init__(self, max_event: int = MAX_EVENT_BYTES) -> None:
        self._max_event = max_event
        self._buffer = bytearray()
        self._scanned = 0
        self._lines: list[bytes] = []
        self._size = 0
        self._overlong = False

    def feed(self, chunk: bytes) -> bytes:
        """The events that became whole with this chunk, ready for a strict reader."""
        self._buffer += chunk
        events: list[bytes] = []
        start = 0
        position = max(0, self._scanned - 1)  # a CR that waited
        while (newline := _NEWLINE.search(self._buffer, position)) is not None:
            line = bytes(self._buffer[start : newline.start()])
            start = position = newline.end()
            if line:
                self._keep(line)
            elif self._lines or self._overlong:
                events.append(self._event())
        del self._buffer[:start]
        self._scanned = len(self._buffer)
        if self._size + len(self._buffer) > self._max_event:
            self._overlong = True
            self._lines = [line for line in self._lines if line.startswith(_KEPT)]
            self._buffer.clear()
            self._scanned = 0
        return b"".join(events)

    def _keep(self, line: bytes) -> None:
        if line.startswith(b":"):
            return
        self._size += len(line)
        if not self._overlong or line.startswith(_KEPT):
            self._lines.append(line)

    def _event(self) -> bytes:
        lines, overlong = self._lines, self._overlong
        self._lines, self._size, self._overlong = [], 0, False
        data = [_value(line) for line in lines if line.startswith(b"data:") or line == b"data"]
        body = b"\n".join(data)
        if overlong:
            readable = None
        elif not body.strip():
            return b"\n".join(lines) + b"\n\n"
        else:
            readable = _readable(body)
        if readable is body:
            return b"\n".join(lines) + b"\n\n"
        others = [line for line in lines if not line.startswith(b"data")]
        if readable is None:
            name = next((_value(line) for line in others if line.startswith(b"event:")), b"")
            others = [b"event: " + MALFORMED_EVENT.encode(), *(line for line in others if line.startswith(b"id:"))]
            readable = orjson.dumps({"event": name.decode("utf-8", "replace")})
        return b"\n".join([*others, b"data: " + readable]) + b"\n\n"


def _value(line: bytes) -> bytes:
    return line.partition(b":")[2].removeprefix(b" ")


def _readable(body: bytes) -> bytes | None:
    """The data as strict JSON: itself when it is so already, mended when it nearly is, None when it is not JSON.

    Python servers send NaN, and escapes of half an emoji where a token ends inside one.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    else:
        if body.count(b"[") + body.count(b"{") <= MAX_DEPTH or is_shallow(value):
            return body
    try:
        return orjson.dumps(read_json(body))
    except ValueError:
        return None
