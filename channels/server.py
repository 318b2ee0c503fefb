"""The bridge's own HTTP server: health, readiness, metrics, platform webhooks, and what channels mount."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

import uvicorn
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from channels.adapter import Health
from channels.loopback import exposed_at, local_url
from channels.origin import OwnPages, is_of_this_machine

_ADMIN_COOKIE = "channel-bridge-console"
_MAX_HOOK_BYTES = 4 * 1024 * 1024  # far above any platform's event (Slack: 4 MB over its socket)


class AddressInUse(Exception):
    """The configured address cannot be listened on. The text says which and why."""


class Readiness(Protocol):
    """What `/readyz` tells."""

    @property
    def gateway(self) -> Mapping[str, JsonValue]: ...
    @property
    def store(self) -> Mapping[str, JsonValue]: ...
    @property
    def channels(self) -> Mapping[str, Health]: ...
    @property
    def ready(self) -> bool: ...


class AdminGuard:
    """Who may see the console and the metrics: whoever has the admin token.

    Without one, anybody on this machine, as long as nobody else can get here: `host` is a loopback address and there
    is no `public_url`.
    """

    def __init__(self, host: str, token: str | None, public_url: str | None = None) -> None:
        self._open = token is None and exposed_at(host, public_url) is None
        self._token = token
        self.own_pages = OwnPages(public_url)

    @property
    def has_token(self) -> bool:
        """Whether there is a token to sign in with."""
        return self._token is not None

    def allows(self, request: Request) -> bool:
        if self._open:
            return is_of_this_machine(request)
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        return self.matches(bearer) or self._is_remembered(request)

    def matches(self, given: str) -> bool:
        """Whether `given` is the admin token, compared in constant time."""
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())

    def remember(self, request: Request, response: Response) -> None:
        """Let this browser in for a day."""
        response.set_cookie(
            _ADMIN_COOKIE,
            self._proof(),
            max_age=86_400,
            path="/console",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def _is_remembered(self, request: Request) -> bool:
        given = request.cookies.get(_ADMIN_COOKIE, "")
        return self._token is not None and hmac.compare_digest(given.encode(), self._proof().encode())

    def _proof(self) -> str:
        """What only somebody who has had the token can have; the token cannot be read from it."""
        return hmac.new((self._token or "").encode(), _ADMIN_COOKIE.encode(), "sha256").hexdigest()

    @property
    def refusal(self) -> Response:
        text = (
            "This needs `Authorization: Bearer …` with the value of server.admin_token.\n"
            if self._token is not None
            else "This is closed: set server.admin_token, or listen on 127.0.0.1 and without server.public_url.\n"
        )
        return PlainTextResponse(text, status_code=401, headers={"www-authenticate": "Bearer"})


def build_app(
    readiness: Callable[[], Readiness],
    metrics: Callable[[], bytes],
    guard: AdminGuard,
    hooks: Mapping[str, ASGIApp],
    console: Sequence[BaseRoute],
    mounts: Mapping[str, ASGIApp],
) -> Starlette:
    """The whole HTTP side. `hooks` are the channels' webhooks by name, `mounts` their pages by path."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        state = readiness()
        body = {
            "ready": state.ready,
            "gateway": dict(state.gateway),
            "store": dict(state.store),
            "channels": {
                name: {"state": health.state.value, "reason": health.reason, "since": _iso(health.since)}
                for name, health in sorted(state.channels.items())
            },
        }
        return JSONResponse(body, status_code=200 if state.ready else 503)

    async def show_metrics(request: Request) -> Response:
        if not guard.allows(request):
            return guard.refusal
        return Response(metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    routes: list[BaseRoute] = [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", show_metrics),
        *console,
        *(Route(f"/hooks/{name}", endpoint=_Hook(app)) for name, app in hooks.items()),
        *_pages(mounts),
    ]
    return Starlette(routes=routes)


def _pages(mounts: Mapping[str, ASGIApp]) -> Iterator[BaseRoute]:
    """The pages at their paths. Each has a route for its path without the last slash, which a page at `/` would eat."""
    for path, app in sorted(mounts.items(), reverse=True):
        if path != "/":
            yield Route(path, _add_slash)
        yield Mount(path.rstrip("/"), app=app)


async def _add_slash(request: Request) -> Response:
    # Relative, for a proxy in front may have the page at another path.
    return RedirectResponse(str(URL(path=request.url.path.rpartition("/")[2] + "/", query=request.url.query)))


class _Hook:
    """A webhook that refuses bodies no platform sends, before anything reads them into memory."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if b"transfer-encoding" in headers:
            refusal: Response | None = PlainTextResponse("length required\n", status_code=411)
        elif not length.isdigit() or int(length) > _MAX_HOOK_BYTES:
            refusal = PlainTextResponse("too large\n", status_code=413)
        else:
            refusal = None
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


class Server:
    """Uvicorn on a socket of our own, so that the port is known and a taken one is a clear error."""

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        self._host = host
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=3,
            server_header=False,
        )
        self._server = _QuietServer(config)
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return local_url(self._host, self.port)

    async def start(self) -> None:
        """Returns when requests are answered."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="http-server")
        listening = asyncio.create_task(self._server.listening.wait())
        await asyncio.wait({self._task, listening}, return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """Close open connections within 3 s and free the port."""
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        self._socket.close()


class _QuietServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield  # the application decides when to stop


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Naming the protocol lets asyncio send small writes at once (TCP_NODELAY) instead of 40 ms later.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(256)
    except (OSError, UnicodeError) as error:
        listener.close()
        reason = error.strerror or str(error) if isinstance(error, OSError) else "not the name of a machine"
        raise AddressInUse(f"cannot listen on server.host {host}, server.port {port}: {reason}") from None
    listener.setblocking(False)
    return listener
