"""What an owner that takes a run over does not know otherwise: since when it is known, and what its reader is told
beside its answer."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("turns", sa.Column("run_at", sa.Double))
    op.add_column("turns", sa.Column("remark", sa.Text))
