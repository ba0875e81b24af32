"""Entry point of Alembic. The connection comes from `Database.upgrade`, which holds the lock."""

from __future__ import annotations

from alembic import context, op


def run() -> None:
    connection = context.config.attributes["connection"]
    context.configure(connection=connection, transactional_ddl=True)
    context.run_migrations(op=op)


if hasattr(context, "config"):  # false for a plain import
    run()
