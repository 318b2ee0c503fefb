"""The two cookies of the page: which browser it is, and that its visitor has signed in."""

from __future__ import annotations

import hashlib
import secrets
from urllib.parse import urlsplit

from itsdangerous import BadSignature, Signer, TimestampSigner
from starlette.requests import Request
from starlette.responses import Response

_YEAR = 365 * 86_400
_SIGNED_IN_FOR = 30 * 86_400
_BROWSER_ID_LENGTH = 32


class Cookies:
    """Reads and writes signed cookies. `key` signs them; `token` is the access token, whose change signs out all.

    Behind a proxy that speaks TLS for us only `public_url` tells that cookies must not travel in the open. They have no
    path of their own: the browser gives them the one at which it sees the page, which a proxy may have moved.
    """

    def __init__(self, key: str, token: str | None, public_url: str | None) -> None:
        public = urlsplit(public_url or "")
        self._secure_host = public.netloc.lower() if public.scheme == "https" else None
        # A cookie is sent to every port of a host: the name keeps several bridges on one machine apart.
        name = hashlib.sha256(f"cookie name {key}".encode()).hexdigest()[:8]
        self._browser_name = f"bridge_browser_{name}"
        self._access_name = f"bridge_access_{name}"
        self._browser_signer = Signer(key, salt="browser", key_derivation="hmac", digest_method=hashlib.sha256)
        access = "access " + hashlib.sha256((token or "").encode()).hexdigest()
        self._access_signer = TimestampSigner(key, salt=access, key_derivation="hmac", digest_method=hashlib.sha256)

    def browser(self, request: Request) -> str | None:
        """The id of the browser, or None when it has none that we gave."""
        try:
            value = self._browser_signer.unsign(request.cookies.get(self._browser_name, ""))
        except BadSignature:
            return None
        return value.decode()

    def keep_browser(self, request: Request, response: Response) -> str:
        """Give the browser an id, or keep the one it has for another year."""
        browser = self.browser(request) or secrets.token_hex(_BROWSER_ID_LENGTH // 2)
        self._set(request, response, self._browser_name, self._browser_signer.sign(browser).decode(), _YEAR)
        return browser

    def has_access(self, request: Request) -> bool:
        """Whether the visitor has signed in with the present access token."""
        try:
            self._access_signer.unsign(request.cookies.get(self._access_name, ""), max_age=_SIGNED_IN_FOR)
        except BadSignature:
            return False
        return True

    def renew_access(self, request: Request, response: Response) -> None:
        """Let a visitor who has signed in stay signed in."""
        if self.has_access(request):
            self.give_access(request, response)

    def give_access(self, request: Request, response: Response) -> None:
        self._set(request, response, self._access_name, self._access_signer.sign("granted").decode(), _SIGNED_IN_FOR)

    def take_access(self, request: Request, response: Response) -> None:
        self._set(request, response, self._access_name, "", 0)

    def _set(self, request: Request, response: Response, name: str, value: str, seconds: int) -> None:
        host = request.headers.get("host", "").lower()
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            path=None,
            secure=request.url.scheme == "https" or host == self._secure_host,
            httponly=True,
            samesite="lax",
        )
