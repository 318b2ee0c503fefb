"""What Slack brings to the app: events until they are acked or given up, interactive payloads and commands once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from channels.clock import Clock, wait_until
from tests.emulators.slack import rules
from tests.emulators.slack.blocks import JsonObject
from tests.emulators.slack.world import Bell

T = TypeVar("T")


class DeliveryKind(StrEnum):
    """The values are the envelope types of Socket Mode."""

    EVENT = "events_api"
    INTERACTIVE = "interactive"
    COMMAND = "slash_commands"


class DeliveryState(StrEnum):
    HELD = "held"
    WAITING = "waiting"
    ACKED = "acked"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to bring it: when, as which retry (0 is the first), by which way, and how it went ("" is acked)."""

    at: float
    number: int
    via: str
    failure: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt went. `failure` is Slack's word for it, "" when acked; `answer` is what came with the ack."""

    via: str
    failure: str = ""
    answer: object = None
    give_up: bool = False


@dataclass(slots=True)
class Delivery:
    """One thing to bring to the app, and what became of it."""

    id: str
    kind: DeliveryKind
    payload: JsonObject
    state: DeliveryState = DeliveryState.WAITING
    attempts: list[Attempt] = field(default_factory=list)
    answer: object = None
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    then: Callable[[Delivery], None] | None = None

    @property
    def event(self) -> JsonObject:
        """The inner event; empty for interactive payloads and commands."""
        inner: JsonObject = self.payload.get("event", {})
        return inner


class Transport(Protocol):
    """Socket Mode or HTTP."""

    async def attempt(self, delivery: Delivery, number: int, reason: str) -> Outcome:
        """Bring it once, and wait for the ack as long as Slack does."""
        ...


class Courier:
    """Carries deliveries, each in a task of its own: a slow or dead app holds up nothing but its own acks."""

    def __init__(self, clock: Clock, bell: Bell, transport: Transport) -> None:
        self.transport = transport
        self.deliveries: list[Delivery] = []
        self._clock = clock
        self._bell = bell
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._holding = False

    def event_id(self) -> str:
        return f"Ev{next(self._numbers):08d}"

    def send(self, kind: DeliveryKind, payload: JsonObject, then: Callable[[Delivery], None] | None = None) -> Delivery:
        """Begin to deliver; held back while `hold` is on. `then` is called once it is acked or given up."""
        delivery = Delivery(id=payload.get("event_id") or self.event_id(), kind=kind, payload=payload, then=then)
        self.deliveries.append(delivery)
        if self._holding:
            delivery.state = DeliveryState.HELD
        else:
            self._spawn(self._carry(delivery, 0))
        return delivery

    def hold(self) -> None:
        """Keep back everything new until `release`."""
        self._holding = True

    def release(self, *, reverse: bool = False) -> None:
        """Deliver what was held back, in its order or in the opposite one."""
        self._holding = False
        held = [delivery for delivery in self.deliveries if delivery.state is DeliveryState.HELD]
        for delivery in reversed(held) if reverse else held:
            delivery.state = DeliveryState.WAITING
            self._spawn(self._carry(delivery, 0))

    def redeliver(self, *deliveries: Delivery) -> None:
        """Bring these again at once, acked or not; without any, all events that wait for a retry or were given up."""
        open_states = (DeliveryState.WAITING, DeliveryState.LOST)
        again = deliveries or [d for d in self.deliveries if d.kind is DeliveryKind.EVENT and d.state in open_states]
        for delivery in again:
            if delivery.state is DeliveryState.WAITING:
                delivery.hurry.set()
            else:
                self._spawn(self._carry(delivery, 1))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, delivery: Delivery, number: int) -> None:
        delivery.state = DeliveryState.WAITING
        reason = "timeout" if number else ""
        while True:
            began = self._clock.now()
            outcome = await self.transport.attempt(delivery, number, reason)
            delivery.attempts.append(Attempt(began, number, outcome.via, outcome.failure))
            if not outcome.failure:
                delivery.state, delivery.answer = DeliveryState.ACKED, outcome.answer
                break
            if delivery.kind is not DeliveryKind.EVENT or outcome.give_up or number >= len(rules.RETRY_DELAYS):
                delivery.state = DeliveryState.LOST
                break
            self._bell.ring()
            delivery.hurry.clear()
            await wait_until(self._clock, self._clock.now() + rules.RETRY_DELAYS[number], delivery.hurry)
            number, reason = number + 1, outcome.failure
        if delivery.then is not None:
            delivery.then(delivery)
        self._bell.ring()


async def within(clock: Clock, seconds: float, future: asyncio.Future[T]) -> bool:
    """True when the future is done before so many seconds of the clock have passed."""
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        either: tuple[asyncio.Future[Any], ...] = (future, timer)
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return future.done()
    finally:
        timer.cancel()
