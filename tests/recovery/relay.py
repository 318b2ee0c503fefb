"""A wire between one replica and one platform, so that it is known who called when."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from dataclasses import dataclass

_REQUEST = re.compile(rb"^(?:GET|POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.1\r$", re.MULTILINE)
_PIECE = 65_536


@dataclass(frozen=True, slots=True)
class Heard:
    """One request: when it passed (on the monotonic clock), and its path."""

    at: float
    path: str


class Relay:
    """Passes bytes on to `127.0.0.1:port` and notes the requests among them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self.heard: list[Heard] = []
        self.url = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pipes.add(task)
        task.add_done_callback(self._pipes.discard)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        try:
            both = [
                asyncio.ensure_future(self._pipe(reader, far_writer, note=True)),
                asyncio.ensure_future(self._pipe(far_reader, writer, note=False)),
            ]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pipe in both:
                    pipe.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        finally:
            for end in (writer, far_writer):
                end.close()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, note: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_PIECE):
                if note:
                    now = time.monotonic()
                    self.heard.extend(Heard(now, match[1].decode()) for match in _REQUEST.finditer(data))
                writer.write(data)
                await writer.drain()
