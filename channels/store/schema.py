"""The tables. Migrations bring a database here step by step; a test holds the two together.

Times are seconds since the Unix epoch. JSON is text: it holds what PostgreSQL's own JSON types refuse (NUL), and
both databases treat it alike.
"""

from __future__ import annotations

import sqlalchemy as sa

from channels.store.codec import CleanText, JsonText

metadata = sa.MetaData()

_Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts up only in columns of type INTEGER

conversations = sa.Table(
    "conversations",
    metadata,
    sa.Column("id", _Number, primary_key=True, autoincrement=True),
    sa.Column("channel", CleanText, nullable=False),
    sa.Column("chat", CleanText, nullable=False),
    # Place.key; a conversation that another one took over has a key that no place has
    sa.Column("place_key", CleanText, nullable=False),
    sa.Column("place", JsonText, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("thread_id", CleanText),
    sa.Column("thread_at", sa.Double),
    sa.Column("pending", JsonText),
    # True once the chat was given another id: the thread can no longer be derived from the place
    sa.Column("moved", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.UniqueConstraint("channel", "place_key", name="conversations_place"),
    sa.Index("conversations_chat", "channel", "chat"),
    sqlite_autoincrement=True,
)

bindings = sa.Table(
    "bindings",
    metadata,
    sa.Column("channel", CleanText, primary_key=True),
    sa.Column("chat", CleanText, primary_key=True),
    sa.Column("message_id", CleanText, primary_key=True),
    sa.Column("conversation_id", _Number, sa.ForeignKey("conversations.id"), nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Index("bindings_conversation", "conversation_id"),
    sa.Index("bindings_age", "created_at"),
)

inbounds = sa.Table(
    "inbounds",
    metadata,
    sa.Column("id", _Number, primary_key=True, autoincrement=True),
    sa.Column("channel", CleanText, nullable=False),
    sa.Column("event_key", CleanText, nullable=False),
    sa.Column("conversation_id", _Number, sa.ForeignKey("conversations.id"), nullable=False),
    sa.Column("lane", CleanText, nullable=False),
    # waiting | taken (by a turn) | handled (a control inbound) | dropped
    sa.Column("state", CleanText, nullable=False),
    sa.Column("group_key", CleanText),
    sa.Column("ready_at", sa.Double, nullable=False),
    # Inbound.asked_at; NULL in what an earlier version accepted, also while replicas of both are up
    sa.Column("asked_at", sa.Double),
    sa.Column("accepted_at", sa.Double, nullable=False),
    sa.Column("payload", JsonText, nullable=False),
    sa.UniqueConstraint("channel", "event_key", name="inbounds_event"),
    sa.Index("inbounds_waiting", "channel", "state", "lane", "conversation_id", "id"),
    sa.Index("inbounds_conversation", "conversation_id", "state"),
    sa.Index("inbounds_age", "accepted_at"),
    sqlite_autoincrement=True,
)

turns = sa.Table(
    "turns",
    metadata,
    sa.Column("number", _Number, primary_key=True, autoincrement=True),
    sa.Column("id", CleanText, nullable=False, unique=True),
    sa.Column("channel", CleanText, nullable=False),
    sa.Column("conversation_id", _Number, sa.ForeignKey("conversations.id"), nullable=False),
    # The conversation that nobody else may answer in while this turn is at work; unique, so the database itself
    # refuses a second turn. NULL once the turn blocks nobody.
    sa.Column("holds", _Number, unique=True),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("state", CleanText, nullable=False),
    sa.Column("thread_id", CleanText),
    sa.Column("run_id", CleanText),
    # Since when the run is known; NULL also where a version without this column began it
    sa.Column("run_at", sa.Double),
    sa.Column("shown", JsonText),
    sa.Column("final", JsonText),
    # What the reader is told about a stop that a person has asked for; NULL: nobody has
    sa.Column("stop_notice", CleanText),
    # What the reader is told beside the answer of the run; NULL: nothing
    sa.Column("remark", CleanText),
    # The conversation's open question (`pending`) that this turn answers
    sa.Column("resumes", JsonText),
    sa.Column("note", CleanText, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    sa.Index("turns_state", "channel", "state", "number"),
    sa.Index("turns_conversation", "conversation_id", "number"),
    sa.Index("turns_age", "ended_at"),
    sqlite_autoincrement=True,
)

turn_inbounds = sa.Table(
    "turn_inbounds",
    metadata,
    sa.Column("turn", _Number, sa.ForeignKey("turns.number", ondelete="CASCADE"), primary_key=True),
    sa.Column("inbound", _Number, sa.ForeignKey("inbounds.id"), primary_key=True),
    sa.Index("turn_inbounds_inbound", "inbound"),
)

feedback = sa.Table(
    "feedback",
    metadata,
    sa.Column("turn", _Number, sa.ForeignKey("turns.number", ondelete="CASCADE"), primary_key=True),
    sa.Column("user_id", CleanText, primary_key=True),
    sa.Column("value", CleanText, nullable=False),
    sa.Column("given_at", sa.Double, nullable=False),
)

memory = sa.Table(
    "memory",
    metadata,
    sa.Column("channel", CleanText, primary_key=True),
    sa.Column("key", CleanText, primary_key=True),
    sa.Column("value", JsonText, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Index("memory_age", "expires_at"),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("channel", CleanText, primary_key=True),
    sa.Column("owner", CleanText),  # NULL: released
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
)

replicas = sa.Table(
    "replicas",
    metadata,
    sa.Column("name", CleanText, primary_key=True),
    sa.Column("info", JsonText),
    sa.Column("expires_at", sa.Double, nullable=False),
)
