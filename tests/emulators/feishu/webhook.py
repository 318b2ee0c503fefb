"""Deliveries to the bridge's webhook: encrypted and signed as the platform does it, and forged on demand."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import aiohttp
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7

from channels.clock import Clock, wait_until
from tests.emulators.feishu.events import Attempt, Event, Outcome, under_way
from tests.emulators.feishu.limits import Limits
from tests.emulators.feishu.refusals import Json

Forgery = Literal[
    "bad_signature",
    "unsigned",
    "stale",
    "future",
    "plaintext",
    "plaintext_unsigned",
    "wrong_token",
    "wrong_key",
    "garbage",
]
STALE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Hook:
    """Where events go and with which secrets."""

    url: str
    encrypt_key: str
    verification_token: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request as it was sent, so that it can be replayed byte for byte."""

    headers: dict[str, str]
    body: bytes


def encrypt(plain: bytes, encrypt_key: str) -> str:
    """AES-256-CBC with the key's SHA-256, a random IV in front, PKCS#7 padding, base64."""
    iv = secrets.token_bytes(16)
    padder = PKCS7(128).padder()
    encryptor = Cipher(AES(hashlib.sha256(encrypt_key.encode()).digest()), CBC(iv)).encryptor()
    padded = padder.update(plain) + padder.finalize()
    return base64.b64encode(iv + encryptor.update(padded) + encryptor.finalize()).decode()


def signature(timestamp: str, nonce: str, encrypt_key: str, body: bytes) -> str:
    return hashlib.sha256((timestamp + nonce + encrypt_key).encode() + body).hexdigest()


class Webhook:
    """Posts events to the hook. Needs `open` before use and `close` after."""

    def __init__(self, clock: Clock, limits: Limits, on_broken: Callable[[str], None]) -> None:
        self._clock = clock
        self._limits = limits
        self._broken = on_broken
        self._session: aiohttp.ClientSession | None = None
        self.hook: Hook | None = None
        self.sent: dict[str, Delivery] = {}  # event id → its last delivery

    def open(self) -> None:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def verify(self) -> bool:
        """The challenge that the developer console sends when the address is saved."""
        hook = self._need()
        challenge = secrets.token_hex(16)
        plain = {"challenge": challenge, "token": hook.verification_token, "type": "url_verification"}
        status, answer = await self._post(self._wrap(json.dumps(plain).encode(), hook))
        good = status == 200 and answer is not None and answer.get("challenge") == challenge
        if not good:
            self._broken(f"the challenge was answered {status} {answer}")
        return good

    async def attempt(self, event: Event) -> Attempt:
        """Post an event; acked by HTTP 200 within the time."""
        hook = self._need()
        delivery = self._wrap(event.body(), hook)
        self.sent[event.event_id] = delivery
        posting = asyncio.ensure_future(self._post(delivery))
        done = asyncio.Event()
        posting.add_done_callback(lambda _: done.set())
        try:
            await wait_until(self._clock, self._clock.now() + self._limits.ack_seconds, done)
            await under_way(done)
            if not posting.done():
                return Attempt(self._clock.now(), Outcome.SILENT)
            status, answer = posting.result()
        except aiohttp.ClientError:
            return Attempt(self._clock.now(), Outcome.UNDELIVERABLE)
        finally:
            posting.cancel()
        return Attempt(self._clock.now(), Outcome.ACKED if status == 200 else Outcome.REFUSED, answer or {})

    async def forge(self, kind: Forgery, event: Event) -> int:
        """Post a delivery that must be refused; the HTTP status. Accepting it breaks a rule."""
        status, _ = await self._post(self._forgery(kind, event, self._need()))
        if status < 400:
            self._broken(f"a forged delivery ({kind}) was answered {status}")
        return status

    async def replay(self, event_id: str, *, shouting: bool = False) -> int:
        """Post an earlier delivery again, byte for byte; the HTTP status. `shouting`: its signature in capitals."""
        sent = self.sent[event_id]
        signed = sent.headers["X-Lark-Signature"]
        headers = {**sent.headers, "X-Lark-Signature": signed.upper() if shouting else signed}
        status, _ = await self._post(Delivery(headers, sent.body))
        return status

    def _forgery(self, kind: Forgery, event: Event, hook: Hook) -> Delivery:
        body = event.body()
        match kind:
            case "plaintext":
                return self._sign(body, hook)
            case "plaintext_unsigned":
                return Delivery({"Content-Type": "application/json"}, body)
            case "unsigned":
                return Delivery({"Content-Type": "application/json"}, self._wrap(body, hook).body)
            case "bad_signature":
                good = self._wrap(body, hook)
                return Delivery({**good.headers, "X-Lark-Signature": "0" * 64}, good.body)
            case "stale":
                return self._wrap(body, hook, age=STALE_SECONDS)
            case "future":
                return self._wrap(body, hook, age=-STALE_SECONDS)
            case "wrong_token":
                payload = {**event.payload, "header": {**event.payload["header"], "token": "another"}}
                return self._wrap(json.dumps(payload).encode(), hook)
            case "wrong_key":
                return self._wrap(body, Hook(hook.url, "another key", hook.verification_token))
            case "garbage":
                return self._sign(b'{"encrypt":"bm90IGEgY2lwaGVydGV4dA=="}', hook)

    def _wrap(self, plain: bytes, hook: Hook, age: float = 0.0) -> Delivery:
        if not hook.encrypt_key:
            return Delivery({"Content-Type": "application/json"}, plain)
        return self._sign(json.dumps({"encrypt": encrypt(plain, hook.encrypt_key)}).encode(), hook, age)

    def _sign(self, body: bytes, hook: Hook, age: float = 0.0) -> Delivery:
        timestamp, nonce = str(int(self._clock.now() - age)), secrets.token_hex(8)
        headers = {
            "Content-Type": "application/json",
            "X-Lark-Request-Timestamp": timestamp,
            "X-Lark-Request-Nonce": nonce,
            "X-Lark-Signature": signature(timestamp, nonce, hook.encrypt_key, body),
        }
        return Delivery(headers, body)

    async def _post(self, delivery: Delivery) -> tuple[int, Json | None]:
        if self._session is None:
            raise RuntimeError("the emulator is not started")
        url = self._need().url
        async with self._session.post(url, data=delivery.body, headers=delivery.headers, allow_redirects=False) as got:
            text = await got.text()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        return got.status, answer if isinstance(answer, dict) else None

    def _need(self) -> Hook:
        if self.hook is None:
            raise RuntimeError("no webhook is set: call set_webhook")
        return self.hook
