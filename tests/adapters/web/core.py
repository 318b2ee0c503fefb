"""A small stand-in for the core: takes inbounds, plays scripted views through the channel's own surfaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from adapters.web import build
from adapters.web.adapter import WebAdapter
from channels.adapter import Accepted, ChannelState, Context, Failure, FileGone, Outcome, ReplyTarget, Shown, StoreAway
from channels.clock import Clock, SystemClock
from channels.model import Action, File, Inbound, Phase, Segment, TurnId, View, new_turn_id
from config.web import WebChannel

Script = Callable[[Inbound], AsyncIterator[View]]


@dataclass
class FakeSink:
    """Accepts everything once and remembers what it was told."""

    inbounds: list[Inbound] = field(default_factory=list)
    reports: list[tuple[ChannelState, str]] = field(default_factory=list)
    memory: dict[str, JsonValue] = field(default_factory=dict)
    is_away: bool = False
    ignores: bool = False
    taken: Callable[[Inbound], None] = lambda inbound: None

    async def accept(self, inbound: Inbound) -> Accepted:
        if self.is_away:
            raise StoreAway("the store is away")
        if self.ignores:
            return Accepted.IGNORED
        if any(known.event_key == inbound.event_key for known in self.inbounds):
            return Accepted.DUPLICATE
        self.inbounds.append(inbound)
        self.taken(inbound)
        return Accepted.TAKEN

    def report(self, state: ChannelState, reason: str = "") -> None:
        self.reports.append((state, reason))

    async def recall(self, key: str) -> JsonValue:
        if self.is_away:
            raise StoreAway("the store is away")
        return self.memory.get(key)

    async def remember(self, key: str, value: JsonValue, ttl: float | None = None) -> None:
        self.memory[key] = value

    async def rekey(self, old_chat: str, new_chat: str) -> None:
        raise AssertionError("a browser keeps its id")


async def open_file(file: File) -> bytes:
    """Files that the agent made: the content is in the reference."""
    content = file.reference.get("content")
    if not isinstance(content, str):
        raise FileGone("no such file")
    return content.encode("latin-1")


def adapter_for(
    sink: FakeSink,
    *,
    clock: Clock | None = None,
    host: str = "127.0.0.1",
    public_url: str | None = None,
    **settings: object,
) -> WebAdapter:
    """A web channel named `web`; in memory unless `store` is given."""
    channel = WebChannel.model_validate({"store": None, **settings})
    context = Context("web", sink, clock or SystemClock(), open_file, public_url, host)
    return build(channel, context)


class Answers:
    """Answers every question with a script, reconciling its views as the core does."""

    def __init__(self, adapter: WebAdapter, sink: FakeSink, script: Script) -> None:
        self._adapter = adapter
        self._script = script
        self._tasks: dict[TurnId, asyncio.Task[None]] = {}
        self.views: dict[TurnId, View] = {}
        self.presses: list[Inbound] = []
        self._stopped: set[TurnId] = set()
        sink.taken = self._taken

    def _taken(self, inbound: Inbound) -> None:
        press = inbound.press
        if press is not None:
            self.presses.append(inbound)
            if press.action is Action.STOP:
                self._stopped.add(press.turn)
            if press.action is not Action.ANSWER:
                return
            self._close_question(press.turn, inbound.text)
        turn = new_turn_id()
        self._tasks[turn] = asyncio.create_task(self._answer(turn, inbound))

    def _close_question(self, turn: TurnId, answer: str) -> None:
        view = self.views[turn]
        if view.question is not None:
            answered = replace(view, phase=Phase.DONE, question=replace(view.question, answer=answer))
            self._tasks[turn] = asyncio.create_task(self._settle(turn, self.presses[-1], answered))

    async def _answer(self, turn: TurnId, inbound: Inbound) -> None:
        target = ReplyTarget(turn, inbound.place, inbound)
        surface = self._adapter.surface(target)
        shown: Shown = surface.shown_type()
        async for view in self._script(inbound):
            if turn in self._stopped:
                view = replace(view, phase=Phase.STOPPED, notice="Stopped.")
            self.views[turn] = view
            shown = await reconcile(surface, view, shown)
            if view.is_final:
                return

    async def _settle(self, turn: TurnId, inbound: Inbound, view: View) -> None:
        surface = self._adapter.surface(ReplyTarget(turn, inbound.place, inbound))
        self.views[turn] = view
        await reconcile(surface, view, surface.shown_type())

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def reconcile(surface: object, view: View, shown: Shown) -> Shown:
    """Perform what the surface plans for one view, without waiting for budgets."""
    from adapters.web.surface import WebSurface

    assert isinstance(surface, WebSurface)
    while ops := surface.plan(view, shown, 0.0):
        outcome: Outcome
        try:
            outcome = await surface.perform(ops[0])
        except Failure as failure:
            outcome = failure
            await asyncio.sleep(0.01)
        shown = surface.advance(shown, ops[0], outcome, 0.0)
    return shown


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that nobody announces, at most 5 s."""
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def message_view(text: str, phase: Phase = Phase.DONE, **parts: object) -> View:
    """A view whose body is one message."""
    return replace(View(phase, (Segment("m1", text),)), **parts)  # type: ignore[arg-type]
