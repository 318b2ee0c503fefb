"""The queue of updates: kept until confirmed (24 h at most), handed out by long polling, at least once.

As in tdlib (`TQueue`), ids rise by one until nothing has come for a week; then the next id is chosen at random, higher
or lower. An offset far from the ids of now is taken for none: the poll begins with the oldest update, and confirms
nothing.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from channels.clock import wait_until
from tests.emulators.telegram.backend import Backend
from tests.emulators.telegram.errors import (
    TERMINATED_BY_POLL,
    TERMINATED_BY_WEBHOOK,
    WEBHOOK_ACTIVE,
    bad_request,
    conflict,
)
from tests.emulators.telegram.limits import DEFAULT_UPDATES
from tests.emulators.telegram.wire import Json, Params

_FIRST_UPDATE = 700_000_001
_LOWEST_CHOSEN, _HIGHEST_CHOSEN = 2_000_001, 1_000_000_000
_FAR_AHEAD = 10
_FAR_BEHIND = 2_000_000


@dataclass(slots=True)
class PendingUpdate:
    """An update not yet confirmed. `again` marks one handed out again on a test's wish, whatever the offset says."""

    id: int
    kind: str
    payload: Json
    chat_id: int
    queued_at: float
    handed: int = 0
    again: bool = False
    # webhook delivery
    failures: int = 0
    not_before: float = 0.0

    def to_json(self) -> Json:
        return {"update_id": self.id, self.kind: copy.deepcopy(self.payload)}


@dataclass(slots=True)
class _Poll:
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    ended_by: str | None = None


class ServerStopping(Exception):
    """The emulator is going down; the connection is closed without an answer."""


