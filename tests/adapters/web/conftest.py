"""Web channels under test, in process and behind a real HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest
import uvicorn
from starlette.types import ASGIApp

from adapters.web.adapter import WebAdapter
from adapters.web.guard import REQUEST_HEADER
from tests.adapters.web.core import FakeSink, adapter_for
from tests.browser import chromium
from tests.databases import empty_database_url, empty_postgres_url, postgres

__all__ = ["chromium", "empty_database_url", "empty_postgres_url", "postgres"]

Serve = Callable[[ASGIApp], Awaitable[str]]


@pytest.fixture
def sink() -> FakeSink:
    return FakeSink()


@pytest.fixture
async def adapter(sink: FakeSink) -> AsyncIterator[WebAdapter]:
    """A started channel in memory, open to this machine only."""
    adapter = adapter_for(sink)
    await adapter.start()
    yield adapter
    await adapter.stop()


@pytest.fixture
async def visitor(adapter: WebAdapter) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that has opened the page."""
    async with visiting(adapter) as client:
        await client.get("/")
        yield client


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves an app over HTTP on a free loopback port; gives its base URL."""
    async with AsyncExitStack() as servers:

        async def start(app: ASGIApp) -> str:
            return await servers.enter_async_context(serving(app))

        yield start


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        await task


def visiting(adapter: WebAdapter, *, base_url: str = "http://127.0.0.1:8080/", **headers: str) -> httpx.AsyncClient:
    """A client that sends what the page's script sends; without a cookie until it opens the page."""
    transport = httpx.ASGITransport(app=adapter.app)
    return httpx.AsyncClient(transport=transport, base_url=base_url, headers={REQUEST_HEADER: "1", **headers})
