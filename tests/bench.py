"""One channel with the whole core behind it: real inbox, store, manager, turns and pacer; a scripted gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self
from unittest.mock import patch

from channels.access import Policy
from channels.adapter import Adapter, Context
from channels.clock import Clock
from channels.inbox import Inbox
from channels.manager import ChannelManager, ManagedChannel
from channels.model import File
from channels.observe import Metrics
from channels.owner import LEASE_SECONDS
from channels.pacing import Pacer
from channels.store import Store
from channels.turn import ChannelParts
from tests.clock import ScaledClock
from tests.scripted import Act, ScriptedGateway


def unnamed(policy: Policy | None) -> Policy:
    """The policy, or the usual one, without the senders' names in what the agent is asked."""
    return (policy or Policy()).model_copy(update={"name_senders": False})


class Bench:
    """`build` makes the adapter from its context, as `adapters.<platform>.build` does."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        build: Callable[[Context], Adapter],
        *scripts: Iterable[Act],
        channel: str = "bench",
        platform: str = "bench",
        policy: Policy | None = None,
        give_up_after: float = 86_400.0,
        public_url: str | None = None,
        store_url: str | None = None,
    ) -> None:
        self.clock = clock
        self.channel = channel
        self.metrics = Metrics()
        self.gateway = ScriptedGateway(clock, *(scripts or ([],)))
        self.policy = policy or Policy()
        self._platform = platform
        self._url = store_url or f"sqlite:///{folder / 'bench.db'}"
        self._build = build
        self._give_up_after = give_up_after
        self._public_url = public_url
        self._running: asyncio.Task[None] | None = None
        self._patient = ExitStack()

    async def start(self) -> None:
        """Start the core and the adapter; returns once this replica owns the channel."""
        self.store = await Store.open(self._url, self.clock)
        self.inbox = Inbox(self.channel, self.policy, self.store, self.clock, self.metrics)
        self.adapter = self._build(Context(self.channel, self.inbox, self.clock, self._open_file, self._public_url))
        parts = ChannelParts(
            name=self.channel,
            platform=self._platform,
            adapter=self.adapter,
            pacer=Pacer(self.adapter.budgets, self.clock),
            store=self.store,
            gateway=self.gateway,
            clock=self.clock,
            metrics=self.metrics,
            policy=self.policy,
            assistant_id="agent",
            run_config={},
            run_context={},
            run_timeout=None,
            attachment_bytes=20_000_000,
            give_up_after=self._give_up_after,
        )
        managed = {self.channel: ManagedChannel(self.inbox, parts)}
        self.manager = ChannelManager(managed, self.store, self.clock, self.metrics, keep_seconds=30 * 86_400.0)
        self._running = asyncio.create_task(self.manager.run())
        await self.until(lambda: self.manager.owner_of(self.channel) == self.manager.replica)

    async def stop(self) -> None:
        """Hand over in good order."""
        self.manager.shut_down()
        assert self._running is not None
        await self._running
        await self.store.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def crash(self) -> None:
        """End everything at once, as far as one process can do that to a part of itself; then start again."""
        assert self._running is not None
        for owned in list(self.manager._owned.values()):
            owned.owner.lose()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await self.store.close()
        await self.start()

    async def settled(self, timeout: float = 20.0) -> None:
        """Wait until nothing waits and no turn is open. `timeout` is in real seconds."""

        async def idle() -> bool:
            return all(counts.waiting == 0 and counts.open_turns == 0 for counts in await self.store.counts())

        await self.until(idle, timeout)

    async def until(self, holds: Callable[[], bool | Awaitable[bool]], timeout: float = 20.0) -> None:
        """Wait until `holds`; looks again every few milliseconds, `timeout` real seconds at the most."""
        async with asyncio.timeout(timeout):
            while True:
                found = holds()
                if (await found) if isinstance(found, Awaitable) else found:
                    return
                await asyncio.sleep(0.005)

    async def __aenter__(self) -> Self:
        if isinstance(self.clock, ScaledClock):
            # In seconds of the wall leases last as long as they should: else a stall of half a second outlasts one.
            for module in ("channels.owner", "channels.manager"):
                self._patient.enter_context(patch(f"{module}.LEASE_SECONDS", LEASE_SECONDS * self.clock.speed))
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._patient:
            await self.stop()

    async def _open_file(self, file: File) -> bytes:
        return await self.gateway.open_file(file)
