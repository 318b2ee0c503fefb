"""Runs the migrations on the connection that `channels.store.migrate` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

attributes = context.config.attributes
context.configure(
    connection=attributes["connection"],
    target_metadata=attributes["schema"].tables,
    version_table=attributes["schema"].noted_in,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
