"""The run manager: which run of which thread goes when, and how runs end."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from langgraph.types import StateSnapshot

from adapters.embedded import state, wire
from adapters.embedded.store import CancelAction, Json, Run, Store, ThreadStatus, UnknownThread
from adapters.embedded.stream import StreamBridge
from adapters.embedded.worker import Outcome, Worker
from channels.clock import Clock, wait_until

Stored = TypeVar("Stored")

logger = logging.getLogger(__name__)

# A run that ended with the process this often may well be the reason, and is not tried again.
MAX_CUT_OFF = 3

# Seconds between two tries to store what a run has come to: the first pause, which doubles up to the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0

_USER_INTERRUPT: Json = {"error": "UserInterrupt", "message": "The run was cancelled"}
_INTERNAL_ERROR: Json = {"error": "InternalError", "message": "An internal error occurred"}
_RUN_NOT_FOUND: Json = {"error": "HTTPException", "message": "404: Run not found"}


class ThreadBusy(Exception):
    """The thread has a run and the new one asked not to wait."""


class GatewayStopping(Exception):
    """The gateway stops before the run is over; the next process carries the run on."""


class NothingToCancel(LookupError):
    """There is no such run, or it is over."""


@dataclass(eq=False, slots=True)
class _Active:
    """A run from being asked for to being over."""

    run: Run
    stored: bool = False
    cancel: CancelAction | None = None
    driver: asyncio.Task[None] | None = None
    execution: asyncio.Task[Outcome] | None = None
    values: object = None
    done: asyncio.Event = field(default_factory=asyncio.Event)


class RunManager:
    """Owns all runs of this process. Runs of one thread go one after another; threads do not wait for each other.

    A run is begun and ended by its driver, a task of which there is at most one per run.
    """

    def __init__(self, store: Store, bridge: StreamBridge, worker: Worker, clock: Clock) -> None:
        self._store = store
        self._bridge = bridge
        self._worker = worker
        self._clock = clock
        self._lanes: dict[str, list[_Active]] = {}
        self._active: dict[str, _Active] = {}
        self._stopping = asyncio.Event()

    async def recover(self) -> None:
        """Carry on what a former process left: stop what was to be stopped, run the rest again from its start."""
        for run in await self._store.unfinished():
            active = _Active(run, stored=True, cancel=run.cancel)
            self._enter(active)
            self._bridge.open(run.run_id)
            logger.info("run %s of thread %s is carried on (%s)", run.run_id, run.thread_id, run.status)
        for thread_id in list(self._lanes):
            self._advance(thread_id)

    async def create(self, run: Run) -> Run:
        """Accept a run according to its multitask strategy; it starts when those before it in its thread are over.

        Raises:
            ThreadBusy: the strategy is `reject` and the thread has a run that has not been told to stop.
            UnknownThread: the thread does not exist.
        """
        others = [active for active in self._lanes.get(run.thread_id, ()) if active.cancel is None]
        if others and run.multitask_strategy == "reject":
            raise ThreadBusy(run.thread_id)
        # No await between the check and this: two requests at once cannot both pass.
        active = _Active(run)
        self._enter(active)
        try:
            active.run = await self._store.insert_run(run)
        except BaseException:
            self._leave(active)
            raise
        active.stored = True
        self._bridge.open(run.run_id)
        if active.cancel is not None:  # while it was being stored
            self._start(active)
        self._advance(run.thread_id)
        if run.multitask_strategy in ("interrupt", "rollback"):
            await self._stop_runs(others, "rollback" if run.multitask_strategy == "rollback" else "interrupt")
        return active.run

    async def cancel(self, thread_id: str, run_id: str, action: CancelAction) -> None:
        """Tell a run to stop, and return without waiting for it. Raises NothingToCancel."""
        active = self._active.get(run_id)
        if active is None or active.run.thread_id != thread_id:
            raise NothingToCancel(run_id)
        await self._stop_run(active, action)

    async def finished(self, run_id: str) -> None:
        """Return when the run is over (at once when it is, or is not known). Raises GatewayStopping."""
        if active := self._active.get(run_id):
            await self._until_over(active)

    async def result(self, thread_id: str, run_id: str) -> object:
        """Wait for the run's end: the values of the state it ended in, or {"__error__": …}.

        Raises GatewayStopping.
        """
        active = self._active.get(run_id)
        if active is not None:
            await self._until_over(active)
            if active.values is not None:
                return active.values
        run = await self._store.run(thread_id, run_id)
        if run is None and (active is None or active.cancel != "rollback"):
            return {"__error__": _RUN_NOT_FOUND}
        if run is not None and run.error is not None:
            return {"__error__": run.error}
        return await self._values(thread_id, run.final_checkpoint if run else None)

    async def clear_thread(self, thread_id: str) -> None:
        """Stop every run of the thread and return when all are over. Raises GatewayStopping."""
        while lane := self._lanes.get(thread_id):
            await self._stop_runs(lane, "interrupt")
            if lane:
                await self._until_over(lane[0])

    def is_busy(self, thread_id: str) -> bool:
        return bool(self._lanes.get(thread_id))

    async def stop(self, seconds: float) -> None:
        """Break off all executions, within `seconds`, and leave their runs to the next process."""
        self._stopping.set()
        actives = list(self._active.values())
        for active in actives:
            if active.execution is not None:
                active.execution.cancel()
        drivers = {active.driver for active in actives if active.driver is not None}
        if drivers:
            _, stubborn = await asyncio.wait(drivers, timeout=seconds)
            for driver in stubborn:
                driver.cancel()
        for active in self._active.values():
            active.done.set()
        try:
            await self._store.requeue(list(self._active))
        except sqlite3.Error:
            logger.exception("the next process will take the runs in flight for cut off by a crash")

    async def _until_over(self, active: _Active) -> None:
        await active.done.wait()
        if active.run.run_id in self._active:
            raise GatewayStopping(active.run.run_id)

    def _enter(self, active: _Active) -> None:
        self._active[active.run.run_id] = active
        self._lanes.setdefault(active.run.thread_id, []).append(active)

    def _leave(self, active: _Active) -> None:
        thread_id = active.run.thread_id
        del self._active[active.run.run_id]
        lane = self._lanes[thread_id]
        lane.remove(active)
        if not lane:
            del self._lanes[thread_id]
        active.done.set()
        self._advance(thread_id)

    def _advance(self, thread_id: str) -> None:
        lane = self._lanes.get(thread_id)
        if lane and lane[0].stored:
            self._start(lane[0])

    def _start(self, active: _Active) -> None:
        if active.driver is None and not self._stopping.is_set():
            active.driver = asyncio.create_task(self._drive(active))

    async def _stop_runs(self, actives: Sequence[_Active], action: CancelAction) -> None:
        # The last one first: when one is stopped, the next in its lane must not begin before it is stopped too.
        for active in tuple(reversed(actives)):
            await self._stop_run(active, action)

    async def _stop_run(self, active: _Active, action: CancelAction) -> None:
        if active.cancel is not None:
            return
        active.cancel = action
        if not active.stored:
            return  # `create` sees the flag when it gets to know that the run is stored
        if active.execution is not None:
            active.execution.cancel()
        self._start(active)  # before its turn if need be: all that is left to do is to end
        try:
            await self._store.note_cancel(active.run.run_id, action)
        except sqlite3.Error:
            logger.exception("that run %s is to be stopped could not be stored", active.run.run_id)

    async def _drive(self, active: _Active) -> None:
        with suppress(GatewayStopping):  # then the run stays as it is, to be carried on
            try:
                outcome = await self._execute(active)
            except GatewayStopping:
                raise
            except Exception:
                logger.exception("run %s could not be executed", active.run.run_id)
                outcome = Outcome("error", _INTERNAL_ERROR)
            await self._conclude(active, outcome)

    async def _execute(self, active: _Active) -> Outcome:
        """Run once. Raises GatewayStopping: broken off, because the gateway stops."""
        if active.cancel is not None:
            return Outcome("interrupted")
        beginning = await self._insist(partial(self._store.begin, active.run), "beginning", active.run)
        if beginning is None:  # deleted meanwhile
            return Outcome("interrupted")
        if beginning.cut_off >= MAX_CUT_OFF:
            message = f"The run was given up after {MAX_CUT_OFF} attempts that ended with the process"
            return Outcome("error", {"error": "RunAbandoned", "message": message})
        execution = active.execution = asyncio.create_task(self._perform(active, beginning.attempt))
        if active.cancel is not None or self._stopping.is_set():  # since the run began to begin
            execution.cancel()
        await asyncio.wait({execution})
        return self._broken_off(active) if execution.cancelled() else execution.result()

    async def _perform(self, active: _Active, attempt: int) -> Outcome:
        run_id = active.run.run_id

        async def publish(mode: str, data: bytes, namespace: Collection[str] = ()) -> None:
            await self._bridge.publish(run_id, mode, data, namespace)

        await publish("metadata", wire.dumps({"run_id": run_id, "attempt": attempt}))
        return await self._worker.execute(active.run, attempt, publish)

    def _broken_off(self, active: _Active) -> Outcome:
        if active.cancel is not None:
            return Outcome("interrupted")
        if self._stopping.is_set():
            raise GatewayStopping(active.run.run_id)
        return Outcome("error", {"error": "CancelledError", "message": "The graph cancelled its own run"})

    async def _conclude(self, active: _Active, outcome: Outcome) -> None:
        """Store how the run ended, then tell its readers, then let the next run of the thread start.

        In this order, so that whoever sees the end can read the final status and state. While it cannot be stored
        nobody is told: a stream that ends before its run makes its reader come back, again and again. Raises
        GatewayStopping.
        """
        run = active.run
        await self._insist(partial(self._store_end, active, outcome), "end", run)
        if outcome.error is not None:
            await self._bridge.publish(run.run_id, "error", wire.dumps(outcome.error))
        await self._bridge.end(run.run_id)
        self._leave(active)

    async def _insist(self, store: Callable[[], Awaitable[Stored]], what: str, run: Run) -> Stored:
        """Call `store` until it succeeds: a disk that is full or away may come back. Raises GatewayStopping."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return await store()
            except sqlite3.Error as error:
                where = f"the {what} of run {run.run_id} of thread {run.thread_id}"
                logger.error("%s could not be stored (%s); it is tried again in %g s", where, error, pause)
            if await wait_until(self._clock, self._clock.now() + pause, self._stopping):
                raise GatewayStopping(run.run_id)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _store_end(self, active: _Active, outcome: Outcome) -> None:
        """Store how the run ended. It may be called again after it failed half-way."""
        run = active.run
        if active.cancel == "rollback":
            if await self._store.roll_back(run) != "busy":
                await self._store.touch_thread(run.thread_id, await self._resting(run.thread_id))
        else:
            thread_error = _USER_INTERRUPT if outcome.status == "interrupted" else outcome.error
            thread_status = await self._thread_status(run.thread_id, outcome)
            await self._store.finish(run, outcome.status, thread_status, outcome.error, thread_error)
        if run.kwargs["temporary"]:
            error = outcome.error
            active.values = {"__error__": error} if error else await self._values(run.thread_id, None)
            if not run.kwargs["keep"]:
                with suppress(UnknownThread):
                    await self._store.delete_thread(run.thread_id)

    async def _thread_status(self, thread_id: str, outcome: Outcome) -> ThreadStatus:
        """What the thread is after a run that ended like this."""
        if outcome.status == "success":
            return await self._resting(thread_id)
        return "interrupted" if outcome.status == "interrupted" else "error"

    async def _resting(self, thread_id: str) -> ThreadStatus:
        """What the thread is when it goes by its state alone."""
        snapshot = await self._snapshot(thread_id, None)
        if snapshot is None:
            return "error"
        return "interrupted" if snapshot.next else "idle"

    async def _values(self, thread_id: str, checkpoint_id: str | None) -> object:
        snapshot = await self._snapshot(thread_id, checkpoint_id)
        return {"__error__": _INTERNAL_ERROR} if snapshot is None else wire.without_internals(snapshot.values)

    async def _snapshot(self, thread_id: str, checkpoint_id: str | None) -> StateSnapshot | None:
        """The state, or None when the graph's own code cannot read it. Raises sqlite3.Error when the disk cannot."""
        try:
            return await self._worker.graph.aget_state(state.config_of(thread_id, checkpoint_id))
        except sqlite3.Error:
            raise
        except Exception:
            logger.exception("the state of thread %s cannot be read", thread_id)
            return None


__all__ = ["NothingToCancel", "RunManager", "ThreadBusy", "UnknownThread"]
