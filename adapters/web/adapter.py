"""One web channel: starts and stops, shows replies on visitors' pages, hands out what they sent."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence

import structlog
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from adapters.web.cookies import Cookies
from adapters.web.guard import Guard, Tokens, with_headers
from adapters.web.log import LogAway, MemoryLog, WebLog
from adapters.web.pages import Pages, asked_of
from adapters.web.paint import Style
from adapters.web.sqllog import SCHEMA, SqlLog
from adapters.web.surface import BUDGETS, WebSurface
from adapters.web.timeline import Asked, Timelines
from channels.adapter import (
    Budget,
    ChannelState,
    Check,
    Context,
    Gone,
    HintState,
    ReplyTarget,
    StoreAway,
    Transient,
)
from channels.loopback import exposed_at
from channels.model import Attachment, TurnId, View
from channels.store.probe import probe
from channels.store.records import StoreError
from config.web import WebChannel

log = structlog.get_logger(__name__)

_COOKIE_KEY = "cookie_key"
_FIRST_RETRY = 1.0  # seconds; doubles up to the longest
_LONGEST_RETRY = 30.0
_PRUNE_EVERY = 86_400.0  # seconds
_CHUNK = 65_536  # bytes

_WITHOUT_TOKEN = (
    "it would be open to everybody who can reach {exposed}: set access_token for this channel, "
    "or let the server listen on 127.0.0.1 and without server.public_url"
)


class WebAdapter:
    """Serves one channel's page as `app`, which the bridge's HTTP server mounts at `path`."""

    def __init__(self, settings: WebChannel, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._log = _make_log(settings, context)
        self._timelines: Timelines | None = None
        self._pages: ASGIApp | None = None
        self._upkeep: asyncio.Task[None] | None = None
        self._reason = "the channel is starting"
        self._is_degraded = False

    @property
    def budgets(self) -> Mapping[str, Budget]:
        return self._settings.limits.over(BUDGETS)

    @property
    def command_sign(self) -> str:
        return "/"

    @property
    def webhook(self) -> ASGIApp | None:
        return None

    @property
    def path(self) -> str:
        """Where the pages are mounted."""
        return self._settings.path

    @property
    def app(self) -> ASGIApp:
        """The pages. Answers 503 with the reason while the channel is not running."""

        async def pages(scope: Scope, receive: Receive, send: Send) -> None:
            await (self._pages or self._unavailable())(scope, receive, send)

        return pages

    async def start(self) -> None:
        if danger := self._danger:
            self._reason = danger
            self._context.sink.report(ChannelState.FAILED, self._reason)
            return
        self._reason = "the channel is starting"
        self._context.sink.report(ChannelState.STARTING)
        opened = await self._try_open()
        self._upkeep = asyncio.create_task(self._keep_up(opened), name=f"web-{self._context.channel}")

    async def stop(self) -> None:
        self._reason = "the channel is stopped"
        self._pages = None
        if self._timelines is not None:
            self._timelines.close()
            self._timelines = None
        upkeep, self._upkeep = self._upkeep, None
        if upkeep is not None:
            upkeep.cancel()
            await asyncio.wait({upkeep})
        await self._log.close()

    def surface(self, target: ReplyTarget) -> WebSurface:
        return WebSurface(self, target, asked_of(target.question), self._settings.streaming)

    async def hint(self, target: ReplyTarget, state: HintState) -> None:
        if self._timelines is None:
            return
        try:
            async with self._timelines.using(target.place.chat) as timeline:
                timeline.hint(str(state))
        except LogAway as error:
            log.debug("no hint was shown", cause=str(error))

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """The bytes of an uploaded file. Raises `Gone` when it has been dropped, `Transient` when it cannot be read."""
        reference = attachment.reference
        try:
            upload = await self._log.upload(str(reference.get("browser")), str(reference.get("upload")))
        except LogAway as error:
            raise Transient(str(error)) from None
        if upload is None:
            raise Gone(f"the uploaded file {attachment.name!r} is no longer kept")
        for start in range(0, len(upload.data), _CHUNK):
            yield upload.data[start : start + _CHUNK]

    async def check(self) -> Sequence[Check]:
        return (self._check_access(), await self._check_log())

    async def show(self, chat: str, turn: TurnId, asked: Asked, view: View, *, unformatted: bool) -> None:
        """Bring a reply on a visitor's page to the view. Raises `LogAway` when it is not durable."""
        if self._timelines is None:
            raise LogAway(f"the web channel is not running: {self._reason}")
        try:
            async with self._timelines.using(chat) as timeline:
                await timeline.show(turn, asked, view, unformatted=unformatted)
        except LogAway as error:
            self._is_degraded = True
            self._context.sink.report(ChannelState.DEGRADED, str(error))
            raise
        if self._is_degraded:
            self._is_degraded = False
            self._context.sink.report(ChannelState.RUNNING)

    # ------------------------------------------------------------ inside

    @property
    def _danger(self) -> str:
        """Why the page must not be served; empty when it may be."""
        exposed = exposed_at(self._context.bind_host, self._context.public_url)
        if self._settings.access_token is not None or exposed is None:
            return ""
        return _WITHOUT_TOKEN.format(exposed=exposed)

    def _unavailable(self) -> ASGIApp:
        answer = JSONResponse({"error": f"The page is not available: {self._reason}."}, 503, {"retry-after": "2"})

        async def unavailable(scope: Scope, receive: Receive, send: Send) -> None:
            await answer(scope, receive, with_headers(send))

        return unavailable

    async def _try_open(self) -> bool:
        """Whether the channel is running now; otherwise the reason is reported."""
        context = self._context
        try:
            await self._log.open()
            key = await self._cookie_key()
        except (LogAway, StoreAway) as error:
            self._reason = str(error) or "the bridge's store is away"
            context.sink.report(ChannelState.DEGRADED, self._reason)
            return False
        token = self._settings.access_token
        tokens = Tokens(token.get_secret_value(), context.clock) if token is not None else None
        cookies = Cookies(key, token.get_secret_value() if token is not None else None, context.public_url)
        style = Style(self._settings.policy.show_reasoning, self._settings.policy.show_steps)
        timelines = Timelines(self._log, context.clock, style)
        pages = Pages(self._settings, context, cookies, tokens, self._log, timelines)
        self._timelines = timelines
        self._pages = Guard(pages.app(), cookies, tokens, context.public_url)
        context.sink.report(ChannelState.RUNNING)
        return True

    async def _cookie_key(self) -> str:
        if self._settings.cookie_key is not None:
            return self._settings.cookie_key.get_secret_value()
        kept = await self._context.sink.recall(_COOKIE_KEY)
        if isinstance(kept, str) and kept:
            return kept
        key = secrets.token_hex(32)
        await self._context.sink.remember(_COOKIE_KEY, key)
        return key

    async def _keep_up(self, opened: bool) -> None:
        """Open what could not be opened, then drop old history once a day."""
        clock = self._context.clock
        wait = _FIRST_RETRY
        while not opened:
            await clock.sleep(wait)
            wait = min(_LONGEST_RETRY, wait * 2)
            opened = await self._try_open()
        while self._settings.history_days is not None:
            try:
                await self._log.prune(clock.now() - self._settings.history_days * 86_400)
            except LogAway as error:
                log.warning("old history could not be dropped", cause=str(error))
            await clock.sleep(_PRUNE_EVERY)

    def _check_access(self) -> Check:
        if danger := self._danger:
            return Check("access", False, danger)
        if self._settings.access_token is not None:
            return Check("access", True, "visitors sign in with the access token")
        return Check("access", True, "open to this machine only")

    async def _check_log(self) -> Check:
        if self._settings.store is None:
            return Check("history", True, "kept in memory only")
        try:
            return Check("history", True, await probe(self._settings.store.get_secret_value(), SCHEMA))
        except StoreError as error:
            return Check("history", False, f"`store`: {error}")


def _make_log(settings: WebChannel, context: Context) -> WebLog:
    if settings.store is None:
        return MemoryLog()
    return SqlLog(settings.store.get_secret_value(), context.channel, context.clock)
