"""A plain HTTP/1.1 server on a free loopback port that leaves every byte of an answer to its handler."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, object]:
        found = json.loads(self.body or b"{}")
        assert isinstance(found, dict)
        return found


class Answer:
    """The answer to one request, written piece by piece; the connection closes after it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.began = False

    async def whole(self, status: int, body: object = None, headers: Mapping[str, str] | None = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        kinds = {"content-type": "application/json"} if body is not None else {}
        await self.begin(status, {**kinds, "content-length": str(len(data)), **(headers or {})})
        await self.raw(data)

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.began = True
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items()), "connection: close"]
        await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        """A chunk of a chunked body; an empty one ends it."""
        await self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def abort(self) -> None:
        """Cut the connection as a crash does."""
        self._writer.transport.abort()


Handler = Callable[[Request, Answer], Awaitable[None]]


class RawServer:
    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Serve; returns the URL."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            request = await _read(reader)
            if request is not None:
                await self._handler(request, Answer(writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the server stops
        finally:
            self._tasks.discard(task)
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    url = urlsplit(target)
    return Request(method, url.path, tuple(parse_qsl(url.query)), headers, body)
