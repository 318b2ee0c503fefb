"""Conversations: finding the one an inbound belongs to, binding messages to it, moving and renewing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa
import structlog

from channels.model import Inbound, Place, ThreadId
from channels.store.codec import inbound_to_json, place_from_json, place_to_json, readable_inbound
from channels.store.database import Transaction
from channels.store.leases import fence, lock_channel
from channels.store.records import Conversation, Lane, Lease, StoreError, TurnState, Unreadable
from channels.store.schema import bindings, conversations, inbounds, turn_inbounds, turns

log = structlog.get_logger(__name__)

COLUMNS = (
    conversations.c.id,
    conversations.c.channel,
    conversations.c.place,
    conversations.c.generation,
    conversations.c.thread_id,
    conversations.c.pending,
)


def conversation_of(values: sa.RowMapping) -> Conversation:
    thread = values[conversations.c.thread_id]
    return Conversation(
        id=values[conversations.c.id],
        channel=values[conversations.c.channel],
        place=place_from_json(values[conversations.c.place]),
        generation=values[conversations.c.generation],
        thread_id=None if thread is None else ThreadId(thread),
        pending=values[conversations.c.pending],
    )


def at_place(tx: Transaction, place: Place) -> Conversation | None:
    return _readable(tx.connection.execute(sa.select(*COLUMNS).where(_is_at(place))).mappings().first())


def of_message(tx: Transaction, channel: str, chat: str, message_id: str) -> Conversation | None:
    query = (
        sa.select(*COLUMNS)
        .join(bindings, bindings.c.conversation_id == conversations.c.id)
        .where(bindings.c.channel == channel, bindings.c.chat == chat, bindings.c.message_id == message_id)
    )
    return _readable(tx.connection.execute(query).mappings().first())


def _readable(row: sa.RowMapping | None) -> Conversation | None:
    """One that cannot be read counts as none: whoever writes there next begins it anew."""
    try:
        return None if row is None else conversation_of(row)
    except Unreadable:
        return None


def for_inbound(tx: Transaction, inbound: Inbound) -> int:
    """The conversation of an inbound, made if it is the first there, and locked.

    The lock lets the inbounds of one conversation be committed in the order of their ids, so that a claim never
    misses an earlier one that another process is still about to commit.
    """
    place = inbound.place
    if inbound.reply_to and inbound.reply_to != place.thread:
        bound = of_message(tx, place.channel, place.chat, inbound.reply_to)
        if bound is not None and _lock(tx, conversations.c.id == bound.id) is not None:
            return bound.id
    here = sa.select(*COLUMNS).where(_is_at(place)).with_for_update()
    known = _readable(tx.connection.execute(here).mappings().first())
    if known is not None:
        return known.id
    new = tx.insert(conversations).values(
        channel=place.channel,
        chat=place.chat,
        place_key=place.key,
        place=place_to_json(place),
        generation=0,
        moved=False,
        created_at=tx.now,
    )
    # Updating what is there already (another process was faster, or it cannot be read) locks that row as well.
    made = new.on_conflict_do_update(index_elements=["channel", "place_key"], set_={"place": new.excluded.place})
    return int(tx.connection.execute(made.returning(conversations.c.id)).scalar_one())


def bind(tx: Transaction, conversation_id: int, message_ids: Sequence[str]) -> None:
    """Let replies to these messages of the conversation's chat find it."""
    if not message_ids:
        return
    home = tx.connection.execute(
        sa.select(conversations.c.channel, conversations.c.chat).where(conversations.c.id == conversation_id)
    ).one()
    tx.connection.execute(
        tx.insert(bindings).on_conflict_do_nothing(),
        [
            {
                "channel": home.channel,
                "chat": home.chat,
                "message_id": message_id,
                "conversation_id": conversation_id,
                "created_at": tx.now,
            }
            for message_id in dict.fromkeys(message_ids)
        ],
    )


def take_part(tx: Transaction, conversation_id: int, thread: Place) -> None:
    """A question was taken in the thread. It is known as long as a message that was shown now would be."""
    new = tx.insert(bindings).values(
        channel=thread.channel,
        chat=thread.chat,
        message_id=_thread_key(thread),
        conversation_id=conversation_id,
        created_at=tx.now,
    )
    renewed = {"conversation_id": new.excluded.conversation_id, "created_at": new.excluded.created_at}
    tx.connection.execute(new.on_conflict_do_update(index_elements=["channel", "chat", "message_id"], set_=renewed))


def takes_part(tx: Transaction, thread: Place) -> bool:
    """Whether a question was taken in the thread."""
    return of_message(tx, thread.channel, thread.chat, _thread_key(thread)) is not None


def new_generation(tx: Transaction, lease: Lease, conversation_id: int) -> Conversation:
    """Start afresh at the same place."""
    fence(tx, lease)
    _update(
        tx,
        lease,
        conversation_id,
        generation=conversations.c.generation + 1,
        thread_id=None,
        thread_at=None,
        pending=None,
    )
    query = sa.select(*COLUMNS).where(conversations.c.id == conversation_id)
    return conversation_of(tx.connection.execute(query).mappings().one())


