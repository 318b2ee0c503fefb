"""Socket Mode: tickets, connections, envelopes and their acks."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

from tests.emulators.journal import Call, Journal
from tests.emulators.slack import rules
from tests.emulators.slack.blocks import JsonObject
from tests.emulators.slack.deliveries import Delivery, DeliveryKind, Outcome, within
from tests.emulators.slack.world import World


@dataclass(slots=True, eq=False)
class Connection:
    """One open socket. `leaving`: told to go, gets nothing more. `frozen`: half-open, reads and answers nothing."""

    number: int
    socket: web.WebSocketResponse
    request: web.Request
    leaving: bool = False
    frozen: bool = False
    thawed: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: dict[str, asyncio.Future[object]] = field(default_factory=dict)


class Sockets:
    """The server's side of Socket Mode.

    Every delivery goes to one connection, chosen at random by a fixed seed; a retry to another one, when there is one.
    """

    def __init__(self, world: World, journal: Journal, *, ack_seconds: float) -> None:
        self.connections: list[Connection] = []
        self._world = world
        self._journal = journal
        self._ack_seconds = ack_seconds
        self._tickets: dict[str, float] = {}
        self._spent: set[str] = set()
        self._refusing_until = 0.0
        self._refusal = 503
        self._random = random.Random(7)
        self._tasks: set[asyncio.Task[None]] = set()

    # --- what the app does ---------------------------------------------------------------------------------------

    def mint_ticket(self) -> str:
        """The ticket of a new address; good once and for half a minute."""
        ticket = uuid.UUID(int=self._random.getrandbits(128)).hex
        self._tickets[ticket] = self._world.clock.now() + rules.TICKET_SECONDS
        return ticket

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """The handshake and then the life of one connection."""
        now = self._world.clock.now()
        status = self._check_handshake(request.query.get("ticket", ""), now)
        self._journal.calls.append(Call(now, "socket.handshake", {}, status, None))
        if status != 101:
            self._world.bell.ring()
            return web.Response(status=status)
        socket = web.WebSocketResponse(autoping=False, max_msg_size=0)
        await socket.prepare(request)
        connection = Connection(self._world.number(), socket, request)
        self.connections.append(connection)
        try:
            await self._serve(connection)
        finally:
            self.connections.remove(connection)
            for future in connection.waiting.values():
                future.cancel()
            self._world.bell.ring()
        return socket

    def _check_handshake(self, ticket: str, now: float) -> int:
        valid_until = self._tickets.pop(ticket, None)
        if valid_until is None:
            again = "a second time" if ticket in self._spent else "with a ticket that was never given"
            self._journal.break_rule(now, f"socket opened {again}")
            return 401
        self._spent.add(ticket)
        if now < self._refusing_until:
            return self._refusal
        if now > valid_until:
            self._journal.break_rule(now, "socket opened with a ticket that had run out")
            return 401
        return 101

    async def _serve(self, connection: Connection) -> None:
        await self._send(connection, self._hello())
        if len(self.connections) > rules.SOCKETS_PER_APP:
            self._journal.break_rule(self._world.clock.now(), f"more than {rules.SOCKETS_PER_APP} sockets at once")
            self.disconnect("too_many_websockets", connection)
        self._world.bell.ring()
        async for message in connection.socket:
            if connection.frozen:
                await connection.thawed.wait()
            elif message.type is WSMsgType.PING:
                await connection.socket.pong(message.data)
            elif message.type is WSMsgType.TEXT:
                self._acked(connection, message.data)

    def _hello(self) -> JsonObject:
        return {
            "type": "hello",
            "num_connections": len(self.connections),
            "debug_info": {"host": "applink-emulated", "build_number": 1, "approximate_connection_time": 18060},
            "connection_info": {"app_id": self._world.app_id},
        }

    def _acked(self, connection: Connection, data: str) -> None:
        now = self._world.clock.now()
        try:
            ack = json.loads(data)
            envelope_id = ack["envelope_id"]
        except (ValueError, KeyError, TypeError):
            self._journal.break_rule(now, "a frame that is not an ack was sent over the socket")
            return
        future = connection.waiting.get(envelope_id)
        if future is None:
            self._journal.break_rule(now, "an envelope was acked that this socket never brought")
        elif not future.done():
            future.set_result(ack.get("payload"))

    # --- what Slack does -----------------------------------------------------------------------------------------

    async def attempt(self, delivery: Delivery, number: int, reason: str) -> Outcome:
        """Send it over one connection and wait for the ack; waits for a connection when there is none."""
        deadline = self._world.clock.now() + self._ack_seconds
        while not (ready := [c for c in self.connections if not c.leaving and not c.socket.closed]):
            opened = asyncio.ensure_future(self._rung())
            in_time = await within(self._world.clock, deadline - self._world.clock.now(), opened)
            opened.cancel()
            if not in_time:
                return Outcome("no socket", "timeout")
        failed = delivery.attempts[-1].via if delivery.attempts else ""
        others = [c for c in ready if f"socket {c.number}" != failed]
        connection = self._random.choice(others or ready)
        envelope_id = uuid.UUID(int=self._random.getrandbits(128), version=4)
        envelope = {
            "envelope_id": str(envelope_id),
            "payload": delivery.payload,
            "type": delivery.kind.value,
            "accepts_response_payload": delivery.kind is not DeliveryKind.EVENT,
        }
        if delivery.kind is DeliveryKind.EVENT:
            envelope |= {"retry_attempt": number, "retry_reason": reason}
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        connection.waiting[str(envelope_id)] = future
        via = f"socket {connection.number}"
        await self._send(connection, envelope)
        in_time = await within(self._world.clock, self._ack_seconds, future)
        if not in_time or future.cancelled():
            return Outcome(via, "timeout")
        return Outcome(via, answer=future.result())

    async def _rung(self) -> object:
        await self._world.bell.heard(3_600.0)
        return None

    def refuse(self, seconds: float, status: int) -> None:
        """Refuse every handshake for so long."""
        self._refusing_until = self._world.clock.now() + seconds
        self._refusal = status

    def disconnect(self, reason: str, *connections: Connection) -> None:
        """Send `disconnect` to these (to all, when none are named); close them ten seconds later."""
        for connection in connections or tuple(self.connections):
            if not connection.leaving:
                connection.leaving = True
                task = asyncio.ensure_future(self._see_off(connection, reason))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _see_off(self, connection: Connection, reason: str) -> None:
        frame = {"type": "disconnect", "reason": reason, "debug_info": {"host": "applink-emulated"}}
        await self._send(connection, frame)
        await self._world.clock.sleep(rules.REFRESH_CLOSE_SECONDS)
        await connection.socket.close()

    def drop(self) -> None:
        """Cut every connection without a word."""
        for connection in tuple(self.connections):
            self._abort(connection)

    def freeze(self) -> None:
        """Make every present connection half-open: pings, acks and closes go unanswered, frames go nowhere."""
        for connection in self.connections:
            connection.frozen = True
            connection.thawed.clear()

    def thaw(self) -> None:
        for connection in self.connections:
            connection.frozen = False
            connection.thawed.set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.drop()

    async def _send(self, connection: Connection, frame: JsonObject) -> None:
        if connection.frozen:
            return
        try:
            await connection.socket.send_str(json.dumps(frame))
        except (ConnectionError, RuntimeError):
            # The peer has gone; its acks will not come, and that is dealt with where they are awaited.
            self._abort(connection)

    @staticmethod
    def _abort(connection: Connection) -> None:
        connection.thawed.set()
        if connection.request.transport is not None:
            connection.request.transport.abort()
