"""A channel whose emulator lives in a thread of its own, so that its work is not taken for the channel's."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from pydantic import JsonValue

from adapters.feishu import build
from adapters.feishu.adapter import FeishuAdapter
from channels.adapter import Accepted, ChannelState, Context
from channels.clock import SystemClock
from channels.model import File, Inbound
from config.feishu import FeishuChannel
from tests.emulators.feishu import FeishuEmulator


class Ears:
    """A sink that takes everything."""

    def __init__(self) -> None:
        self.heard: list[Inbound] = []
        self.state = ChannelState.STARTING

    async def accept(self, inbound: Inbound) -> Accepted:
        self.heard.append(inbound)
        return Accepted.TAKEN

    def report(self, state: ChannelState, reason: str = "") -> None:
        self.state = state

    async def recall(self, key: str) -> JsonValue:
        return None

    async def remember(self, key: str, value: JsonValue, ttl: float | None = None) -> None:
        """Nothing is kept."""

    async def rekey(self, old_chat: str, new_chat: str) -> None:
        """Nothing is kept."""


class Elsewhere:
    """The emulator, worked from this thread."""

    def __init__(self) -> None:
        self.emulator = FeishuEmulator(SystemClock())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Elsewhere:
        self._thread.start()
        self.run(self.emulator.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.emulator.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def write(self, text: str) -> None:
        self.run(self.emulator.say("Ann", self.emulator.p2p("Ann"), text))

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self.emulator.abort_connections)


async def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        await asyncio.sleep(0.01)


@asynccontextmanager
async def apart() -> AsyncIterator[tuple[FeishuAdapter, Ears, Elsewhere]]:
    """A channel that is not started yet, what it is heard by, and the emulator."""
    with Elsewhere() as elsewhere:
        emulator, ears = elsewhere.emulator, Ears()
        settings = FeishuChannel.model_validate(
            {"app_id": emulator.app_id, "app_secret": emulator.app_secret, "domain": emulator.url}
        )

        async def open_file(file: File) -> bytes:
            return b"data"

        adapter = build(settings, Context("team", ears, SystemClock(), open_file))
        try:
            yield adapter, ears, elsewhere
        finally:
            await adapter.stop()
