"""The pacer: budgets are never exceeded, finals find room, nobody starves, refusals close what they name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from channels.adapter import Budget, Draw, Op, Urgency
from channels.pacing import Pacer
from tests.clock import ManualClock


@dataclass(eq=False)
class Talker:
    """A reply that always has something new to show, and notes when it was let through."""

    pacer: Pacer
    clock: ManualClock
    draws: tuple[Draw, ...]
    urgency: Urgency = Urgency.GROWTH
    held_until: float = 0.0
    silent: bool = False
    not_before: float = 0.0
    times: list[float] = field(default_factory=list)
    changed_at: float = 0.0

    @property
    def stale_since(self) -> float:
        return self.times[-1] if self.times else self.changed_at

    def offers(self, now: float) -> Sequence[Op]:
        return () if self.silent else [Op(urgency=self.urgency, draws=self.draws, not_before=self.not_before)]

    async def talk(self, count: int = 10_000) -> None:
        for _ in range(count):
            await self.pacer.admit(self)
            self.times.append(self.clock.now())


class Room:
    """A pacer with talkers, on a clock that is moved by hand."""

    def __init__(self, **budgets: Budget) -> None:
        self.clock = ManualClock()
        self.start = self.clock.now()
        self.pacer = Pacer(budgets, self.clock)
        self.tasks: list[asyncio.Task[None]] = [asyncio.create_task(self.pacer.run())]

    def talker(
        self, *draws: Draw, urgency: Urgency = Urgency.GROWTH, count: int = 10_000, held_until: float = 0.0
    ) -> Talker:
        talker = Talker(self.pacer, self.clock, draws, urgency, held_until=held_until, changed_at=self.clock.now())
        self.tasks.append(asyncio.create_task(talker.talk(count)))
        return talker

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def most_in_window(times: Sequence[float], window: float) -> int:
    times = sorted(times)
    return max((sum(1 for other in times if 0 <= other - first < window) for first in times), default=0)


@settings(max_examples=60, deadline=None)
@given(
    limit=st.integers(1, 12),
    window=st.floats(0.5, 30.0),
    burst=st.integers(1, 5),
    reserve=st.integers(0, 4),
    talkers=st.lists(st.sampled_from(list(Urgency)), min_size=1, max_size=6),
)
async def test_no_window_ever_holds_more_calls_than_the_budget(
    limit: int, window: float, burst: int, reserve: int, talkers: list[Urgency]
) -> None:
    room = Room(calls=Budget(limit, window, burst=burst, reserve=reserve))
    all_talkers = [room.talker(Draw("calls", "chat"), urgency=urgency, count=40) for urgency in talkers]
    await room.clock.advance(window * 3, settle=6)
    times = [moment for talker in all_talkers for moment in talker.times]
    assert times, "somebody must get through"
    assert most_in_window(times, window) <= limit
    growth = [t for talker in all_talkers if talker.urgency >= Urgency.GROWTH for t in talker.times]
    assert most_in_window(growth, window) <= max(1, limit - reserve)
    await room.close()


async def test_growth_is_spread_evenly_instead_of_burning_the_window() -> None:
    room = Room(group=Budget(20, 60.0, burst=2))
    talker = room.talker(Draw("group", "g"))
    await room.clock.advance(60)
    gaps = [later - earlier for earlier, later in zip(talker.times[2:], talker.times[3:], strict=False)]
    assert len(talker.times) >= 18
    assert all(2.9 <= gap <= 3.1 for gap in gaps)
    await room.close()


async def test_a_final_goes_before_growth_and_has_a_reserve() -> None:
    room = Room(group=Budget(5, 60.0, burst=5, reserve=2))
    growing = room.talker(Draw("group", "g"))
    await room.clock.advance(10)
    assert len(growing.times) == 3, "growth leaves the reserve alone"
    final = room.talker(Draw("group", "g"), urgency=Urgency.FINAL, count=1)
    await room.clock.advance(0)
    assert final.times == [room.clock.now()]
    await room.close()


async def test_replies_that_share_a_budget_get_equal_shares() -> None:
    room = Room(append=Budget(100, 60.0))
    talkers = [room.talker(Draw("append")) for _ in range(5)]
    await room.clock.advance(120)
    counts = [len(talker.times) for talker in talkers]
    assert min(counts) >= 0.95 * max(counts)
    assert sum(counts) >= 190
    await room.close()


async def test_a_closed_scope_stays_closed_for_its_time_and_only_that_scope() -> None:
    room = Room(chat=Budget(1, 1.0))
    one, other = room.talker(Draw("chat", "1")), room.talker(Draw("chat", "2"))
    await room.clock.advance(0)
    room.pacer.close(Draw("chat", "1"), 40.0)
    closed_at = room.clock.now()
    await room.clock.advance(39.9)
    assert len(one.times) == 1
    assert len(other.times) >= 39
    await room.clock.advance(5)
    assert one.times[1] >= closed_at + 40.0
    await room.close()


async def test_after_a_refusal_the_scope_is_used_more_slowly_and_recovers() -> None:
    room = Room(chat=Budget(1, 1.0))
    talker = room.talker(Draw("chat", "1"))
    room.pacer.close(Draw("chat", "1"), 5.0)
    await room.clock.advance(16)
    slow = [later - earlier for earlier, later in zip(talker.times, talker.times[1:], strict=False)]
    assert min(slow) > 1.2
    await room.clock.advance(120)
    assert talker.times[-1] - talker.times[-2] < 1.05
    await room.close()


async def test_a_timer_in_a_plan_wakes_by_itself_and_news_do_not_wait_for_it() -> None:
    room = Room(chat=Budget(10, 1.0, burst=10))
    talker = room.talker(Draw("chat", "1"), count=2)
    talker.not_before = room.clock.now() + 240
    await room.clock.advance(239)
    assert talker.times == []
    talker.not_before = 0.0
    room.pacer.stir(talker)
    await room.clock.advance(0)
    assert len(talker.times) == 2
    await room.close()


async def test_a_reply_with_nothing_to_say_waits_without_cost_until_it_is_stirred() -> None:
    room = Room()
    talker = room.talker(Draw("chat", "1"), count=1)
    talker.silent = True
    await room.clock.advance(1000)
    assert room.clock.next_wake() is None
    talker.silent = False
    room.pacer.stir(talker)
    await room.clock.advance(0)
    assert len(talker.times) == 1
    await room.close()


async def test_a_reply_that_backs_off_is_left_alone_until_its_time() -> None:
    room = Room()
    held = room.clock.now() + 8.0
    talker = room.talker(Draw("chat", "1"), urgency=Urgency.FINAL, count=1, held_until=held)
    await room.clock.advance(60)
    assert talker.times == [held]
    await room.close()


@settings(max_examples=40, deadline=None)
@given(limit=st.integers(2, 30), before=st.integers(0, 30), urgency=st.sampled_from(list(Urgency)))
async def test_what_an_earlier_owner_spent_evenly_and_a_new_one_spends_stay_inside_the_budget_together(
    limit: int, before: int, urgency: Urgency
) -> None:
    window = 60.0
    room = Room(calls=Budget(limit, window, burst=limit))
    earlier = [room.start - window * number / limit for number in range(1, min(before, limit) + 1)]
    room.pacer.assume_spent()
    talker = room.talker(Draw("calls"), urgency=urgency)
    await room.clock.advance(window * 2, settle=4)
    assert most_in_window([*earlier, *talker.times], window) <= limit
    assert len(talker.times) >= limit
    await room.close()


async def test_a_reply_that_begins_does_not_overtake_one_whose_time_has_come_at_the_same_moment() -> None:
    room = Room(calls=Budget(1, 1.0))
    due = room.start + 1.0 + 0.05  # when the first call has surely left the window
    newcomer = Talker(room.pacer, room.clock, (Draw("calls"),), changed_at=room.start)

    async def begin_then() -> None:
        await room.clock.sleep(due - room.start)
        await newcomer.talk(count=1)

    room.tasks.append(asyncio.create_task(begin_then()))  # sleeps earlier than the pacer does, so it wakes before it
    await room.clock.advance(0)
    room.talker(Draw("calls"), count=1)
    final = room.talker(Draw("calls"), urgency=Urgency.FINAL, count=1)
    await room.clock.advance(1.5)
    assert final.times == [due]
    assert newcomer.times == []
    await room.close()


async def test_a_reply_that_begins_is_let_through_although_others_wait_for_another_budget() -> None:
    room = Room(chat=Budget(1, 60.0))
    waiting = [room.talker(Draw("chat", "full")) for _ in range(3)]
    await room.clock.advance(1)
    one = room.talker(Draw("chat", "free"), count=1)
    await room.clock.advance(0)
    assert one.times == [room.clock.now()]
    assert sum(len(talker.times) for talker in waiting) == 1
    await room.close()


async def test_ten_thousand_replies_that_begin_at_once_do_not_block_the_loop() -> None:
    room = Room(calls=Budget(30, 1.0, burst=30), chat=Budget(20, 60.0))
    talkers = [room.talker(Draw("calls"), Draw("chat", str(n)), urgency=Urgency.FINAL, count=1) for n in range(10_000)]
    began = time.process_time()
    await room.clock.advance(0, settle=3)
    assert time.process_time() - began < 1.5  # seconds; 5 to 7 when each of them looks at all others
    assert sum(len(talker.times) for talker in talkers) == 30
    await room.close()


async def test_scopes_that_are_idle_are_forgotten_also_when_nobody_ever_waits() -> None:
    room = Room(message=Budget(5, 1.0, burst=5))
    for number in range(5_000):
        room.talker(Draw("message", str(number)), count=1)
        if number % 100 == 0:
            await room.clock.advance(2.0, settle=2)
    assert len(room.pacer._scopes) <= 1_000
    await room.close()
