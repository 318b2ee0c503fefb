"""A reaction on the question while it is answered: the quickest sign that it was heard."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping

import structlog

from adapters.feishu.api import Api, Json
from adapters.feishu.errors import ApiRefusal, failure_of
from adapters.feishu.spacing import Spacing
from channels.adapter import Draw, Failure, HintState, RateLimited, ReplyTarget, Transient, Unauthorised, Unknown
from channels.clock import Clock
from channels.model import InboundKind

log = structlog.get_logger(__name__)

_PAUSE = 600.0  # seconds without new reactions after the app was not allowed one
_REMOVALS = (0.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # seconds before each try to remove one
_MOST_KNOWN = 2_000
_AT_ONCE = 5
_RATE = Draw("reactions")


class Reactions:
    """Sets and removes them in tasks of its own: nothing waits for a reaction, and nothing fails for one.

    One that is not set is no loss. One that stays says that its question is still being answered, so removing it is
    tried again.
    """

    def __init__(self, api: Api, clock: Clock, emoji: str | None, done_emoji: str | None) -> None:
        self._api = api
        self._clock = clock
        self._emoji = emoji
        self._done_emoji = done_emoji
        self._set_on: OrderedDict[str, str | None] = OrderedDict()
        """By message our reaction on it; empty: there may be one, None: there is none, and no message any more."""
        self._latest: dict[str, asyncio.Task[None]] = {}
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._spacing = Spacing(clock)
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
        task = asyncio.create_task(_in_order(self._latest.get(message), work), name=f"reaction-{message}")
        self._latest[message] = task
        task.add_done_callback(lambda done: self._latest.pop(message) if self._latest.get(message) is done else None)

    async def _set(self, message: str, emoji: str) -> None:
        if self._is_paused:
            return
        self._set_on[message] = ""
        if len(self._set_on) > _MOST_KNOWN:
            self._set_on.popitem(last=False)
        self._set_on[message] = await self._add(message, emoji)

    async def _finish(self, message: str, emoji: str, done: str | None) -> None:
        if self._set_on.get(message, None if self._is_paused else "") is not None:
            await self._remove(message, emoji)
        self._set_on.pop(message, None)
        if done is not None and not self._is_paused:
            await self._add(message, done)

    @property
    def _is_paused(self) -> bool:
        return self._clock.now() < self._not_before

    # ---------------------------------------------------------------- calls

    async def _add(self, message: str, emoji: str) -> str | None:
        """Our reaction; empty when there may be one, None when there is none."""
        body: Json = {"reaction_type": {"emoji_type": emoji}}
        try:
            found = await self._call("setting reactions", "POST", f"im/v1/messages/{message}/reactions", body)
        except Failure as failure:
            if isinstance(failure, RateLimited | Unauthorised):
                self._not_before = self._clock.now() + _PAUSE
            log.info("no reaction was set", cause=str(failure))
            return "" if isinstance(failure, Unknown | Transient) else None
        return str(found.get("reaction_id") or "")

    async def _remove(self, message: str, emoji: str) -> None:
        closed = 0.0  # seconds for which the rate is closed
        for pause in _REMOVALS:
            await self._clock.sleep(max(pause, closed))
            try:
                reaction = self._set_on.get(message) or await self._find(message, emoji)
                if reaction:
                    await self._call("removing reactions", "DELETE", f"im/v1/messages/{message}/reactions/{reaction}")
                return
            except (RateLimited, Transient, Unknown, Unauthorised) as failure:
                if isinstance(failure, Unknown):
                    self._set_on[message] = ""  # it may be gone: it is looked for
                closed = failure.retry_after if isinstance(failure, RateLimited) else 0.0
                log.info("a reaction could not be removed", cause=str(failure))
            except Failure as failure:
                log.info("there is no reaction to remove", cause=str(failure))
                return

    async def _find(self, message: str, emoji: str) -> str:
        """Our reaction on a message, when another process has set it; empty when there is none."""
        path, query = f"im/v1/messages/{message}/reactions", {"reaction_type": emoji}
        items = (await self._call("reading reactions", "GET", path, query=query)).get("items")
        for item in items if isinstance(items, list) else []:
            operator = item.get("operator") if isinstance(item, dict) else None
            if isinstance(item, dict) and isinstance(operator, dict) and operator.get("operator_type") == "app":
                return str(item.get("reaction_id") or "")
        return ""

    async def _call(
        self,
        doing: str,
        verb: str,
        path: str,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Json:
        """Raises a `Failure` and nothing else."""
        try:
            async with self._few:
                await self._spacing.turn()
                return await self._api.call(doing, verb, path, body, query=query, repeat=verb != "DELETE")
        except ApiRefusal as refusal:
            raise failure_of(refusal, app=_RATE, message=_RATE) from None


async def _in_order(before: asyncio.Task[None] | None, work: Callable[[], Awaitable[None]]) -> None:
    if before is not None:
        await asyncio.wait({before})
    await work()
