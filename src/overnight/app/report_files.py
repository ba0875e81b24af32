"""The files of an investigation's report. Those of an earlier report are replaced, a file of anybody else never is."""

from __future__ import annotations

import itertools
import os
import pathlib
import stat
from collections.abc import Iterator

SUFFIX = ".html"
MAX_VERDICTS = 3
# The begin of a page of `reports.investigation`, which the other files belong to.
MARKS = (b'<meta name="generator" content="overnight">', b"<title>Investigation ")
HEAD_BYTES = 4096


def next_plan(page: pathlib.Path) -> pathlib.Path:
    return page.with_name(f"{page.stem}-next-plan.yaml")


def verdict(page: pathlib.Path, number: int) -> pathlib.Path:
    return page.with_name(f"{page.stem}-verdict-{number}{SUFFIX}")


def find_foreign(page: pathlib.Path) -> pathlib.Path | None:
    """Return a file that a report at `page` would replace, and that is not of an earlier report."""
    return None if _is_report(page) else next(filter(os.path.lexists, _list(page)), None)


def _list(page: pathlib.Path) -> Iterator[pathlib.Path]:
    verdicts = (verdict(page, number) for number in range(1, MAX_VERDICTS + 1))
    return itertools.chain((page, page.with_suffix(".json"), page.with_suffix(".txt"), next_plan(page)), verdicts)  # fmt: skip


def _is_report(page: pathlib.Path) -> bool:
    try:
        descriptor = os.open(page, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        head = file.read(HEAD_BYTES)
    return all(mark in head for mark in MARKS)
