"""Responses: plain JSON, and the two kinds that last as long as a run: an event stream, and JSON to be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from adapters.embedded import wire
from adapters.embedded.runs import GatewayStopping
from adapters.embedded.stream import Gap, Signal, Subscription
from channels.clock import Clock, wait_until

Drop = Callable[[], Awaitable[None]]


class Json(Response):
    """JSON of anything `wire.dumps` takes."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return wire.dumps(content)


class EventStream(Response):
    """Sends what a subscription yields as server-sent events.

    `on_drop` is awaited when the client goes away before the end of the run. A stream that ends with a gap or with
    the server is no drop: the client did not leave.
    """

    def __init__(self, subscription: Subscription, headers: Mapping[str, str], on_drop: Drop | None = None) -> None:
        self.background = None
        self.status_code = 200
        self.media_type = "text/event-stream"
        self.charset = "utf-8"
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no", **headers})
        self._subscription = subscription
        self._on_drop = on_drop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.create_task(_disconnected(receive))
        watcher.add_done_callback(lambda _: self._subscription.close())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while True:
                batch = await self._subscription.next()
                match batch:
                    case Gap():
                        await _chunk(send, batch.frame())
                    case Signal.HEARTBEAT:
                        await _chunk(send, wire.HEARTBEAT)
                        continue
                    case Signal.END:
                        await _chunk(send, wire.frame("end", b"null"))
                    case Signal.CLOSED:
                        pass
                    case _:
                        await _chunk(send, b"".join(frame.data for frame in batch))
                        continue
                break
            has_left = batch is Signal.CLOSED and watcher.done()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._subscription.close()
            watcher.cancel()
        if has_left and self._on_drop is not None:
            await self._on_drop()


class WaitingJson(Response):
    """JSON that takes as long as a run. Blank lines keep the connection alive meanwhile; JSON may start with them."""

    def __init__(
        self,
        result: Awaitable[object],
        headers: Mapping[str, str],
        clock: Clock,
        heartbeat: float,
        on_drop: Drop | None = None,
    ) -> None:
        self.background = None
        self.status_code = 200
        self.media_type = "application/json"
        self.init_headers(headers)
        self._result = result
        self._clock = clock
        self._heartbeat = heartbeat
        self._on_drop = on_drop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wake = asyncio.Event()
        result = asyncio.ensure_future(self._result)
        watcher = asyncio.create_task(_disconnected(receive))
        for task in (result, watcher):
            task.add_done_callback(lambda _: wake.set())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while not await wait_until(self._clock, self._clock.now() + self._heartbeat, wake):
                await _chunk(send, b"\n")
            if result.done():
                with suppress(GatewayStopping):  # then the body stays open, so that nobody takes it for an answer
                    body = wire.dumps(result.result())
                    await send({"type": "http.response.body", "body": body, "more_body": False})
            elif self._on_drop is not None:
                await self._on_drop()
        finally:
            result.cancel()
            watcher.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _chunk(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})
