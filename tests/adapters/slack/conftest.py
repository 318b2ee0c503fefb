"""A workspace with the bridge in it: the real core and adapter, the strict emulator, a scripted gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from adapters.slack import build
from adapters.slack.manifest import SCOPES
from channels.access import Policy
from tests.adapters.slack.desk import Desk, settings_for
from tests.bench import Bench, unnamed
from tests.clock import ScaledClock
from tests.emulators.slack import SlackEmulator
from tests.scripted import Act

SPEED = 20.0

OpenDesk = Callable[..., Awaitable[Desk]]


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> ScaledClock:
    """Fast; a test that measures times asks for a slower one, on which the machine's own delays are smaller."""
    return ScaledClock(getattr(request, "param", SPEED))


@pytest.fixture
async def slack(clock: ScaledClock) -> AsyncIterator[SlackEmulator]:
    emulator = SlackEmulator(clock, ack_seconds=3.0 * SPEED, jitter=0.1 * SPEED)
    emulator.grant(list(SCOPES))
    async with emulator:
        yield emulator
    assert emulator.journal.broken == []


@pytest.fixture
async def open_desk(tmp_path: Path, clock: ScaledClock, slack: SlackEmulator) -> AsyncIterator[OpenDesk]:
    """Opens a bridge with these scripts; keyword arguments are keys of the channel's settings."""
    async with AsyncExitStack() as stack:

        async def open_(
            *scripts: Iterable[Act], policy: Policy | None = None, wait_for_socket: bool = True, **keys: object
        ) -> Desk:
            policy = unnamed(policy)
            settings = settings_for(slack, policy=policy, **keys)
            bench = Bench(
                tmp_path, clock, lambda context: build(settings, context), *scripts, platform="slack", policy=policy
            )
            await stack.enter_async_context(bench)
            desk = Desk(bench, slack)
            if wait_for_socket and settings.app_token is not None:
                await slack.wait_for(lambda: slack.sockets.connections)
            return desk

        yield open_
        slack.thaw_sockets()
