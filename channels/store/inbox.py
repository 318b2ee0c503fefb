"""Inbounds: accepting each once, claiming those that wait as turns, handling those that act at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import sqlalchemy as sa

from channels.model import Inbound, Place, TurnId, new_turn_id
from channels.shapes import as_object
from channels.store.codec import inbound_from_json, inbound_to_json, readable_inbound
from channels.store.conversations import for_inbound, take_part
from channels.store.database import Transaction
from channels.store.leases import Hold, fence
from channels.store.records import Lane, Lease, StoredInbound, Turn, Unreadable
from channels.store.schema import conversations, inbounds, turn_inbounds, turns
from channels.store.turns import AS_ASKED, handled, make, open_among

_WAITING = inbounds.c.state == "waiting"
_ASKS = inbounds.c.lane == Lane.TURN


def accept(tx: Transaction, inbound: Inbound, lane: Lane, joins: Place | None = None) -> StoredInbound | None:
    """Store an inbound; None: it is stored already, by an earlier delivery of the same event."""
    seen = sa.select(inbounds.c.id).where(
        inbounds.c.channel == inbound.channel, inbounds.c.event_key == inbound.event_key
    )
    if tx.connection.execute(seen).first() is not None:
        return None
    conversation_id = for_inbound(tx, inbound)
    new = (
        tx.insert(inbounds)
        .values(
            channel=inbound.channel,
            event_key=inbound.event_key,
            conversation_id=conversation_id,
            lane=lane,
            state="waiting",
            group_key=inbound.group,
            # Whose clock it is matters only to what has to wait for company.
            ready_at=inbound.received_at + inbound.settle if inbound.settle else 0.0,
            asked_at=inbound.asked_at,
            accepted_at=tx.now,
            payload=inbound_to_json(inbound),
        )
        .on_conflict_do_nothing()  # two processes were given the same event at once
        .returning(inbounds.c.id)
    )
    number = tx.connection.execute(new).scalar()
    if number is None:
        return None
    if joins is not None:
        take_part(tx, conversation_id, joins)
    tx.wake(inbound.channel)
    return StoredInbound(id=number, conversation_id=conversation_id, inbound=inbound)


def claim(tx: Transaction, lease: Lease, limit: int, doubtful: Iterable[TurnId], made: list[TurnId]) -> list[Turn]:
    """Make turns of what is ready; also returns those of `doubtful` that exist after all. Notes new ids in `made`."""
    fence(tx, lease)
    heads = _heads(lease.channel).subquery()
    ready = tx.connection.execute(
        sa.select(heads.c.conversation_id, heads.c.head, heads.c.group_key)
        .where(heads.c.ready_at <= tx.now)
        .order_by(heads.c.head)
        .limit(limit)
    ).all()
    for row in ready:
        mates = inbounds.c.id == row.head
        if row.group_key is not None:
            mates = sa.or_(mates, inbounds.c.group_key == row.group_key)
        members = tx.connection.execute(
            sa.select(inbounds.c.id).where(inbounds.c.conversation_id == row.conversation_id, _WAITING, _ASKS, mates)
        ).scalars()
        turn_id = new_turn_id()
        made.append(turn_id)
        make(tx, turn_id, lease.channel, row.conversation_id, list(members))
    return open_among(tx, [*doubtful, *made])


def next_ready(tx: Transaction, lease: Lease) -> float | None:
    fence(tx, lease, Hold.NOT)
    heads = _heads(lease.channel).subquery()
    return tx.connection.execute(sa.select(sa.func.min(heads.c.ready_at))).scalar()


def waiting(tx: Transaction, conversation_ids: Collection[int]) -> Counter[int]:
    columns = sa.select(inbounds.c.conversation_id, inbounds.c.payload)
    query = columns.where(inbounds.c.conversation_id.in_(conversation_ids), _WAITING, _ASKS)
    rows = tx.connection.execute(query)
    return Counter(row.conversation_id for row in rows if as_object(row.payload).get("press") is None)


def drop_waiting(tx: Transaction, lease: Lease, chat: str, message_id: str) -> int:
    fence(tx, lease)
    dropped = _of_message(tx, lease.channel, chat, message_id, _WAITING)
    tx.connection.execute(inbounds.update().where(inbounds.c.id.in_(dropped)).values(state="dropped"))
    return len(dropped)


def is_open(tx: Transaction, channel: str, chat: str, message_id: str) -> bool:
    """Whether the message waits to be claimed, or a turn at work answers it."""
    at_work = (
        sa.select(turn_inbounds.c.inbound)
        .join(turns, turns.c.number == turn_inbounds.c.turn)
        .where(turns.c.channel == channel, turns.c.holds.is_not(None))
    )
    return any(_of_message(tx, channel, chat, message_id, of) for of in (_WAITING, inbounds.c.id.in_(at_work)))


def controls(tx: Transaction, lease: Lease) -> tuple[list[StoredInbound], dict[int, Unreadable]]:
    """The controls that wait, and by their number those that cannot be read."""
    fence(tx, lease, Hold.NOT)
    rows = tx.connection.execute(
        sa.select(inbounds.c.id, inbounds.c.conversation_id, inbounds.c.payload)
        .where(inbounds.c.channel == lease.channel, _WAITING, inbounds.c.lane == Lane.CONTROL)
        .order_by(inbounds.c.id)
    )
    waiting: list[StoredInbound] = []
    unreadable: dict[int, Unreadable] = {}
    for row in rows:
        try:
            waiting.append(StoredInbound(row.id, row.conversation_id, inbound_from_json(row.payload)))
        except Unreadable as error:
            unreadable[row.id] = error
    return waiting, unreadable


def control_done(tx: Transaction, lease: Lease, inbound_id: int) -> None:
    fence(tx, lease)
    handled(tx, lease, inbound_id)


def channels_with_work(tx: Transaction) -> list[str]:
    """The channels in which something waits to be claimed or handled."""
    return sorted(tx.connection.execute(sa.select(inbounds.c.channel).where(_WAITING).distinct()).scalars())


def _of_message(
    tx: Transaction, channel: str, chat: str, message_id: str, condition: sa.ColumnElement[bool]
) -> list[int]:
    """The questions in a message, whichever of the chat's conversations they belong to."""
    rows = tx.connection.execute(
        sa.select(inbounds.c.id, inbounds.c.payload)
        .join(conversations, conversations.c.id == inbounds.c.conversation_id)
        .where(inbounds.c.channel == channel, conversations.c.chat == chat, _ASKS, condition)
    )
    questions = ((row.id, readable_inbound(row.payload)) for row in rows)
    return [number for number, asked in questions if asked is not None and asked.message_id == message_id]


