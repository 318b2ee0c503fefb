"""A proxy in front of a gateway that damages what passes, byte by byte, as networks and other proxies do."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto

import httpx

from tests.emulators.raw_http import Answer, RawServer, Request


class Damage(StrEnum):
    """What happens to one stream. `at` counts bytes of the body where the kind needs a place."""

    CUT_BEFORE = auto()  # the gateway gets the request, the client not a byte
    CUT = auto()  # the connection dies after `at` bytes
    CLOSE = auto()  # the body ends properly after `at` bytes, as an impatient proxy ends it
    HANG = auto()  # not a byte comes any more after `at` bytes, the connection stays open
    DRIP = auto()  # one byte at a time, for the first `at` bytes
    SPOIL = auto()  # the first text after `at` bytes comes as broken JSON
    REFUSE = auto()  # the proxy answers with `status` itself; the gateway gets nothing
    REFUSE_AFTER = auto()  # the gateway gets the request, the client gets `status`


@dataclass(frozen=True, slots=True)
class Fault:
    damage: Damage
    at: int = 0
    status: int = 502
    headers: Mapping[str, str] = field(default_factory=dict)
    inside_character: bool = False
    on_cut: Callable[[], None] | None = None


Rewrite = Callable[[str, object], tuple[str, object] | None]
"""What becomes of an event, given its name and its data; None: it is left out."""

_SPOILABLE = re.compile(rb"event: messages\r?\ndata: [^\n]*AIMessageChunk")


class FaultProxy:
    """Plan faults with `plan`: each stream (start or join) takes the next one; with none left it passes unharmed.

    `rewrite` changes the events of every stream. `rewinds`: every join begins at the start. `refuses_streams` is the
    status that every stream gets (0: none).
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream.rstrip("/")
        self._http = httpx.AsyncClient(timeout=None, verify=False)
        self._server = RawServer(self._handle)
        self.planned: deque[Fault | None] = deque()
        self.streams = 0
        self.url = ""
        self.away = False
        self.rewrite: Rewrite | None = None
        self.rewinds = False
        self.refuses_streams = 0

    async def start(self) -> str:
        self.url = await self._server.start() + httpx.URL(self.upstream).path.rstrip("/")
        return self.url

    async def stop(self) -> None:
        await self._server.stop()
        await self._http.aclose()

    def plan(self, *faults: Fault | None) -> None:
        self.planned.extend(faults)

    def go_away(self, seconds: float | None = None) -> None:
        """Answer nobody, as if nothing listened there; for so long, or until `come_back`."""
        self.away = True
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, self.come_back)

    def come_back(self) -> None:
        self.away = False

    async def _handle(self, request: Request, answer: Answer) -> None:
        if self.away:
            answer.abort()
            return
        is_stream = request.headers.get("accept", "").startswith("text/event-stream")
        fault = self.planned.popleft() if is_stream and self.planned else None
        self.streams += is_stream
        if is_stream and self.refuses_streams:
            await answer.whole(self.refuses_streams, {"detail": "no streams here"})
            return
        if fault is not None and fault.damage is Damage.REFUSE:
            await answer.whole(fault.status, {"detail": "refused on the way"}, fault.headers)
            return
        url = httpx.URL(self.upstream).copy_with(path=request.path)
        skipped = {"host", "content-length", "connection", "accept-encoding"}
        headers = {name: value for name, value in request.headers.items() if name not in skipped}
        if self.rewinds and "last-event-id" in headers:
            headers["last-event-id"] = "-1"
        try:
            async with self._http.stream(
                request.method, url, params=request.query, headers=headers, content=request.body
            ) as response:
                await self._pass(response, answer, fault)
        except httpx.HTTPError:
            answer.abort()

    async def _pass(self, response: httpx.Response, answer: Answer, fault: Fault | None) -> None:
        if fault is not None and fault.damage is Damage.CUT_BEFORE:
            answer.abort()
            return
        if fault is not None and fault.damage is Damage.REFUSE_AFTER:
            await answer.whole(fault.status, {"detail": "lost on the way back"}, fault.headers)
            return
        dropped = {"content-length", "transfer-encoding", "connection", "date", "server", "content-encoding"}
        headers = {name: value for name, value in response.headers.items() if name not in dropped}
        await answer.begin(response.status_code, {**headers, "transfer-encoding": "chunked"})
        body = response.aiter_bytes()
        if self.rewrite is not None and "event-stream" in response.headers.get("content-type", ""):
            body = _rewritten(body, self.rewrite)
        async for data in _damaged(body, fault):
            if data is None:
                assert fault is not None
                if fault.on_cut is not None:
                    fault.on_cut()
                if fault.damage is Damage.HANG:
                    await asyncio.Event().wait()
                if fault.damage is Damage.CLOSE:
                    break
                answer.abort()
                return
            await answer.chunk(data)
        await answer.chunk(b"")


def _place(data: bytes, fault: Fault, passed: int) -> int | None:
    """Where in this piece of the body it ends; None: later."""
    start = max(0, fault.at - passed)
    if not fault.inside_character:
        return start if start <= len(data) else None
    found = next((position for position in range(start, len(data)) if data[position] >= 0xC0), None)
    return None if found is None else found + 1


async def _rewritten(body: AsyncIterator[bytes], rewrite: Rewrite) -> AsyncIterator[bytes]:
    held = b""
    async for chunk in body:
        *blocks, held = (held + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
        for block in blocks:
            lines = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line and line[:1] != b":")
            if b"event" in lines:
                kept = rewrite(lines[b"event"].decode(), json.loads(lines[b"data"]))
                if kept is None:
                    continue
                lines[b"event"], lines[b"data"] = kept[0].encode(), json.dumps(kept[1]).encode()
                block = b"\n".join(name + b": " + value for name, value in lines.items())
            yield block + b"\n\n"


async def _damaged(body: AsyncIterator[bytes], fault: Fault | None) -> AsyncIterator[bytes | None]:
    """The bytes to pass on; None: here the damage happens."""
    passed = 0
    spoilt = False
    async for chunk in body:
        data = chunk
        if fault is not None and fault.damage is Damage.SPOIL and not spoilt and passed >= fault.at:
            found = _SPOILABLE.search(data)
            if found is not None:
                spoilt = True
                data = data[: found.end() - 14] + b'"' + data[found.end() :]
        ends = fault is not None and fault.damage in (Damage.CUT, Damage.CLOSE, Damage.HANG)
        place = _place(data, fault, passed) if fault is not None and ends else None
        if place is not None:
            if place > 0:
                yield data[:place]
            yield None
            return
        passed += len(data)
        if fault is not None and fault.damage is Damage.DRIP and passed <= fault.at:
            for position in range(len(data)):
                yield data[position : position + 1]
                await asyncio.sleep(0)
        elif data:
            yield data
