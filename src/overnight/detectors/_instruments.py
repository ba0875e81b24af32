"""Readings of instruments, where one ran, as evidence of findings."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from overnight.detectors import _base
from overnight.model.instrument import ReadingKind, format_us
from overnight.model.selection import Window
from overnight.model.times import HOUR_US
from overnight.queries import readings

if TYPE_CHECKING:
    from overnight.model.instrument import Row
    from overnight.queries import case as cases

SOURCE = "instruments"
# A wait below this is the scheduler's own: a slice of a busy core is 3 to 4 ms.
SHORT_US = 10_000.0
TIMES = 3.0  # against the longest wait of the baseline
HALF = 0.5


def support_waits(case: cases.Case, draft: _base.Draft) -> None:
    """Add how long tasks waited for the core of a finding, against the baseline, if an instrument read it."""
    core = draft.subject.core
    rows = _rows(case, draft.window, ReadingKind.RUN_QUEUE, core)
    now = next((row for row in rows if not row.subject), None)
    if now is None:
        return
    before = next(iter(_rows(case, case.baseline, ReadingKind.RUN_QUEUE, core)), None)
    was = f"; at most {format_us(before.max_us)} in the baseline" if before else ""
    tasks = [row.subject for row in rows if row.subject and row.max_us >= SHORT_US]
    waited = f", {tasks[0]} among them" if tasks else ""
    text = (
        f"tasks waited up to {format_us(now.max_us)} for core {core} ({now.count:,.0f} waits, 99 % of the worst"
        f" second's up to {format_us(now.p99_us)}){waited}{was}"
    )
    if now.max_us < SHORT_US or (before and now.max_us < TIMES * before.max_us):
        # Not against it: what saturates a core may be alone there.
        text = (
            f"no task waited unusually long for core {core}: at most {format_us(now.max_us)}{was}"
        )
    draft.support(
        text,
        SOURCE,
        look=_look(case, draft.window),
        max_us=now.max_us,
        p99_us=now.p99_us,
        waits=now.count,
        baseline_max_us=before.max_us if before else None,
    )


def weigh_softirqs(case: cases.Case, draft: _base.Draft, names: tuple[str, ...]) -> float:
    """Add which softirqs took the time of a core, and return the factor of the confidence: 1 if most were these."""
    rows = _rows(case, draft.window, ReadingKind.SOFTIRQ, draft.subject.core)
    total = sum(row.total_us for row in rows)
    if not total:
        return 1.0
    own = sum(row.total_us for row in rows if row.subject in names)
    largest = max(rows, key=lambda row: row.total_us)
    text = (
        f"{100 * own / total:.0f} % of the softirq time of core {draft.subject.core} was {' and '.join(names)};"
        f" most was {largest.subject}, {format_us(largest.total_us)}, {format_us(largest.max_us)} at once"
    )
    share = own / total
    if share < HALF:
        draft.oppose(text, SOURCE, share_of_softirq_time=share, largest=largest.subject)
        return HALF
    look = _look(case, draft.window)
    draft.support(text, SOURCE, look=look, share_of_softirq_time=share, largest=largest.subject)
    return 1.0


def support_creator(case: cases.Case, draft: _base.Draft) -> None:
    """Add which process created most memory cgroups, if an instrument saw it."""
    created: collections.Counter[str] = collections.Counter()
    # Zombies are a state of hours; the last one is enough to see who makes them.
    end = draft.window.end_us
    window = Window(max(draft.window.begin_us, end - HOUR_US), end)
    example: dict[str, str] = {}
    for reading in case.readings(window, ReadingKind.CGROUP_CREATED):
        if reading.values.get("memory") == 1.0:
            created[reading.subject] += round(reading.values.get("count", 0))
            example[reading.subject] = reading.text or example.get(reading.subject, "")
    if not created.total():
        return
    (process, count), *_ = created.most_common(1)
    where = f", such as {example[process]}" if example[process] else ""
    draft.support(
        f"{process} created {count:,} of the {created.total():,} memory cgroups whose creation was traced{where}",
        SOURCE,
        window=window,
        look=_look(case, window),
        process=process,
        created=count,
        share_of_created=count / created.total(),
    )


def _rows(case: cases.Case, window: Window, kind: ReadingKind, core: int | None) -> tuple[Row, ...]:
    """Return the rows of a core; that of all its tasks is the one without a subject, and first."""
    found = (reading for reading in case.readings(window, kind) if reading.core == core)
    return tuple(sorted(readings.sum_rows(found), key=lambda row: (row.subject != "", -row.max_us)))


def _look(case: cases.Case, window: Window) -> str:
    return _base.command("instrument show", window, case.host)
