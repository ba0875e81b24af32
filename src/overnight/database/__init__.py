"""The database of the control plane: SQLite (a file, the default) or PostgreSQL (for a fleet).

`engine` opens it and `migrations` creates the tables; packages with tables define them in their `sql`.
"""
