"""Who may call the platform next: budgets shared by all live replies of a channel, given out fairly.

A reply that differs from its view waits here. When budget is free the pacer picks by urgency (a final, then a first
sight, then a question, then growth) and, within one urgency, the reply whose reader has looked at something stale
for longest. A refusal closes exactly the scope it names for exactly the time it says.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from channels.adapter import Budget, Draw, Op, Urgency
from channels.clock import Clock, wait_until

_SLOWDOWN = 1.5  # how much slower a scope gets with each refusal
_SLOWEST = 4.0
_RECOVERY = 10.0  # after so many windows without a refusal, half of the slowdown is forgotten
_JITTER = 0.05  # seconds; calls may arrive nearer to each other than they were sent
_MOST_INHERITED = 10_000  # calls in a window; who may make more has no limit worth the name
_MANY_SCOPES = 1_000  # from so many on, idle ones are forgotten: a look at all of them each time their number doubles
_UNLIMITED = Budget(limit=1_000_000, window=1.0, burst=1_000_000)


class Claimant(Protocol):
    """A reply as the pacer sees it."""

    @property
    def stale_since(self) -> float:
        """Since when the reader has been looking at something that is no longer the newest view."""
        ...

    @property
    def held_until(self) -> float:
        """Nothing of this reply is admitted before this moment (it backs off after failures)."""
        ...

    def offers(self, now: float) -> Sequence[Op]:
        """The ops that would help now, best first; planned from the newest view."""
        ...


class Pacer:
    """The budgets of one channel. `run` must be running for waiting claimants to be admitted when time passes."""

    def __init__(self, budgets: Mapping[str, Budget], clock: Clock) -> None:
        self._budgets = budgets
        self._clock = clock
        self._scopes: dict[Draw, _Scope] = {}
        self._waiting: dict[Claimant, _Waiter] = {}
        self._wake = asyncio.Event()
        self._due = math.inf  # until then nobody who waits may go
        self._assumed_at = -math.inf
        self._many_scopes = _MANY_SCOPES

    async def admit(self, claimant: Claimant) -> Op:
        """Wait until one of the claimant's ops may be performed; its draws are spent when this returns."""
        waiter = _Waiter()
        self._waiting[claimant] = waiter
        now = self._clock.now()
        if self._wake.is_set() or self._due <= now:
            self._wake.set()  # others may go now, too: `run` chooses
        else:
            self._choose([(claimant, waiter)], now)
            if not waiter.admitted.done() and waiter.blocked_until < self._due:
                self._wake.set()  # `run` waits for a later moment
        try:
            return await waiter.admitted
        finally:
            if self._waiting.get(claimant) is waiter:
                del self._waiting[claimant]

    def stir(self, claimant: Claimant, *, urgent: bool = False) -> None:
        """The claimant's view has changed. `urgent`: its urgency may have changed as well."""
        waiter = self._waiting.get(claimant)
        if waiter is None or waiter.admitted.done():
            return
        # A reply that waits for budget is planned again when the budget is there; planning it for every token
        # in between would cost time and change nothing.
        if urgent or not waiter.waits_for_budget:
            waiter.blocked_until = 0.0
            self._wake.set()

    def assume_spent(self) -> None:
        """Another process may have spent every budget up to now: begin at the even rate, without a burst.

        What it spent has run out after one window, and nothing is held back any longer.
        """
        self._assumed_at = self._clock.now()
        self._scopes = {draw: scope.inherited(self._assumed_at) for draw, scope in self._scopes.items()}

    def close(self, scope: Draw, seconds: float) -> None:
        """The platform refused `scope` for its rate: nothing is admitted there for `seconds`, then more slowly."""
        now = self._clock.now()
        state = self._scope(scope)
        state.closed_until = max(state.closed_until, now + seconds)
        state.slow_down(now)

    def closed_until(self, scope: Draw) -> float:
        """The moment until which a scope is closed; 0 when it is open."""
        state = self._scopes.get(scope)
        return state.closed_until if state and state.closed_until > self._clock.now() else 0.0

    @property
    def waiting(self) -> int:
        """How many replies wait for budget or for something new to show."""
        return len(self._waiting)

    async def run(self) -> None:
        """Admit waiting claimants as time passes; runs until cancelled."""
        while True:
            await wait_until(self._clock, None if self._due == math.inf else self._due, self._wake)
            self._wake.clear()
            self._choose(self._waiting.items(), self._clock.now())
            waiting = (w.blocked_until for w in self._waiting.values() if not w.admitted.done())
            self._due = min(waiting, default=math.inf)

    def _choose(self, claimants: Iterable[tuple[Claimant, _Waiter]], now: float) -> None:
        """Admit those of the claimants who may go now, the most urgent first; the others learn when to try again."""
        ready: list[tuple[Urgency, float, int, _Waiter, Sequence[Op]]] = []
        for order, (claimant, waiter) in enumerate(claimants):
            if waiter.admitted.done() or waiter.blocked_until > now:
                continue
            if claimant.held_until > now:
                waiter.block(claimant.held_until, for_budget=True)
                continue
            try:
                ops = claimant.offers(now)
            except Exception as error:  # noqa: BLE001 - a reply that cannot be planned must not stop all others
                waiter.admitted.set_exception(error)
                continue
            if ops:
                ready.append((ops[0].urgency, claimant.stale_since, order, waiter, ops))
            else:
                waiter.block(math.inf, for_budget=False)
        for _, _, _, waiter, ops in sorted(ready, key=lambda entry: entry[:3]):
            self._admit_first(waiter, ops, now)
        self._forget_idle_scopes(now)

    def _admit_first(self, waiter: _Waiter, ops: Sequence[Op], now: float) -> None:
        waiter.block(math.inf, for_budget=False)
        for op in ops:
            opens = max((self._scope(draw).opens(op.urgency, now) for draw in op.draws), default=0.0)
            if max(opens, op.not_before) <= now:
                for draw in op.draws:
                    self._scope(draw).spend(now)
                waiter.admitted.set_result(op)
                return
            if max(opens, op.not_before) < waiter.blocked_until:
                waiter.block(max(opens, op.not_before), for_budget=opens > op.not_before)

    def _scope(self, draw: Draw) -> _Scope:
        scope = self._scopes.get(draw)
        if scope is None:
            scope = _Scope(self._budgets.get(draw.budget, _UNLIMITED))
            if self._clock.now() < self._assumed_at + scope.budget.window:
                scope = scope.inherited(self._assumed_at)
            self._scopes[draw] = scope
        return scope

    def _forget_idle_scopes(self, now: float) -> None:
        if len(self._scopes) > self._many_scopes:
            self._scopes = {draw: scope for draw, scope in self._scopes.items() if not scope.is_idle(now)}
            self._many_scopes = max(_MANY_SCOPES, 2 * len(self._scopes))


