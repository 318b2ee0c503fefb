"""The sink of one channel: judge, commit and de-duplicate what people did, before the platform is acked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog
from pydantic import JsonValue

from channels.access import BusyPolicy, Policy, Verdict, conversation_place, judge, judge_sender, thread_of
from channels.adapter import Accepted, ChannelState, Health, StoreAway
from channels.clock import Clock
from channels.commands import is_command, question_in
from channels.faults import point
from channels.model import Action, Inbound, InboundKind, Place
from channels.observe import Metrics, redact
from channels.store import Store
from channels.store.records import Lane, StoreError, Unstorable

log = structlog.get_logger(__name__)

_MOST_POSTPONED = 1_000
_TRY_EVERY = 1.0  # seconds
_IN_VAIN = 3  # tries after which nothing more is tried for now
_POSTPONE = 3_600.0  # seconds; by then the platform has brought it again, or the store has other troubles


class Inbox:
    """What a channel's adapter hands its events to; works on every replica, whoever owns the channel."""

    def __init__(self, channel: str, policy: Policy, store: Store, clock: Clock, metrics: Metrics) -> None:
        self._channel = channel
        self._policy = policy
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self.health = Health(ChannelState.STARTING, since=clock.now())
        self.health_changed: Callable[[], None] = lambda: None
        self._postponed: dict[str, Inbound] = {}
        self._has_postponed = asyncio.Event()

    async def accept(self, inbound: Inbound) -> Accepted:
        """See `channels.adapter.Sink.accept`."""
        result: Accepted | None = None
        try:
            with _store_away(), self._or_left_out(inbound.event_key):
                result = await self._accept(inbound)
        except StoreAway:
            self._postpone(inbound)
            raise
        self._postponed.pop(inbound.event_key, None)
        self._metrics.inbounds.labels(self._channel, "failed" if result is None else result.value).inc()
        if result is Accepted.TAKEN:
            point("accepted")
        return result or Accepted.IGNORED

    @contextmanager
    def _or_left_out(self, what: str) -> Iterator[None]:
        """Leave out what fails for another reason than a store that is away.

        It would fail again as often as the platform brings it again, and some bring nothing else before it is taken.
        """
        try:
            yield
        except Exception as error:
            if isinstance(error, StoreAway | StoreError) and not isinstance(error, Unstorable):
                raise
            log.exception("left out, for it cannot be taken in", channel=self._channel, what=what)

    def _postpone(self, inbound: Inbound) -> None:
        if inbound.comes_again and len(self._postponed) < _MOST_POSTPONED:
            self._postponed.setdefault(inbound.event_key, inbound)
            self._has_postponed.set()

    async def store_postponed(self) -> None:
        """Store what came while the store was away as soon as it is back; until cancelled.

        Nothing depends on it, for none of it was acked. But platforms bring such things again after a minute, five
        minutes or an hour, and nobody should wait for an answer so long because a database was restarted.
        """
        while True:
            await self._has_postponed.wait()
            await self._clock.sleep(_TRY_EVERY)
            await self._try_postponed()
            if not self._postponed:
                self._has_postponed.clear()

    async def _try_postponed(self) -> None:
        """Each in the order in which it was asked, unless the first few fail: then the store is still away."""
        succeeded = failed = 0
        for inbound in sorted(self._postponed.values(), key=lambda inbound: inbound.asked_at):
            if self._clock.now() - inbound.received_at > _POSTPONE:
                self._postponed.pop(inbound.event_key, None)
                continue
            try:
                await self.accept(inbound)
                succeeded += 1
            except StoreAway:
                failed += 1
                if failed >= _IN_VAIN and not succeeded:
                    return

    async def _accept(self, inbound: Inbound) -> Accepted:
        if inbound.kind is InboundKind.MESSAGE and is_command(inbound):
            inbound = replace(inbound, kind=InboundKind.COMMAND)
        if inbound.kind is InboundKind.EDITED:
            return Accepted.IGNORED
        if inbound.kind is InboundKind.DELETED and not await self._is_open(inbound):
            return Accepted.IGNORED
        verdict = await verdict_on(inbound, self._policy, self._store)
        place = await self._place(inbound)
        if place is None or verdict not in (Verdict.ALLOWED, Verdict.PAIRING):
            return Accepted.IGNORED
        placed = inbound.at(place)
        lane = Lane.CONTROL if verdict is Verdict.PAIRING else await self._lane(placed)
        asks = verdict is Verdict.ALLOWED and _asks(inbound, lane)
        joins = thread_of(inbound, self._policy) if asks else None
        stored = await self._store.accept(placed, lane, joins=joins)
        return Accepted.DUPLICATE if stored is None else Accepted.TAKEN

    async def _is_open(self, deleted: Inbound) -> bool:
        return await self._store.is_open(deleted.channel, deleted.place.chat, deleted.message_id)

    async def _place(self, inbound: Inbound) -> Place | None:
        """Whose conversation it belongs to: for a button, that of the turn it stands under. None: a made-up button."""
        if inbound.press is None:
            return conversation_place(inbound, self._policy)
        turn = await self._store.turn(inbound.press.turn)
        if turn is None:
            return None
        place = turn.conversation.place
        return place if (place.channel, place.chat) == (inbound.channel, inbound.place.chat) else None

    async def _lane(self, inbound: Inbound) -> Lane:
        match inbound.kind:
            case InboundKind.MESSAGE:
                if self._policy.when_busy is BusyPolicy.REJECT:
                    conversation = await self._store.conversation_at(inbound.place)
                    if conversation is not None and await self._store.open_turn(conversation.id) is not None:
                        return Lane.CONTROL
                return Lane.TURN
            case InboundKind.PRESS:
                answers = inbound.press is not None and inbound.press.action is Action.ANSWER
                return Lane.TURN if answers else Lane.CONTROL
            case _:
                return Lane.CONTROL

    def report(self, state: ChannelState, reason: str = "") -> None:
        """See `channels.adapter.Sink.report`."""
        reason = redact(reason)
        if (state, reason) == (self.health.state, self.health.reason):
            return
        level = log.info if state in (ChannelState.STARTING, ChannelState.RUNNING) else log.error
        level("channel state", channel=self._channel, state=state.value, reason=reason)
        since = self.health.since if state is self.health.state else self._clock.now()
        self.health = Health(state, reason, since)
        self.health_changed()

    async def recall(self, key: str) -> JsonValue:
        """See `channels.adapter.Sink.recall`."""
        with _store_away():
            return await self._store.recall(self._channel, key)

    async def remember(self, key: str, value: JsonValue, ttl: float | None = None) -> None:
        """See `channels.adapter.Sink.remember`."""
        with _store_away(), self._or_left_out(key):
            await self._store.remember(self._channel, key, value, ttl)

    async def rekey(self, old_chat: str, new_chat: str) -> None:
        """See `channels.adapter.Sink.rekey`."""
        with _store_away(), self._or_left_out(f"{old_chat} is {new_chat} now"):
            await self._store.rekey(self._channel, old_chat, new_chat)
            await self._store.remember(self._channel, _moved_key(new_chat), old_chat)


