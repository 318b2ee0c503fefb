"""The reconcile loop: bring what the platform shows in step with the newest view, until a final view is settled.

Nothing is queued. Each op is planned from the newest view at the moment it is admitted, so updates conflate by
themselves and the last text always gets out, also when the model falls silent.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import structlog
from pydantic import JsonValue, ValidationError

from channels.adapter import (
    Closed,
    Failure,
    Forbidden,
    Gone,
    Intent,
    Op,
    Outcome,
    RateLimited,
    Receipt,
    Refused,
    Shown,
    StoppedByUser,
    Surface,
    TooLarge,
    Transient,
    Unauthorised,
    Unknown,
)
from channels.clock import Clock
from channels.faults import point
from channels.model import View
from channels.pacing import Pacer
from channels.permit import permitted
from channels.store.records import LostLease, StoreError

log = structlog.get_logger(__name__)

_FIRST_HOLD = 0.5  # seconds before the first repetition of a failed op; doubles with each further failure
_LONGEST_HOLD = 60.0
_FREE_CHANGES = 8  # so many degradations, repairs and the like follow each other without a pause


class ReplyEnd(StrEnum):
    """How reconciling ended."""

    SETTLED = "settled"  # the final view is accepted by the platform
    FORBIDDEN = "forbidden"  # nothing more can be shown in this place
    GIVEN_UP = "given up"  # the platform refuses what is missing in every form
    HALTED = "halted"  # the process hands over; another owner goes on from what is stored


@dataclass(frozen=True, slots=True)
class ReplyEvents:
    """What the loop tells its owner. `performed` is called after every op, for metrics and the channel's health."""

    performed: Callable[[Op, Outcome, float], None]
    stopped_by_user: Callable[[], None]


