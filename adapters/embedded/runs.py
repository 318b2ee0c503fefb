"""The run manager: which run of which thread goes when, and how runs end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from adapters.embedded import state, wire
from adapters.embedded.store import CancelAction, Json, Run, Store, ThreadStatus, UnknownThread
from adapters.embedded.stream import StreamBridge
from adapters.embedded.worker import Outcome, Worker

logger = logging.getLogger(__name__)

# A run that ended with the process this often may well be the reason, and is not tried again.
MAX_CUT_OFF = 3

_USER_INTERRUPT: Json = {"error": "UserInterrupt", "message": "The run was cancelled"}
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
    """Owns all runs of this process. Runs of one thread go one after another; threads do not wait for each other."""

    def __init__(self, store: Store, bridge: StreamBridge, worker: Worker) -> None:
        self._store = store
        self._bridge = bridge
        self._worker = worker
        self._lanes: dict[str, list[_Active]] = {}
        self._active: dict[str, _Active] = {}
        self._stopping = False

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
            active.stored = True
            self._bridge.open(run.run_id)
            for other in others:
                if run.multitask_strategy in ("interrupt", "rollback"):
                    await self._stop_run(other, "rollback" if run.multitask_strategy == "rollback" else "interrupt")
            if active.cancel is not None:  # while it was being stored
                await self._conclude(active, Outcome("interrupted"))
        except BaseException:
            if not active.stored:
                self._leave(active)
            raise
        finally:
            self._advance(run.thread_id)
        return active.run

    async def cancel(self, thread_id: str, run_id: str, action: CancelAction) -> None:
        """Tell a run to stop, and return without waiting for it. Raises NothingToCancel."""
        active = self._active.get(run_id)
        if active is None or active.run.thread_id != thread_id:
            raise NothingToCancel(run_id)
        await self._stop_run(active, action)

    async def finished(self, run_id: str) -> None:
        """Return when the run is over (at once when it is, or is not known)."""
        if active := self._active.get(run_id):
            await active.done.wait()

    async def result(self, thread_id: str, run_id: str) -> object:
        """Wait for the run's end: the values of the state it ended in, or {"__error__": …}.

        Raises GatewayStopping.
        """
        active = self._active.get(run_id)
        if active is not None:
            await active.done.wait()
            if self._stopping and run_id in self._active:
                raise GatewayStopping(run_id)
            if active.values is not None:
                return active.values
        run = await self._store.run(thread_id, run_id)
        if run is None and (active is None or active.cancel != "rollback"):
            return {"__error__": _RUN_NOT_FOUND}
        if run is not None and run.error is not None:
            return {"__error__": run.error}
        return await self._values(thread_id, run.final_checkpoint if run else None)

    async def clear_thread(self, thread_id: str) -> None:
        """Stop every run of the thread and return when all are over."""
        while lane := self._lanes.get(thread_id):
            for active in list(lane):
                await self._stop_run(active, "interrupt")
            if lane:
                await lane[0].done.wait()

    def is_busy(self, thread_id: str) -> bool:
        return bool(self._lanes.get(thread_id))

    async def stop(self, seconds: float) -> None:
        """Break off all executions, within `seconds`, and leave their runs to the next process."""
        self._stopping = True
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
        await self._store.requeue(list(self._active))

    def _enter(self, active: _Active) -> None:
        self._active[active.run.run_id] = active
        self._lanes.setdefault(active.run.thread_id, []).append(active)

    def _leave(self, active: _Active) -> None:
        thread_id = active.run.thread_id
        self._active.pop(active.run.run_id, None)
        lane = self._lanes[thread_id]
        lane.remove(active)
        if not lane:
            del self._lanes[thread_id]
        active.done.set()

    def _advance(self, thread_id: str) -> None:
        lane = self._lanes.get(thread_id)
        if lane and lane[0].stored and lane[0].driver is None and not self._stopping:
            lane[0].driver = asyncio.create_task(self._drive(lane[0]))

    async def _stop_run(self, active: _Active, action: CancelAction) -> None:
        if active.cancel is not None:
            return
        active.cancel = action
        if not active.stored:
            return  # `create` sees the flag when it gets to know that the run is stored
        if active.driver is None:
            await self._conclude(active, Outcome("interrupted"))
            return
        await self._store.note_cancel(active.run.run_id, action)
        if active.execution is not None:
            active.execution.cancel()

    async def _drive(self, active: _Active) -> None:
        outcome: Outcome | None = Outcome("error", {"error": "InternalError", "message": "An internal error occurred"})
        try:
            outcome = await self._execute(active)
        except Exception:
            logger.exception("run %s could not be executed", active.run.run_id)
        if outcome is not None:
            await self._conclude(active, outcome)

    async def _execute(self, active: _Active) -> Outcome | None:
        """Run once. None: broken off because the gateway stops; the run stays as it is, to be carried on."""
        if active.cancel is not None:
            return Outcome("interrupted")
        beginning = await self._store.begin(active.run)
        if beginning is None:  # deleted meanwhile
            return Outcome("interrupted")
        if beginning.cut_off >= MAX_CUT_OFF:
            message = f"The run was given up after {MAX_CUT_OFF} attempts that ended with the process"
            return Outcome("error", {"error": "RunAbandoned", "message": message})
        execution = active.execution = asyncio.create_task(self._perform(active, beginning.attempt))
        if self._is_unwanted(active):  # since the run began to begin
            execution.cancel()
        await asyncio.wait({execution})
        return self._broken_off(active) if execution.cancelled() else execution.result()

    async def _perform(self, active: _Active, attempt: int) -> Outcome:
        run_id = active.run.run_id

        async def publish(mode: str, data: bytes, namespace: Collection[str] = ()) -> None:
            await self._bridge.publish(run_id, mode, data, namespace)

        await publish("metadata", wire.dumps({"run_id": run_id, "attempt": attempt}))
        return await self._worker.execute(active.run, attempt, publish)

    def _is_unwanted(self, active: _Active) -> bool:
        return self._stopping or active.cancel is not None

    def _broken_off(self, active: _Active) -> Outcome | None:
        if active.cancel is not None:
            return Outcome("interrupted")
        if self._stopping:
            return None
        return Outcome("error", {"error": "CancelledError", "message": "The graph cancelled its own run"})

    async def _conclude(self, active: _Active, outcome: Outcome) -> None:
        """Store how the run ended, then tell its readers, then let the next run of the thread start.

        In this order, so that whoever sees the end can read the final status and state.
        """
        run = active.run
        try:
            if active.cancel == "rollback":
                await self._store.roll_back(run)
                await self._store.touch_thread(run.thread_id, await self._thread_status(active))
            else:
                await self._finish(active, outcome)
        except Exception:
            logger.exception("the end of run %s could not be stored", run.run_id)
        finally:
            if outcome.error is not None:
                await self._bridge.publish(run.run_id, "error", wire.dumps(outcome.error))
            await self._bridge.end(run.run_id)
            self._leave(active)
            self._advance(run.thread_id)

    async def _finish(self, active: _Active, outcome: Outcome) -> None:
        run = active.run
        thread_error = _USER_INTERRUPT if outcome.status == "interrupted" else outcome.error
        thread_status = await self._thread_status(active, outcome)
        await self._store.finish(run, outcome.status, thread_status, outcome.error, thread_error)
        if run.kwargs["temporary"]:
            error = outcome.error
            active.values = {"__error__": error} if error else await self._values(run.thread_id, None)
            if not run.kwargs["keep"]:
                await self._store.delete_thread(run.thread_id)

    async def _thread_status(self, ended: _Active, outcome: Outcome | None = None) -> ThreadStatus:
        """What the thread is once `ended` is over; without an outcome the run left no trace."""
        if any(other is not ended for other in self._lanes[ended.run.thread_id]):
            return "busy"
        if outcome is not None and outcome.status != "success":
            return "interrupted" if outcome.status == "interrupted" else "error"
        snapshot = await self._worker.graph.aget_state(state.config_of(ended.run.thread_id))
        return "interrupted" if snapshot.next else "idle"

    async def _values(self, thread_id: str, checkpoint_id: str | None) -> object:
        snapshot = await self._worker.graph.aget_state(state.config_of(thread_id, checkpoint_id))
        return wire.without_internals(snapshot.values)


__all__ = ["NothingToCancel", "RunManager", "ThreadBusy", "UnknownThread"]
