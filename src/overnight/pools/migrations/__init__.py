"""Migrations of the tables (Alembic)."""

HEAD = "0003"  # the last step; a test compares
