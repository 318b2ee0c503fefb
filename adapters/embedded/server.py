"""The HTTP face of the gateway: the part of LangGraph's API that `langgraph-sdk` needs to run agents."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from adapters.embedded import requests, state
from adapters.embedded.requests import AssistantSearchBody
from adapters.embedded.responses import Json
from adapters.embedded.run_routes import RunRoutes
from adapters.embedded.runs import GatewayStopping
from adapters.embedded.services import Services
from adapters.embedded.store import UnknownThread
from adapters.embedded.thread_routes import ThreadRoutes


def application(services: Services, *, api_key: str | None, hosts: Collection[str] | None) -> ASGIApp:
    """The gateway's ASGI application; see `Guard` for `api_key` and `hosts`."""
    routes = [
        *MetaRoutes(services).routes(),
        *ThreadRoutes(services).routes(),
        *RunRoutes(services).routes(),
    ]
    handlers: dict[Any, Any] = {
        HTTPException: _refused,
        UnknownThread: _unknown_thread,
        GatewayStopping: _stopping,
        Exception: _failed,
    }
    return Guard(Starlette(routes=routes, exception_handlers=handlers), api_key=api_key, hosts=hosts)


class Guard:
    """Lets through who may talk to the gateway.

    With an `api_key`, every request but `/ok` must carry it as `x-api-key`. Requests that a web page made are refused
    (they carry `Origin`), and with `hosts` so are requests addressed to any other name: a gateway on the loopback has
    no password, and a page in the user's browser must not reach it by a forged request or a rebound DNS name.
    """

    def __init__(self, app: ASGIApp, *, api_key: str | None, hosts: Collection[str] | None) -> None:
        self._app = app
        self._api_key = None if api_key is None else api_key.encode()
        self._hosts = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = self._app
        if scope["type"] == "http" and (refusal := self._refusal(scope)) is not None:
            app = refusal
        await app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if "origin" in headers:
            return Json({"detail": "Requests from web pages are not accepted"}, 403)
        if self._hosts is not None and _host_name(headers.get("host", "")) not in self._hosts:
            return Json({"detail": "Unknown host"}, 403)
        if self._api_key is not None and scope["path"] != "/ok":
            given = headers.get("x-api-key", "").encode()
            if not hmac.compare_digest(given, self._api_key):
                return Json({"detail": "Missing or wrong API key (header x-api-key)"}, 401)
        return None


def _host_name(host: str) -> str:
    return host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0].lower()


class MetaRoutes:
    """Health, and the one assistant."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._since = datetime.fromtimestamp(services.clock.now(), UTC).isoformat()

    def routes(self) -> list[Route]:
        return [
            Route("/ok", self.ok),
            Route("/info", self.info),
            Route("/assistants/search", self.search, methods=["POST"]),
            Route("/assistants/{assistant_id}", self.get),
        ]

    async def ok(self, request: Request) -> Response:
        return Json({"ok": True})

    async def info(self, request: Request) -> Response:
        flags = {"assistants": True, "crons": False, "langsmith": False}
        return Json({"version": "embedded", "langgraph_py_version": version("langgraph"), "flags": flags})

    async def search(self, request: Request) -> Response:
        body = await requests.read(request, AssistantSearchBody, self._services.max_body, may_be_empty=True)
        assistant = self._assistant()
        is_wanted = (
            body.graph_id in (None, self._services.assistant)
            and (body.name or "").lower() in self._services.assistant.lower()
            and all(assistant["metadata"].get(key) == value for key, value in (body.metadata or {}).items())
            and body.offset == 0
        )
        return Json([state.selected(assistant, body.select or ())] if is_wanted else [])

    async def get(self, request: Request) -> Response:
        if requests.valid_id(request.path_params["assistant_id"], "assistant") != self._services.assistant_id:
            raise HTTPException(404, "Not Found")
        return Json(self._assistant())

    def _assistant(self) -> dict[str, Any]:
        return {
            "assistant_id": self._services.assistant_id,
            "graph_id": self._services.assistant,
            "config": {},
            "context": {},
            "metadata": {"created_by": "system"},
            "name": self._services.assistant,
            "created_at": self._since,
            "updated_at": self._since,
            "version": 1,
            "description": None,
        }


async def _refused(request: Request, error: HTTPException) -> Response:
    return Json({"detail": error.detail}, error.status_code, headers=error.headers)


async def _unknown_thread(request: Request, error: UnknownThread) -> Response:
    return Json({"detail": f"Thread with ID {error} not found"}, 404)


async def _stopping(request: Request, error: GatewayStopping) -> Response:
    return Json({"detail": "The gateway is stopping"}, 503)


async def _failed(request: Request, error: Exception) -> Response:
    return Json({"detail": "Internal Server Error"}, 500)
