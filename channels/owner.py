"""Everything one replica does for one channel it owns: receive, claim, carry turns, act on controls."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace

import structlog

from channels.access import BusyPolicy
from channels.adapter import Adapter, ChannelState
from channels.clock import Clock, wait_until
from channels.control import ControlLane
from channels.faults import point
from channels.inbox import Inbox
from channels.model import TurnId
from channels.store import Store
from channels.store.records import Lease, LostLease, StoredInbound, StoreError, StoreUnavailable, Turn, TurnState
from channels.turn import ChannelParts, TurnCarrier

log = structlog.get_logger(__name__)

LEASE_SECONDS = 12.0
"""How long a lease lasts. Renewed every third of it; a dead owner is replaced within 15 s, the search included."""
_SAFETY = 2.0  # seconds before its lease ends at which an owner stops sending
_CLAIM_AT_ONCE = 10  # in one transaction, for which the lease cannot be renewed: a slow database takes seconds for them
MOST_RUNS = 200
"""Turns of a channel that need a run at the same time; further questions wait in the store.

Each holds a stream from the gateway open and now and then a call to the platform: up to 400 of the 1,024 files that a
process may usually have. Measured with langgraph-sdk 0.4, 200 streams of 20 tokens a second take two thirds of a core.
"""
_NET = 5.0  # seconds after which an owner looks for work although nobody woke it
_STORE_RETRY = 1.0
_CRASHES = 3  # unexpected errors after which a turn is given up instead of tried again
_UNEXPECTED = "failed unexpectedly; see the log"
_HANDOVER = 5.0  # seconds for ops in flight when the channel is handed over


class ChannelOwner:
    """The work on one owned channel. `run` returns after `halt`, and raises `LostLease` when the lease is lost."""

    def __init__(self, lease: Lease, inbox: Inbox, parts: ChannelParts) -> None:
        self.channel = lease.channel
        self._lease = lease
        self._inbox = inbox
        self._parts = parts
        self._clock: Clock = parts.clock
        self._store: Store = parts.store
        self._adapter: Adapter = parts.adapter
        self._safe_until = 0.0
        self._wake = asyncio.Event()
        self._control_wake = asyncio.Event()
        self._halted = asyncio.Event()
        self._carriers: dict[TurnId, TurnCarrier] = {}
        self._stops: dict[TurnId, str] = {}
        self._again: set[TurnId] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._crashes: dict[str, int] = {}
        self._lost: LostLease | None = None
        self._controls = ControlLane(
            self.channel,
            parts.policy,
            parts.adapter.command_sign,
            parts.store,
            parts.metrics,
            self.lease,
            self.live,
            self.carry,
            self.stop,
        )

    # ---------------------------------------------------------------- the lease

    def lease(self) -> Lease:
        """The lease to send and write under. Raises `LostLease` when its end is too near."""
        if self._lost is not None or self._clock.now() >= self._safe_until:
            raise self._lost or LostLease(f"the lease of {self.channel} could not be renewed in time")
        return self._lease

    def renewed(self, lease: Lease, asked_at: float) -> None:
        """The lease was prolonged by a request made at `asked_at` (on this replica's clock)."""
        self._lease = lease
        self._safe_until = asked_at + LEASE_SECONDS - _SAFETY

    def lose(self) -> None:
        """Another replica owns the channel: stop sending at once."""
        self._lost = LostLease(f"another replica owns {self.channel}")
        self._halted.set()
        self._wake.set()

    @property
    def current_lease(self) -> Lease:
        """The lease as last known, whether or not it may still be used."""
        return self._lease

    # ---------------------------------------------------------------- waking

    def wake(self) -> None:
        """Something was accepted or finished in this channel."""
        self._wake.set()
        self._control_wake.set()

    def halt(self) -> None:
        """Hand the channel over in good order."""
        self._halted.set()
        self._wake.set()

    def live(self) -> Iterable[TurnCarrier]:
        """The turns that are being carried now."""
        return tuple(self._carriers.values())

    # ---------------------------------------------------------------- work

    async def run(self) -> None:
        """Work until halted. The adapter is stopped and every task ended when this returns."""
        background = [
            asyncio.create_task(self._parts.pacer.run(), name=f"pacer-{self.channel}"),
            asyncio.create_task(self._adapter.start(), name=f"start-{self.channel}"),
            asyncio.create_task(self._handle_controls(), name=f"controls-{self.channel}"),
            asyncio.create_task(self._watch_lease(), name=f"lease-{self.channel}"),
        ]
        for task in background:
            task.add_done_callback(self._background_ended)
        self._parts.metrics.owned.labels(self.channel).set(1)
        if self._lease.epoch > 1:
            self._parts.pacer.assume_spent()  # whoever owned it before did not say what it had spent
        claiming = asyncio.create_task(self._resume_and_claim(), name=f"claim-{self.channel}")
        halted = asyncio.create_task(self._halted.wait(), name=f"halted-{self.channel}")
        try:
            # A store that does not answer must not keep a channel whose lease has run out.
            await asyncio.wait({claiming, halted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._hand_over([*background, claiming, halted])
            self._parts.metrics.owned.labels(self.channel).set(0)
        if self._lost is not None:
            raise self._lost
        if not claiming.cancelled():
            claiming.result()

    async def _watch_lease(self) -> None:
        """Give the channel up when its lease could not be renewed in time, whatever else is waited for."""
        while (left := self._safe_until - self._clock.now()) > 0:
            await self._clock.sleep(left)
        self._lost = self._lost or LostLease(f"the lease of {self.channel} could not be renewed in time")
        self.halt()

    async def _resume_and_claim(self) -> None:
        await self._resume_unfinished()
        await self._claim_until_halted()

    async def _resume_unfinished(self) -> None:
        while not self._halted.is_set():
            try:
                for turn in await self._store.unfinished(self.lease()):
                    self.carry(turn)
                return
            except LostLease as error:
                self._lost = self._lost or error
                return
            except StoreError as error:
                log.warning("cannot look for unfinished turns", channel=self.channel, cause=str(error))
                await self._clock.sleep(_STORE_RETRY)

    async def _claim_until_halted(self) -> None:
        while not self._halted.is_set():
            self._wake.clear()
            ready_at: float | None = None
            try:
                # Also without room: turns that an earlier claim is in doubt about, answers to commands among them.
                turns = await self._store.claim(self.lease(), min(self._room(), _CLAIM_AT_ONCE))
                for turn in turns:
                    point("claimed")
                    self.carry(turn)
                if len(turns) == _CLAIM_AT_ONCE:
                    continue
                if self._room():  # else whoever finishes wakes us
                    ready_at = await self._store.next_ready(self.lease())
                if self._parts.policy.when_busy is BusyPolicy.INTERRUPT:
                    await self._interrupt_busy()
            except LostLease as error:
                self._lost = self._lost or error
                return
            except StoreError as error:
                log.warning("cannot look for new questions", channel=self.channel, cause=str(error))
            net = self._clock.now() + _NET
            await wait_until(self._clock, net if ready_at is None else min(net, ready_at), self._wake)

    def _room(self) -> int:
        """How many more turns may have a run. One whose answer is complete and only has to be shown takes no room."""
        return max(0, MOST_RUNS - sum(carrier.needs_run for carrier in self.live()))

    async def _interrupt_busy(self) -> None:
        busy = {
            carrier.turn.conversation.id: carrier
            for carrier in self.live()
            if carrier.turn.state is not TurnState.RETOUCH
        }
        for conversation in await self._store.with_waiting(busy) if busy else ():
            busy[conversation].stop("Stopped: a newer question came.")

    async def _handle_controls(self) -> None:
        while True:
            self._control_wake.clear()
            try:
                for stored in await self._store.controls(self.lease()):
                    await self._handle_control(stored)
            except LostLease:
                return
            except StoreError as error:
                log.warning("cannot handle commands now", channel=self.channel, cause=str(error))
            except Exception:
                log.exception("handling commands failed; trying again", channel=self.channel)
            await wait_until(self._clock, self._clock.now() + _NET, self._control_wake)

    async def _handle_control(self, stored: StoredInbound) -> None:
        try:
            await self._controls.handle(stored)
        except Exception as error:
            if isinstance(error, StoreUnavailable | LostLease):
                raise
            # Tried again it would fail again, and hold up every command after it.
            log.exception("command dropped", channel=self.channel, event_key=stored.inbound.event_key)
            await self._store.control_done(self.lease(), stored.id)

    def carry(self, turn: Turn) -> None:
        """Start carrying a turn. One that is carried already is shown once more afterwards, with its present final."""
        if turn.id in self._carriers:
            self._again.add(turn.id)
        elif not self._halted.is_set():
            try:
                carrier = TurnCarrier(turn, self._parts, self)
            except Exception:
                # The adapter can make no reply of what is stored; the other turns are none of its business.
                log.exception("turn given up, it cannot be begun", channel=self.channel, turn=turn.id)
                self._spawn(self._give_up(turn), f"give-up-{turn.id}")
            else:
                self._start(carrier)

    def stop(self, turn: TurnId, notice: str) -> None:
        """A turn is to end, as the store says already; it may have been read there before, and not be carried yet."""
        if carrier := self._carriers.get(turn):
            carrier.stop(notice)
        else:
            self._stops[turn] = notice

    def _start(self, carrier: TurnCarrier) -> None:
        turn = carrier.turn
        self._carriers[turn.id] = carrier
        if notice := self._stops.pop(turn.id, ""):
            carrier.stop(notice)
        self._spawn(self._carry(carrier), f"carry-{turn.id}")

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def unauthorised(self, reason: str) -> None:
        """The platform refused the channel's tokens."""
        self._inbox.report(ChannelState.FAILED, reason or "unauthorised: the platform refused the token")

    async def _carry(self, carrier: TurnCarrier) -> None:
        turn = carrier.turn
        try:
            await carrier.run()
            self._crashes.pop(turn.id, None)
            await self._show_again(carrier)
        except LostLease as error:
            self._lost = self._lost or error
            self.halt()
        except Exception:
            # A fault of ours must neither lose the question nor hold up its conversation for ever.
            log.exception("turn failed unexpectedly", channel=self.channel, turn=turn.id)
            await self._after_crash(carrier)
        finally:
            if self._carriers.get(turn.id) is carrier:
                del self._carriers[turn.id]
            self.wake()

    async def _show_again(self, carrier: TurnCarrier) -> None:
        """Its final view was changed while it was carried, maybe after the earlier one had been shown."""
        turn = carrier.turn.id
        while turn in self._again and not self._halted.is_set():
            try:
                stored = await self._store.turn(turn)
            except StoreError as error:
                log.warning("an answer cannot be shown anew now", channel=self.channel, turn=turn, cause=str(error))
                await self._clock.sleep(_STORE_RETRY)
                continue
            self._again.discard(turn)
            if stored is not None and stored.state is TurnState.RETOUCH:
                self._start(TurnCarrier(stored, self._parts, self))

    async def _after_crash(self, carrier: TurnCarrier) -> None:
        """Try again, a few times; then tell the reader, and if that fails too, leave a dead letter at least."""
        turn = carrier.turn
        crashes = self._crashes[turn.id] = self._crashes.get(turn.id, 0) + 1
        pause = 2.0**crashes
        while not await wait_until(self._clock, self._clock.now() + pause, self._halted):
            try:
                again = await self._store.turn(turn.id)
                if again is None or not again.state.is_open:
                    return
                if crashes >= _CRASHES and (again.final is not None or crashes > _CRASHES):
                    await self._store.finish(self.lease(), turn.id, carrier.given_up_as, _UNEXPECTED)
                    self._crashes.pop(turn.id, None)
                    return
                last_words = crashes == _CRASHES
                if last_words:
                    final = carrier.failed_view("Something went wrong inside the bridge. /retry asks again.")
                    await self._store.save_final(self.lease(), turn.id, final, again.conversation.pending, _UNEXPECTED)
                    again = replace(again, state=TurnState.FINAL, final=final)
            except LostLease as error:
                self._lost = self._lost or error
                self.halt()
                return
            except StoreError as error:
                log.warning("the store is away; the turn waits", channel=self.channel, turn=turn.id, cause=str(error))
                pause = _STORE_RETRY
                continue
            self._start(TurnCarrier(again, self._parts, self, last_words=last_words))
            return

    async def _give_up(self, turn: Turn) -> None:
        """Leave a dead letter of a turn, or at least let it rest if it was answered before."""
        state = TurnState.DONE if turn.state is TurnState.RETOUCH else TurnState.DEAD
        while not self._halted.is_set():
            try:
                await self._store.finish(self.lease(), turn.id, state, _UNEXPECTED)
                return
            except LostLease as error:
                self._lost = self._lost or error
                self.halt()
            except StoreError as error:
                log.warning("the store is away; the turn waits", channel=self.channel, turn=turn.id, cause=str(error))
                await self._clock.sleep(_STORE_RETRY)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            return
        log.error(
            "channel part ended unexpectedly", channel=self.channel, part=task.get_name(), exc_info=task.exception()
        )
        self._inbox.report(ChannelState.FAILED, "an internal error; see the log")

    async def _hand_over(self, background: Sequence[asyncio.Task[object]]) -> None:
        for carrier in self.live():
            carrier.halt()
        running = set(self._tasks)
        if running and self._lost is None:
            await asyncio.wait(running, timeout=_HANDOVER)
        for task in (*running, *background):
            task.cancel()
        await asyncio.gather(*running, *background, return_exceptions=True)
        await self._adapter.stop()
