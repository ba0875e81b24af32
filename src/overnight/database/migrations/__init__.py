"""Migrations of the tables (Alembic)."""

HEAD = "0006"  # the last step; a test compares
