"""Many replies of one workspace at once, on paper: the real reply loops, pacer and surfaces, and Slack's own counting.

No sockets and no waiting: the clock is moved by hand, so that a gap or a rate is what it is on any machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from adapters.slack import limits
from adapters.slack.ops import (
    Append,
    Delete,
    Post,
    Share,
    StartStream,
    Stop,
    Update,
    Upload,
)
from adapters.slack.planning import Rules
from adapters.slack.spot import Spot
from adapters.slack.surface import SlackSurface, Taste
from channels.access import ShowReasoning
from channels.adapter import Failure, Op, Receipt
from channels.model import Phase, TurnId, View
from channels.pacing import Pacer
from channels.reply import Reply, ReplyEvents
from config.channel import Streaming
from tests.adapters.slack.paper_slack import PaperSlack, on_paper
from tests.clock import ManualClock
from tests.emulators.slack.budgets import Budgets

_METHODS: Mapping[type[Op], str] = {
    StartStream: "chat.startStream",
    Append: "chat.appendStream",
    Stop: "chat.stopStream",
    Post: "chat.postMessage",
    Update: "chat.update",
    Delete: "chat.delete",
    Upload: "files.getUploadURLExternal",
    Share: "files.completeUploadExternal",
}
_CALL = 0.1  # seconds that a call takes
_TURNS = 60  # of the event loop between two moments: what a call sets off is over by then


@dataclass
class Member:
    """One reader and the reply they watch: `view` is what it should show; `seen_at` are the moments when it said
    something new. `troubles` are what becomes of the next call of a kind, which is not done then."""

    spot: Spot
    paper: PaperSlack
    view: View
    seen_at: list[float] = field(default_factory=list)
    troubles: dict[type[Op], Failure] = field(default_factory=dict)
    reply: Reply = field(init=False)


class Crowd:
    """`broken` lists the calls that Slack would have refused for their rate, and what else it would mind."""

    def __init__(self, streaming: Streaming = Streaming.AUTO, *, size: int = 9_000) -> None:
        self.clock = ManualClock()
        self.members: list[Member] = []
        self._rules = Rules(streaming, size, size, feedback=False, may_stream=streaming is not Streaming.EDIT)
        self._pacer = Pacer(limits.BUDGETS, self.clock)
        self._counted = Budgets(jitter=0.0)
        self._refused: list[str] = []
        self._tasks: list[asyncio.Task[object]] = []

    @property
    def broken(self) -> list[str]:
        return [*self._refused, *(rule for member in self.members for rule in member.paper.broken)]

    async def __aenter__(self) -> Self:
        self._tasks.append(asyncio.create_task(self._pacer.run()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def join(self, view: View, *, channel: str = "", direct: bool = False) -> Member:
        """One more reply begins; in a thread of a channel of its own, unless said otherwise."""
        number = len(self.members)
        spot = Spot(
            TurnId(f"{number:032}"),
            channel or f"C{number}",
            root=None if direct else f"{number}.000001",
            team="T1",
            user="U1",
            user_team="T1",
            is_private=direct,
            since=f"{number}.000001",
        )
        member = Member(spot, PaperSlack(self.clock.now), view)
        surface = SlackSurface(spot, Taste(self._rules, ShowReasoning.OFF), on_paper(self._performing(member)))
        member.reply = Reply(
            surface,
            self._pacer,
            self.clock,
            source=lambda _: member.view,
            stored=None,
            save=_nowhere,
            permit=lambda: None,
            events=ReplyEvents(lambda *_: None, lambda: None),
        )
        self.members.append(member)
        self._tasks.append(asyncio.create_task(member.reply.run()))
        return member

    def show(self, member: Member, view: View) -> None:
        """From now on the reply should show this."""
        urgent = view.is_final or member.view.phase is Phase.WAITING
        member.view = view
        member.reply.changed(urgent=urgent)

    async def wait(self, seconds: float) -> None:
        await self.clock.advance(seconds, settle=_TURNS)

    async def settle(self, seconds: float = 600.0) -> None:
        """Until every reply is over; the clock moves on by at most so much."""
        end = self.clock.now() + seconds
        while not all(task.done() for task in self._tasks[1:]):
            assert self.clock.now() < end, "does not settle"
            await self.wait(1.0)
        for task in self._tasks[1:]:
            task.result()

    def _performing(self, member: Member) -> Callable[[Spot, Op], Awaitable[Receipt]]:
        async def perform(spot: Spot, op: Op) -> Receipt:
            method = _METHODS.get(type(op)) or ("conversations.replies" if spot.root else "conversations.history")
            now = self.clock.now()
            verdict = self._counted.admit(method, "T1", spot.channel, spot.turn, now)
            if verdict is not None:
                self._refused.append(f"{now:.1f} {verdict.broken}")
            await self.clock.sleep(_CALL)
            if (failure := member.troubles.pop(type(op), None)) is not None:
                raise failure
            before = member.paper.text
            receipt = member.paper.perform(op)
            if member.paper.text != before:
                member.seen_at.append(self.clock.now())
            return receipt

        return perform


async def _nowhere(*_: object) -> None:
    """Nothing is stored."""
