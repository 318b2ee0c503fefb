"""A Feishu channel with the whole core behind it, the emulator in front and a scripted gateway at the back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp

from adapters.feishu import build
from adapters.feishu.adapter import FeishuAdapter
from channels.access import Policy
from channels.adapter import ChannelState, Context
from config.feishu import FeishuChannel
from tests.bench import Bench, unnamed
from tests.clock import ScaledClock
from tests.emulators.feishu import FeishuEmulator, Limits, Shown
from tests.scripted import Act

SPEED = 10.0
JITTER = 0.35
"""Seconds on the clock: 35 ms of the wall between a client's pacing and the server's seeing."""
REDELIVERED = (15.0,) * 10
"""Seconds on the clock. The vendor waits 300 s after the first 15 s: on a clock this fast an ack is late when a machine
stalls for a quarter of a second, and a second try has to come while a test still waits."""


@dataclass
class Room:
    """An emulated tenant and a bridge that serves its bot."""

    emulator: FeishuEmulator
    bench: Bench

    @property
    def adapter(self) -> FeishuAdapter:
        assert isinstance(self.bench.adapter, FeishuAdapter)
        return self.bench.adapter

    @property
    def state(self) -> ChannelState:
        return self.bench.inbox.health.state

    @property
    def questions(self) -> list[str]:
        return self.bench.gateway.questions

    def replies(self, chat: str) -> list[Shown]:
        return self.emulator.replies(chat)

    def text(self, chat: str) -> str:
        return "\n".join(reply.text for reply in self.replies(chat))

    async def shows(self, chat: str, text: str) -> Shown:
        """Wait until a reply in the chat shows this text; the reply."""
        return await self.reply_that(chat, lambda reply: text in reply.text)

    async def reply_that(self, chat: str, holds: Callable[[Shown], bool]) -> Shown:
        """Wait for a reply of which this holds; the first such."""
        found = await self.emulator.wait_for(lambda: [reply for reply in self.replies(chat) if holds(reply)], 20)
        return found[0]

    async def settled(self) -> None:
        """Wait until every event is taken in and nothing is left to do about any."""
        await self.emulator.wait_for(
            lambda: all(event.acked for event in self.emulator.events if not event.is_callback), 20
        )
        await self.bench.settled()

    async def ask(self, who: str, text: str, chat: str | None = None, **more: Any) -> str:
        """Write to the bot, in private if no chat is given; the message."""
        return await self.emulator.say(who, chat or self.emulator.p2p(who), text, **more)


Open = Callable[..., Awaitable[Room]]


@pytest.fixture
async def open_room(tmp_path: Path) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:
        rooms: list[Room] = []

        async def open_(
            *scripts: Iterable[Act],
            policy: Policy | None = None,
            clock: ScaledClock | None = None,
            limits: Limits | None = None,
            wait: bool = True,
            give_up_after: float = 86_400.0,
            emulated: dict[str, Any] | None = None,
            **keys: Any,
        ) -> Room:
            clock = clock or ScaledClock(SPEED)
            jitter = JITTER * clock.speed / SPEED
            limits = limits or Limits(redelivery_seconds=REDELIVERED)
            emulator = FeishuEmulator(clock, limits=limits, jitter=jitter, **(emulated or {}))
            await stack.enter_async_context(emulator)
            given = {
                "app_id": emulator.app_id,
                "app_secret": emulator.app_secret,
                "domain": emulator.url,
                "settle_seconds": 0.0,
                "policy": unnamed(policy),
                **keys,
            }
            settings = FeishuChannel.model_validate(given)

            def make(context: Context) -> FeishuAdapter:
                return build(settings, context)

            bench = Bench(
                tmp_path, clock, make, *scripts, platform="feishu", policy=unnamed(policy), give_up_after=give_up_after
            )
            await stack.enter_async_context(bench)
            room = Room(emulator, bench)
            if settings.mode == "webhook":
                webhook = room.adapter.webhook
                assert webhook is not None
                emulator.set_webhook(await stack.enter_async_context(_Served(webhook)))
            rooms.append(room)
            if wait:
                await bench.until(lambda: room.state is ChannelState.RUNNING)
            return room

        yield open_
    for room in rooms:
        assert not room.emulator.journal.broken, room.emulator.dump()


class _Served:
    """An application behind a real HTTP server on a free loopback port; gives its address."""

    def __init__(self, app: ASGIApp) -> None:
        self._server = uvicorn.Server(
            uvicorn.Config(app, port=0, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
        )

    async def __aenter__(self) -> str:
        self._task = asyncio.create_task(self._server.serve())
        async with asyncio.timeout(10):
            while not self._server.started:  # noqa: ASYNC110 (it tells in no other way)
                await asyncio.sleep(0.005)
        return f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}/hooks/team"

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        await self._task
