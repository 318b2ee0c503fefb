"""Webhook mode: the address Telegram calls, and keeping it registered."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import structlog
from pydantic import JsonValue
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from adapters.telegram.client import Client
from adapters.telegram.limits import ALLOWED_UPDATES
from adapters.telegram.polling import Take
from channels.adapter import ChannelState, Failure, StoreAway, Unauthorised
from channels.clock import Clock
from channels.strict_json import read_json

log = structlog.get_logger(__name__)

_HEADER = "x-telegram-bot-api-secret-token"
_MOST_BYTES = 1024 * 1024  # an update is a few kilobytes
_LOOK_EVERY = 30.0  # seconds between two looks at the registration
_FIRST_RETRY = 2.0
_LONGEST_RETRY = 60.0
_RECENT = 120.0  # seconds for which a delivery error counts


def secret_for(token: str) -> str:
    """A secret that every replica makes from the token alone, and that does not give the token away."""
    return hmac.new(token.encode(), b"channel-bridge webhook", hashlib.sha256).hexdigest()


class Webhook:
    """Answers Telegram's calls: 200 only after the update is committed, so that it comes again otherwise."""

    def __init__(self, secret: str, take: Take) -> None:
        self._secret = secret
        self._take = take

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method != "POST":
            return PlainTextResponse("POST only\n", status_code=405, headers={"allow": "POST"})
        given = request.headers.get(_HEADER, "")
        if not hmac.compare_digest(given.encode(), self._secret.encode()):
            return PlainTextResponse("wrong secret token\n", status_code=401)
        update = await _update_in(request)
        if update is None:
            return PlainTextResponse("no update\n", status_code=400)
        try:
            await self._take(update)
        except (StoreAway, Failure) as error:
            log.warning("an update was not taken; Telegram delivers it again", cause=str(error))
            return PlainTextResponse("try again\n", status_code=503)
        return PlainTextResponse("ok\n")


async def _update_in(request: Request) -> Mapping[str, JsonValue] | None:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BYTES:
                return None
        update = read_json(bytes(body))
    except (ClientDisconnect, ValueError):
        return None
    return update if isinstance(update, dict) and "update_id" in update else None


class Registration:
    """Keeps the webhook registered until cancelled."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        report: Callable[[ChannelState, str], None],
        *,
        url: str,
        secret: str,
        connections: int,
    ) -> None:
        self._client = client
        self._clock = clock
        self._report = report
        self._url = url
        self._secret = secret
        self._connections = connections
        self._is_set = False

    async def run(self) -> None:
        """Register, then look from time to time whether it still holds: another owner may have removed it."""
        failures = 0
        while True:
            try:
                trouble = await self._look()
            except Unauthorised as failure:
                self._report(ChannelState.FAILED, str(failure))
                failures += 10
            except Failure as failure:
                self._report(ChannelState.DEGRADED, f"the webhook cannot be set: {failure}")
                failures += 1
            else:
                self._report(ChannelState.DEGRADED if trouble else ChannelState.RUNNING, trouble)
                failures = 0
            wait = min(_LONGEST_RETRY, _FIRST_RETRY * 2.0 ** min(failures, 10)) if failures else _LOOK_EVERY
            await self._clock.sleep(wait)

    async def _look(self) -> str:
        """Register if need be; returns what is wrong with the deliveries, if anything."""
        if not self._is_set or (info := await self._client.webhook_info()).url != self._url:
            await self._client.set_webhook(self._url, self._secret, self._connections, ALLOWED_UPDATES)
            self._is_set = True
            return ""
        error_at = info.last_error_date.timestamp() if info.last_error_date else 0.0
        if info.pending_update_count and self._clock.now() - error_at < _RECENT:
            return f"Telegram cannot deliver to {urlsplit(self._url).netloc}: {info.last_error_message}"
        return ""
