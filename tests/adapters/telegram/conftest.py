"""A bot with the whole core behind it, on the emulated Telegram, talking to people."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from adapters.telegram import build
from adapters.telegram.adapter import TelegramAdapter
from channels.access import Policy
from channels.adapter import ChannelState
from config.telegram import TelegramChannel
from tests.bench import Bench, unnamed
from tests.clock import ScaledClock
from tests.emulators.telegram import Limits, SeenMessage, TelegramEmulator
from tests.scripted import Act

SPEED = 12.0
LIMITS = Limits(callback_seconds=15 * SPEED)
"""The clock runs faster than sockets do, so a press may take longer on it to be answered."""


class Talk:
    """People on the emulated Telegram, and a bridge that answers them."""

    def __init__(self, bench: Bench, emulator: TelegramEmulator) -> None:
        self.bench = bench
        self.emulator = emulator

    @property
    def adapter(self) -> TelegramAdapter:
        assert isinstance(self.bench.adapter, TelegramAdapter)
        return self.bench.adapter

    @property
    def questions(self) -> list[str]:
        return self.bench.gateway.questions

    def answers(self, chat: int, thread: int | None = None) -> list[SeenMessage]:
        """The bot's messages in a chat."""
        return self.emulator.chat(chat).from_bot(thread)

    def text(self, chat: int, thread: int | None = None) -> str:
        return self.emulator.chat(chat).text(thread)

    async def receiving(self) -> None:
        """Wait until the bot receives."""
        await self.bench.until(lambda: self.bench.inbox.health.state is ChannelState.RUNNING)

    async def shows(self, chat: int, text: str, timeout: float = 10.0) -> None:
        """Wait until the bot's messages in the chat contain the text."""
        await self.emulator.wait_for(lambda: text in self.text(chat), timeout)

    async def settled(self, timeout: float = 20.0) -> None:
        """Wait until the bot has confirmed every update and everything is answered."""
        await self.emulator.wait_for(lambda: not self.emulator.pending_updates)
        await self.bench.settled(timeout)


OpenTalk = Callable[..., Awaitable[Talk]]


@pytest.fixture
async def open_talk(tmp_path: Path) -> AsyncIterator[OpenTalk]:
    """Starts an emulator and a bridge with a channel; keywords are settings of the channel, `emulator` its options."""
    async with AsyncExitStack() as stack:

        async def opened(
            *scripts: Iterable[Act],
            emulator: dict[str, object] | None = None,
            policy: Policy | None = None,
            speed: float = SPEED,
            limits: Limits = LIMITS,
            give_up_after: float = 86_400.0,
            public_url: str | None = None,
            wait: bool = True,
            **settings: object,
        ) -> Talk:
            clock = ScaledClock(speed)
            telegram = TelegramEmulator(clock, limits=limits, **(emulator or {}))  # type: ignore[arg-type]
            await stack.enter_async_context(telegram)
            values = {"bot_token": telegram.token, "api_base_url": telegram.url, "reaction": None, **settings}
            channel = TelegramChannel.model_validate({**values, "policy": unnamed(policy)})
            bench = Bench(
                tmp_path,
                clock,
                lambda context: build(channel, context),
                *scripts,
                channel="bench",
                platform="telegram",
                policy=unnamed(policy),
                give_up_after=give_up_after,
                public_url=public_url,
            )
            await stack.enter_async_context(bench)
            talk = Talk(bench, telegram)
            if wait:
                await talk.receiving()
            return talk

        yield opened