def ask_anew(tx: Transaction, lease: Lease, inbound_id: int, question: Inbound) -> None:
    """Turn a control inbound that waits into the first question of a new generation; only once."""
    fence(tx, lease)
    asked = (
        inbounds.update()
        .where(
            inbounds.c.id == inbound_id,
            inbounds.c.channel == lease.channel,
            inbounds.c.lane == Lane.CONTROL,
            inbounds.c.state == "waiting",
        )
        .values(lane=Lane.TURN, payload=inbound_to_json(question))
    )
    conversation_id = tx.connection.execute(asked.returning(inbounds.c.conversation_id)).scalar()
    if conversation_id is not None:
        new_generation(tx, lease, conversation_id)
        tx.wake(lease.channel)


def rekey(tx: Transaction, channel: str, old_chat: str, new_chat: str) -> None:
    """Move everything of a chat to its new id.

    Where there is a conversation at the new place already, that one stays, with the newer of the two threads, and
    gets what waits and what is bound. The old one keeps its turns until they are done, at the new place but under a
    key that no inbound finds.
    """
    lock_channel(tx, channel)
    old = (
        sa.select(*COLUMNS, conversations.c.thread_at)
        .where(conversations.c.channel == channel, conversations.c.chat == old_chat)
        .order_by(conversations.c.id)
        .with_for_update()
    )
    for row in tx.connection.execute(old).mappings().all():
        conversation = _readable(row)
        if conversation is None:
            stays = row[conversations.c.id]
            log.error("a conversation that cannot be read is not moved along", channel=channel, conversation=stays)
            continue
        _move_inbounds(tx, conversation.id, new_chat)
        place = replace(conversation.place, chat=new_chat)
        survivor = _lock(tx, _is_at(place))
        moved = {"chat": new_chat, "place": place_to_json(place), "moved": True}
        if survivor is None:
            key = place.key
        else:
            key = f"{place.key}#{conversation.id}"
            _merge(tx, row, survivor)
        tx.connection.execute(
            conversations.update().where(conversations.c.id == conversation.id).values(place_key=key, **moved)
        )
    _move_bindings(tx, channel, old_chat, new_chat)
    tx.wake(channel)


def _merge(tx: Transaction, values: sa.RowMapping, survivor: int) -> None:
    old_id = values[conversations.c.id]
    if values[conversations.c.thread_at] is not None:
        tx.connection.execute(
            conversations.update()
            .where(
                conversations.c.id == survivor,
                sa.func.coalesce(conversations.c.thread_at, 0.0) < values[conversations.c.thread_at],
            )
            .values(
                thread_id=values[conversations.c.thread_id],
                thread_at=values[conversations.c.thread_at],
                pending=values[conversations.c.pending],
                moved=True,
            )
        )
    for table in (inbounds, bindings):
        tx.connection.execute(table.update().where(table.c.conversation_id == old_id).values(conversation_id=survivor))
    tx.connection.execute(
        turns.update()
        .where(turns.c.conversation_id == old_id, turns.c.holds.is_(None))
        .values(conversation_id=survivor)
    )


def _move_inbounds(tx: Transaction, conversation_id: int, new_chat: str) -> None:
    """Rewrite the place in inbounds that somebody still has to work on."""
    at_work = (
        sa.select(turn_inbounds.c.inbound)
        .join(turns, turns.c.number == turn_inbounds.c.turn)
        .where(turns.c.conversation_id == conversation_id, turns.c.state.not_in([TurnState.DONE, TurnState.DEAD]))
    )
    rows = tx.connection.execute(
        sa.select(inbounds.c.id, inbounds.c.payload).where(
            inbounds.c.conversation_id == conversation_id,
            sa.or_(inbounds.c.state == "waiting", inbounds.c.id.in_(at_work)),
        )
    ).all()
    for row in rows:
        inbound = readable_inbound(row.payload)
        if inbound is None:
            continue
        moved = inbound_to_json(inbound.at(replace(inbound.place, chat=new_chat)))
        tx.connection.execute(inbounds.update().where(inbounds.c.id == row.id).values(payload=moved))


def _move_bindings(tx: Transaction, channel: str, old_chat: str, new_chat: str) -> None:
    taken = sa.select(bindings.c.message_id).where(bindings.c.channel == channel, bindings.c.chat == new_chat)
    old = sa.and_(bindings.c.channel == channel, bindings.c.chat == old_chat)
    tx.connection.execute(bindings.delete().where(old, bindings.c.message_id.in_(taken)))
    tx.connection.execute(bindings.update().where(old).values(chat=new_chat))


def _thread_key(thread: Place) -> str:
    """A thread among the messages that were shown. No platform has such message ids."""
    return f"thread:{thread.thread}" + (f":{thread.user}" if thread.user else "")


def _is_at(place: Place) -> sa.ColumnElement[bool]:
    return sa.and_(conversations.c.channel == place.channel, conversations.c.place_key == place.key)


def _lock(tx: Transaction, condition: sa.ColumnElement[bool]) -> int | None:
    return tx.connection.execute(sa.select(conversations.c.id).where(condition).with_for_update()).scalar()


def _update(tx: Transaction, lease: Lease, conversation_id: int, **values: object) -> None:
    changed = tx.connection.execute(
        conversations.update()
        .where(conversations.c.id == conversation_id, conversations.c.channel == lease.channel)
        .values(**values)
    )
    if changed.rowcount == 0:
        raise StoreError(f"the channel {lease.channel} has no conversation {conversation_id}")
