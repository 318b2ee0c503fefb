"""`channel-bridge status`: asks a running bridge how it is."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
from pydantic import BaseModel, ValidationError

_PATIENCE = 5.0  # seconds


class NoBridge(Exception):
    """No bridge answers at the address. The text says which address, and what came instead."""


class _Part(BaseModel):
    ok: bool
    reason: str


class _Channel(BaseModel):
    state: str
    reason: str
    since: str


class Status(BaseModel):
    """What `/readyz` tells."""

    ready: bool
    gateway: _Part
    store: _Part
    channels: dict[str, _Channel]

    def lines(self) -> Iterator[str]:
        """For a person."""
        yield "ready" if self.ready else "NOT READY"
        rows = [(name, "ok" if part.ok else "WRONG", part.reason) for name, part in self._parts()]
        rows += [
            (name, channel.state, f"{channel.reason} (since {channel.since})".strip())
            for name, channel in self.channels.items()
        ]
        width = max(len(name) for name, _, _ in rows)
        for name, state, text in rows:
            yield f"  {name:<{width}} {state:<10} {text}".rstrip()

    def _parts(self) -> Iterator[tuple[str, _Part]]:
        yield "gateway", self.gateway
        yield "store", self.store


def ask(url: str) -> Status:
    """How the bridge at `url` is. Raises `NoBridge`."""
    address = url if "://" in url else f"http://{url}"
    try:
        answer = httpx.get(f"{address.rstrip('/')}/readyz", timeout=_PATIENCE)
        return Status.model_validate_json(answer.content)
    except ValidationError:
        raise NoBridge(f"no bridge answers at {url}: something else does; is the port right?") from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        reason = str(error) or type(error).__name__
        raise NoBridge(f"no bridge answers at {url}: {reason}; is it running, and is the address right?") from None
