"""What the reader is told beside the answer: an owner that takes a run over does not know it otherwise."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("turns", sa.Column("remark", sa.Text))
