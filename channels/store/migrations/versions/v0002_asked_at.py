"""When an inbound was asked, so that those that wait are claimed in that order."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("inbounds", sa.Column("asked_at", sa.Double))
