"""A real machine for the length of a test; what it is, `overnight.hosts.machines` says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from overnight.hosts import ledger, machines

Machine = machines.Machine
unit = machines.unit


@contextlib.contextmanager
def machine(
    units: Mapping[str, str] | None = None, files: Mapping[str, str] | None = None
) -> Iterator[Machine]:
    """Boots a machine with these units (all enabled that are wanted), until the block is left."""
    book = ledger.Ledger("a machine of a test")
    try:
        with book:
            one = machines.boot(book, units, files)
            try:
                yield one
            finally:
                one.stop()
    finally:
        assert book.problems == []
