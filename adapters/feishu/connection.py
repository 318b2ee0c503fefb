"""The long connection: asked for anew each time, watched, and opened again for ever.

The vendor's own client needs a thread of its own, never notices a dead peer by itself and gives up silently when a
reconnect is refused; this one is a task that is always either connected, connecting or waiting.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import aiohttp
import structlog
from pydantic import JsonValue

from adapters.feishu.api import Api, Json
from adapters.feishu.frames import DATA, BadFrame, Frame, ping
from adapters.feishu.people import People
from adapters.feishu.receiving import NotNow
from channels.adapter import ChannelState, Failure, Unauthorised
from channels.clock import Clock
from channels.shapes import whole_number
from channels.strict_json import read_json

log = structlog.get_logger(__name__)

PING_EVERY = 20.0
"""Seconds between two pings, if the platform does not ask for more: it asks for one in 120 s, too few to notice soon
that a connection is dead."""
PONG_WITHIN = 15.0
"""Seconds after a ping within which anything at all has to come back."""
_FIRST_RETRY = 0.5
_LONGEST_RETRY = 30.0
_REFUSED_PAUSE = 60.0  # seconds after the app itself was refused: a person has to do something first
_STEADY = 30.0  # seconds that a connection has to last for the next retry to be quick again
_OPEN_WITHIN = 10.0
_CLOSE_WITHIN = 1.0
_LARGEST_FRAME = 16 * 1024 * 1024
_KEEP_PARTS = 10.0  # seconds that the parts of an event are waited for
_MOST_PARTS = 1_000
_MOST_WAITING = 500  # events that wait to be taken in, on one connection

_BUSY_CODES = (1, 1000040343)  # busy; an internal error: anything else is about the app itself
_TOO_MANY = "1000040350"

Receive = Callable[[Mapping[str, JsonValue]], Awaitable[Json]]
Report = Callable[[ChannelState, str], None]


class Refused(Exception):
    """The platform does not let the app connect. `state` says how the channel is while that lasts."""

    def __init__(self, state: ChannelState, reason: str) -> None:
        super().__init__(reason)
        self.state = state


@dataclass(slots=True)
class _Parts:
    """An event that comes in several frames."""

    since: float
    frames: dict[int, bytes] = field(default_factory=dict)


class LongConnection:
    """Keeps one connection; `run` ends only when it is cancelled."""

    def __init__(self, api: Api, people: People, clock: Clock, receive: Receive, report: Report) -> None:
        self._api = api
        self._people = people
        self._clock = clock
        self._receive = receive
        self._report = report
        self.opened = 0
        """How many connections there have been."""

    async def run(self) -> None:
        retry = _FIRST_RETRY
        async with aiohttp.ClientSession(trust_env=True, timeout=aiohttp.ClientTimeout(total=None)) as http:
            while True:
                began = self._clock.now()
                pause = await self._attempt(http)
                if self._clock.now() - began > _STEADY:
                    retry = _FIRST_RETRY
                await self._clock.sleep(max(pause, retry) * random.uniform(0.5, 1.0))
                retry = min(_LONGEST_RETRY, retry * 2)

    async def _attempt(self, http: aiohttp.ClientSession) -> float:
        """Be connected for as long as it lasts; returns for how many seconds nothing should be tried after it."""
        try:
            await self._people.own_id()  # also proves the app's credentials
            await self._connect(http)
        except Unauthorised as error:
            self._report(ChannelState.FAILED, str(error))
            return _REFUSED_PAUSE
        except Refused as refused:
            self._report(refused.state, str(refused))
            return _REFUSED_PAUSE if refused.state is ChannelState.FAILED else 0.0
        except (Failure, aiohttp.ClientError, TimeoutError, OSError, BadFrame) as error:
            reason = str(error) if isinstance(error, Failure) else f"no connection ({type(error).__name__})"
            self._report(ChannelState.DEGRADED, f"{reason}; connecting again")
        return 0.0

    async def _connect(self, http: aiohttp.ClientSession) -> None:
        """Open one connection and serve it until it ends."""
        found = await self._api.endpoint()
        url, config = _endpoint(found)
        service = whole_number(next(iter(parse_qs(urlsplit(url).query).get("service_id", [])), "")) or 0
        try:
            async with asyncio.timeout(_OPEN_WITHIN):
                socket = await http.ws_connect(
                    url, max_msg_size=_LARGEST_FRAME, timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_WITHIN)
                )
        except aiohttp.WSServerHandshakeError as error:
            raise _refusal(error) from None
        self.opened += 1
        self._report(ChannelState.RUNNING, "")
        connection = _Connection(socket, service, _interval(config), self._clock, self._receive)
        try:
            await connection.serve()
        finally:
            await socket.close()


class _Connection:
    """One open connection."""

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        service: int,
        ping_every: float,
        clock: Clock,
        receive: Receive,
    ) -> None:
        self._socket = socket
        self._service = service
        self._ping_every = ping_every
        self._clock = clock
        self._receive = receive
        self._heard_at = clock.now()
        self._parts: dict[str, _Parts] = {}
        self._events: set[asyncio.Task[None]] = set()
        self._latest: dict[str, asyncio.Task[None]] = {}  # chat → the last event of it that is being taken in

    async def serve(self) -> None:
        """Returns when the connection has ended."""
        tasks = [
            asyncio.create_task(self._listen(), name="feishu-listen"),
            asyncio.create_task(self._keep_alive(), name="feishu-ping"),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            running = [*tasks, *self._events]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _listen(self) -> None:
        async for message in self._socket:
            self._heard_at = self._clock.now()
            if message.type is aiohttp.WSMsgType.BINARY:
                frame = Frame.decode(message.data)
                if frame.method == DATA:
                    self._gather(frame)
                else:
                    self._configure(frame)

    async def _keep_alive(self) -> None:
        """Returns when the other side has fallen silent."""
        while True:
            asked_at = self._clock.now()
            await self._socket.send_bytes(ping(self._service))
            await self._clock.sleep(min(PONG_WITHIN, self._ping_every))
            if self._heard_at < asked_at:
                log.warning("the long connection is dead; connecting again")
                return
            await self._clock.sleep(self._ping_every - PONG_WITHIN)

    def _configure(self, frame: Frame) -> None:
        """A pong may carry another configuration."""
        if frame.header("type") != "pong" or not frame.payload:
            return
        try:
            config = read_json(frame.payload)
        except ValueError:
            return
        if isinstance(config, dict):
            self._ping_every = _interval(config)

    # ---------------------------------------------------------------- events

    def _gather(self, frame: Frame) -> None:
        """Put the parts of an event together; a whole one is taken in, in the order of arrival."""
        now = self._clock.now()
        count, number = whole_number(frame.header("sum")) or 1, whole_number(frame.header("seq")) or 0
        payload = frame.payload
        if count > 1:
            self._parts = {key: part for key, part in self._parts.items() if now - part.since < _KEEP_PARTS}
            parts = self._parts.setdefault(frame.header("message_id"), _Parts(now))
            if count > _MOST_PARTS or not 0 <= number < count:
                return
            parts.frames[number] = payload
            if len(parts.frames) < count:
                return
            del self._parts[frame.header("message_id")]
            payload = b"".join(parts.frames[index] for index in range(count))
        if len(self._events) < _MOST_WAITING:
            self._take_in(frame, payload)
        else:
            log.warning("too many events wait to be taken in; the platform delivers the rest again")

    def _take_in(self, frame: Frame, payload: bytes) -> None:
        """Messages of one chat are taken in in the order of their arrival; one chat does not wait for another, and
        presses, for which somebody is waiting, for nothing."""
        try:
            found = read_json(payload)
        except ValueError:
            found = None
        event = found if isinstance(found, dict) else {}
        chat = _chat_of(event)
        work = self._answer(frame, event, self._latest.get(chat), time.monotonic())
        task = asyncio.create_task(work, name="feishu-event")
        self._events.add(task)
        if chat:
            self._latest[chat] = task
        task.add_done_callback(lambda done: self._taken_in(done, chat))

    def _taken_in(self, task: asyncio.Task[None], chat: str) -> None:
        self._events.discard(task)
        if self._latest.get(chat) is task:
            del self._latest[chat]
        if not task.cancelled() and task.exception() is not None:
            log.info("an event could not be acked: the connection has ended")

    async def _answer(self, frame: Frame, event: Json, before: asyncio.Task[None] | None, since: float) -> None:
        """Take an event in, then ack it: with what a person gets to see, if somebody pressed something."""
        if before is not None:
            await asyncio.wait({before})
        answer: Json = {"code": 200}
        try:
            if given := await self._receive(event):
                answer["data"] = base64.b64encode(json.dumps(given).encode()).decode()
        except NotNow:
            answer = {"code": 500}
        took = max(0, int((time.monotonic() - since) * 1000))
        await self._socket.send_bytes(frame.answered(json.dumps(answer).encode(), took).encode())


def _chat_of(event: Json) -> str:
    """The chat that a message event is about; empty for any other event."""
    content = event.get("event")
    message = content.get("message") if isinstance(content, dict) else None
    return str(message.get("chat_id", "")) if isinstance(message, dict) else ""


def _endpoint(found: Json) -> tuple[str, Json]:
    """The address and the configuration for a connection. Raises `Refused`."""
    code, data = found.get("code"), found.get("data")
    if code == 0 and isinstance(data, dict):
        url, config = data.get("URL"), data.get("ClientConfig")
        if isinstance(url, str) and url:
            return url, config if isinstance(config, dict) else {}
    text = str(found.get("msg", ""))[:200]
    if code in _BUSY_CODES or code == 0:
        raise Refused(ChannelState.DEGRADED, f"the platform is busy ({code} {text}); connecting again")
    raise Refused(
        ChannelState.FAILED,
        f"unauthorised: the long connection is refused ({code} {text}); check app_id and app_secret, and that the app "
        "is published and receives events over the long connection",
    )


def _refusal(error: aiohttp.WSServerHandshakeError) -> Refused:
    headers: Mapping[str, str] = error.headers or {}
    text = headers.get("handshake-msg", "")[:200]
    if headers.get("handshake-autherrcode") == _TOO_MANY:
        return Refused(ChannelState.CONFLICT, "too many connections of this app are open; close the others")
    status = headers.get("handshake-status", str(error.status))
    return Refused(ChannelState.DEGRADED, f"the long connection is refused ({status} {text}); connecting again")


def _interval(config: Mapping[str, JsonValue]) -> float:
    wanted = config.get("PingInterval")
    return min(PING_EVERY, float(wanted)) if isinstance(wanted, int | float) and wanted > 0 else PING_EVERY
