"""The endpoints of threads and their state."""

from __future__ import annotations

from typing import Any

from langchain_core.utils.uuid import uuid7
from langgraph.errors import InvalidUpdateError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from adapters.embedded import requests, state, wire
from adapters.embedded.requests import (
    HistoryBody,
    StateBody,
    StateQuery,
    StateUpdateBody,
    ThreadBody,
    ThreadPatchBody,
    ThreadSearchBody,
)
from adapters.embedded.responses import Json
from adapters.embedded.services import Services
from adapters.embedded.store import Thread


class ThreadRoutes:
    """Threads: create, read, change, find, delete; their state: read, change, list."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store
        self._graph = services.graph

    def routes(self) -> list[Route]:
        thread = "/threads/{thread_id}"
        return [
            Route("/threads", self.create, methods=["POST"]),
            Route("/threads/search", self.search, methods=["POST"]),
            Route(thread, self.get),
            Route(thread, self.patch, methods=["PATCH"]),
            Route(thread, self.delete, methods=["DELETE"]),
            Route(thread + "/state", self.get_state),
            Route(thread + "/state", self.update_state, methods=["POST"]),
            Route(thread + "/state/checkpoint", self.get_state_at, methods=["POST"]),
            Route(thread + "/state/{checkpoint_id}", self.get_state),
            Route(thread + "/history", self.history, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        body = await requests.read(request, ThreadBody, self._services.max_body)
        thread_id = str(uuid7()) if body.thread_id is None else requests.valid_id(body.thread_id, "thread")
        thread, is_new = await self._store.create_thread(thread_id, body.metadata or {})
        if not is_new and body.if_exists == "raise":
            raise HTTPException(409, f"Thread with ID {thread_id} already exists")
        return Json(await self._shown(thread))

    async def get(self, request: Request) -> Response:
        return Json(await self._shown(await self._thread(request)))

    async def patch(self, request: Request) -> Response:
        body = await requests.read(request, ThreadPatchBody, self._services.max_body)
        thread = await self._store.update_thread(requests.path_id(request, "thread"), body.metadata)
        if request.headers.get("prefer") == "return=minimal":
            return Response(status_code=204)
        return Json(await self._shown(thread))

    async def delete(self, request: Request) -> Response:
        thread = await self._thread(request)
        await self._services.runs.clear_thread(thread.thread_id)
        await self._store.delete_thread(thread.thread_id)
        return Response(status_code=204)

    async def search(self, request: Request) -> Response:
        body = await requests.read(request, ThreadSearchBody, self._services.max_body, may_be_empty=True)
        threads = await self._store.threads(
            metadata=body.metadata or {},
            status=body.status,
            ids=body.ids,
            order=f"{body.sort_by} {body.sort_order}",
            limit=body.limit,
            offset=body.offset,
        )
        select = body.select or ()
        with_state = not select or not {"values", "interrupts"}.isdisjoint(select)
        return Json([state.selected(await self._shown(thread, with_state), select) for thread in threads])

    async def get_state(self, request: Request) -> Response:
        thread, asked = await self._thread(request), requests.query(request, StateQuery)
        config = state.config_of(thread.thread_id, request.path_params.get("checkpoint_id"))
        snapshot = await self._graph.aget_state(config, subgraphs=asked.subgraphs)
        return Json(state.snapshot_json(snapshot, asked.select))

    async def get_state_at(self, request: Request) -> Response:
        body = await requests.read(request, StateBody, self._services.max_body)
        thread, checkpoint = await self._thread(request), body.checkpoint
        config = state.config_of(thread.thread_id, checkpoint.checkpoint_id, checkpoint.checkpoint_ns)
        try:
            snapshot = await self._graph.aget_state(config, subgraphs=body.subgraphs)
        except ValueError as error:
            raise HTTPException(422, str(error)) from error  # no such sub-graph
        return Json(state.snapshot_json(snapshot, body.select or ()))

    async def update_state(self, request: Request) -> Response:
        body = await requests.read(request, StateUpdateBody, self._services.max_body)
        thread = await self._thread(request)
        if self._services.runs.is_busy(thread.thread_id):
            raise HTTPException(409, f"Thread {thread.thread_id} has in-flight runs")
        checkpoint_id = body.checkpoint_id or (body.checkpoint.checkpoint_id if body.checkpoint else None)
        config = state.config_of(thread.thread_id, checkpoint_id)
        try:
            updated = await self._graph.aupdate_state(config, body.values, as_node=body.as_node)
        except InvalidUpdateError as error:
            raise HTTPException(400, str(error)) from error
        snapshot = await self._graph.aget_state(state.config_of(thread.thread_id))
        await self._store.touch_thread(thread.thread_id, "interrupted" if snapshot.next else "idle")
        where = {key: updated["configurable"].get(key) for key in ("thread_id", "checkpoint_ns", "checkpoint_id")}
        return Json({"checkpoint": where, "configurable": where, "checkpoint_id": where["checkpoint_id"]})

    async def history(self, request: Request) -> Response:
        body = await requests.read(request, HistoryBody, self._services.max_body, may_be_empty=True)
        thread = await self._thread(request)
        before = body.before if body.before is None or isinstance(body.before, str) else body.before.checkpoint_id
        states = self._graph.aget_state_history(
            state.config_of(thread.thread_id, checkpoint_ns=body.checkpoint.checkpoint_ns if body.checkpoint else ""),
            filter=body.metadata,
            before=state.config_of(thread.thread_id, before) if before else None,
            limit=body.limit,
        )
        return Json([state.snapshot_json(snapshot, body.select or ()) async for snapshot in states])

    async def _thread(self, request: Request) -> Thread:
        return await self._store.thread(requests.path_id(request, "thread"))

    async def _shown(self, thread: Thread, with_state: bool = True) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "thread_id": thread.thread_id,
            "created_at": thread.created_at,
            "updated_at": thread.updated_at,
            "state_updated_at": thread.state_updated_at,
            "metadata": thread.metadata,
            "status": thread.status,
            "config": {},
            "values": None,
            "error": thread.error,
            "interrupts": {},
        }
        if with_state:
            snapshot = await self._graph.aget_state(state.config_of(thread.thread_id))
            if snapshot.created_at is not None:
                shown["values"] = wire.without_internals(snapshot.values)
                shown["interrupts"] = state.interrupts_json(snapshot)
        return shown
