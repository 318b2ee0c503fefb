"""Small values that a channel remembers: an offset, a capability, a pairing."""

from __future__ import annotations

import sqlalchemy as sa
from pydantic import JsonValue

from channels.store.database import Transaction
from channels.store.schema import memory


def recall(tx: Transaction, channel: str, key: str) -> JsonValue:
    row = tx.connection.execute(
        sa.select(memory.c.value).where(
            memory.c.channel == channel,
            memory.c.key == key,
            sa.or_(memory.c.expires_at.is_(None), memory.c.expires_at > tx.now),
        )
    ).first()
    return None if row is None else row.value


def remember(tx: Transaction, channel: str, key: str, value: JsonValue, ttl: float | None) -> None:
    if value is None:
        tx.connection.execute(memory.delete().where(memory.c.channel == channel, memory.c.key == key))
        return
    new = tx.insert(memory).values(
        channel=channel, key=key, value=value, expires_at=None if ttl is None else tx.now + ttl
    )
    tx.connection.execute(
        new.on_conflict_do_update(
            index_elements=["channel", "key"],
            set_={"value": new.excluded.value, "expires_at": new.excluded.expires_at},
        )
    )
