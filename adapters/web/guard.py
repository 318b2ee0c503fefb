"""Who may use the page: the rules that stand before every request, and the headers that go with every answer."""

from __future__ import annotations

import hmac
from collections import deque

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adapters.web.cookies import Cookies
from channels.clock import Clock
from channels.origin import FOREIGN, REFERRER_POLICY, OwnPages, is_of_this_machine

REQUEST_HEADER = "x-channel-bridge"
"""Every request that changes something carries it: a page of another site cannot set it without our consent."""

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": REFERRER_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_FOR_THIS_MACHINE = "This page is for this machine only. To open it to others, set access_token."
_OPEN_PATHS = ("/sign-in", "/static/")
_GUESSES = 10  # wrong tokens taken from one address in a minute
_GUESS_WINDOW = 60.0


class Tokens:
    """Compares access tokens in constant time, and stops listening to an address that guesses."""

    def __init__(self, token: str, clock: Clock) -> None:
        self._token = token.encode()
        self._clock = clock
        self._wrong: dict[str, deque[float]] = {}

    def is_guessing(self, request: Request) -> bool:
        """Whether the address has been wrong too often in the last minute."""
        since = self._clock.now() - _GUESS_WINDOW
        self._wrong = {
            address: recent
            for address, times in self._wrong.items()
            if (recent := deque(time for time in times if time > since))
        }
        return len(self._wrong.get(_address(request), ())) >= _GUESSES

    def is_right(self, request: Request, given: str) -> bool:
        right = hmac.compare_digest(given.encode(errors="surrogatepass"), self._token)
        if not right:
            self._wrong.setdefault(_address(request), deque()).append(self._clock.now())
        return right


class Guard:
    """Lets a request through to the pages when it may pass.

    Without `tokens` the page is for this machine only.
    """

    def __init__(self, app: ASGIApp, cookies: Cookies, tokens: Tokens | None, public_url: str | None) -> None:
        self._app = app
        self._cookies = cookies
        self._tokens = tokens
        self._own_pages = OwnPages(public_url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope, receive)
        refusal = self._refusal(request)
        # Static files are asked for again each time, and answered with 304 while they are the same.
        cache = "no-cache" if _path(request).startswith("/static/") else "no-store"
        await (refusal or self._app)(scope, receive, with_headers(send, cache=cache))

    def _refusal(self, request: Request) -> Response | None:
        if reason := self._foreign(request):
            return _refuse(403, reason)
        if self._tokens is None:
            return None if is_of_this_machine(request) else _refuse(421, _FOR_THIS_MACHINE)
        return None if _path(request).startswith(_OPEN_PATHS) else self._without_access(request, self._tokens)

    def _foreign(self, request: Request) -> str:
        """Why the request seems to come from a page of another site; empty when it does not."""
        is_read = request.method in ("GET", "HEAD")
        if is_read and _path(request) in ("", "/"):
            return ""  # anybody may link to the page
        if not self._own_pages.sent(request):
            return FOREIGN
        if not is_read and _path(request) not in ("/sign-in", "/sign-out") and REQUEST_HEADER not in request.headers:
            return f"The header {REQUEST_HEADER} is missing."
        return ""

    def _without_access(self, request: Request, tokens: Tokens) -> Response | None:
        if self._cookies.has_access(request):
            return None
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and given:
            if tokens.is_guessing(request):
                return _refuse(429, "Too many wrong tokens; wait a minute.")
            if tokens.is_right(request, given.strip()):
                return None
        elif _path(request) in ("", "/") and request.method == "GET":
            return None  # the page itself shows the sign-in form
        return _refuse(401, "Sign in first.", {"www-authenticate": "Bearer"})


def with_headers(send: Send, *, cache: str = "no-store") -> Send:
    """A `send` that adds the security headers to every answer, and `cache` where the answer says nothing itself."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", cache)
        await send(message)

    return send_with_headers


def _refuse(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": reason}, status, headers)


def _path(request: Request) -> str:
    """The path below the place where the pages are mounted."""
    root, path = str(request.scope.get("root_path", "")), str(request.scope["path"])
    return path.removeprefix(root) if path.startswith(root) else path


def _address(request: Request) -> str:
    return request.client.host if request.client else ""