@dataclass(slots=True)
class _Waiter:
    admitted: asyncio.Future[Op] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    blocked_until: float = 0.0
    waits_for_budget: bool = False

    def block(self, until: float, *, for_budget: bool) -> None:
        self.blocked_until = until
        self.waits_for_budget = for_budget


@dataclass(slots=True)
class _Scope:
    """One budget under one key: what was spent in the window, the even spacing of growth, and closures."""

    budget: Budget
    spent: deque[float] = field(default_factory=deque)
    next_even: float = 0.0  # when the next call would fall in an evenly spaced row
    closed_until: float = 0.0
    refused_at: float = 0.0
    slowness: float = 1.0

    def opens(self, urgency: Urgency, now: float) -> float:
        """The earliest moment at which a call of this urgency fits."""
        budget = self.budget
        slowness = self._slowness(now)
        self._drop_old(now)
        is_growth = urgency >= Urgency.GROWTH
        room = budget.limit - (min(budget.reserve, budget.limit - 1) if is_growth else 0)
        cap = max(1, int(room / slowness))
        moment = self.closed_until
        if len(self.spent) >= cap:
            moment = max(moment, self.spent[len(self.spent) - cap] + budget.window + _JITTER)
        if is_growth:
            interval = budget.window / room * slowness
            moment = max(moment, self.next_even - (budget.burst - 1) * interval)
        return moment

    def inherited(self, at: float) -> _Scope:
        """This scope as if all of its budget had been spent, evenly, in the window before `at`."""
        budget = self.budget
        if budget.limit > _MOST_INHERITED:
            return self
        step = budget.window / budget.limit
        spent = deque(at - budget.window + step * number for number in range(budget.limit))
        return replace(self, spent=spent, next_even=max(at, self.next_even))

    def spend(self, now: float) -> None:
        budget = self.budget
        self.spent.append(now)
        room = budget.limit - min(budget.reserve, budget.limit - 1)
        self.next_even = max(now, self.next_even) + budget.window / room * self._slowness(now)

    def slow_down(self, now: float) -> None:
        self.slowness = min(_SLOWEST, self._slowness(now) * _SLOWDOWN)
        self.refused_at = now

    def is_idle(self, now: float) -> bool:
        self._drop_old(now)
        return not self.spent and self.closed_until <= now and self._slowness(now) < 1.05

    def _slowness(self, now: float) -> float:
        if self.slowness == 1.0:
            return 1.0
        halvings = (now - max(self.refused_at, self.closed_until)) / (self.budget.window * _RECOVERY)
        return 1.0 + (self.slowness - 1.0) * float(0.5 ** max(0.0, halvings))

    def _drop_old(self, now: float) -> None:
        while self.spent and self.spent[0] < now - self.budget.window - _JITTER:
            self.spent.popleft()
