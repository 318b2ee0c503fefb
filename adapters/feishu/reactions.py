"""A reaction on the question while it is answered: the quickest sign that it was heard."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import structlog
from pydantic import JsonValue

from adapters.feishu.api import Api
from adapters.feishu.errors import ApiRefusal, Means
from channels.adapter import Failure, HintState, ReplyTarget
from channels.clock import Clock
from channels.model import InboundKind

log = structlog.get_logger(__name__)

_PAUSE = 600.0  # seconds without reactions after the app was not allowed one
_MOST_KNOWN = 2_000
_AT_ONCE = 5


class Reactions:
    """Sets and removes them in tasks of its own: nothing waits for a reaction, and nothing fails for one."""

    def __init__(self, api: Api, clock: Clock, emoji: str | None, done_emoji: str | None) -> None:
        self._api = api
        self._clock = clock
        self._emoji = emoji
        self._done_emoji = done_emoji
        self._set_on: OrderedDict[str, str] = OrderedDict()  # message → our reaction on it
        self._latest: dict[str, asyncio.Task[None]] = {}
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._not_before = 0.0

    async def close(self) -> None:
        tasks = list(self._latest.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def hint(self, target: ReplyTarget, state: HintState) -> None:
        """Show what becomes of a question."""
        message = target.question.message_id
        if self._emoji is None or target.question.kind is not InboundKind.MESSAGE:
            return
        emoji = self._emoji
        match state:
            case HintState.ACCEPTED:
                self._start(message, lambda: self._set(message, emoji))
            case HintState.DONE:
                self._start(message, lambda: self._finish(message, emoji, self._done_emoji))
            case HintState.FAILED:
                self._start(message, lambda: self._finish(message, emoji, None))
            case _:
                pass

    def _start(self, message: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work once what was started for this message before it is over."""
        task = asyncio.create_task(self._in_order(self._latest.get(message), work), name=f"reaction-{message}")
        self._latest[message] = task
        task.add_done_callback(lambda done: self._latest.pop(message) if self._latest.get(message) is done else None)

    async def _in_order(self, before: asyncio.Task[None] | None, work: Callable[[], Awaitable[None]]) -> None:
        if before is not None:
            await asyncio.wait({before})
        if self._clock.now() < self._not_before:
            return
        try:
            async with self._few:
                await work()
        except ApiRefusal as refusal:
            if refusal.means in (Means.NO_SCOPE, Means.RATE_APP):
                self._not_before = self._clock.now() + _PAUSE
            log.info("no reaction was set", cause=refusal.describe())
        except Failure as failure:
            log.info("no reaction was set", cause=str(failure))

    async def _set(self, message: str, emoji: str) -> None:
        body: dict[str, JsonValue] = {"reaction_type": {"emoji_type": emoji}}
        found = await self._api.call(
            "setting reactions", "POST", f"im/v1/messages/{message}/reactions", body, repeat=True
        )
        reaction = found.get("reaction_id")
        if isinstance(reaction, str):
            self._set_on[message] = reaction
            if len(self._set_on) > _MOST_KNOWN:
                self._set_on.popitem(last=False)

    async def _finish(self, message: str, emoji: str, done: str | None) -> None:
        reaction = self._set_on.pop(message, None) or await self._find(message, emoji)
        if reaction is not None:
            path = f"im/v1/messages/{message}/reactions/{reaction}"
            await self._api.call("removing reactions", "DELETE", path, repeat=True)
        if done is not None:
            await self._set(message, done)
            self._set_on.pop(message, None)

    async def _find(self, message: str, emoji: str) -> str | None:
        """Our reaction on a message, when another process has set it."""
        found = await self._api.call(
            "reading reactions", "GET", f"im/v1/messages/{message}/reactions", query={"reaction_type": emoji}
        )
        items = found.get("items")
        for item in items if isinstance(items, list) else []:
            operator = item.get("operator") if isinstance(item, dict) else None
            if isinstance(item, dict) and isinstance(operator, dict) and operator.get("operator_type") == "app":
                return str(item.get("reaction_id"))
        return None
