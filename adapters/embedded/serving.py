"""A running gateway: its parts put together, listening, and taken apart in order."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager

import uvicorn

from adapters.embedded import graphs
from adapters.embedded.gateway import Settings
from adapters.embedded.runs import RunManager
from adapters.embedded.server import application
from adapters.embedded.services import Services
from adapters.embedded.store import Store
from adapters.embedded.stream import MemoryStreamBridge, Retention
from adapters.embedded.worker import Worker

logger = logging.getLogger(__name__)

_DATABASE = "gateway.sqlite"
# A predecessor that is just stopping lets go of it within 5 s.
_DATABASE_WAIT_SECONDS = 6.0
# Together they stay under the 5 s that `EmbeddedGateway.stop` promises.
_BREAK_OFF_SECONDS = 2.0
_LINGER_SECONDS = 1
_STOP_SECONDS = 4.5

# Longer than any client's pool keeps an idle connection (httpx: 5 s). Were the server first, a request could be sent
# into a connection that is just being closed.
_KEEP_ALIVE_SECONDS = 75


class Serving:
    """Use `open`, then `close`."""

    def __init__(self, services: Services, server: _Server, listener: socket.socket, resources: AsyncExitStack) -> None:
        self._services = services
        self._server = server
        self._resources = resources
        host, port = listener.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._task = asyncio.create_task(server.serve([listener]))

    @classmethod
    async def open(cls, settings: Settings) -> Serving:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        async with AsyncExitStack() as stack:
            opening = Store.open(settings.data_dir / _DATABASE, settings.clock, busy_seconds=_DATABASE_WAIT_SECONDS)
            store = await stack.enter_async_context(opening)
            graph = await graphs.load(settings.graph, store.saver)
            listener = stack.enter_context(_listen(settings.host, settings.port))
            bridge = MemoryStreamBridge(
                settings.clock,
                Retention(
                    events=settings.retain_events,
                    size=settings.retain_bytes,
                    seconds=settings.retain_seconds,
                    heartbeat=settings.heartbeat,
                ),
            )
            worker = Worker(graph, settings.assistant_id, settings.run_timeout)
            runs = RunManager(store, bridge, worker, settings.clock)
            services = Services(
                graph=graph,
                assistant=settings.assistant_id,
                store=store,
                runs=runs,
                bridge=bridge,
                clock=settings.clock,
                heartbeat=settings.heartbeat,
                max_body=settings.max_body,
            )
            hosts = {settings.host, "127.0.0.1", "[::1]", "localhost"} if settings.is_loopback else None
            server = _Server(application(services, api_key=settings.api_key, hosts=hosts))
            await runs.recover()
            serving = cls(services, server, listener, stack.pop_all())
            await server.ready.wait()
            return serving
        raise AssertionError("unreachable")  # an exit stack may swallow errors, as far as a type checker knows

    async def close(self) -> None:
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._services.bridge.close()
                self._server.should_exit = True
                await self._services.runs.stop(_BREAK_OFF_SECONDS)
                await asyncio.wait({self._task})
        except TimeoutError:
            logger.warning("the embedded gateway did not stop in time; connections are cut")
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=0.2)
        finally:
            await self._resources.aclose()


def _listen(host: str, port: int) -> socket.socket:
    # TCP by name: asyncio sets TCP_NODELAY only on sockets that say so, and without it every small write (a token, a
    # short answer) waits up to 40 ms for the client's delayed acknowledgement.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


class _Server(uvicorn.Server):
    """uvicorn inside somebody else's process: it tells when it listens, and leaves the signals alone."""

    def __init__(self, app: object) -> None:
        super().__init__(
            uvicorn.Config(
                app,  # type: ignore[arg-type]
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_LINGER_SECONDS,
            )
        )
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
