"""Migrations of the tables (Alembic)."""

HEAD = "0005"  # the last step; a test compares
