"""Each budget is what keeps one of the platform's rates: with it none is broken, without it one is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from adapters.feishu.calls import Calls
from adapters.feishu.cards import Style
from adapters.feishu.ops import BUDGETS, Format
from adapters.feishu.sheets import Manner, card_draws, edit_draws
from adapters.feishu.surface import FeishuSurface
from channels.adapter import Draw, Op, ReplyTarget, Urgency
from channels.model import File, Inbound, InboundKind, Place, Sender, new_turn_id
from channels.pacing import Pacer
from config.channel import Streaming
from tests.adapters.feishu.offline import OfflineApi
from tests.clock import ManualClock
from tests.emulators.feishu import FeishuEmulator
from tests.emulators.feishu.limits import RATES
from tests.paced import PacedReplies, lifted

TEXT = " ".join(f"w{number}x" for number in range(80))


class Tenant:
    """An emulator without its server, whose rates are those of the platform to the millisecond."""

    def __init__(self, clock: ManualClock) -> None:
        self.emulator = FeishuEmulator(clock)
        self.emulator.subscriptions.clear()
        self._calls = Calls(OfflineApi(self.emulator), _no_file, lambda: None)  # type: ignore[arg-type]

    async def surface(self, who: str, chat: str, streaming: Streaming) -> FeishuSurface:
        """The reply to somebody's question."""
        question = await self.emulator.say(who, chat, "What?")
        place = Place("c", chat, question)
        now = self.emulator.clock.now()
        inbound = Inbound(place, Sender("ou_1", who), question, InboundKind.MESSAGE, "What?", now, question)
        first = Format.PATCH if streaming is Streaming.EDIT else Format.CARD
        manner = Manner(Style(), streaming=streaming, first=first)
        return FeishuSurface(self._calls, ReplyTarget(new_turn_id(), place, inbound), manner)


async def _no_file(file: File) -> bytes:
    raise AssertionError(f"nobody has made {file.name}")


@dataclass(frozen=True)
class Crowd:
    """So many replies at once, which grow for some seconds; each in a chat of its own unless in `one_chat`."""

    replies: int
    streaming: Streaming = Streaming.AUTO
    seconds: float = 3.0
    step: float = 0.1
    one_chat: bool = False


CROWDS = {
    "card": Crowd(1, step=0.03),
    "cards": Crowd(60),
    "cards_minute": Crowd(6, seconds=60.0, step=0.25),
    "chat": Crowd(12, Streaming.OFF, one_chat=True),
    "messages": Crowd(60, Streaming.OFF),
    "message": Crowd(1, Streaming.EDIT, step=0.03),
    "edits": Crowd(60, Streaming.EDIT),
    "edits_minute": Crowd(25, Streaming.EDIT, seconds=60.0, step=1.0),
}
"""What would break a rate if its budget were not there."""


@pytest.mark.parametrize("budget", [*CROWDS])
@pytest.mark.parametrize("kept", [True, False])
async def test_a_rate_is_kept_by_its_budget_and_by_nothing_else(budget: str, kept: bool) -> None:
    crowd = CROWDS[budget]
    clock = ManualClock()
    tenant = Tenant(clock)
    chats = [tenant.emulator.add_group(f"Team {number}") for number in range(1 if crowd.one_chat else crowd.replies)]
    async with PacedReplies(BUDGETS if kept else lifted(BUDGETS, budget), clock) as replies:
        for number in range(crowd.replies):
            replies.start(await tenant.surface("Ann", chats[number % len(chats)], crowd.streaming), TEXT)
        await replies.grow(crowd.seconds, crowd.step)
        await replies.finish()
    assert bool(tenant.emulator.journal.broken) is not kept, tenant.emulator.journal.broken[:3]
    if kept:
        answers = [reply for chat in chats for reply in tenant.emulator.replies(chat)]
        assert [answer.text for answer in answers] == [TEXT] * crowd.replies
        grew = crowd.streaming is not Streaming.OFF and crowd.replies < 60
        assert not grew or min(len(answer.versions) for answer in answers) > crowd.seconds / 3, "all grow in sight"


@dataclass(eq=False)
class Grower:
    """A message that always has something new to show, and the times at which it did."""

    draws: tuple[Draw, ...]
    times: list[float] = field(default_factory=list)
    held_until: float = 0.0

    @property
    def stale_since(self) -> float:
        return self.times[-1] if self.times else 0.0

    def offers(self, now: float) -> Sequence[Op]:
        return (Op(urgency=Urgency.GROWTH, draws=self.draws),)

    async def grow(self, pacer: Pacer, clock: ManualClock) -> None:
        while True:
            await pacer.admit(self)
            self.times.append(clock.now())


@pytest.mark.parametrize("draws", [card_draws, edit_draws])
async def test_messages_that_grow_at_the_same_time_take_turns_without_a_pause_for_all_of_them(
    draws: Callable[[str], tuple[Draw, ...]],
) -> None:
    clock = ManualClock()
    pacer = Pacer(BUDGETS, clock)
    growers = [Grower(draws(str(number))) for number in range(20)]
    tasks = [asyncio.create_task(pacer.run())]
    tasks += [asyncio.create_task(grower.grow(pacer, clock)) for grower in growers]
    await clock.advance(150.0, settle=5)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    gaps = [later - earlier for grower in growers for earlier, later in pairwise(grower.times)]
    assert max(gaps) < 1.2 * sum(gaps) / len(gaps)


def test_every_budget_stays_below_the_documented_rate() -> None:
    documented = {
        **dict.fromkeys(["card", "chat", "message"], None),
        **{"cards": "cardkit", "cards_minute": "cardkit", "messages": "im.send", "messages_minute": "im.send"},
        **dict.fromkeys(["edits", "edits_minute", "reads", "uploads"], "api"),
    }
    assert documented.keys() == BUDGETS.keys()
    for name, budget in BUDGETS.items():
        (rate,) = [rate for rate in RATES[documented[name] or name] if rate.seconds == budget.window]
        assert budget.limit < rate.calls
        assert budget.reserve < budget.limit
