"""Whole runs for tests: one call asks a gateway and gives back how it ended and everything that was seen on the way."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import httpx
from pydantic import JsonValue

from channels.gateway import Ask, Gateway, Patience, Resume, RunEnd, RunRequest, WhenBusy
from channels.model import RunId, Sender, ThreadId, TurnId, View, new_turn_id
from channels.transcript import Transcript
from tests.clock import ScaledClock

SENDER = Sender("u1", "Ann")
SPEED = 40.0
"""The gateway's clock runs so much faster than the wall: 45 s of silence are 1.1 s."""

ANSWER = (
    "The weather in 巴黎 is 晴 🌞, 谢谢 for asking! 1 10 100; aaaa, and `code` too.\n\n"
    "- **Paris**: 21 °C — naïve façade\n- Tokyo: 🗼 东京 28 °C\n\n```python\nprint('ünïcödé')\n```\n"
) * 2


@dataclass(slots=True)
class Seen:
    """What one run showed: every different view, and the run ids it was told."""

    end: RunEnd
    views: list[View] = field(default_factory=list)
    started: list[RunId] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [view.text for view in self.views]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that tells nobody when it happens; at most 20 s."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def new_thread() -> ThreadId:
    return ThreadId(str(uuid.uuid4()))


def gateway_at(
    url: str,
    *,
    patience: Patience | None = None,
    dialect: str = "auto",
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Gateway:
    return Gateway(
        url,
        api_key=api_key,
        headers=headers or {},
        dialect=dialect,
        clock=ScaledClock(SPEED),
        patience=patience,
        call_timeout=5.0,
        # Reading the system's certificates takes longer than most of these tests.
        transport=httpx.AsyncHTTPTransport(verify=False, limits=httpx.Limits(max_connections=None)),
    )


async def run_turn(
    gateway: Gateway,
    asked: str | Ask | Resume | None,
    *,
    thread: ThreadId | None = None,
    turn: TurnId | None = None,
    run: RunId | None = None,
    maybe_requested: bool = False,
    timeout: float | None = None,
    begun_at: float | None = None,
    when_busy: WhenBusy = WhenBusy.QUEUE,
    assistant_id: str = "agent",
    prepare: bool = True,
    on_started: Callable[[RunId], None] | None = None,
    on_view: Callable[[View], None] | None = None,
    config: Mapping[str, JsonValue] | None = None,
    context: Mapping[str, JsonValue] | None = None,
) -> Seen:
    assert asked is not None, "nothing is to be run"
    thread = thread or new_thread()
    if prepare:
        await gateway.prepare_thread(thread, {"channel": "test"})
    transcript = Transcript()
    views: list[View] = []
    started: list[RunId] = []

    async def know(run_id: RunId) -> None:
        started.append(run_id)
        if on_started is not None:
            on_started(run_id)

    def changed() -> None:
        view = transcript.view(0.0)
        views.append(view)
        if on_view is not None:
            on_view(view)

    request = RunRequest(
        turn=turn or new_turn_id(),
        thread=thread,
        input=Ask(asked, SENDER) if isinstance(asked, str) else asked,
        assistant_id=assistant_id,
        timeout=timeout,
        begun_at=begun_at,
        when_busy=when_busy,
        metadata={"channel": "test"},
        config=config or {},
        context=context or {},
    )
    end = await gateway.execute(
        request, transcript, run=run, maybe_requested=maybe_requested, started=know, changed=changed
    )
    return Seen(end, views, started)