def _heads(channel: str) -> sa.Select[tuple[int, int, str | None, float]]:
    """For each conversation that no turn holds: what was asked first of all that waits, and when its group is ready.

    Not where a command that was given before it still waits to be handled: a /new decides where it is asked.
    """
    here = sa.and_(inbounds.c.channel == channel, _WAITING, _ASKS)
    place = sa.func.row_number().over(partition_by=inbounds.c.conversation_id, order_by=AS_ASKED)
    waiting_here = (
        sa.select(
            inbounds.c.conversation_id,
            inbounds.c.id,
            inbounds.c.group_key,
            AS_ASKED[0].label("asked_at"),
            place.label("place"),
        )
        .where(here, ~sa.exists().where(turns.c.holds == inbounds.c.conversation_id))
        .subquery()
    )
    head, mate, control = waiting_here, inbounds.alias("mate"), inbounds.alias("control")
    is_preceded = sa.exists().where(
        control.c.channel == channel,
        control.c.state == "waiting",
        control.c.lane == Lane.CONTROL,
        control.c.conversation_id == head.c.conversation_id,
        sa.func.coalesce(control.c.asked_at, control.c.accepted_at) <= head.c.asked_at,
    )
    return (
        sa.select(
            head.c.conversation_id,
            head.c.id.label("head"),
            head.c.group_key,
            sa.func.max(mate.c.ready_at).label("ready_at"),
        )
        .join(
            mate,
            sa.and_(
                mate.c.channel == channel,
                mate.c.state == "waiting",
                mate.c.lane == Lane.TURN,
                mate.c.conversation_id == head.c.conversation_id,
                sa.or_(mate.c.id == head.c.id, mate.c.group_key == head.c.group_key),
            ),
        )
        .where(head.c.place == 1, ~is_preceded)
        .group_by(head.c.conversation_id, head.c.id, head.c.group_key)
    )
