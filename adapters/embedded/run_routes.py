"""The endpoints of runs."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress

from langchain_core.utils.uuid import uuid7
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from adapters.embedded import requests, state, wire
from adapters.embedded.requests import CancelQuery, JoinQuery, RunBody, RunsQuery
from adapters.embedded.responses import EventStream, Json, WaitingJson
from adapters.embedded.runs import NothingToCancel, ThreadBusy
from adapters.embedded.services import Services
from adapters.embedded.store import Run, Thread, UnknownThread
from adapters.embedded.stream import FROM_START

_BUSY = "Thread is already running a task. Wait for it to finish or choose a different multitask strategy."
_NO_THREAD_OR_ASSISTANT = "Thread or assistant not found."
_OVER = (
    "No matching runs to cancel. Please verify the thread ID and run IDs are correct, and the runs haven't been "
    "deleted or completed."
)


class RunRoutes:
    """Runs: start, follow, wait, read, list, cancel, delete. Without a thread in the path a run is stateless: it gets a
    thread of its own, which is deleted with the run's end."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store
        self._runs = services.runs

    def routes(self) -> list[Route]:
        thread, run = "/threads/{thread_id}", "/threads/{thread_id}/runs/{run_id}"
        starts = (("/runs", self.create), ("/runs/stream", self.stream), ("/runs/wait", self.wait))
        return [
            *(Route(prefix + path, start, methods=["POST"]) for prefix in (thread, "") for path, start in starts),
            Route(thread + "/runs", self.list),
            Route(run, self.get),
            Route(run, self.delete, methods=["DELETE"]),
            Route(run + "/join", self.join),
            Route(run + "/stream", self.join_stream),
            Route(run + "/cancel", self.cancel, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        run, _ = await self._start(request)
        return Json(run.as_json(), headers={"content-location": _path(run.thread_id, run.run_id)})

    async def stream(self, request: Request) -> Response:
        run, on_drop = await self._start(request)
        return self._events(run.thread_id, run.run_id, FROM_START, None, on_drop)

    async def wait(self, request: Request) -> Response:
        run, on_drop = await self._start(request)
        return self._waiting(run.thread_id, run.run_id, self._runs.result(run.thread_id, run.run_id), on_drop)

    async def list(self, request: Request) -> Response:
        asked = requests.query(request, RunsQuery)
        thread = await self._store.thread(requests.path_id(request, "thread"))
        runs = await self._store.runs(
            thread.thread_id,
            status=asked.status,
            limit=asked.limit,
            offset=asked.offset,
            with_kwargs=asked.wants_kwargs,
        )
        return Json([state.selected(run.as_json(), asked.select) for run in runs])

    async def get(self, request: Request) -> Response:
        run = await self._store.run(*_ids(request))
        if run is None:
            raise HTTPException(404, "Not Found")
        return Json(run.as_json())

    async def delete(self, request: Request) -> Response:
        thread_id, run_id = _ids(request)
        if await self._store.run(thread_id, run_id) is None:
            raise HTTPException(404, "Run not found")
        with suppress(NothingToCancel):
            await self._runs.cancel(thread_id, run_id, "interrupt")
        await self._runs.finished(run_id)
        await self._store.delete_run(run_id)
        return Response(status_code=204)

    async def join(self, request: Request) -> Response:
        thread_id, run_id = _ids(request)
        return self._waiting(thread_id, run_id, self._runs.result(thread_id, run_id))

    async def join_stream(self, request: Request) -> Response:
        thread_id, run_id = _ids(request)
        asked, modes = requests.query(request, JoinQuery), requests.join_modes(request)
        run = await self._store.run(thread_id, run_id)
        on_drop = self._canceller(thread_id, run_id) if asked.cancel_on_disconnect else None
        after = request.headers.get("last-event-id") or None
        return self._events(thread_id, run_id, after, modes, on_drop, is_known=run is not None)

    async def cancel(self, request: Request) -> Response:
        thread_id, run_id = _ids(request)
        asked = requests.query(request, CancelQuery)
        try:
            await self._runs.cancel(thread_id, run_id, asked.action)
        except NothingToCancel:
            is_known = await self._store.run(thread_id, run_id) is not None
            raise HTTPException(404, _OVER if is_known else "No runs found to cancel.") from None
        return self._waiting(thread_id, run_id, self._over(run_id)) if asked.wait else Response(status_code=202)

    async def _over(self, run_id: str) -> object:
        await self._runs.finished(run_id)
        return {}

    async def _start(self, request: Request) -> tuple[Run, Callable[[], Awaitable[None]] | None]:
        """Start the run that is asked for; with it, what to do when the client leaves before its end."""
        body = await requests.read(request, RunBody, self._services.max_body)
        if body.config.configurable and body.context:
            raise HTTPException(400, "Cannot specify both configurable and context. Prefer setting context alone.")
        self._check_assistant(body.assistant_id)
        is_temporary = "thread_id" not in request.path_params
        thread_id = str(uuid7()) if is_temporary else requests.path_id(request, "thread")
        try:
            if is_temporary or body.if_not_exists == "create":
                thread, _ = await self._store.create_thread(thread_id, {})
            else:
                thread = await self._store.thread(thread_id)
            run = await self._runs.create(self._new_run(thread, body, is_temporary))
        except UnknownThread:
            raise HTTPException(404, _NO_THREAD_OR_ASSISTANT) from None
        except ThreadBusy:
            raise HTTPException(409, _BUSY) from None
        return run, self._canceller(thread_id, run.run_id) if body.on_disconnect == "cancel" else None

    def _check_assistant(self, given: str) -> None:
        services = self._services
        if given in (services.assistant, services.assistant_id):
            return
        try:
            uuid.UUID(given)
        except ValueError:
            wanted = f"A valid assistant UUID, or\n- One of the registered graphs: {services.assistant}"
            message = f"Invalid assistant: {given[:200]!r}. Must be either:\n- {wanted}"
            raise HTTPException(422, message) from None
        raise HTTPException(404, _NO_THREAD_OR_ASSISTANT)

    def _new_run(self, thread: Thread, body: RunBody, is_temporary: bool) -> Run:
        labels = {"graph_id": self._services.assistant, "assistant_id": self._services.assistant_id}
        return Run(
            run_id=str(uuid7()),
            thread_id=thread.thread_id,
            assistant_id=self._services.assistant_id,
            status="pending",
            metadata={**thread.metadata, **labels, **body.config.metadata, **body.metadata},
            kwargs=body.kwargs(temporary=is_temporary),
            multitask_strategy=body.multitask_strategy,
            created_at="",
            updated_at="",
        )

    def _canceller(self, thread_id: str, run_id: str) -> Callable[[], Awaitable[None]]:
        async def cancel() -> None:
            with suppress(NothingToCancel):
                await self._runs.cancel(thread_id, run_id, "interrupt")

        return cancel

    def _waiting(
        self,
        thread_id: str,
        run_id: str,
        result: Awaitable[object],
        on_drop: Callable[[], Awaitable[None]] | None = None,
    ) -> Response:
        path, services = _path(thread_id, run_id), self._services
        headers = {"location": path + "/join", "content-location": path}
        return WaitingJson(result, headers, services.clock, services.heartbeat, on_drop)

    def _events(
        self,
        thread_id: str,
        run_id: str,
        after: str | None,
        modes: set[str] | None,
        on_drop: Callable[[], Awaitable[None]] | None,
        *,
        is_known: bool = True,
    ) -> Response:
        path = _path(thread_id, run_id)
        headers = {"content-location": path, "cache-control": "no-store", "x-accel-buffering": "no"}
        subscription = self._services.bridge.subscribe(run_id, after, modes)
        if subscription is None:
            lost = wire.dumps({"error": "HTTPException", "message": "404: Run not found"})
            body = wire.frame("end", b"null") if is_known else wire.frame("error", lost)
            return Response(body, headers=headers, media_type="text/event-stream")
        if subscription.gap is None:
            # Not with a gap: the SDK would follow `location` back into the same gap, again and again.
            headers["location"] = path + "/stream"
        return EventStream(subscription, headers, on_drop)


def _ids(request: Request) -> tuple[str, str]:
    return requests.path_id(request, "thread"), requests.path_id(request, "run")


def _path(thread_id: str, run_id: str) -> str:
    return f"/threads/{thread_id}/runs/{run_id}"
