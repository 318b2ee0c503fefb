"""When an inbound was asked, that somebody wants a turn to stop, the question that a turn answers, and in which threads
the bot takes part."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("inbounds", sa.Column("asked_at", sa.Double))
    op.add_column("turns", sa.Column("stop_notice", sa.Text))
    op.add_column("turns", sa.Column("resumes", sa.Text))
    _take_part_where_something_was_asked()


def _take_part_where_something_was_asked() -> None:
    """In revision 0001 a conversation in a thread meant that the bot takes part there."""
    asked = sa.text(
        "SELECT c.id, c.channel, c.chat, c.place, max(t.created_at) AS at FROM conversations AS c"
        " JOIN turns AS t ON t.conversation_id = c.id GROUP BY c.id, c.channel, c.chat, c.place"
    )
    connection = op.get_bind()
    joined = []
    for row in connection.execute(asked).all():
        place = json.loads(row.place)
        thread, user = (place.get("thread"), place.get("user")) if isinstance(place, dict) else (None, None)
        if thread is not None and not place.get("private"):
            key = f"thread:{thread}" + (f":{user}" if user else "")
            joined.append({"channel": row.channel, "chat": row.chat, "key": key, "id": row.id, "at": row.at})
    if joined:
        connection.execute(
            sa.text(
                "INSERT INTO bindings (channel, chat, message_id, conversation_id, created_at)"
                " VALUES (:channel, :chat, :key, :id, :at) ON CONFLICT DO NOTHING"
            ),
            joined,
        )
