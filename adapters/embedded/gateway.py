"""The embedded gateway's handle: start it, get its URL, stop it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from channels.clock import Clock, SystemClock
from channels.loopback import is_loopback

if TYPE_CHECKING:
    from adapters.embedded.serving import Serving


@dataclass(frozen=True, slots=True)
class Settings:
    """See `EmbeddedGateway`."""

    data_dir: Path
    graph: str
    assistant_id: str
    host: str
    port: int
    api_key: str | None = field(repr=False)
    heartbeat: float
    retain_events: int
    retain_bytes: int
    retain_seconds: float
    run_timeout: float
    max_body: int
    clock: Clock

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


class EmbeddedGateway:
    """Serves the graph named `graph` (`module:attribute` or `path/file.py:attribute`) to `langgraph-sdk`.

    Everything it keeps (threads, runs, checkpoints) is in one SQLite file under `data_dir`, which one gateway at a
    time may use. Runs that a former process left unfinished are run again from their start, under the same run id,
    after what they had written to the thread has been undone. langgraph is not imported before `start`.

    Args:
        data_dir: created when it does not exist.
        graph: what to serve; see `graphs.load`.
        assistant_id: the name it is served under.
        host: the address to listen on. Any but a loopback address needs an `api_key`.
        port: 0 takes a free one.
        api_key: what clients must send as `x-api-key`; None: nothing.
        heartbeat: seconds of silence after which a stream carries a heartbeat; 15 as in DeerFlow's gateway.
        retain_events: events of a run kept for readers that come back; 256 as in DeerFlow's gateway.
        retain_bytes: the same, in bytes, whichever is reached first.
        retain_seconds: how long they are kept after the run's end; 60 as in DeerFlow's gateway.
        run_timeout: seconds after which a run is broken off with status `timeout`; 3600 as in LangGraph's server.
        max_body: bytes that a request's body may have.
        clock: what the heartbeats and the retention go by.

    Raises:
        ValueError: a host that is not a loopback address, without an `api_key`.
    """

    def __init__(
        self,
        data_dir: Path,
        graph: str = "adapters.embedded.demo_agent:graph",
        *,
        assistant_id: str = "agent",
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        heartbeat: float = 15.0,
        retain_events: int = 256,
        retain_bytes: int = 4 * 1024 * 1024,
        retain_seconds: float = 60.0,
        run_timeout: float = 3600.0,
        max_body: int = 16 * 1024 * 1024,
        clock: Clock | None = None,
    ) -> None:
        self._settings = Settings(
            data_dir,
            graph,
            assistant_id,
            host,
            port,
            api_key,
            heartbeat,
            retain_events,
            retain_bytes,
            retain_seconds,
            run_timeout,
            max_body,
            clock or SystemClock(),
        )
        if api_key is None and not self._settings.is_loopback:
            raise ValueError(f"an embedded gateway on {host} needs an API key; without one it must be on 127.0.0.1")
        self._serving: Serving | None = None

    async def start(self) -> str:
        """Start serving; returns the base URL.

        Raises:
            GraphLoadError: the graph cannot be loaded.
            StoreError: the data directory is in use by another gateway, or holds something else.
            OSError: the address cannot be bound, or the data directory cannot be made.
            RuntimeError: it is already running.
        """
        if self._serving is not None:
            raise RuntimeError("the embedded gateway is already running")
        serving = await asyncio.to_thread(_import_serving)  # about a second: langgraph and what it pulls in
        self._serving = await serving.open(self._settings)
        return self._serving.url

    async def stop(self) -> None:
        """Stop within 5 s. Runs in flight are carried on by the next start. Does nothing when not running."""
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.close()


def _import_serving() -> type[Serving]:
    from adapters.embedded.serving import Serving

    return Serving
