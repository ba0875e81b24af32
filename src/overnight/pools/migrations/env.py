"""Entry point of Alembic. The connection comes from `database.upgrade`, which holds the lock."""

from __future__ import annotations

from alembic import context

from overnight.pools.sql import schema


def run() -> None:
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=schema.METADATA,
        transactional_ddl=True,
    )
    context.run_migrations()


if hasattr(context, "config"):  # false for a plain import
    run()
