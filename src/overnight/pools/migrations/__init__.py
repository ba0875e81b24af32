"""How the tables came to be, step by step (Alembic)."""

HEAD = "0002"  # the last step; a test compares
