"""A real machine for the length of a test; what it is, `overnight.machines.nspawn` says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from overnight.machines import nspawn
from overnight.undo import journal

Machine = nspawn.Machine
unit = nspawn.unit


@contextlib.contextmanager
def machine(
    units: Mapping[str, str] | None = None, files: Mapping[str, str] | None = None
) -> Iterator[Machine]:
    """Boots a machine with these units (all enabled that are wanted), until the block is left."""
    run_journal = journal.Journal("a machine of a test")
    try:
        with run_journal:
            booted = nspawn.boot(run_journal, units, files)
            try:
                yield booted
            finally:
                booted.stop()
    finally:
        assert run_journal.problems == []
