"""A real machine for one test (`overnight.machines.nspawn`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from overnight.machines import nspawn
from overnight.undo import journal

Machine = nspawn.Machine
unit = nspawn.unit


@contextlib.contextmanager
def machine(
    units: Mapping[str, str] | None = None, files: Mapping[str, str] | None = None, **options: Any
) -> Iterator[Machine]:
    """Boot a machine with these units, enabled where another unit wants them; stop it at the end.

    `options` are those of `nspawn.boot`.
    """
    run_journal = journal.Journal("a machine of a test")
    try:
        with run_journal:
            booted = nspawn.boot(run_journal, units, files, **options)
            try:
                yield booted
            finally:
                booted.stop()
    finally:
        assert run_journal.problems == []
