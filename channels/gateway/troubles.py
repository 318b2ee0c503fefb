"""What can go wrong between the bridge and the gateway, in the few kinds that decide what happens next."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import httpx
import orjson
from langgraph_sdk.errors import LangGraphError

from channels.shapes import as_object, as_text, shortened
from channels.strict_json import read_json


class TroubleKind(StrEnum):
    UNREACHED = "unreached"  # surely not received
    CUT = "cut"  # the connection broke or fell silent: it may have been received
    FAILING = "failing"  # 5xx: it may have been received
    LIMITED = "limited"  # 429: not received, try later
    BUSY = "busy"  # 409: the thread has another run
    MISSING = "missing"  # 404
    DENIED = "denied"  # 401, 403
    REFUSED = "refused"  # 400, 413, 422 …: trying again as it is will not help
    UNSTREAMABLE = "unstreamable"  # no event stream can be had here

    @property
    def is_passing(self) -> bool:
        """Whether trying again later may help."""
        return self in _PASSING


_PASSING = frozenset({TroubleKind.UNREACHED, TroubleKind.CUT, TroubleKind.FAILING, TroubleKind.LIMITED})

_STATUSES: Mapping[int, TroubleKind] = MappingProxyType(
    {
        401: TroubleKind.DENIED,
        403: TroubleKind.DENIED,
        404: TroubleKind.MISSING,
        405: TroubleKind.UNSTREAMABLE,
        406: TroubleKind.UNSTREAMABLE,
        408: TroubleKind.CUT,
        409: TroubleKind.BUSY,
        410: TroubleKind.MISSING,
        415: TroubleKind.UNSTREAMABLE,
        425: TroubleKind.LIMITED,
        429: TroubleKind.LIMITED,
        501: TroubleKind.UNSTREAMABLE,
    }
)

_MAX_RETRY_AFTER = 3600.0
_DETAIL_LIMIT = 400


class Trouble(Exception):
    """One failed call. The text is for operators: what the gateway said, shortened, without headers or bodies sent."""

    def __init__(self, kind: TroubleKind, detail: str, *, retry_after: float = 0.0, status: int = 0) -> None:
        super().__init__(f"{kind}: {detail}" if detail else str(kind))
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after
        self.status = status


CALL_ERRORS = (httpx.HTTPError, httpx.InvalidURL, LangGraphError, orjson.JSONDecodeError)
"""What calls through the SDK raise: its own errors, plain httpx ones, and JSON errors for cut bodies."""


def trouble_of(error: Exception) -> Trouble:
    """The trouble behind an error of `CALL_ERRORS`. Both the SDK's typed errors and plain httpx ones are known."""
    if isinstance(error, httpx.HTTPStatusError):
        return _of_status(error.response)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.UnsupportedProtocol):
        return Trouble(TroubleKind.UNREACHED, _named(error))
    if isinstance(error, httpx.TransportError) and "Content-Type" in str(error):
        return Trouble(TroubleKind.UNSTREAMABLE, _named(error))
    if isinstance(error, httpx.InvalidURL):
        return Trouble(TroubleKind.REFUSED, _named(error))
    return Trouble(TroubleKind.CUT, _named(error))


def _of_status(response: httpx.Response) -> Trouble:
    status = response.status_code
    kind = _STATUSES.get(status)
    if kind is None:
        kind = TroubleKind.FAILING if status >= 500 else TroubleKind.REFUSED
    return Trouble(kind, f"{status} {_said(response)}".strip(), retry_after=_retry_after(response), status=status)


def _said(response: httpx.Response) -> str:
    try:
        body = read_json(response.content)
    except (ValueError, httpx.StreamError):
        return ""
    source = as_object(body)
    for key in ("detail", "message", "error"):
        value = source.get(key)
        if value:
            text = as_text(value) or orjson.dumps(value).decode()
            return shortened(text, _DETAIL_LIMIT)
    return ""


def _retry_after(response: httpx.Response) -> float:
    value = response.headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return min(max(0.0, seconds), _MAX_RETRY_AFTER)


def _named(error: Exception) -> str:
    return shortened(f"{type(error).__name__} {error}".strip(), _DETAIL_LIMIT)
