"""Who is woken when something happened in a channel: listeners in this process, and through PostgreSQL in all."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection

Listener = Callable[[str], None]

_TOPIC = "channel_bridge"
_RETRY_FIRST, _RETRY_MOST = 0.2, 5.0  # seconds between attempts to listen again
_log = logging.getLogger(__name__)


class Wakes:
    """Hands wakes to listeners on the event loop. Extra wakes are harmless; a lost one is what must not happen."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._listeners: dict[object, Listener] = {}
        self.name = uuid.uuid4().hex

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        token = object()
        self._listeners[token] = listener

        def unsubscribe() -> None:
            self._listeners.pop(token, None)

        return unsubscribe

    def announce(self, connection: Connection, channels: set[str]) -> None:
        """Tell the other processes; PostgreSQL delivers at the commit."""
        if connection.dialect.name == "postgresql":
            for channel in sorted(channels):
                connection.execute(sa.select(sa.func.pg_notify(_TOPIC, f"{self.name}:{channel}")))

    def committed(self, channels: set[str]) -> None:
        """Wake the listeners of this process; called on the thread that committed."""
        with contextlib.suppress(RuntimeError):  # the loop has gone: nobody is left to wake
            self._loop.call_soon_threadsafe(self.deliver, frozenset(channels))

    def deliver(self, channels: Iterable[str]) -> None:
        """Wake the listeners; called on the loop. One call each, so that a listener that fails stops no other."""
        for channel in channels:
            for listener in list(self._listeners.values()):
                self._loop.call_soon(listener, channel)

    def heard(self, payload: str) -> None:
        sender, _, channel = payload.partition(":")
        if sender != self.name:
            self.deliver([channel])


async def listen(url: URL, wakes: Wakes, everything: Callable[[], Awaitable[list[str]]]) -> None:
    """Deliver the wakes of other processes until cancelled, connecting again whenever the connection is lost.

    `everything` names the channels where something waits: they are woken after each connect, because what was
    announced while nobody listened is not delivered later.
    """
    import psycopg  # 9 MB that a bridge on SQLite does without

    conninfo = url.set(drivername="postgresql").render_as_string(hide_password=False)
    pause = _RETRY_FIRST
    while True:
        try:
            connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
            async with connection:
                await connection.execute(f"LISTEN {_TOPIC}")
                wakes.deliver(await everything())
                pause = _RETRY_FIRST
                async for notice in connection.notifies():
                    wakes.heard(notice.payload)
        except Exception as error:  # noqa: BLE001  whatever it is, polling is the net and this comes back
            _log.info("not listening for wakes of other replicas: %s", type(error).__name__)
        await asyncio.sleep(pause)
        pause = min(pause * 2, _RETRY_MOST)
