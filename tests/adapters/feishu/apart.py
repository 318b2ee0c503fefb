"""A channel whose emulator is a process of its own, so that its work is not taken for the channel's."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from pydantic import JsonValue

from adapters.feishu import build
from adapters.feishu.adapter import FeishuAdapter
from channels.adapter import Accepted, ChannelState, Context
from channels.clock import SystemClock
from channels.model import File, Inbound
from config.feishu import FeishuChannel


class Ears:
    """A sink that takes everything. `came_up` counts how often the channel was said to run."""

    def __init__(self) -> None:
        self.heard: list[Inbound] = []
        self.came_up = 0

    async def accept(self, inbound: Inbound) -> Accepted:
        self.heard.append(inbound)
        return Accepted.TAKEN

    def report(self, state: ChannelState, reason: str = "") -> None:
        self.came_up += state is ChannelState.RUNNING

    async def recall(self, key: str) -> JsonValue:
        return None

    async def remember(self, key: str, value: JsonValue, ttl: float | None = None) -> None:
        """Nothing is kept."""

    async def rekey(self, old_chat: str, new_chat: str) -> None:
        """Nothing is kept."""


class Elsewhere:
    """The emulator, worked from threads: its client's work is not the channel's either."""

    def __init__(self, url: str, app_id: str, app_secret: str) -> None:
        self._http = httpx.Client(base_url=url, trust_env=False, timeout=20)
        self._keys = {"app_id": app_id, "app_secret": app_secret, "domain": url}

    async def act(self, action: str, *args: Any) -> Any:
        """Do what the emulator's method of this name does."""
        answer = await asyncio.to_thread(self._http.post, f"/_control/{action}", json={"args": args})
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    async def broken(self) -> list[str]:
        answer = await asyncio.to_thread(self._http.get, "/_control/state")
        broken: list[str] = answer.json()["broken"]
        return broken

    def channel(self) -> tuple[FeishuAdapter, Ears]:
        """A channel that is not started yet, and what it is heard by."""
        ears = Ears()

        async def open_file(file: File) -> bytes:
            return b"data"

        settings = FeishuChannel.model_validate(self._keys)
        return build(settings, Context("team", ears, SystemClock(), open_file)), ears

    def close(self) -> None:
        self._http.close()


async def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        await asyncio.sleep(0.01)


@asynccontextmanager
async def apart() -> AsyncIterator[Elsewhere]:
    command = (sys.executable, "-m", "tests.emulators.feishu", "--port", "0")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    lines = [(await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip() for _ in range(3)]
    elsewhere = Elsewhere(lines[0], *(line.partition(": ")[2] for line in lines[1:]))
    try:
        yield elsewhere
    finally:
        elsewhere.close()
        process.terminate()
        await asyncio.wait_for(process.wait(), 10)
