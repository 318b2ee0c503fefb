"""The HTTP side: tokens, methods, planned faults, the journal, file downloads."""

from __future__ import annotations

import asyncio
import hmac
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from tests.emulators.journal import Call, Fault, FaultKind, Faults
from tests.emulators.telegram.backend import Backend, Method
from tests.emulators.telegram.errors import UNAUTHORIZED, ApiError, no_such_method
from tests.emulators.telegram.limits import MIB
from tests.emulators.telegram.updates import ServerStopping
from tests.emulators.telegram.wire import Params, read_params

_TOKEN_SHAPE = re.compile(r"\d+:[A-Za-z0-9_-]+")
_SHUTDOWN_SECONDS = 0.2
_LONG_POLL = "getUpdates"


class Gone(Exception):
    """A planned fault wants the connection closed without an answer."""


class BotApiServer:
    """Serves `/bot<token>/<method>` and `/file/bot<token>/<path>` on 127.0.0.1."""

    def __init__(
        self,
        backend: Backend,
        faults: Faults,
        token: str,
        methods: Mapping[str, Method],
        add_routes: Callable[[web.Application], None],
    ) -> None:
        self._backend = backend
        self._faults = faults
        self._methods = {name.lower(): (name, method) for name, method in methods.items()}
        self._add_routes = add_routes
        self._runner: web.AppRunner | None = None
        self._work: set[asyncio.Task[web.StreamResponse]] = set()
        self.token = token
        self.port = 0

    async def start(self, port: int) -> None:
        app = web.Application(client_max_size=64 * MIB)
        app.router.add_route("*", "/bot{token}/{method}", self._serve_method)
        app.router.add_get("/file/bot{token}/{path:.*}", self._serve_file)
        self._add_routes(app)
        # A client that hangs up ends its long poll at once; all other work runs on (see _serve_method).
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    async def _serve_method(self, request: web.Request) -> web.StreamResponse:
        params, unreadable = Params(), None
        try:
            params = await read_params(request, file_limit=self._backend.limits.upload_bytes)
        except ApiError as refused:
            unreadable = refused
        name = request.match_info["method"].lower()
        work = self._respond(request, name, params, unreadable)
        if name == _LONG_POLL.lower():
            return await work
        # A call that has arrived is carried out even when its client does not wait for the answer.
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return await asyncio.shield(task)

    async def _respond(
        self, request: web.Request, lowered: str, params: Params, unreadable: ApiError | None
    ) -> web.StreamResponse:
        name, method = self._methods.get(lowered, (request.match_info["method"], None))
        arrived = self._backend.clock.now()
        fault = self._faults.take(name)
        status, headers = 0, dict[str, str]()
        answer: object = ""
        try:
            if fault is not None and fault.kind is FaultKind.DROP_BEFORE:
                raise Gone
            if fault is not None and fault.kind is FaultKind.ANSWER:
                self._note_planned_penalty(fault, params)
                status, answer, headers = fault.status, fault.body, dict(fault.headers)
            else:
                if fault is not None and fault.kind is FaultKind.DELAY:
                    self._backend.changed()
                    await self._backend.clock.sleep(fault.seconds)
                status, answer = await self._carry_out(request.match_info["token"], method, params, unreadable)
            if fault is not None and fault.kind is FaultKind.DROP_AFTER:
                raise Gone
        except (Gone, ServerStopping):
            _hang_up(request)
        self._backend.journal.calls.append(Call(arrived, name, params.for_journal(), status, answer))
        self._backend.changed()
        if isinstance(answer, str):
            return web.Response(status=status or 502, text=answer, headers=headers, content_type="text/html")
        return web.Response(
            status=status or 502, text=json.dumps(answer), headers=headers, content_type="application/json"
        )

    async def _carry_out(
        self, token: str, method: Method | None, params: Params, unreadable: ApiError | None
    ) -> tuple[int, object]:
        try:
            self._check_token(token)
            if unreadable is not None:
                raise unreadable
            if method is None:
                raise no_such_method("call of a method that does not exist")
            result = method(params)
            if inspect.isawaitable(result):
                result = await _awaited(result)
        except ApiError as refused:
            if refused.rule is not None:
                self._backend.break_rule(refused.rule)
            return refused.status, refused.body()
        return 200, {"ok": True, "result": result}

    def _check_token(self, token: str) -> None:
        if not _TOKEN_SHAPE.fullmatch(token):
            raise ApiError(404, "Not Found")
        if not hmac.compare_digest(token, self.token):
            raise ApiError(401, UNAUTHORIZED)

    def _note_planned_penalty(self, fault: Fault, params: Params) -> None:
        """A planned 429 closes the chat like one of the server's own."""
        parameters = fault.body.get("parameters") if isinstance(fault.body, dict) else None
        seconds = parameters.get("retry_after") if isinstance(parameters, dict) else None
        if fault.status == 429 and isinstance(seconds, int) and params.has("chat_id"):
            self._backend.flood.penalise(params.integer("chat_id"), seconds)

    async def _serve_file(self, request: web.Request) -> web.StreamResponse:
        fault = self._faults.take("file")
        if fault is not None and fault.kind is FaultKind.ANSWER:
            return web.Response(status=fault.status, text=str(fault.body))
        if fault is not None and fault.kind is FaultKind.DELAY:
            await self._backend.clock.sleep(fault.seconds)
        try:
            self._check_token(request.match_info["token"])
        except ApiError as refused:
            return web.json_response(refused.body(), status=refused.status)
        file = self._backend.world.linked(request.match_info["path"])
        if file is None:
            return web.json_response(ApiError(404, "Not Found").body(), status=404)
        return web.Response(body=file.content, content_type="application/octet-stream")


async def _awaited(result: Awaitable[object]) -> object:
    return await result


def _hang_up(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
