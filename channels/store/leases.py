"""Who owns a channel, who else is there, and the check that every write of an owner makes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum

import sqlalchemy as sa
from pydantic import JsonValue

from channels.store.database import Transaction
from channels.store.records import Lease, LostLease
from channels.store.schema import leases, replicas

REPLICA_TTL = 12.0
"""Seconds after its last heartbeat for which a replica counts as live."""

_LONGEST = 60.0  # seconds; no lease is given for longer


class Hold(Enum):
    """What else may be done under the same lease until the commit."""

    ALONE = "alone"  # nothing: what is decided depends on what others of this channel write
    AMONG_OTHERS = "among others"  # a write of one turn only, beside those of other turns
    NOT = "not"  # anything, even a take-over: nothing is written


def fence(tx: Transaction, lease: Lease, hold: Hold = Hold.ALONE) -> None:
    """Raise `LostLease` unless the lease is the channel's present one.

    A hold keeps it so until the commit: an owner that is taken over has either committed before or writes nothing.
    On PostgreSQL, where other replicas may be about to take over, an expired lease is refused as well.
    """
    query = _present(lease)
    if tx.connection.dialect.name == "postgresql":
        query = query.where(leases.c.expires_at > tx.lease_now)
    if hold is Hold.ALONE:
        query = query.with_for_update()
    elif hold is Hold.AMONG_OTHERS:
        query = query.with_for_update(read=True, key_share=True)  # a renewal does not wait for it either
    if tx.connection.execute(query).first() is None:
        raise _lost(lease)


def lock_channel(tx: Transaction, channel: str) -> None:
    """Keep every owner of the channel from writing until the commit, for changes that are nobody's in particular."""
    tx.connection.execute(sa.select(leases.c.epoch).where(leases.c.channel == channel).with_for_update())


def acquire(tx: Transaction, channel: str, owner: str, ttl: float) -> int | None:
    """The epoch under which `owner` now owns the channel; None while another live owner has it."""
    new = tx.insert(leases).values(channel=channel, owner=None, epoch=0, expires_at=0.0)
    tx.connection.execute(new.on_conflict_do_nothing())
    row = tx.connection.execute(
        sa.select(leases.c.owner, leases.c.epoch, _is_live(tx, leases.c.expires_at).label("live"))
        .where(leases.c.channel == channel)
        .with_for_update()
    ).one()
    live = row.owner is not None and row.live
    if live and row.owner != owner:
        return None
    epoch = int(row.epoch) if live else int(row.epoch) + 1
    tx.connection.execute(
        leases.update()
        .where(leases.c.channel == channel)
        .values(owner=owner, epoch=epoch, expires_at=tx.lease_now + ttl)
    )
    return epoch


def renew(tx: Transaction, lease: Lease, ttl: float) -> None:
    """Put off the end of the lease. Late is not lost: until somebody else acquires it, nobody else has written."""
    changed = tx.connection.execute(leases.update().where(_is_present(lease)).values(expires_at=tx.lease_now + ttl))
    if changed.rowcount == 0:
        raise _lost(lease)


def release(tx: Transaction, lease: Lease) -> None:
    """Let the next owner in at once; nothing happens when the lease is lost already."""
    tx.connection.execute(leases.update().where(_is_present(lease)).values(owner=None, expires_at=0.0))


def owners(tx: Transaction, channels: Sequence[str]) -> dict[str, str | None]:
    """The live owner of each channel."""
    rows = tx.connection.execute(
        sa.select(leases.c.channel, leases.c.owner).where(
            leases.c.channel.in_(channels), _is_live(tx, leases.c.expires_at)
        )
    )
    return dict.fromkeys(channels) | {row.channel: row.owner for row in rows}


def heartbeat(tx: Transaction, replica: str, info: JsonValue) -> list[str]:
    """Count this replica as live for a while; returns all live replicas, sorted."""
    new = tx.insert(replicas).values(name=replica, info=info, expires_at=tx.lease_now + REPLICA_TTL)
    tx.connection.execute(
        new.on_conflict_do_update(
            index_elements=["name"], set_={"info": new.excluded.info, "expires_at": new.excluded.expires_at}
        )
    )
    rows = tx.connection.execute(
        sa.select(replicas.c.name).where(sa.or_(_is_live(tx, replicas.c.expires_at), replicas.c.name == replica))
    )
    return sorted(row.name for row in rows)


def said_by(tx: Transaction, names: Collection[str]) -> dict[str, JsonValue]:
    rows = tx.connection.execute(sa.select(replicas.c.name, replicas.c.info).where(replicas.c.name.in_(names)))
    return {row.name: row.info for row in rows}


def leave(tx: Transaction, replica: str) -> None:
    tx.connection.execute(replicas.delete().where(replicas.c.name == replica))


def depose(tx: Transaction, owner: str) -> None:
    """A replica that is known to be dead: its leases end now, and it counts as live no longer."""
    tx.connection.execute(leases.update().where(leases.c.owner == owner).values(owner=None, expires_at=0.0))
    leave(tx, owner)


def _is_live(tx: Transaction, ends_at: sa.Column[float]) -> sa.ColumnElement[bool]:
    """What ends further ahead than anything may was written before the database's clock was set back, and is over."""
    return sa.and_(ends_at > tx.lease_now, ends_at <= tx.lease_now + _LONGEST)


def _is_present(lease: Lease) -> sa.ColumnElement[bool]:
    return sa.and_(leases.c.channel == lease.channel, leases.c.owner == lease.owner, leases.c.epoch == lease.epoch)


def _present(lease: Lease) -> sa.Select[tuple[int]]:
    return sa.select(leases.c.epoch).where(_is_present(lease))


def _lost(lease: Lease) -> LostLease:
    return LostLease(f"{lease.owner} does not own the channel {lease.channel} any more (epoch {lease.epoch})")
