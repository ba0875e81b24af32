"""Migrations of the tables (Alembic)."""

HEAD = "0004"  # the last step; a test compares
