"""Forgetting what is over, so that the store stays bounded. Nothing that somebody still has to work on goes."""

from __future__ import annotations

import sqlalchemy as sa

from channels.store.database import Transaction
from channels.store.records import TurnState
from channels.store.schema import bindings, conversations, inbounds, memory, replicas, turn_inbounds, turns

BATCH = 500
"""Rows that one unit deletes at most, so that nobody waits long for it."""

_VACUUM_PAGES = 4096  # pages of 4 KiB that SQLite gives back at once
_STALE_REPLICA = 3600.0  # seconds after which a replica that left without a word is forgotten


def old_turns(tx: Transaction, before: float) -> int:
    """Turns that ended before the moment, with their feedback."""
    found = (
        sa.select(turns.c.number)
        .where(turns.c.ended_at < before, turns.c.state.in_([TurnState.DONE, TurnState.DEAD]))
        .limit(BATCH)
        .with_for_update(skip_locked=True)
    )
    return _delete(tx, turns, turns.c.number, found)


def old_inbounds(tx: Transaction, before: float) -> int:
    """Inbounds that were accepted before the moment and wait for nothing; not those of a turn that is kept."""
    found = (
        sa.select(inbounds.c.id)
        .where(
            inbounds.c.accepted_at < before,
            inbounds.c.state != "waiting",
            ~sa.exists().where(turn_inbounds.c.inbound == inbounds.c.id),
        )
        .limit(BATCH)
        .with_for_update(skip_locked=True)
    )
    return _delete(tx, inbounds, inbounds.c.id, found)


def old_bindings(tx: Transaction, before: float) -> int:
    """Messages that were shown before the moment: a reply to one of them finds its place instead."""
    key = (bindings.c.channel, bindings.c.chat, bindings.c.message_id)
    found = sa.select(*key).where(bindings.c.created_at < before).limit(BATCH)
    return tx.connection.execute(bindings.delete().where(sa.tuple_(*key).in_(found))).rowcount


def idle_conversations(tx: Transaction, before: float) -> int:
    """Conversations in which nothing is left and that come back the same: in their first thread.

    A question that is still open there goes as well: the turn that asked it is forgotten, and its buttons with it.
    """
    unused = [
        ~sa.exists().where(table.c.conversation_id == conversations.c.id) for table in (inbounds, turns, bindings)
    ]
    found = (
        sa.select(conversations.c.id)
        .where(
            conversations.c.created_at < before,
            conversations.c.generation == 0,
            ~conversations.c.moved,
            *unused,
        )
        .limit(BATCH)
        .with_for_update(skip_locked=True)
    )
    # An inbound may have come between the look and the lock: look again while the rows are ours.
    return _delete(tx, conversations, conversations.c.id, found, *unused)


def old_memory(tx: Transaction) -> int:
    """Values whose time is over."""
    key = (memory.c.channel, memory.c.key)
    found = sa.select(*key).where(memory.c.expires_at <= tx.now).limit(BATCH)
    return tx.connection.execute(memory.delete().where(sa.tuple_(*key).in_(found))).rowcount


def stale_replicas(tx: Transaction) -> int:
    gone = replicas.c.expires_at < tx.lease_now - _STALE_REPLICA
    return tx.connection.execute(replicas.delete().where(gone)).rowcount


def give_back_pages(tx: Transaction) -> None:
    """Make an SQLite file smaller by what was deleted."""
    if tx.connection.dialect.name == "sqlite":
        free = int(tx.connection.exec_driver_sql("PRAGMA freelist_count").scalar_one())
        for _ in range(min(free, _VACUUM_PAGES)):
            # The statement gives back one page a step, and Python's driver takes one step of what returns no columns.
            tx.connection.exec_driver_sql("PRAGMA incremental_vacuum(1)")


def _delete(
    tx: Transaction,
    table: sa.Table,
    key: sa.Column[int],
    found: sa.Select[tuple[int]],
    *conditions: sa.ColumnElement[bool],
) -> int:
    ids = list(tx.connection.execute(found).scalars())
    if not ids:
        return 0
    return tx.connection.execute(table.delete().where(key.in_(ids), *conditions)).rowcount
