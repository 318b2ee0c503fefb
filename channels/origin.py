"""Where a request comes from: this machine or another one, a page of the bridge's own or of another site."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from starlette.requests import Request

from channels.loopback import is_loopback

REFERRER_POLICY = "same-origin"
"""What the bridge's pages have to say: with none, their own forms would name the origin "null"."""

FOREIGN = (
    "Requests from other sites are not taken. If this was a page of the bridge itself: the proxy in front of it has to "
    "pass on the Host header (nginx: proxy_set_header Host $http_host), or server.public_url has to be the address "
    "that visitors see."
)

_NETLOC = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:@/\[\]]+)(?::(\d{0,5}))?")
_PORTS = {"http": 80, "https": 443}

_Address = tuple[str, int]


class OwnPages:
    """Tells requests of the bridge's own pages from those that other sites make in a visitor's name.

    `Sec-Fetch-Site` is the browser's own word, which no page can change and no proxy has to be told about. Where it is
    missing (old browsers, addresses without TLS) the page's origin has to be what the request calls, or `public_url`.
    A request with neither is a program's.
    """

    def __init__(self, public_url: str | None) -> None:
        public = urlsplit(public_url or "")
        self._public = (public.scheme, _address(public.scheme, public.netloc))

    def sent(self, request: Request) -> bool:
        """Whether one of our pages, or no page at all, has sent the request."""
        site = request.headers.get("sec-fetch-site")
        if site is not None:
            return site in ("same-origin", "none")
        if (origin := request.headers.get("origin")) is None:
            return True
        scheme, _, netloc = origin.partition("://")
        address = _address(scheme, netloc)
        # A proxy in front may speak TLS for us, so that the scheme of what was called is not known here.
        called = _address(scheme, request.headers.get("host", ""))
        return address is not None and (address == called or (scheme, address) == self._public)


def is_of_this_machine(request: Request) -> bool:
    """Whether only this machine can have sent it, as far as a request shows it.

    The name that it calls may be one of another site that was pointed at a loopback address, and the page or the
    client that a proxy speaks for may be anywhere.
    """
    called = _address("", request.headers.get("host", ""))
    origin = request.headers.get("origin")
    page = _address("", origin.partition("://")[2]) if origin is not None else called
    client = request.client.host if request.client else ""
    return called is not None and page is not None and all(map(is_loopback, (called[0], page[0], client)))


def _address(scheme: str, netloc: str) -> _Address | None:
    """The name and the port, or None when there is no name."""
    match = _NETLOC.fullmatch(netloc.lower())
    return (match[1], int(match[2] or _PORTS.get(scheme, 0))) if match else None
