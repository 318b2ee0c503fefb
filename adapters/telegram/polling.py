"""Long polling of our own: an update is confirmed to Telegram only after it has been committed here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog
from pydantic import JsonValue
from telegram.error import Conflict, InvalidToken, RetryAfter, TelegramError

from adapters.telegram.client import Client
from adapters.telegram.failures import UNAUTHORISED, seconds_of
from adapters.telegram.limits import ALLOWED_UPDATES
from channels.adapter import ChannelState, Failure, StoreAway
from channels.clock import Clock

log = structlog.get_logger(__name__)

_WATCHDOG = 120.0  # seconds without a successful poll after which the connection is made anew
_GRACE = 30.0  # seconds that a single poll may take longer than it was to wait
_FIRST_RETRY = 1.0
_LONGEST_RETRY = 30.0
_CONFLICT_RETRIES = (5.0, 10.0, 20.0, 30.0)
_TOKEN_RETRY = 60.0
_WEBHOOK_IS_SET = "webhook is active"
_CONFLICT = "another program receives this bot's updates; only one may: stop it, or give this channel a bot of its own"

Take = Callable[[Mapping[str, JsonValue]], Awaitable[None]]


class Dead(Exception):
    """A poll did not come back."""


class Poller:
    """Polls until cancelled. `take` commits one raw update; it raises `StoreAway` when it could not."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        take: Take,
        report: Callable[[ChannelState, str], None],
        wait: int,
    ) -> None:
        self._client = client
        self._clock = clock
        self._take = take
        self._report = report
        self._wait = wait
        self._offset: int | None = None
        self._failures = 0
        self._conflicts = 0
        self._last_success = clock.now()

    async def run(self) -> None:
        """Receive for ever. The first poll returns at once, so that the channel is known to work."""
        wait = 0
        while True:
            try:
                updates = await self._poll(wait)
            except (TelegramError, Failure, Dead) as error:
                await self._after(error)
                continue
            self._last_success = self._clock.now()
            self._conflicts = 0
            wait = self._wait
            if await self._take_all(updates):
                self._failures = 0
                self._report(ChannelState.RUNNING, "")

    async def _poll(self, wait: int) -> Sequence[Mapping[str, JsonValue]]:
        """One poll; it is given up when it takes far longer than it should. Raises `TelegramError` and `Dead`."""
        if self._clock.now() - self._last_success > _WATCHDOG:
            self._last_success = self._clock.now()
            log.warning("no poll has succeeded for a while; the connection is made anew")
            await self._client.renew_polling()
        poll = asyncio.create_task(self._client.updates(self._offset, wait, ALLOWED_UPDATES))
        patience = max(self._last_success + _WATCHDOG - self._clock.now(), wait + _GRACE)
        watchdog = asyncio.create_task(self._clock.sleep(patience))
        try:
            await asyncio.wait({poll, watchdog}, return_when=asyncio.FIRST_COMPLETED)
            if not poll.done():
                raise Dead
            return poll.result()
        finally:
            poll.cancel()
            watchdog.cancel()
            await asyncio.gather(poll, watchdog, return_exceptions=True)

    async def _take_all(self, updates: Sequence[Mapping[str, JsonValue]]) -> bool:
        """Commit the updates in order and move the offset past each that is; False: the store is away.

        The offset may move back: after a week without updates Telegram chooses the next number at random, and answers
        an offset that is far from its numbers with all that wait, confirming none.
        """
        for update in sorted(updates, key=_id_of):
            try:
                await self._take(update)
            except StoreAway as error:
                self._failures += 1
                self._report(ChannelState.DEGRADED, f"messages cannot be stored at the moment: {error}")
                await self._clock.sleep(self._backoff())
                return False
            self._offset = _id_of(update) + 1
        return True

    async def _after(self, error: TelegramError | Failure | Dead) -> None:
        """Say what is wrong, and wait as long as it takes to be worth trying again."""
        match error:
            case Conflict() if _WEBHOOK_IS_SET in error.message:
                await self._remove_webhook()
            case Conflict():
                self._report(ChannelState.CONFLICT, _CONFLICT)
                await self._clock.sleep(_CONFLICT_RETRIES[min(self._conflicts, len(_CONFLICT_RETRIES) - 1)])
                self._conflicts += 1
            case InvalidToken():
                self._report(ChannelState.FAILED, UNAUTHORISED)
                await self._clock.sleep(_TOKEN_RETRY)
            case RetryAfter():
                await self._clock.sleep(seconds_of(error))
            case _:
                self._failures += 1
                if self._failures > 1:  # one alone is everyday life of a long poll
                    self._report(ChannelState.DEGRADED, f"Telegram cannot be reached: {type(error).__name__}")
                await self._clock.sleep(self._backoff())

    async def _remove_webhook(self) -> None:
        try:
            await self._client.delete_webhook()
        except Failure as failure:
            self._report(ChannelState.DEGRADED, f"a webhook is in the way and cannot be removed: {failure}")
            await self._clock.sleep(_LONGEST_RETRY)

    def _backoff(self) -> float:
        return min(_LONGEST_RETRY, _FIRST_RETRY * 2.0 ** min(self._failures - 1, 10))


def _id_of(update: Mapping[str, JsonValue]) -> int:
    number = update.get("update_id")
    return number if isinstance(number, int) else 0
