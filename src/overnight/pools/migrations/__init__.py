"""Migrations of the tables (Alembic)."""

HEAD = "0002"  # the last step; a test compares