class Reply:
    """One live reply.

    `source` gives the newest view, `save` stores what is shown, `permit` raises `LostLease` when this process may
    no longer send.
    """

    def __init__(
        self,
        surface: Surface,
        pacer: Pacer,
        clock: Clock,
        *,
        source: Callable[[float], View],
        stored: JsonValue,
        save: Callable[[JsonValue, Sequence[str]], Awaitable[None]],
        permit: Callable[[], None],
        events: ReplyEvents,
    ) -> None:
        self._surface = surface
        self._pacer = pacer
        self._clock = clock
        self._source = source
        self._save = save
        self._permit = permit
        self._events = events
        self._shown = _load(surface, stored)
        self._planned: tuple[int, Shown, Sequence[Op]] | None = None
        self._halted = False
        self._attention = asyncio.Event()
        self._stale_since: float | None = None
        self._failures = 0
        self._forbidden = False
        self._saved = True
        self.held_until = 0.0

    @property
    def shown(self) -> Shown:
        """What the platform has accepted so far."""
        return self._shown

    def shows(self, message: str) -> bool:
        """Whether the message, by the platform's id, is one of those that show this reply."""
        return message in self._surface.messages(self._shown)

    @property
    def stale_since(self) -> float:
        return self._clock.now() if self._stale_since is None else self._stale_since

    def offers(self, now: float) -> Sequence[Op]:
        view = self._source(now)
        planned = self._planned
        if planned is None or planned[0] != view.revision or planned[1] is not self._shown:
            planned = self._planned = (view.revision, self._shown, tuple(self._surface.plan(view, self._shown, now)))
            if view.is_final and not planned[2]:
                self._attention.set()  # settled without another op
        return planned[2]

    def changed(self, *, urgent: bool = False) -> None:
        """There may be a newer view. `urgent`: it is final, asks something, or is the first with content."""
        if self._stale_since is None:
            self._stale_since = self._clock.now()
        self._pacer.stir(self, urgent=urgent)

    @property
    def is_forbidden(self) -> bool:
        """Whether the platform has said that nothing more may be shown in this place."""
        return self._forbidden

    def halt(self) -> None:
        """End after the op in flight; what is shown is stored by then."""
        self._halted = True
        self._attention.set()

    async def run(self) -> ReplyEnd:
        """Reconcile until a final view is settled. Raises `LostLease` when this process may no longer send."""
        while True:
            if self._halted:
                await self._store_shown()
                return ReplyEnd.HALTED
            if self._forbidden:
                await self._store_shown()
                return ReplyEnd.FORBIDDEN
            now = self._clock.now()
            if self._source(now).is_final and not self.offers(now):
                await self._store_shown(always=True)
                return ReplyEnd.GIVEN_UP if self._shown.given_up else ReplyEnd.SETTLED
            op = await self._next_op()
            if op is not None:
                await self._reconcile(op)

    async def _next_op(self) -> Op | None:
        """The next op that the pacer admits; None when the loop has something else to look at."""
        admitted = asyncio.ensure_future(self._pacer.admit(self))
        attention = asyncio.ensure_future(self._attention.wait())
        try:
            await asyncio.wait({admitted, attention}, return_when=asyncio.FIRST_COMPLETED)
            self._attention.clear()
            return admitted.result() if admitted.done() else None
        finally:
            admitted.cancel()
            attention.cancel()
            await asyncio.gather(admitted, attention, return_exceptions=True)

    async def _reconcile(self, op: Op) -> None:
        self._permit()
        self._stale_since = None
        if op.creates:
            intended = self._surface.advance(self._shown, op, Intent(), self._clock.now())
            if not await self._store(intended):
                self._hold()  # a creation without a stored intent could not be told from its own repetition
                return
            self._shown = intended
            point("intent-stored")
            self._permit()
        started = self._clock.now()
        outcome: Outcome
        try:
            outcome = await permitted(self._surface.perform(op), self._permit)
        except Failure as failure:
            outcome = failure
        point(f"performed-{'create' if op.creates else 'change'}")
        point(f"performed-{type(op).__name__}")
        now = self._clock.now()
        self._shown = self._surface.advance(self._shown, op, outcome, now)
        self._events.performed(op, outcome, now - started)
        self._react(op, outcome)
        if op.creates or op.keeps:
            self._saved = False
        await self._store_shown()
        if op.creates:
            point("creation-stored")

    def _react(self, op: Op, outcome: Outcome) -> None:
        if isinstance(outcome, Receipt):
            self._failures = 0
            return
        self._failures += 1
        match outcome:
            case RateLimited():
                self._pacer.close(outcome.scope, outcome.retry_after)
                self._failures -= 1
            case Forbidden():
                self._forbidden = True
            case StoppedByUser():
                self._events.stopped_by_user()
            case Transient() | Unknown() | Unauthorised():
                self._hold()
            case Gone() | Closed() | TooLarge() | Refused() if self._failures > _FREE_CHANGES:
                self._hold()
            case _:
                pass

    def _hold(self) -> None:
        seconds = min(_LONGEST_HOLD, _FIRST_HOLD * 2.0 ** min(self._failures, 10))
        self.held_until = self._clock.now() + seconds * random.uniform(0.75, 1.0)

    async def _store_shown(self, *, always: bool = False) -> None:
        if always or not self._saved:
            self._saved = await self._store(self._shown)

    async def _store(self, shown: Shown) -> bool:
        try:
            await self._save(shown.model_dump(mode="json"), self._surface.messages(shown))
        except LostLease:
            raise
        except StoreError as error:
            log.warning("reply state not stored; will be tried again", cause=str(error))
            return False
        return True


def _load(surface: Surface, stored: JsonValue) -> Shown:
    if stored is None:
        return surface.shown_type()
    try:
        return surface.restore(surface.shown_type.model_validate(stored))
    except ValidationError:
        # Written by a version that knew it otherwise; a second message is better than none.
        log.error("stored reply state is unreadable; the reply is started anew")
        return surface.shown_type()
