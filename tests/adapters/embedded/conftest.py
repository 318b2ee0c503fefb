from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk.client import LangGraphClient

from adapters.embedded import EmbeddedGateway
from tests.adapters.embedded import sample_graphs
from tests.adapters.embedded.talking import Conversation

SAMPLES = "tests.adapters.embedded.sample_graphs"


class Running:
    """A gateway that runs, the SDK's client for it, and every request that the client sent."""

    def __init__(self, gateway: EmbeddedGateway, url: str, api_key: str | None = None) -> None:
        self.gateway = gateway
        self.url = url
        self.requests: list[str] = []
        headers = {"x-api-key": api_key} if api_key else {}
        self.http = httpx.AsyncClient(
            base_url=url,
            headers=headers,
            timeout=20,
            transport=httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=None)),
            event_hooks={"request": [self._note]},
        )
        self.client = LangGraphClient(self.http)

    async def _note(self, request: httpx.Request) -> None:
        self.requests.append(f"{request.method} {request.url.path}")

    async def conversation(self, **thread: Any) -> Conversation:
        created = await self.client.threads.create(**thread)
        return Conversation(self.client, created["thread_id"])


Start = Callable[..., Awaitable[Running]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts gateways on one data directory: `await start("chat")`, or with a full graph name and settings."""
    started: list[Running] = []

    async def begin(graph: str = "chat", **settings: Any) -> Running:
        name = graph if ":" in graph else f"{SAMPLES}:{graph}"
        gateway = EmbeddedGateway(settings.pop("data_dir", tmp_path / "gateway"), name, **settings)
        running = Running(gateway, await gateway.start(), settings.get("api_key"))
        started.append(running)
        return running

    sample_graphs._gates.clear()
    sample_graphs._arrivals.clear()
    yield begin
    for running in started:
        await running.http.aclose()
        await running.gateway.stop()
