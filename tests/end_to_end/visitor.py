"""Somebody at the chat page, without the browser: the page's requests, and what its script would show."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from adapters.web.guard import REQUEST_HEADER
from tests.adapters.web.page_model import PageModel, ShownEntry


class Visitor:
    """One browser at the bridge at `url`; has its own conversation. `texts` are all replies as they were ever shown."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self.url = url
        self.page = PageModel()
        self.steps: list[str] = []
        self._client = client
        self._changed = asyncio.Event()
        self._is_following = asyncio.Event()

    async def say(self, text: str) -> None:
        """Send a message; returns when the bridge has it."""
        data = {"id": str(uuid.uuid4()), "text": text}
        sent = await self._client.post("/messages", data=data, headers={"origin": self.url})
        sent.raise_for_status()

    @property
    def replies(self) -> list[ShownEntry]:
        return [entry for entry in self.page.in_order if entry.kind == "reply"]

    @property
    def newest(self) -> str:
        """The text of the newest reply."""
        return self.replies[-1].text if self.replies else ""

    async def until(self, holds: Callable[[], object], timeout: float = 30.0) -> None:
        """Wait until the page shows it."""
        async with asyncio.timeout(timeout):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def answered(self, timeout: float = 30.0) -> str:
        """Wait until the newest reply is complete; returns its text."""
        await self.until(lambda: self.replies and not self.replies[-1].live, timeout)
        return self.newest

    async def _follow(self) -> None:
        async with self._client.stream("GET", "/events", timeout=None) as response:
            event: dict[str, str] = {}
            async for line in response.aiter_lines():
                name, _, value = line.partition(": ")
                event[name] = value
                if line:
                    continue
                if "data" in event:
                    self.page.take_raw(event.get("id", ""), event.get("event", ""), event["data"])
                    if self.newest and self.steps[-1:] != [self.newest]:
                        self.steps.append(self.newest)
                    self._is_following.set()
                    self._changed.set()
                event = {}


@asynccontextmanager
async def visiting(url: str) -> AsyncIterator[Visitor]:
    """A visitor who has the page open."""
    async with httpx.AsyncClient(base_url=url, headers={REQUEST_HEADER: "1"}, timeout=30) as client:
        (await client.get("/")).raise_for_status()
        visitor = Visitor(url, client)
        following = asyncio.create_task(visitor._follow())
        try:
            async with asyncio.timeout(30):
                await visitor._is_following.wait()
            yield visitor
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
