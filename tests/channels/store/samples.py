"""Inbounds and turns to try the store with."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import psycopg
import sqlalchemy as sa

from channels.model import Inbound, InboundKind, Phase, Place, Segment, Sender, ThreadId, View
from channels.store import Store
from channels.store.database import create_engine, parse_url
from channels.store.records import Lane, Lease, StoredInbound, Turn
from channels.store.schema import metadata

CHANNEL = "team"
START = 1_750_000_000.0
T = TypeVar("T")
ANSWER = View(phase=Phase.DONE, body=(Segment("m1", "Forty-two."),), revision=3)


def place(chat: str = "lobby", *, thread: str | None = None, channel: str = CHANNEL) -> Place:
    return Place(channel, chat, thread)


def inbound(
    key: str,
    chat: str = "lobby",
    *,
    channel: str = CHANNEL,
    thread: str | None = None,
    reply_to: str | None = None,
    group: str | None = None,
    settle: float = 0.0,
    at: float = START,
    sent_at: float | None = None,
    comes_again: bool = True,
) -> Inbound:
    return Inbound(
        place=place(chat, thread=thread, channel=channel),
        sender=Sender("u1", "Ada"),
        event_key=key,
        kind=InboundKind.MESSAGE,
        text=f"question {key}",
        received_at=at,
        message_id=f"message-{key}",
        reply_to=reply_to,
        group=group,
        settle=settle,
        sent_at=sent_at,
        comes_again=comes_again,
    )


async def accepted(store: Store, asked: Inbound, lane: Lane = Lane.TURN) -> StoredInbound:
    stored = await store.accept(asked, lane)
    assert stored is not None
    return stored


async def owned(store: Store, owner: str = "one", channel: str = CHANNEL) -> Lease:
    lease = await store.acquire(channel, owner)
    assert lease is not None
    return lease


async def claimed(store: Store, lease: Lease, key: str = "k1", chat: str = "lobby") -> Turn:
    """A new turn of one inbound."""
    await accepted(store, inbound(key, chat, channel=lease.channel))
    (turn,) = await store.claim(lease, 10)
    return turn


async def answered(store: Store, lease: Lease, key: str = "k1", chat: str = "lobby") -> Turn:
    """A turn that is done, shown in the messages `KEY-a` and `KEY-b`."""
    turn = await claimed(store, lease, key, chat)
    await store.set_thread(lease, turn.id, ThreadId("thread-" + chat))
    await store.save_shown(lease, turn.id, {"message": "a"}, [f"{key}-a", f"{key}-b"])
    await store.save_final(lease, turn.id, ANSWER, None)
    await store.finish(lease, turn.id)
    return await known(store, turn)


async def known(store: Store, turn: Turn) -> Turn:
    """The turn as it is stored now."""
    found = await store.turn(turn.id)
    assert found is not None
    return found


def keys(turn: Turn) -> list[str]:
    return [asked.event_key for asked in turn.inbounds]


def contents(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table."""
    engine = create_engine(parse_url(url))
    try:
        with engine.begin() as connection:
            return {
                table.name: sorted((tuple(row) for row in connection.execute(sa.select(table))), key=repr)
                for table in metadata.sorted_tables
            }
    finally:
        engine.dispose()


async def until_blocked(url: str, waiting: asyncio.Task[T]) -> None:
    """Return once somebody waits for a lock on PostgreSQL; fails when what should wait is done instead."""
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is None:
            assert not waiting.done()
            await asyncio.sleep(0.005)