class Updates:
    """The bot's updates. `webhook_url` is empty while the bot polls."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.pending: list[PendingUpdate] = []
        self.history: list[PendingUpdate] = []
        self.allowed: frozenset[str] = DEFAULT_UPDATES
        self.allowed_named: list[str] | None = None
        self.webhook_url = ""
        self.held = False
        self.other_poller = False
        self.on_handed: list[Callable[[PendingUpdate], None]] = []
        self.on_queued: list[Callable[[], None]] = []
        self._next_id = _FIRST_UPDATE
        self._last_push = backend.clock.now()
        self._random = random.Random(_FIRST_UPDATE)
        self._poll: _Poll | None = None
        self._stopping = False

    @property
    def is_polled(self) -> bool:
        return self._poll is not None

    # filling

    def push(self, kind: str, payload: Json, chat_id: int) -> int | None:
        """Queue an update; None when the bot did not ask for this kind."""
        if kind not in self.allowed:
            return None
        now = self._backend.clock.now()
        if not self.pending and now - self._last_push >= self._backend.limits.ids_kept_seconds:
            self._next_id = self._random.randint(_LOWEST_CHOSEN, _HIGHEST_CHOSEN)
        self._last_push = now
        update = PendingUpdate(self._next_id, kind, payload, chat_id, now)
        self._next_id += 1
        self.pending.append(update)
        self.history.append(update)
        self.wake()
        return update.id

    def redeliver(self, update_id: int | None = None) -> int:
        """Hand an update out once more (the newest when none is named). Raises LookupError for an unknown one."""
        known = [update for update in self.history if update_id in (None, update.id)]
        if not known:
            raise LookupError(f"no update {update_id}")
        original = known[-1]
        now = self._backend.clock.now()
        self.pending.append(
            PendingUpdate(original.id, original.kind, original.payload, original.chat_id, now, again=True)
        )
        self.wake()
        return original.id

    def release(self, *, reverse: bool = False) -> None:
        self.held = False
        if reverse:
            self.pending.reverse()
        self.wake()

    def wake(self) -> None:
        if self._poll is not None:
            self._poll.wake.set()
        for notify in self.on_queued:
            notify()

    def ask_for(self, params: Params) -> None:
        """Take over `allowed_updates` when the call has it; it holds for updates made from now on."""
        named = params.json_list("allowed_updates")
        if named is None:
            return
        if not all(isinstance(kind, str) for kind in named):
            raise bad_request("can't parse allowed_updates: expected an Array of String", rule="allowed_updates")
        self.allowed_named = [str(kind) for kind in named] or None
        self.allowed = frozenset(self.allowed_named) if self.allowed_named else DEFAULT_UPDATES

    def forget_old(self) -> None:
        """What nobody fetched for 24 h is gone."""
        oldest = self._backend.clock.now() - self._backend.limits.updates_kept_seconds
        self.pending = [update for update in self.pending if update.queued_at > oldest]

    def drop_all(self) -> None:
        if self._backend.checks.dropped_updates:
            self._backend.break_rule(f"pending updates dropped ({len(self.pending)} were waiting)")
        self.pending.clear()

    def hand(self, update: PendingUpdate) -> Json:
        """Note that the bot gets this update now."""
        update.handed += 1
        for notify in self.on_handed:
            notify(update)
        return update.to_json()

    # long polling

    async def get_updates(self, params: Params) -> object:
        if self.webhook_url:
            raise conflict(WEBHOOK_ACTIVE)
        offset = params.integer("offset")
        limit = params.integer("limit", self._backend.limits.updates_batch)
        limit = max(1, min(limit, self._backend.limits.updates_batch))
        self.ask_for(params)
        self.end_poll(TERMINATED_BY_POLL)
        if self.other_poller:
            await asyncio.sleep(0)
            raise conflict(TERMINATED_BY_POLL)
        self._confirm(offset)
        poll = self._poll = _Poll()
        deadline = self._backend.clock.now() + max(0, params.integer("timeout"))
        try:
            return await self._wait_for_batch(poll, offset, limit, deadline)
        finally:
            if self._poll is poll:
                self._poll = None
                self._backend.changed()

    async def _wait_for_batch(self, poll: _Poll, offset: int, limit: int, deadline: float) -> list[Json]:
        while True:
            if self._stopping:
                raise ServerStopping
            if poll.ended_by is not None:
                raise conflict(poll.ended_by)
            poll.wake.clear()
            batch = self._batch(offset, limit)
            if batch or self._backend.clock.now() >= deadline:
                return batch
            self._backend.changed()
            await wait_until(self._backend.clock, deadline, poll.wake)

    def _batch(self, offset: int, limit: int) -> list[Json]:
        if self.held:
            return []
        self.forget_old()
        first = 0 if self._is_far(offset) else offset
        ready = [update for update in self.pending if update.again or update.id >= first][:limit]
        self.pending = [update for update in self.pending if not (update.again and update in ready)]
        return [self.hand(update) for update in ready]

    def _confirm(self, offset: int) -> None:
        """An offset confirms all updates below it; a negative one all but the last so many."""
        if offset < 0:
            ids = sorted(update.id for update in self.pending if not update.again)
            offset = ids[offset] if len(ids) >= -offset else 0
        if self._is_far(offset):
            return
        confirmed = [update for update in self.pending if not update.again and update.id < offset]
        unseen = [update.id for update in confirmed if not update.handed]
        if unseen and self._backend.checks.dropped_updates:
            self._backend.break_rule(f"pending updates dropped: offset {offset} confirms unseen {unseen}")
        self.pending = [update for update in self.pending if update not in confirmed]

    def _is_far(self, offset: int) -> bool:
        return not self._next_id - _FAR_BEHIND <= offset <= self._next_id + _FAR_AHEAD

    def end_poll(self, reason: str) -> None:
        """End the running long poll, if there is one, with a 409."""
        if self._poll is not None:
            self._poll.ended_by = reason
            self._poll.wake.set()
            self._poll = None

    def webhook_was_set(self) -> None:
        self.end_poll(TERMINATED_BY_WEBHOOK)

    def start(self) -> None:
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True
        if self._poll is not None:
            self._poll.wake.set()
