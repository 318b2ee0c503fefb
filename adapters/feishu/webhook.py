"""Events over HTTP: signed, encrypted, and answered only when they are committed."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping

import structlog
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7
from pydantic import JsonValue
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from adapters.feishu.api import Json
from adapters.feishu.receiving import NotNow
from channels.clock import Clock
from channels.shapes import as_object, whole_number
from channels.strict_json import read_json

log = structlog.get_logger(__name__)

_WINDOW = 300.0  # seconds that a signature is good for
_LARGEST_BODY = 4 * 1024 * 1024
_MOST_SEEN = 20_000
_BLOCK = 16


class Forged(Exception):
    """The request is not from the platform, or is one that was made before."""


class Webhook:
    """The ASGI application that the platform posts to."""

    def __init__(
        self,
        encrypt_key: str,
        verification_token: str,
        clock: Clock,
        receive: Callable[[Mapping[str, JsonValue]], Awaitable[Json]],
    ) -> None:
        self._key = encrypt_key
        self._token = verification_token
        self._clock = clock
        self._receive = receive
        self._seen: OrderedDict[str, float] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response = await self._respond(Request(scope, receive))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        if request.method != "POST":
            return JSONResponse({"error": "post events here"}, 405, {"allow": "POST"})
        try:
            body = await _body(request)
        except ClientDisconnect:
            return Response(status_code=400)
        if body is None:
            return JSONResponse({"error": "too large"}, 413)
        try:
            return await self._take(request.headers, body)
        except Forged as forged:
            log.warning("a request to the webhook was refused", cause=str(forged))
            return JSONResponse({"error": "not accepted"}, 401)
        except NotNow:
            return JSONResponse({"error": "not now"}, 503, {"retry-after": "15"})

    async def _take(self, headers: Mapping[str, str], body: bytes) -> Response:
        signature = headers.get("x-lark-signature", "").lower()
        is_signed = bool(signature)
        if is_signed:
            self._check_signature(headers, body, signature)
        payload = decrypted(body, self._key)
        if payload.get("type") == "url_verification":
            # The developer console may send it without a signature; that it is encrypted proves as much.
            self._check_token(payload.get("token"))
            return JSONResponse({"challenge": payload.get("challenge")})
        if not is_signed:
            raise Forged("it has no signature")
        header = payload.get("header")
        self._check_token(header.get("token") if isinstance(header, dict) else payload.get("token"))
        answer = await self._receive(payload)
        self._remember(signature)
        return JSONResponse(answer)

    def _check_signature(self, headers: Mapping[str, str], body: bytes, signature: str) -> None:
        timestamp, nonce = headers.get("x-lark-request-timestamp", ""), headers.get("x-lark-request-nonce", "")
        if not hmac.compare_digest(signed(timestamp, nonce, self._key, body).encode(), signature.encode()):
            raise Forged("its signature is wrong")
        at = whole_number(timestamp)
        if at is None or abs(self._clock.now() - at) > _WINDOW:
            raise Forged("its time is too far from now")
        if self._seen.get(signature, 0.0) > self._clock.now():
            raise Forged("it was made before")

    def _check_token(self, token: object) -> None:
        if not isinstance(token, str) or not hmac.compare_digest(token.encode(), self._token.encode()):
            raise Forged("its verification token is wrong")

    def _remember(self, signature: str) -> None:
        """A request that was taken in is not taken twice; the platform signs each delivery anew."""
        now = self._clock.now()
        self._seen[signature] = now + 2 * _WINDOW
        while self._seen and (len(self._seen) > _MOST_SEEN or next(iter(self._seen.values())) < now):
            self._seen.popitem(last=False)


def signed(timestamp: str, nonce: str, key: str, body: bytes) -> str:
    """The signature of a request, as hexadecimal digits."""
    return hashlib.sha256((timestamp + nonce + key).encode() + body).hexdigest()


def decrypted(body: bytes, key: str) -> Json:
    """The event in a request. Raises `Forged` for anything that was not encrypted with the key."""
    try:
        data = base64.b64decode(str(as_object(read_json(body))["encrypt"]), validate=True)
        cipher = Cipher(AES(hashlib.sha256(key.encode()).digest()), CBC(data[:_BLOCK])).decryptor()
        padder = PKCS7(8 * _BLOCK).unpadder()
        padded = cipher.update(data[_BLOCK:]) + cipher.finalize()
        payload = read_json(padder.update(padded) + padder.finalize())
    except (ValueError, KeyError, TypeError, binascii.Error):
        raise Forged("it is not encrypted with the key") from None
    if not isinstance(payload, dict):
        raise Forged("it holds no event")
    return payload


async def _body(request: Request) -> bytes | None:
    """The request's body; None when it is too large."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_BODY:
            return None
    return bytes(body)
