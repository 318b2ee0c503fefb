"""Everything that must survive a crash: inbounds, turns, conversations, leases; in SQLite or PostgreSQL."""

from channels.store.store import Store

__all__ = ["Store"]
