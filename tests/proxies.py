"""HTTP proxies before an app, as operators set them up."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send


def behind_proxy(app: ASGIApp, *, host: str | None = None, below: str = "") -> ASGIApp:
    """The app as visitors reach it: below the path `below`, of which it knows nothing, and called by the name `host`.

    Without `host` the proxy passes the name on that the visitor has used. Browsers can also be told to use it for every
    name, and then ask for whole addresses.
    """

    async def proxied(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (name, host.encode() if name == b"host" and host else value) for name, value in scope.get("headers", ())
        ]
        path = urlsplit(scope["path"]).path.removeprefix(below)
        await app({**scope, "path": path, "raw_path": path.encode(), "headers": headers}, receive, send)

    return proxied