def _asks(inbound: Inbound, lane: Lane) -> bool:
    """Whether somebody has typed a question to the agent; a `/new` may bring one along."""
    if inbound.kind is InboundKind.COMMAND:
        return question_in(inbound) is not None
    return inbound.kind is InboundKind.MESSAGE and lane is Lane.TURN


@contextmanager
def _store_away() -> Iterator[None]:
    """What adapters know of a store that cannot be used, whether it was to be read or written."""
    try:
        yield
    except StoreError as error:
        raise StoreAway(str(error)) from error


async def verdict_on(inbound: Inbound, policy: Policy, store: Store) -> Verdict:
    """What access says to this inbound, with what the store knows of its place and sender."""
    takes_part = False
    if not inbound.place.private and not inbound.mentions_bot:
        if inbound.reply_to is not None:
            bound = await store.conversation_of_message(inbound.channel, inbound.place.chat, inbound.reply_to)
            takes_part = bound is not None
        thread = thread_of(inbound, policy)
        if not takes_part and thread is not None:
            takes_part = await store.takes_part(thread)
    policy = await _policy_for(inbound, policy, store)
    return judge(inbound, policy, takes_part=takes_part, paired=await _is_paired(inbound, policy, store))


async def verdict_on_sender(inbound: Inbound, policy: Policy, store: Store) -> Verdict:
    """What access says to the sender of an inbound that was accepted, with what the store knows by now."""
    policy = await _policy_for(inbound, policy, store)
    return judge_sender(inbound, policy, paired=await _is_paired(inbound, policy, store))


async def _policy_for(inbound: Inbound, policy: Policy, store: Store) -> Policy:
    """The policy, which allows a chat that got a new id also where it names the old one."""
    chat, places = inbound.place.chat, policy.allow_places
    if not places or chat in places or await store.recall(inbound.channel, _moved_key(chat)) not in places:
        return policy
    return policy.model_copy(update={"allow_places": (*places, chat)})


def _moved_key(chat: str) -> str:
    """Where the channel's memory says which id the chat had before."""
    return f"moved:{chat}"


async def _is_paired(inbound: Inbound, policy: Policy, store: Store) -> bool:
    return policy.pairing and await store.recall(inbound.channel, paired_key(inbound.sender.id)) is not None


def paired_key(sender: str) -> str:
    """Where the channel's memory says that an admin has approved this person."""
    return f"paired:{sender}"
