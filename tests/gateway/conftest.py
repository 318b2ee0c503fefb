from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from channels.gateway import Gateway
from tests.emulators.fault_proxy import FaultProxy
from tests.gateway.langgraph_server import LangGraphServer
from tests.gateway.turns import gateway_at


@pytest.fixture(scope="session")
def langgraph_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LangGraphServer]:
    server = LangGraphServer(tmp_path_factory.mktemp("langgraph"))
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
async def proxy(langgraph_server: LangGraphServer) -> AsyncIterator[FaultProxy]:
    proxy = FaultProxy(langgraph_server.url)
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture
async def gateway(proxy: FaultProxy) -> AsyncIterator[Gateway]:
    gateway = gateway_at(proxy.url)
    yield gateway
    await gateway.aclose()
