"""Socket Mode, supervised: each attempt with a fresh ticket, dead sockets noticed, the next one before the old goes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto

import aiohttp
import structlog
from pydantic import JsonValue

from adapters.slack.api import SlackApi
from channels.adapter import ChannelState, Failure, RateLimited, Unauthorised
from channels.clock import Clock
from channels.shapes import as_object, as_text
from channels.strict_json import read_json

log = structlog.get_logger(__name__)

Deliver = Callable[[Mapping[str, JsonValue]], Awaitable[bool]]
Report = Callable[[ChannelState, str], None]

_FIRST_RETRY = 1.0  # seconds
_LONGEST_RETRY = 30.0
_STEADY = 30.0  # seconds that a connection has to last for the next retry to be quick again
_WRONG_TOKEN_RETRY = 60.0
_HELLO = 15.0
_PING = 10.0
_SILENCE = 25.0
"""Seconds without a frame or an answer to our pings after which a socket is dead."""
_FAREWELL = 15.0  # seconds that an old socket may still be used for acks; Slack closes it after about ten
_MOST_AT_ONCE = 100
_LONGEST_FRAME = 8 * 1024 * 1024  # characters


class _End(Enum):
    """How a connection ended, or that it is about to."""

    LEAVING = auto()  # Slack wants it replaced
    LOST = auto()
    SWITCHED_OFF = auto()
    TOO_MANY = auto()


class SocketMode:
    """Keeps one connection to Slack; `run` receives until cancelled."""

    def __init__(self, api: SlackApi, clock: Clock, deliver: Deliver, report: Report) -> None:
        self._api = api
        self._clock = clock
        self._deliver = deliver
        self._report = report
        self._connections: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Receive until cancelled. Troubles are reported and tried again for ever."""
        retry = _FIRST_RETRY
        try:
            while True:
                try:
                    connection = await self._open()
                except Failure as failure:
                    pause = self._not_opened(failure)
                else:
                    opened_at = self._clock.now()
                    self._report(ChannelState.RUNNING, "")
                    end = await connection.ended
                    pause = self._ended(end)
                    if self._clock.now() - opened_at > _STEADY:
                        retry = _FIRST_RETRY
                        if end is _End.LEAVING:
                            continue  # the next one has to be open before this one is closed
                await self._clock.sleep(max(pause, retry * random.uniform(0.8, 1.2)))
                retry = min(_LONGEST_RETRY, retry * 2)
        finally:
            await self._end_all()

    async def _open(self) -> _Connection:
        socket = await self._api.connect(await self._api.socket_address())
        connection = _Connection(socket, self._clock, self._deliver)
        task = asyncio.create_task(connection.run(), name="slack-socket")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            await connection.greeted()
        except BaseException:
            task.cancel()
            raise
        return connection

    def _not_opened(self, failure: Failure) -> float:
        """Say so; for how many seconds nothing should be tried after it."""
        if isinstance(failure, Unauthorised):
            self._report(ChannelState.FAILED, f"the app token is not accepted ({failure})")
            return _WRONG_TOKEN_RETRY
        self._report(ChannelState.DEGRADED, f"no connection to Slack ({failure}); trying again")
        return failure.retry_after if isinstance(failure, RateLimited) else 0.0

    def _ended(self, end: _End) -> float:
        """Say so; for how many seconds nothing should be tried after it."""
        match end:
            case _End.LEAVING:
                pass  # the old one lives on for a while: nobody notices
            case _End.SWITCHED_OFF:
                self._report(ChannelState.FAILED, "Socket Mode is switched off in the app's settings")
                return _WRONG_TOKEN_RETRY
            case _End.TOO_MANY:
                self._report(
                    ChannelState.CONFLICT, "this app has too many connections: another process uses its tokens"
                )
                return _LONGEST_RETRY
            case _End.LOST:
                self._report(ChannelState.DEGRADED, "the connection to Slack is interrupted; connecting again")
        return 0.0

    async def _end_all(self) -> None:
        tasks = tuple(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Connection:
    """One socket from its hello to its end. `ended` is set as soon as it should be replaced."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, clock: Clock, deliver: Deliver) -> None:
        self._socket = socket
        self._clock = clock
        self._deliver = deliver
        self._heard_at = clock.now()
        self._hello: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[_End] = asyncio.get_running_loop().create_future()
        self._deliveries: set[asyncio.Task[None]] = set()

    async def greeted(self) -> None:
        """Wait for the hello. Raises a `Failure` when it does not come."""
        patience = asyncio.ensure_future(self._clock.sleep(_HELLO))
        any_of: set[asyncio.Future[None] | asyncio.Future[_End]] = {self._hello, self.ended, patience}
        try:
            await asyncio.wait(any_of, return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
        if not self._hello.done():
            raise Failure("the socket was opened, but Slack said nothing")

    async def run(self) -> None:
        watching = asyncio.create_task(self._watch())
        try:
            await self._receive()
        except (aiohttp.ClientError, OSError) as error:
            log.info("socket lost", cause=type(error).__name__)
        finally:
            self._end(_End.LOST)
            watching.cancel()
            for task in self._deliveries:
                task.cancel()
            await asyncio.gather(watching, *self._deliveries, return_exceptions=True)
            await self._close()

    async def _receive(self) -> None:
        async for message in self._socket:
            self._heard_at = self._clock.now()  # a pong says as much as a frame: nobody has to write for hours
            if message.type is aiohttp.WSMsgType.TEXT:
                self._frame(message.data)
            elif message.type is aiohttp.WSMsgType.PING:
                await self._socket.pong(message.data)

    def _frame(self, data: str) -> None:
        try:
            frame = as_object(read_json(data)) if len(data) <= _LONGEST_FRAME else {}
        except ValueError:
            log.warning("a frame that is not JSON came over the socket")
            return
        kind = as_text(frame.get("type"))
        if kind == "hello":
            if not self._hello.done():
                self._hello.set_result(None)
        elif kind == "disconnect":
            self._end(_ENDS.get(as_text(frame.get("reason")), _End.LEAVING))
        elif (envelope := as_text(frame.get("envelope_id"))) and len(self._deliveries) < _MOST_AT_ONCE:
            # One too many is not acked and comes again.
            task = asyncio.create_task(self._take(envelope, as_object(frame.get("payload"))))
            self._deliveries.add(task)
            task.add_done_callback(self._deliveries.discard)

    async def _take(self, envelope: str, payload: Mapping[str, JsonValue]) -> None:
        if not await self._deliver(payload):
            return
        try:
            await self._socket.send_str(json.dumps({"envelope_id": envelope}))
        except (aiohttp.ClientError, OSError):
            log.info("an ack could not be sent; Slack delivers again")

    async def _watch(self) -> None:
        """Ping, and give up on a socket from which nothing comes any more, or that has been replaced for a while."""
        while True:
            await self._clock.sleep(_PING)
            if self.ended.done():
                await self._clock.sleep(_FAREWELL - _PING)
                break
            if self._clock.now() - self._heard_at > _SILENCE:
                log.warning("the socket is dead: nothing comes from it any more")
                break
            try:
                await self._socket.ping()
            except (aiohttp.ClientError, OSError):
                break
        self._end(_End.LOST)
        await self._close()

    def _end(self, end: _End) -> None:
        if not self.ended.done():
            self.ended.set_result(end)

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(2.0):
                await self._socket.close()
        except (aiohttp.ClientError, OSError, TimeoutError):
            pass


_ENDS: Mapping[str, _End] = {
    "link_disabled": _End.SWITCHED_OFF,
    "too_many_websockets": _End.TOO_MANY,
}
