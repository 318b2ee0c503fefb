"""One Feishu channel: its life, its health, and the parts put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing

import structlog
from starlette.types import ASGIApp

from adapters.feishu.api import Api
from adapters.feishu.calls import Calls
from adapters.feishu.cards import Style
from adapters.feishu.connection import LongConnection
from adapters.feishu.errors import ApiRefusal, Means, failure_of
from adapters.feishu.ops import BUDGETS, Format
from adapters.feishu.people import People
from adapters.feishu.probing import probe
from adapters.feishu.reactions import Reactions
from adapters.feishu.receiving import Receiver
from adapters.feishu.sheets import Manner
from adapters.feishu.surface import FeishuSurface
from adapters.feishu.webhook import Webhook
from channels.access import ShowReasoning
from channels.adapter import (
    Budget,
    ChannelState,
    Check,
    Context,
    Draw,
    Failure,
    HintState,
    ReplyTarget,
    Transient,
    Unauthorised,
)
from channels.model import Attachment
from config.channel import Streaming
from config.feishu import FeishuChannel, FeishuMode

log = structlog.get_logger(__name__)

_CARDS_AGAIN = 600.0  # seconds after which card entities are tried again, once the app had none
_TRY_AGAIN = 60.0  # seconds between two tries with credentials that are not accepted
_FIRST_RETRY = 1.0
_LONGEST_RETRY = 30.0


class FeishuAdapter:
    """Serves one app. See `channels.adapter.Adapter`."""

    def __init__(self, settings: FeishuChannel, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._clock = context.clock
        self._api = Api(settings.domain, settings.app_id, settings.app_secret.get_secret_value(), context.clock)
        self._api.changed = self._report
        people = People(self._api, context.clock)
        self._people = people
        self._receiver = Receiver(
            context.channel, context.sink, context.clock, self._api, people, settings.settle_seconds
        )
        self._receiver.changed = self._report
        self._calls = Calls(self._api, context.open_file, self._cards_are_unavailable)
        self._reactions = Reactions(self._api, context.clock, settings.reaction, settings.reaction_done)
        self._cards_from = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._way_in = (ChannelState.STARTING, "")
        self._webhook = self._make_webhook()

    @property
    def budgets(self) -> Mapping[str, Budget]:
        return self._settings.limits.over(BUDGETS)

    @property
    def command_sign(self) -> str:
        return "/"

    @property
    def webhook(self) -> ASGIApp | None:
        return self._webhook

    # ---------------------------------------------------------------- life

    async def start(self) -> None:
        self._set_way_in(ChannelState.STARTING, "")
        if self._webhook is not None:
            way_in = asyncio.create_task(self._prove(), name=f"feishu-{self._context.channel}")
        else:
            connection = LongConnection(self._api, self._people, self._clock, self._receiver.receive, self._set_way_in)
            way_in = asyncio.create_task(connection.run(), name=f"feishu-{self._context.channel}")
        recovery = asyncio.create_task(self._recover(), name=f"feishu-recovery-{self._context.channel}")
        self._tasks = [way_in, recovery]
        way_in.add_done_callback(self._ended)

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._receiver.close()
        await self._reactions.close()
        await self._api.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("receiving ended unexpectedly", channel=self._context.channel, exc_info=error)
            self._set_way_in(ChannelState.FAILED, "an internal error; see the log")

    async def _prove(self) -> None:
        """Events come by themselves: all there is to do is to try whether the app's credentials are good."""
        retry = _FIRST_RETRY
        while True:
            try:
                await self._people.own_id()
            except Unauthorised as error:
                self._set_way_in(ChannelState.FAILED, str(error))
                await self._clock.sleep(_TRY_AGAIN)
            except Failure as error:
                self._set_way_in(ChannelState.DEGRADED, str(error))
                await self._clock.sleep(retry)
                retry = min(_LONGEST_RETRY, retry * 2)
            else:
                self._set_way_in(ChannelState.RUNNING, "")
                return

    async def _recover(self) -> None:
        """An app that is refused may be put right again without anything being sent or received."""
        while True:
            await self._clock.sleep(_TRY_AGAIN)
            if self._api.refused:
                try:
                    await self._people.look_up_bot()
                except Failure as error:
                    log.info("the app is still not accepted", cause=str(error))

    # ---------------------------------------------------------------- health

    def _set_way_in(self, state: ChannelState, reason: str) -> None:
        self._way_in = (state, reason)
        self._report()

    def _report(self) -> None:
        state, reason = self._way_in
        if self._api.refused:
            state, reason = ChannelState.FAILED, self._api.refused
        elif state is ChannelState.RUNNING and (troubles := {**self._api.missing, **self._receiver.unreadable}):
            state, reason = ChannelState.DEGRADED, "; ".join(sorted(troubles.values()))
        self._context.sink.report(state, reason)

    async def check(self) -> Sequence[Check]:
        api = Api(
            self._settings.domain,
            self._settings.app_id,
            self._settings.app_secret.get_secret_value(),
            self._clock,
        )
        try:
            return await probe(api, People(api, self._clock), by_connection=self._webhook is None)
        finally:
            await api.close()

    # ---------------------------------------------------------------- replies

    def surface(self, target: ReplyTarget) -> FeishuSurface:
        settings = self._settings
        use_cards = settings.streaming is not Streaming.EDIT and self._clock.now() >= self._cards_from
        manner = Manner(
            style=Style(
                reasoning_expanded=settings.policy.show_reasoning is ShowReasoning.ON, feedback=settings.feedback
            ),
            streaming=settings.streaming,
            first=Format.CARD if use_cards else Format.PATCH,
            in_thread=settings.reply_in_thread,
            tables=settings.max_tables,
            card_bytes=settings.limits.message_size,
        )
        return FeishuSurface(self._calls, target, manner)

    def _cards_are_unavailable(self) -> None:
        self._cards_from = self._clock.now() + _CARDS_AGAIN

    async def hint(self, target: ReplyTarget, state: HintState) -> None:
        self._reactions.hint(target, state)

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        reference = attachment.reference
        path = f"im/v1/messages/{reference.get('message')}/resources/{reference.get('key')}"
        size, most = 0, self._settings.limits.attachment_bytes
        try:
            async with aclosing(self._api.download(path, {"type": str(reference.get("type", "file"))})) as chunks:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > most:
                        raise Failure(f"larger than {most} bytes")
                    yield chunk
        except ApiRefusal as refusal:
            if refusal.means is Means.NO_SCOPE:
                raise Transient(refusal.describe()) from None
            raise failure_of(refusal, app=Draw("reads"), message=Draw("reads")) from None

    def _make_webhook(self) -> Webhook | None:
        settings = self._settings
        if settings.mode is not FeishuMode.WEBHOOK:
            return None
        assert settings.encrypt_key is not None
        assert settings.verification_token is not None
        key, token = settings.encrypt_key.get_secret_value(), settings.verification_token.get_secret_value()
        return Webhook(key, token, self._clock, self._receiver.receive)
