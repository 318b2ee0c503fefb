"""Runs the migrations on the connection that `channels.store.migrate` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from channels.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
