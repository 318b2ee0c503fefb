"""Deliveries over HTTP: signed requests to the app's request URL."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import aiohttp

from tests.emulators.journal import Journal
from tests.emulators.slack.blocks import JsonObject
from tests.emulators.slack.deliveries import Delivery, DeliveryKind, Outcome, within
from tests.emulators.slack.world import World


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """What the app answered: the HTTP status (0: none came in time), and the body, decoded when it is JSON."""

    status: int
    body: object = None
    no_retry: bool = False
    failure: str = ""


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """Slack's `v0` signature of a request."""
    base = b"v0:" + str(timestamp).encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), base, hashlib.sha256).hexdigest()


class Hooks:
    """Posts to the app's URL. Signatures carry the wall clock, since that is what the receiving side compares with."""

    def __init__(self, world: World, journal: Journal, *, signing_secret: str, ack_seconds: float) -> None:
        self.url = ""
        self.signing_secret = signing_secret
        self.wall: Callable[[], float] = time.time
        self._world = world
        self._journal = journal
        self._ack_seconds = ack_seconds
        self._session: aiohttp.ClientSession | None = None

    async def attempt(self, delivery: Delivery, number: int, reason: str) -> Outcome:
        """Post it and wait for a 2xx."""
        headers: dict[str, str] = {}
        if number:
            said = reason if "_" in reason else f"http_{reason}"
            headers = {"X-Slack-Retry-Num": str(number), "X-Slack-Retry-Reason": said}
        answer = await self.post(delivery.kind, delivery.payload, headers=headers)
        if answer.failure:
            return Outcome("http", answer.failure, give_up=answer.no_retry)
        return Outcome("http", answer=answer.body)

    async def verify(self) -> bool:
        """The `url_verification` handshake that saving a request URL in the app's settings sets off."""
        challenge = f"challenge-{self._world.number()}"
        payload = {"type": "url_verification", "token": "verification-token", "challenge": challenge}
        answer = await self.post(DeliveryKind.EVENT, payload)
        echoed = answer.body.get("challenge") if isinstance(answer.body, dict) else answer.body
        return answer.status == 200 and echoed == challenge

    async def post(
        self,
        kind: DeliveryKind,
        payload: JsonObject,
        *,
        headers: Mapping[str, str] | None = None,
        age: float = 0.0,
        secret: str | None = None,
        unsigned: bool = False,
    ) -> HookAnswer:
        """One signed request. `age`, `secret` and `unsigned` make the ones that an app must refuse."""
        body, content_type = _encode(kind, payload)
        timestamp = int(self.wall() - age)
        sent = {"Content-Type": content_type, "User-Agent": "Slackbot 1.0 (emulated)", **(headers or {})}
        if not unsigned:
            sent["X-Slack-Request-Timestamp"] = str(timestamp)
            sent["X-Slack-Signature"] = sign(secret or self.signing_secret, timestamp, body)
        request = asyncio.ensure_future(self._exchange(body, sent))
        try:
            if not await within(self._world.clock, self._ack_seconds, request):
                return HookAnswer(0, failure="http_timeout")
            return request.result()
        finally:
            request.cancel()

    async def _exchange(self, body: bytes, headers: Mapping[str, str]) -> HookAnswer:
        if self._session is None:
            self._session = aiohttp.ClientSession(auto_decompress=True)
        try:
            async with self._session.post(self.url, data=body, headers=headers, allow_redirects=False) as response:
                content = await response.text()
                no_retry = response.headers.get("X-Slack-No-Retry") == "1"
                failure = "" if 200 <= response.status < 300 else "http_error"
                return HookAnswer(response.status, _decode(content), no_retry, failure)
        except (aiohttp.ClientError, OSError):
            return HookAnswer(0, failure="connection_failed")

    async def stop(self) -> None:
        if self._session is not None:
            await self._session.close()


def _encode(kind: DeliveryKind, payload: JsonObject) -> tuple[bytes, str]:
    form = "application/x-www-form-urlencoded"
    match kind:
        case DeliveryKind.EVENT:
            return json.dumps(payload).encode(), "application/json"
        case DeliveryKind.INTERACTIVE:
            return urlencode({"payload": json.dumps(payload)}).encode(), form
        case DeliveryKind.COMMAND:
            return urlencode(payload).encode(), form


def _decode(content: str) -> object:
    try:
        decoded: object = json.loads(content)
    except ValueError:
        return content
    return decoded
