"""The files of an investigation's report. Those of an earlier report are replaced, a file of anybody else never is."""

from __future__ import annotations

import os
import pathlib

from overnight import errors

MAX_VERDICTS = 3
# The begin of a page of `reports.investigation`, which the other files belong to.
MARKS = (b'<meta name="generator" content="overnight">', b"<title>Investigation ")
HEAD_BYTES = 4096


def next_plan(page: pathlib.Path) -> pathlib.Path:
    return page.with_name(f"{page.stem}-next-plan.yaml")


def verdict(page: pathlib.Path, number: int) -> pathlib.Path:
    return page.with_name(f"{page.stem}-verdict-{number}.html")


def find_obstacle(page: pathlib.Path) -> str:
    """Return why no report can be written to `page`; '' if one can, in place of an earlier one or of nothing."""
    if _is_report(page):
        return ""
    verdicts = (verdict(page, number) for number in range(1, MAX_VERDICTS + 1))
    for each in (page, page.with_suffix(".json"), page.with_suffix(".txt"), next_plan(page), *verdicts):  # fmt: skip
        try:
            each.lstat()
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:  # too long, below a file, not a name
            return f"{each}: {errors.reason(error)}"
        return f"{each} exists and is not a file of a report"
    folder = next(parent for parent in page.absolute().parents if parent.exists())
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} is not writable"


def _is_report(page: pathlib.Path) -> bool:
    def open_itself(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)

    try:
        with open(page, "rb", opener=open_itself) as file:
            head = file.read(HEAD_BYTES) or b""
    except (OSError, ValueError):
        return False
    return all(mark in head for mark in MARKS)
