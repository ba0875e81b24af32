"""The SQLite file of a data home, and the rules for every connection to it.

Standard library only: loading SQLAlchemy would double the time of `overnight pool acquire`.
"""

from __future__ import annotations

import pathlib

from overnight.database import write_queue

BUSY_SECONDS = 5  # for a writer outside of the queue; with the queue, a call takes at most 20 s
# `Database` checkpoints the write-ahead log; a commit does so only where nobody has for long.
LOG_LIMIT = "wal_autocheckpoint=16000"


def default_path(home: pathlib.Path) -> pathlib.Path:
    return home / "pools" / "pools.db"


def queue_of(path: pathlib.Path) -> write_queue.WriteQueue:
    """Return the queue of the writers to a database file."""
    return write_queue.WriteQueue(path.with_name(path.name + "-writers"))
