"""The long connection: endpoint negotiation, and WebSocket connections that carry events in binary frames."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from aiohttp import WSMsgType, web

from channels.clock import Clock, wait_until
from tests.emulators.feishu.events import Attempt, Event, Outcome, under_way
from tests.emulators.feishu.frames import CONTROL, DATA, Frame, decode
from tests.emulators.feishu.limits import Limits
from tests.emulators.feishu.refusals import Json
from tests.emulators.feishu.world import Ids

SERVICE_ID = 7


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """What the platform tells a client to do. Seconds; a negative count is endless."""

    ReconnectCount: int = -1
    ReconnectInterval: int = 120
    ReconnectNonce: int = 30
    PingInterval: int = 120


@dataclass(slots=True)
class Pending:
    """An event on its way: what the ack must repeat, and the answer once it is there."""

    frames: tuple[Frame, ...]
    done: asyncio.Event = field(default_factory=asyncio.Event)
    answer: Json | None = None
    lost: bool = False
    late_since: float | None = None


@dataclass(slots=True)
class Connection:
    """One WebSocket of the bridge."""

    number: int
    socket: web.WebSocketResponse
    request: web.Request
    opened_at: float
    pings: int = 0
    is_silent: bool = False  # half-open: nothing comes out any more, nothing that comes in is heard
    pending: dict[str, Pending] = field(default_factory=dict)

    def lose_all(self) -> None:
        for pending in self.pending.values():
            pending.lost = True
            pending.done.set()


class LongConnection:
    """Serves any number of connections up to the limit; each event goes to a random one."""

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        ids: Ids,
        config: ClientConfig,
        on_broken: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._ids = ids
        self._broken = on_broken
        self._on_change = on_change
        self.config = config
        self.connections: list[Connection] = []
        self.opened = 0
        self.secrets: set[str] = set()  # tickets and access keys handed out
        self.part_bytes: int | None = None  # events larger than this come in several frames
        self.callback_type = "event"  # the header `type` of card callbacks; "card" for those of the old kind
        self._tickets: dict[str, bool] = {}  # ticket → used

    # -- negotiation

    def endpoint(self, base_url: str) -> Json:
        """The answer to a client that may connect: a URL with a ticket for one handshake."""
        ticket, access_key = self._ids.hex(), self._ids.hex()
        self._tickets[ticket] = False
        self.secrets |= {ticket, access_key}
        url = base_url.replace("http://", "ws://", 1) + (
            f"/ws/v2?fpid=493&aid=552564&device_id={self._ids.digits()}&access_key={access_key}"
            f"&service_id={SERVICE_ID}&ticket={ticket}"
        )
        return {"code": 0, "msg": "", "data": {"URL": url, "ClientConfig": asdict(self.config)}}

    def handshake_refusal(self, ticket: str) -> tuple[int, str, int | None] | None:
        """Why a handshake is refused: (handshake-status, message, autherrcode), or None when it is not."""
        used = self._tickets.get(ticket)
        if used is None or used:
            self._broken("a ticket was used twice" if used else "a handshake with an unknown ticket")
            return 403, "invalid ticket", None
        self._tickets[ticket] = True
        if len(self.connections) >= self._limits.connections:
            self._broken(f"more than {self._limits.connections} connections")
            return 514, "exceed connection limit", 1000040350
        return None

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=False, max_msg_size=16 * 1024 * 1024)
        await socket.prepare(request)
        self.opened += 1
        connection = Connection(self.opened, socket, request, self._clock.now())
        self.connections.append(connection)
        self._on_change()
        watch = asyncio.get_running_loop().create_task(self._watch(connection))
        try:
            async for message in socket:
                if connection.is_silent:
                    continue
                if message.type is WSMsgType.BINARY:
                    await self._hear(connection, message.data)
                elif message.type is WSMsgType.PING:
                    await socket.pong(message.data)
                elif message.type is WSMsgType.TEXT:
                    self._broken("a text frame on the long connection: frames are binary")
                self._on_change()
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            self.connections.remove(connection)
            connection.lose_all()
            self._on_change()
        return socket

    async def _watch(self, connection: Connection) -> None:
        """A client that has stopped to ping is taken for dead."""
        while True:
            heard = connection.pings
            await self._clock.sleep(3 * self.config.PingInterval)
            # A clock that jumps must not overtake a ping that is already on its way.
            await asyncio.sleep(0.05)
            if connection.pings == heard and not connection.is_silent:
                self._broken(f"connection {connection.number} sent no ping in three intervals")
                await connection.socket.close(code=1001)
                return

    # -- frames from the client

    async def _hear(self, connection: Connection, data: bytes) -> None:
        try:
            frame = decode(data)
        except ValueError as error:
            self._broken(f"not a frame: {error}")
            return
        if frame.method == CONTROL:
            await self._hear_control(connection, frame)
        elif frame.method == DATA:
            self._hear_ack(connection, frame)
        else:
            self._broken(f"a frame with method {frame.method}")

    async def _hear_control(self, connection: Connection, frame: Frame) -> None:
        if frame.header("type") != "ping":
            self._broken(f"a control frame of type {frame.header('type')}")
            return
        if frame.service != SERVICE_ID:
            self._broken(f"a ping for service {frame.service}, the URL said {SERVICE_ID}")
        connection.pings += 1
        payload = json.dumps(asdict(self.config)).encode()
        await connection.socket.send_bytes(
            Frame(0, 0, SERVICE_ID, CONTROL, (("type", "pong"),), payload=payload).encode()
        )

    def _hear_ack(self, connection: Connection, frame: Frame) -> None:
        message_id = frame.header("message_id") or ""
        pending = connection.pending.get(message_id)
        if pending is None:
            self._broken(f"an ack for {message_id or 'nothing'}, which was not delivered on this connection")
            return
        sent = next((f for f in pending.frames if f.header("seq") == frame.header("seq")), pending.frames[-1])
        same = (sent.seq_id, sent.log_id, sent.service) == (frame.seq_id, frame.log_id, frame.service)
        if not same or not set(sent.headers) <= set(frame.headers):
            self._broken("an ack must be the frame it answers, with its ids and headers")
        if frame.header("biz_rt") is None:
            self._broken("an ack without the header biz_rt")
        try:
            answer = json.loads(frame.payload)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("code"), int):
            self._broken(f"the payload of an ack is not {{code}}: {frame.payload[:80]!r}")
            return
        if pending.late_since is not None:
            late = self._clock.now() - pending.late_since
            self._broken(f"an event was acked {late + self._limits.ack_seconds:.1f} s after it was delivered")
            del connection.pending[message_id]
            return
        pending.answer = answer
        pending.done.set()

    # -- events to the client

    async def attempt(self, event: Event) -> Attempt:
        """Send an event to one connection and wait for its ack."""
        now = self._clock.now()
        if not self.connections:
            return Attempt(now, Outcome.UNDELIVERABLE)
        connection = self.connections[self._ids.choice(len(self.connections))]
        message_id = self._ids.hex()
        pending = Pending(self._frames(event, message_id))
        connection.pending[message_id] = pending
        try:
            for frame in pending.frames:
                if not connection.is_silent:
                    await connection.socket.send_bytes(frame.encode())
        except ConnectionError:
            connection.pending.pop(message_id, None)
            return Attempt(self._clock.now(), Outcome.LOST)
        await wait_until(self._clock, now + self._limits.ack_seconds, pending.done)
        await under_way(pending.done)
        if connection.is_silent:
            connection.pending.pop(message_id, None)
            return Attempt(self._clock.now(), Outcome.LOST)
        if not pending.done.is_set():
            pending.late_since = now + self._limits.ack_seconds
            return Attempt(self._clock.now(), Outcome.SILENT)
        connection.pending.pop(message_id, None)
        if pending.lost:
            return Attempt(self._clock.now(), Outcome.LOST)
        answer = pending.answer or {}
        return Attempt(self._clock.now(), Outcome.ACKED if answer.get("code") == 200 else Outcome.REFUSED, answer)

    def _frames(self, event: Event, message_id: str) -> tuple[Frame, ...]:
        body = event.body()
        size = self.part_bytes or len(body)
        parts = [body[at : at + size] for at in range(0, len(body), size)]
        trace_id = self._ids.hex()
        kind = self.callback_type if event.is_callback else "event"
        return tuple(
            Frame(
                seq_id=number + 1,
                log_id=int(trace_id[:12], 16),
                service=SERVICE_ID,
                method=DATA,
                headers=(
                    ("type", kind),
                    ("message_id", message_id),
                    ("trace_id", trace_id),
                    ("sum", str(len(parts))),
                    ("seq", str(number)),
                ),
                payload_encoding="utf-8",
                payload_type="json",
                payload=part,
            )
            for number, part in enumerate(parts)
        )

    # -- trouble

    async def close_all(self, code: int = 1001) -> None:
        """Close every connection in good order."""
        for connection in list(self.connections):
            await connection.socket.close(code=code, message=b"server closes")

    def abort_all(self) -> None:
        """Cut every connection without a word."""
        for connection in list(self.connections):
            if connection.request.transport is not None:
                connection.request.transport.abort()

    def silence_all(self) -> None:
        """Make every connection of now half-open: it stays up, but neither frames nor pongs come from it."""
        for connection in self.connections:
            connection.is_silent = True
