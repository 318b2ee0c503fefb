"""When an inbound was asked, that somebody wants a turn to stop, and the question that a turn answers."""

from __future__ import annotations

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
