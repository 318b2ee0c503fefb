"""Entries stand in the order of the moments they belong to, and each write names the version that it replaces."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_OF_THE_QUESTION = """
    SELECT above.at FROM web_entries AS above
    WHERE above.channel = web_entries.channel AND above.conversation = web_entries.conversation
    AND above.position = web_entries.position AND above.kind <> 'reply'
"""


def upgrade() -> None:
    with op.batch_alter_table("web_entries") as entries:
        entries.alter_column("position", type_=sa.BigInteger, existing_type=sa.Integer, existing_nullable=False)
        entries.add_column(sa.Column("version", sa.BigInteger, nullable=False, server_default="1"))
    # Positions counted up until now. Replies first, while their questions can still be found by them.
    op.execute(
        f"UPDATE web_entries SET position = CAST(1000000 * COALESCE(({_OF_THE_QUESTION}), at) AS BIGINT)"  # noqa: S608
        " WHERE kind = 'reply'"
    )
    op.execute("UPDATE web_entries SET position = CAST(1000000 * at AS BIGINT) WHERE kind <> 'reply'")
