"""One Telegram bot: receives what people do, shows replies, and says how it is."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import replace

import structlog
from pydantic import JsonValue
from starlette.types import ASGIApp
from telegram import Update

from adapters.telegram.chats import Chats
from adapters.telegram.checks import check_bot
from adapters.telegram.client import Client, Identity
from adapters.telegram.inbound import Reader, migration_of, where_of
from adapters.telegram.keyboard import Buttons
from adapters.telegram.layout import Layout, Style
from adapters.telegram.limits import BUDGETS, COMMAND_DESCRIPTION, DRAFT_COOL_DOWN, TEXT_UNITS
from adapters.telegram.ops import Delete, Draft, Moved, SendFile, Write
from adapters.telegram.polling import Poller
from adapters.telegram.surface import ReplySettings, TelegramSurface
from adapters.telegram.webhook import Registration, Webhook, secret_for
from channels.access import ShowReasoning
from channels.adapter import (
    Accepted,
    Budget,
    ChannelState,
    Check,
    Closed,
    Context,
    Failure,
    HintState,
    Op,
    RateLimited,
    Receipt,
    Refused,
    ReplyTarget,
    StoreAway,
    TooLarge,
    Unauthorised,
)
from channels.commands import DESCRIPTIONS
from channels.model import Action, Attachment, Inbound, InboundKind
from config.channel import Streaming
from config.telegram import TelegramChannel, TelegramMode

log = structlog.get_logger(__name__)

_CHUNK = 65_536  # bytes
_FIRST_RETRY = 1.0  # seconds
_LONGEST_RETRY = 60.0
_REMEMBERED_PRESSES = 1000
_ALBUM_KNOWN = 86_400.0  # seconds; so long Telegram delivers again what was not taken
_TOASTS = {
    Action.STOP: "Stop requested.",  # whether this person may is judged later
    Action.RETRY: "Asking again …",
    Action.FEEDBACK: "Thank you.",
    Action.ANSWER: "",
}
_NOT_FOR_YOU = "This button is not for you."
_DEAD_BUTTON = "This button does not work any more."


class TelegramAdapter:
    """Serves one bot. `start` begins to receive; the webhook answers on every replica, started or not."""

    def __init__(self, settings: TelegramChannel, context: Context) -> None:
        self._settings = settings
        self._context = context
        token = settings.bot_token.get_secret_value()
        self._client = Client(token, settings.api_base_url)
        given = settings.webhook_secret
        self._secret = given.get_secret_value() if given is not None else secret_for(token)
        self._hook = Webhook(self._secret, self._take) if settings.mode is TelegramMode.WEBHOOK else None
        self._reader = Reader(context.channel)
        self._identity: Identity | None = None
        self._identifying = asyncio.Lock()
        self._registration: Registration | None = None
        self._receiving: asyncio.Task[None] | None = None
        self._side_calls: set[asyncio.Task[None]] = set()
        self._answered: OrderedDict[str, None] = OrderedDict()
        self._chats = Chats(context.clock)
        self._knows_rich = True

    @property
    def budgets(self) -> Mapping[str, Budget]:
        return self._settings.limits.over(BUDGETS)

    @property
    def command_sign(self) -> str:
        return "/"

    @property
    def webhook(self) -> ASGIApp | None:
        return self._hook

    # ---------------------------------------------------------------- life

    async def start(self) -> None:
        self._context.sink.report(ChannelState.STARTING)
        self._identity = None
        self._receiving = asyncio.create_task(self._receive(), name=f"telegram-{self._context.channel}")

    async def stop(self) -> None:
        receiving, self._receiving = self._receiving, None
        tasks = [task for task in (receiving, *self._side_calls) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._registration = None  # it stays with Telegram: another owner may have made it its own by now
        await self._client.close()
        self._identity = None

    async def _receive(self) -> None:
        """Come up, then receive until cancelled; an error of ours is logged and does not end the channel."""
        while True:
            try:
                await self._come_up()
                self._aside(self._publish_commands())
                await (self._poll() if self._hook is None else self._keep_registered())
            except Exception:
                log.exception("receiving failed unexpectedly", channel=self._context.channel)
                self._context.sink.report(ChannelState.DEGRADED, "an internal error; see the log")
                await self._context.clock.sleep(_LONGEST_RETRY)

    async def _come_up(self) -> None:
        """Returns once Telegram knows the token."""
        wait = _FIRST_RETRY
        while True:
            try:
                await self._identified()
                return
            except Unauthorised as failure:
                self._context.sink.report(ChannelState.FAILED, str(failure))
                wait = _LONGEST_RETRY
            except Failure as failure:
                self._context.sink.report(ChannelState.DEGRADED, str(failure))
            await self._context.clock.sleep(wait)
            wait = min(_LONGEST_RETRY, wait * 2)

    async def _identified(self) -> Identity:
        """Who the bot is. Raises a `Failure` while nobody can say."""
        async with self._identifying:
            if self._identity is None:
                self._identity = await self._client.open()
            return self._identity

    async def _poll(self) -> None:
        poller = Poller(
            self._client, self._context.clock, self._take, self._context.sink.report, self._settings.poll_seconds
        )
        await poller.run()

    async def _keep_registered(self) -> None:
        if self._context.public_url is None:
            reason = "webhook mode needs server.public_url, the address under which Telegram reaches this server"
            self._context.sink.report(ChannelState.FAILED, reason)
            await asyncio.Event().wait()
        self._registration = Registration(
            self._client,
            self._context.clock,
            self._context.sink.report,
            url=f"{self._context.public_url}/hooks/{self._context.channel}",
            secret=self._secret,
            connections=self._settings.webhook_connections,
        )
        await self._registration.run()

    async def _publish_commands(self) -> None:
        if self._settings.publish_commands:
            commands = [(str(name), text[:COMMAND_DESCRIPTION]) for name, text in DESCRIPTIONS.items()]
            await self._client.publish_commands(commands)

    def _aside(self, call: Coroutine[None, None, None]) -> None:
        """Make a call that nothing waits for."""

        async def quietly() -> None:
            try:
                await call
            except Failure as failure:
                log.info("a side call was not accepted", channel=self._context.channel, cause=str(failure))

        task = asyncio.create_task(quietly())
        self._side_calls.add(task)
        task.add_done_callback(self._side_calls.discard)

    # ---------------------------------------------------------------- inbound

    async def _take(self, raw: Mapping[str, JsonValue]) -> None:
        """Commit one update. Raises `StoreAway` when it must come again, and a `Failure` when the bot is not up."""
        bot = await self._identified()
        try:
            update = self._client.read_update(raw)
            moved = migration_of(update)
            inbound = self._reader.read(update, bot, self._context.clock.now())
        except Exception:
            # It would come again for ever and hold up all others.
            log.exception("an update cannot be read and is left out", channel=self._context.channel)
            return
        accepted = None
        try:
            if moved is not None:
                await self._context.sink.rekey(*moved)
            if inbound is not None:
                accepted = await self._accept(inbound)
        except StoreAway:
            raise
        except Exception as error:
            log.exception("an inbound could not be accepted", channel=self._context.channel)
            raise StoreAway(type(error).__name__) from None
        self._answer_press(update, inbound, accepted)

    async def _accept(self, inbound: Inbound) -> Accepted:
        """Only one part of an album names the bot. The parts may come to several replicas, so the store knows that."""
        if inbound.group is None or inbound.place.private:
            return await self._context.sink.accept(inbound)
        note = f"telegram:album:{inbound.place.chat}:{inbound.group}"
        is_known = await self._context.sink.recall(note) is not None
        if is_known:
            inbound = replace(inbound, mentions_bot=True)
        accepted = await self._context.sink.accept(inbound)
        # Whoever stored a duplicate may have died before noting it.
        if accepted is not Accepted.IGNORED and not is_known:
            await self._context.sink.remember(note, True, _ALBUM_KNOWN)
        return accepted

    def _answer_press(self, update: Update, inbound: Inbound | None, accepted: Accepted | None) -> None:
        """Stop the button's spinning, once, with a word about what happens."""
        query = update.callback_query
        if query is None or query.id in self._answered or accepted is Accepted.DUPLICATE:
            return
        self._answered[query.id] = None
        if len(self._answered) > _REMEMBERED_PRESSES:
            self._answered.popitem(last=False)
        if inbound is None or inbound.press is None:
            toast = _DEAD_BUTTON
        else:
            toast = _NOT_FOR_YOU if accepted is Accepted.IGNORED else _TOASTS[inbound.press.action]
        self._aside(self._client.answer_press(query.id, toast))

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        limit = self._settings.limits.attachment_bytes
        if attachment.size is not None and attachment.size > limit:
            raise TooLarge(f"larger than {limit} bytes", limit)
        data = await self._client.download(str(attachment.reference.get("file_id")), attachment.size)
        for start in range(0, len(data), _CHUNK):
            yield data[start : start + _CHUNK]

    # ---------------------------------------------------------------- replies

    def surface(self, target: ReplyTarget) -> TelegramSurface:
        settings, question = self._settings, target.question
        is_private = question.place.private
        drafts = settings.streaming is Streaming.DRAFT and is_private
        size = settings.limits.message_size or TEXT_UNITS
        is_typed = question.kind in (InboundKind.MESSAGE, InboundKind.COMMAND)
        answers = question.press is not None and question.press.action is Action.ANSWER
        replies = settings.reply_in_groups and not is_private and is_typed
        return TelegramSurface(
            ReplySettings(
                turn=target.turn,
                where=where_of(question),
                reply_to=int(question.message_id) if replies else None,
                buttons=Buttons(
                    target.turn,
                    stop=settings.stop_button,
                    feedback=settings.feedback_buttons,
                    asks_agent=question.kind is InboundKind.MESSAGE or answers,
                ),
                size=size,
                grows=settings.streaming is not Streaming.OFF,
                drafts=drafts,
                rich=settings.rich_messages and self._knows_rich,
                previews=settings.link_previews,
            ),
            Layout(Style(size, settings.policy.show_reasoning is ShowReasoning.ON, steps_below=drafts)),
            self._perform,
        )

    async def _perform(self, op: Op) -> Receipt:
        """Make a reply's call. What one call learns about its chat counts for all of them."""
        if not isinstance(op, Write | Draft | Delete | SendFile):
            raise Refused(f"no call of this platform: {type(op).__name__}")
        chat = op.where.chat
        if (left := self._chats.closed_for(chat)) > 0:
            raise RateLimited(left, op.draws[0])
        try:
            return await self._client.perform(op, self._context.open_file)
        except RateLimited as limited:
            if not (isinstance(op, Draft) and limited.retry_after <= DRAFT_COOL_DOWN):
                self._chats.close(chat, limited.retry_after)
            raise
        except Moved as moved:
            await self._rekey(chat, moved.chat)
            raise
        except Closed:
            if isinstance(op, Write) and op.content.rich is not None:
                log.warning("this Bot API server does not know rich messages", channel=self._context.channel)
                self._knows_rich = False
            raise

    async def _rekey(self, old: str, new: str) -> None:
        try:
            await self._context.sink.rekey(old, new)
        except Exception:
            # The service message about the move brings it again.
            log.exception("a moved group could not be re-keyed", channel=self._context.channel)

    # ---------------------------------------------------------------- hints

    async def hint(self, target: ReplyTarget, state: HintState) -> None:
        question = target.question
        where = where_of(question)
        if self._chats.closed_for(where.chat) > 0:
            return
        try:
            if state is HintState.ACCEPTED:
                await self._react(question)
            elif state in (HintState.WAITING, HintState.WORKING) and self._chats.may_act(where):
                await self._client.show_typing(where)
        except RateLimited as limited:
            self._chats.close(where.chat, limited.retry_after)
        except Failure as failure:
            log.debug("a hint was not accepted", channel=self._context.channel, cause=str(failure))

    async def _react(self, question: Inbound) -> None:
        emoji = self._settings.reaction
        wanted = question.place.private or self._settings.react_in_groups
        if emoji is not None and wanted and question.kind is InboundKind.MESSAGE:
            await self._client.react(question.place.chat, int(question.message_id), emoji)

    # ---------------------------------------------------------------- for the operator

    async def check(self) -> Sequence[Check]:
        return await check_bot(self._settings, self._context.public_url)
