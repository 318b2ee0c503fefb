"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "conversations",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("chat", sa.Text, nullable=False),
        sa.Column("place_key", sa.Text, nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("thread_id", sa.Text),
        sa.Column("thread_at", sa.Double),
        sa.Column("pending", sa.Text),
        sa.Column("moved", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.UniqueConstraint("channel", "place_key", name="conversations_place"),
        sqlite_autoincrement=True,
    )
    op.create_index("conversations_chat", "conversations", ["channel", "chat"])
    op.create_table(
        "bindings",
        sa.Column("channel", sa.Text, primary_key=True),
        sa.Column("chat", sa.Text, primary_key=True),
        sa.Column("message_id", sa.Text, primary_key=True),
        sa.Column("conversation_id", _NUMBER, sa.ForeignKey("conversations.id"), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    op.create_index("bindings_conversation", "bindings", ["conversation_id"])
    op.create_index("bindings_age", "bindings", ["created_at"])
    op.create_table(
        "inbounds",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("event_key", sa.Text, nullable=False),
        sa.Column("conversation_id", _NUMBER, sa.ForeignKey("conversations.id"), nullable=False),
        sa.Column("lane", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("group_key", sa.Text),
        sa.Column("ready_at", sa.Double, nullable=False),
        sa.Column("accepted_at", sa.Double, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.UniqueConstraint("channel", "event_key", name="inbounds_event"),
        sqlite_autoincrement=True,
    )
    op.create_index("inbounds_waiting", "inbounds", ["channel", "state", "lane", "conversation_id", "id"])
    op.create_index("inbounds_conversation", "inbounds", ["conversation_id", "state"])
    op.create_index("inbounds_age", "inbounds", ["accepted_at"])
    op.create_table(
        "turns",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("conversation_id", _NUMBER, sa.ForeignKey("conversations.id"), nullable=False),
        sa.Column("holds", _NUMBER, unique=True),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("thread_id", sa.Text),
        sa.Column("run_id", sa.Text),
        sa.Column("shown", sa.Text),
        sa.Column("final", sa.Text),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        sqlite_autoincrement=True,
    )
    op.create_index("turns_state", "turns", ["channel", "state", "number"])
    op.create_index("turns_conversation", "turns", ["conversation_id", "number"])
    op.create_index("turns_age", "turns", ["ended_at"])
    op.create_table(
        "turn_inbounds",
        sa.Column("turn", _NUMBER, sa.ForeignKey("turns.number", ondelete="CASCADE"), primary_key=True),
        sa.Column("inbound", _NUMBER, sa.ForeignKey("inbounds.id"), primary_key=True),
    )
    op.create_index("turn_inbounds_inbound", "turn_inbounds", ["inbound"])
    op.create_table(
        "feedback",
        sa.Column("turn", _NUMBER, sa.ForeignKey("turns.number", ondelete="CASCADE"), primary_key=True),
        sa.Column("user_id", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("given_at", sa.Double, nullable=False),
    )
    op.create_table(
        "memory",
        sa.Column("channel", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("expires_at", sa.Double),
    )
    op.create_index("memory_age", "memory", ["expires_at"])
    op.create_table(
        "leases",
        sa.Column("channel", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
    )
    op.create_table(
        "replicas",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("info", sa.Text),
        sa.Column("expires_at", sa.Double, nullable=False),
    )
