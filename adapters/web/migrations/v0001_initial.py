"""The first tables. A database of a version that kept no note of its revision has them already."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "web_entries",
        sa.Column("channel", sa.String(64), primary_key=True),
        sa.Column("conversation", sa.String(64), primary_key=True),
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_index(
        "web_entries_by_position",
        "web_entries",
        ["channel", "conversation", "position", "seq"],
        if_not_exists=True,
    )
    op.create_index("web_entries_by_age", "web_entries", ["channel", "at"], if_not_exists=True)
    op.create_table(
        "web_uploads",
        sa.Column("channel", sa.String(64), primary_key=True),
        sa.Column("conversation", sa.String(64), primary_key=True),
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("mime", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        if_not_exists=True,
    )
    op.create_index("web_uploads_by_age", "web_uploads", ["channel", "at"], if_not_exists=True)
