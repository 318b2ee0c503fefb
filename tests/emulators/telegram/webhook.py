"""Webhook mode: its settings, and delivery with the secret header, retries and backoff."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlsplit

import aiohttp

from channels.clock import wait_until
from tests.emulators.telegram.backend import Backend, Method
from tests.emulators.telegram.errors import bad_request
from tests.emulators.telegram.updates import PendingUpdate, Updates
from tests.emulators.telegram.wire import Json, Params

_SECRET = re.compile(r"[A-Za-z0-9_-]+")
_PORTS = frozenset({80, 88, 443, 8443})
_LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
_DELIVERY_TIMEOUT = aiohttp.ClientTimeout(total=20.0)  # wall seconds: the receiver works in real time


class Webhook:
    """Delivers updates to the bot's URL: in order within a chat, side by side over chats.

    `deliver_to` (scheme, host and port) takes the place of those of the bot's URL, so that a public URL can be tested.
    """

    def __init__(self, backend: Backend, updates: Updates, *, deliver_to: str | None = None) -> None:
        self._backend = backend
        self._updates = updates
        self.deliver_to = deliver_to
        self._secret = ""
        self._connections = 40
        self._last_error: tuple[float, str] | None = None
        self._wake = asyncio.Event()
        self._courier: asyncio.Task[None] | None = None
        updates.on_queued.append(self._wake.set)

    def methods(self) -> dict[str, Method]:
        return {
            "setWebhook": self.set_webhook,
            "deleteWebhook": self.delete_webhook,
            "getWebhookInfo": self.webhook_info,
        }

    async def start(self) -> None:
        self._courier = asyncio.create_task(self._deliver(), name="telegram emulator webhook")

    async def stop(self) -> None:
        if self._courier is not None:
            self._courier.cancel()
            await asyncio.gather(self._courier, return_exceptions=True)

    # methods

    def set_webhook(self, params: Params) -> bool:
        url = params.text("url")
        if not url:
            return self.delete_webhook(params)
        limits = self._backend.limits
        self._check_url(url)
        secret = params.text("secret_token")
        if len(secret) > limits.secret_token:
            raise bad_request("secret token is too long", rule=f"secret_token of {len(secret)} characters")
        if params.has("secret_token") and not _SECRET.fullmatch(secret):
            raise bad_request("secret token contains unallowed characters", rule="secret_token has other characters")
        connections = params.integer("max_connections", 40)
        if not 1 <= connections <= limits.webhook_connections:
            raise bad_request("invalid max_connections specified", rule=f"max_connections {connections}")
        self._updates.ask_for(params)
        if params.flag("drop_pending_updates"):
            self._updates.drop_all()
        self._secret, self._connections, self._last_error = secret, connections, None
        self._updates.webhook_url = url
        self._updates.webhook_was_set()
        self._wake.set()
        return True

    def delete_webhook(self, params: Params) -> bool:
        if params.flag("drop_pending_updates"):
            self._updates.drop_all()
        self._updates.webhook_url, self._secret = "", ""
        return True

    def webhook_info(self, _: Params) -> Json:
        self._updates.forget_old()
        info: Json = {
            "url": self._updates.webhook_url,
            "has_custom_certificate": False,
            "pending_update_count": len(self._updates.pending),
        }
        if self._updates.webhook_url:
            info |= {"max_connections": self._connections, "ip_address": "127.0.0.1"}
        if self._last_error is not None:
            info |= {"last_error_date": int(self._last_error[0]), "last_error_message": self._last_error[1]}
        if self._updates.allowed_named is not None:
            info["allowed_updates"] = self._updates.allowed_named
        return info

    def _check_url(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.hostname in _LOCAL:
            return  # as a locally run Bot API server allows
        if parts.scheme != "https" or not parts.hostname:
            raise bad_request(
                "bad webhook: An HTTPS URL must be provided for webhook", rule=f"webhook without https: {url}"
            )
        if (parts.port or 443) not in _PORTS:
            raise bad_request(
                "bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443",
                rule=f"webhook port {parts.port}",
            )

    # delivery

    async def _deliver(self) -> None:
        async with aiohttp.ClientSession(timeout=_DELIVERY_TIMEOUT) as session, asyncio.TaskGroup() as deliveries:
            busy: set[int] = set()  # chats with a delivery under way
            while True:
                self._wake.clear()
                next_try = None
                for update in self._due(busy):
                    if update.not_before > self._backend.clock.now():
                        next_try = min(update.not_before, next_try or update.not_before)
                    elif len(busy) < self._connections:
                        busy.add(update.chat_id)
                        deliveries.create_task(self._deliver_one(session, update, busy))
                await wait_until(self._backend.clock, next_try, self._wake)

    def _due(self, busy: set[int]) -> list[PendingUpdate]:
        """The first waiting update of each chat that has no delivery under way."""
        if not self._updates.webhook_url or self._updates.held:
            return []
        self._updates.forget_old()
        first: dict[int, PendingUpdate] = {}
        for update in self._updates.pending:
            if update.chat_id not in busy:
                first.setdefault(update.chat_id, update)
        return list(first.values())

    async def _deliver_one(self, session: aiohttp.ClientSession, update: PendingUpdate, busy: set[int]) -> None:
        headers = {"X-Telegram-Bot-Api-Secret-Token": self._secret} if self._secret else {}
        try:
            async with session.post(self._target(), json=update.to_json(), headers=headers) as response:
                problem = "" if 200 <= response.status < 300 else f"Wrong response from the webhook: {response.status}"
        except (aiohttp.ClientError, TimeoutError):
            problem = "Connection refused"
        finally:
            busy.discard(update.chat_id)
            self._wake.set()
        if problem:
            now, limits = self._backend.clock.now(), self._backend.limits
            self._last_error = (now, problem)
            update.not_before = now + min(limits.webhook_first_retry * 2**update.failures, limits.webhook_last_retry)
            update.failures += 1
        else:
            self._updates.hand(update)
            self._updates.pending = [other for other in self._updates.pending if other is not update]
        self._backend.changed()

    def _target(self) -> str:
        url = self._updates.webhook_url
        if self.deliver_to is None:
            return url
        parts = urlsplit(url)
        return self.deliver_to.rstrip("/") + parts.path + (f"?{parts.query}" if parts.query else "")
