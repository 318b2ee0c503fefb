"""One Slack channel: its life, what it receives, and what replies are shown with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import structlog
from pydantic import JsonValue
from starlette.types import ASGIApp

from adapters.slack import limits
from adapters.slack.api import SlackApi
from adapters.slack.bolt import Door
from adapters.slack.checks import check_tokens
from adapters.slack.identity import Identity
from adapters.slack.intake import Intake
from adapters.slack.names import Names
from adapters.slack.performing import Performer
from adapters.slack.places import StreamPlaces
from adapters.slack.planning import Rules
from adapters.slack.reactions import Reactions
from adapters.slack.response import ResponseSurface
from adapters.slack.socket_mode import SocketMode
from adapters.slack.spot import Spot
from adapters.slack.standing import Standing
from adapters.slack.status import Sessions, StatusLine
from adapters.slack.surface import SlackSurface, Taste
from adapters.slack.welcome import Welcome
from channels.adapter import (
    Budget,
    ChannelState,
    Check,
    Context,
    Failure,
    HintState,
    ReplyTarget,
    StoreAway,
    Surface,
    Unauthorised,
)
from channels.model import Attachment
from channels.shapes import as_object, as_text
from config.channel import Streaming
from config.slack import SlackChannel

log = structlog.get_logger(__name__)

_FIRST_RETRY = 1.0  # seconds
_LONGEST_RETRY = 60.0
_LOOK_EVERY = 600.0  # seconds between two looks whether the bot token still holds
_STOP_PATIENCE = 4.0
_MOST_GREETINGS = 50
_GONE = frozenset({"app_uninstalled", "tokens_revoked"})


class SlackAdapter:
    """Serves one app in one workspace, over Socket Mode or HTTP."""

    def __init__(self, settings: SlackChannel, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._standing = Standing(context.sink.report)
        self._api = SlackApi(settings, context.clock, self._standing.judge_token)
        self._identity = Identity(self._api)
        self._names = Names(self._api, context.clock)
        self._intake = Intake(context.channel, self._names, context.clock, settings.dm_replies)
        self._door: Door | None = None
        self._welcome = Welcome(self._api, settings)
        sessions = Sessions(self._api, enabled=settings.status_line)
        self._reactions = Reactions(self._api, context.clock, settings.ack_reaction)
        self._status = StatusLine(self._api, sessions, self._reactions, context.clock, enabled=settings.status_line)
        self._performer = Performer(
            api=self._api,
            identity=self._identity,
            places=StreamPlaces(context.sink, context.clock),
            sessions=sessions,
            open_file=context.open_file,
            display_mode=settings.steps.value,
        )
        self._life: asyncio.Task[None] | None = None
        self._greetings: set[asyncio.Task[None]] = set()

    # ---------------------------------------------------------------- life

    @property
    def budgets(self) -> Mapping[str, Budget]:
        return self._settings.limits.over(limits.BUDGETS)

    @property
    def command_sign(self) -> str:
        return "!"

    @property
    def webhook(self) -> ASGIApp | None:
        return self._get_door() if self._settings.signing_secret is not None else None

    async def start(self) -> None:
        self._api.open()
        self._standing.begin()
        self._life = asyncio.create_task(self._live(), name=f"slack-{self._context.channel}")

    async def stop(self) -> None:
        life, self._life = self._life, None
        tasks = [*self._greetings, *([life] if life is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_PATIENCE)
        self._status.forget()
        await self._names.close()
        await self._api.close()

    async def _live(self) -> None:
        """Receive for as long as the channel lives; both tokens are judged before anything else."""
        await self._until_accepted()
        tasks = [asyncio.create_task(work) for work in (self._receive(), self._look_again(), self._reactions.run())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except Exception:
            log.exception("receiving ended unexpectedly", channel=self._context.channel)
            self._standing.link(ChannelState.FAILED, "an internal error; see the log")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _receive(self) -> None:
        if self._settings.app_token is None:
            self._standing.link(ChannelState.RUNNING, "")
            await asyncio.Event().wait()
        deliver = self._get_door().from_socket
        await SocketMode(self._api, self._context.clock, deliver, self._standing.link).run()

    async def _until_accepted(self) -> None:
        wait = _FIRST_RETRY
        while not await self._is_accepted():
            await self._context.clock.sleep(_LONGEST_RETRY if self._standing.token_is_bad else wait)
            wait = min(_LONGEST_RETRY, wait * 2)

    async def _is_accepted(self) -> bool:
        try:
            answer, _ = await self._api.who_am_i()
        except Unauthorised:
            return False
        except Failure as failure:
            self._standing.link(ChannelState.DEGRADED, f"Slack does not answer ({failure}); trying again")
            return False
        self._identity.learn(answer)
        return True

    async def _look_again(self) -> None:
        while True:
            await self._context.clock.sleep(_LOOK_EVERY)
            try:
                await self._api.who_am_i()
            except Failure as failure:
                log.info("the bot token could not be looked at", cause=str(failure))

    # ---------------------------------------------------------------- inbound

    async def _take(self, body: Mapping[str, JsonValue]) -> bool:
        """Store what the delivery holds; False: not stored, it has to come again."""
        event = as_object(body.get("event"))
        kind = as_text(event.get("type"))
        if kind in _GONE:
            self._standing.judge_token("unauthorised: the app was removed from the workspace")
            return True
        if kind in ("app_home_opened", "assistant_thread_started"):
            self._greet(event)
            return True
        me = self._identity.known
        inbound = await self._intake.read(body, me.user if me is not None else "")
        if inbound is None:
            return True
        try:
            await self._context.sink.accept(inbound)
        except StoreAway as error:
            log.warning("not stored, so not acked", channel=self._context.channel, cause=str(error))
            return False
        return True

    def _greet(self, event: Mapping[str, JsonValue]) -> None:
        if len(self._greetings) < _MOST_GREETINGS:
            task = asyncio.create_task(self._welcome.greet(event))
            self._greetings.add(task)
            task.add_done_callback(self._greetings.discard)

    def _get_door(self) -> Door:
        if self._door is None:
            self._door = Door(self._settings, self._take)
        return self._door

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """The bytes of a file that a person sent. Raises a `Failure`."""
        url = as_text(attachment.reference.get("url"))
        if not url:  # files from other organisations are described only when they are asked about
            answer = await self._api.call("files.info", file=attachment.reference.get("id"))
            file = as_object(answer.get("file"))
            url = as_text(file.get("url_private_download")) or as_text(file.get("url_private"))
        async for chunk in self._api.download(url, attachment.mime, self._settings.limits.attachment_bytes):
            yield chunk

    # ---------------------------------------------------------------- replies

    def surface(self, target: ReplyTarget) -> Surface:
        spot = Spot.of(target)
        if spot.is_whisper:
            return ResponseSurface(spot, self._performer)
        return SlackSurface(spot, self._taste(spot), self._performer)

    def _taste(self, spot: Spot) -> Taste:
        settings = self._settings
        streams = settings.streaming in (Streaming.AUTO, Streaming.NATIVE)
        size = settings.limits.message_size
        rules = Rules(
            streaming=settings.streaming,
            stream_bytes=size or limits.STREAM_BYTES,
            markdown_chars=size or limits.MARKDOWN_CHARS,
            feedback=settings.feedback,
            may_stream=streams and spot.root is not None and spot.has_recipient and not spot.is_command,
        )
        return Taste(rules, settings.policy.show_reasoning)

    async def hint(self, target: ReplyTarget, state: HintState) -> None:
        await self._status.hint(Spot.of(target), target.question, state)

    # ---------------------------------------------------------------- for the operator

    async def check(self) -> Sequence[Check]:
        return await check_tokens(self._api, self._settings, self._context.channel, self._context.public_url)
