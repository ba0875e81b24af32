"""Rollups: rows in the database first, then one Parquet file for each host and day.

A file is never changed. Compaction writes a new one beside it, and one transaction names the new file and deletes
the rows that are in it: after a crash in between, the old file and the rows are still what counts, and `sweep`
removes the new one. A reader takes the name of the file and the rows from one transaction, so it misses nothing
and counts nothing twice.
"""

from __future__ import annotations

import pathlib
import secrets
from typing import TYPE_CHECKING

from overnight import errors
from overnight.fleet import context
from overnight.fleet.sql import host_rows, rollup_rows
from overnight.model import files
from overnight.model.times import DAY_US, MINUTE_US, SECOND_US

if TYPE_CHECKING:
    from overnight.fleet import levels
    from overnight.model.selection import Window
    from overnight.model.uplink import Rollup

LOCK_US = 5 * MINUTE_US
# The longest window in seconds that is shown at each level: at most 720 or 1,008 intervals.
LONGEST = (6 * 3_600, 7 * 86_400)
# Cores times intervals of an answer, which takes 100 MB then, or of one step of a compaction: 340 cores for 6 hours.
MAX_ROWS = 250_000
MAX_FILE_ROWS = 1 << 40
TRIES = 5
MAX_FILES = 200  # compacted in one run


class Rollups:
    def __init__(self, control: context.Context) -> None:
        self._control = control
        self._database = control.database
        self._blobs = control.blobs

    def read(self, host: str, window: Window, level: int | None = None) -> tuple[Rollup, ...]:
        """Return the intervals that begin in a window, by default of a level that suits its length."""
        if level is None:
            level = sum(window.seconds > longest for longest in LONGEST)
        for attempt in range(TRIES):
            try:
                return self._read(host, window, level)
            except (errors.CannotError, OSError) as error:
                # Replaced between reading its name and opening it.
                if attempt == TRIES - 1 or isinstance(error, errors.NotFoundError):
                    raise
        raise AssertionError

    def _read(self, host: str, window: Window, level: int) -> tuple[Rollup, ...]:
        # Here and below, not above: a server starts without numpy and DuckDB.
        from overnight.fleet import levels

        begin, end = window.begin_us // DAY_US, -(-window.end_us // DAY_US)
        # What is not in a file yet is added to whole slots.
        slot_us = levels.SLOTS[level] * SECOND_US or 1
        since, until = window.begin_us // slot_us * slot_us, -(-window.end_us // slot_us) * slot_us
        with self._database.read() as connection:
            host_id = context.find_host(connection, host)
            days = rollup_rows.list_days(connection, begin, end, host_id)
            rows = rollup_rows.read(connection, host_id, since, until, MAX_ROWS)
        left = MAX_ROWS - sum(len(row.cores) for row in rows)
        by_day: dict[int, list[Rollup]] = {}
        for row in rows:
            by_day.setdefault(row.begin_us // DAY_US, []).append(row)
        found: list[Rollup] = []
        for day in sorted({*days, *by_day}):
            new = by_day.get(day)
            stored = self._load(
                days.get(day, ""), None if new else level, since, until, max(0, left)
            )
            left -= len(stored["core"])
            if left < 0:
                raise _too_much(host)
            if new:
                stored = levels.merge(stored, levels.from_rollups(new))
            found += levels.to_rollups(levels.take(stored, stored["level"] == level))
        return tuple(r for r in found if window.begin_us <= r.begin_us < window.end_us)

    def _load(
        self, name: str, level: int | None, begin_us: int, end_us: int, most: int
    ) -> levels.Columns:
        """Read a file, of one level or all, of a time; of more than `most` rows one more is read."""
        from overnight.fleet import levels
        from overnight.store import parquet

        if not name:
            return levels.empty()
        # The paths are ours, the columns are names of constants.
        where = f" WHERE begin_us >= {begin_us:d} AND begin_us < {end_us:d}"
        where += "" if level is None else f" AND level = {level:d}"
        source = parquet.table(self._blobs.folder / name)
        query = f"SELECT {', '.join(levels.TYPES)} FROM {source}{where} LIMIT {most + 1:d}"  # noqa: S608
        return parquet.query(query)

    def compact(self, host_id: str, host: str, day: int, least_level: int = 0) -> bool:
        """Move a host's rollups of a day into its file; False if another server is doing so.

        `day` counts from 1970. Levels below `least_level` are removed.
        """
        from overnight.fleet import levels

        me, now = secrets.token_hex(8), self._control.clock()
        span = (day * DAY_US, (day + 1) * DAY_US)
        with self._database.write("lock day") as connection:
            held = rollup_rows.lock_day(connection, host_id, day, me, now, now + LOCK_US)
        if held is None:
            return False
        with self._database.read() as connection:
            rows = rollup_rows.read(connection, host_id, *span, MAX_ROWS)
        least = max(least_level, held.least_level)
        merged = levels.merge(
            self._load(held.file, None, *span, MAX_FILE_ROWS), levels.from_rollups(rows)
        )
        merged = levels.take(merged, merged["level"] >= least)
        path = self._blobs.rollup_path(host, day, me)
        name = self._write(path, merged) if len(merged["core"]) else ""
        self._database.steps("compact: file written")
        with self._database.write("compact") as connection:
            values = {"file": name, "least_level": least}
            done = rollup_rows.finish_day(connection, host_id, day, me, **values)
            if done:
                rollup_rows.delete(connection, host_id, [row.begin_us for row in rows])
        # The one that is not named any more.
        for gone in {held.file, name} - ({name} if done else {held.file}) - {""}:
            (self._blobs.folder / gone).unlink(missing_ok=True)
        return done

    def _write(self, path: pathlib.Path, columns: levels.Columns) -> str:
        from overnight.store import parquet_writer

        fresh = path.with_suffix(".new")
        files.make_folder(path.parent)
        parquet_writer.write(fresh, {**columns})
        files.publish(fresh, path)
        return self._blobs.relative(path)

    def maintain(self) -> int:
        """Compact what is due, and remove levels and days that are too old; return how many files changed."""
        today, limits = self._control.clock() // DAY_US, self._control.limits
        with self._database.read() as connection:
            due = rollup_rows.list_due(connection, today, limits.rollup_rows, MAX_FILES)
            names = host_rows.read_names(connection)
            work = [(*found, 0) for found in due]
            for level, days in enumerate(limits.rollup_days[:-1], 1):
                old = rollup_rows.list_fine(connection, today - days, level, MAX_FILES)
                work += [(*found, level) for found in old]
        done = sum(
            self.compact(host_id, names[host_id], day, level)
            for host_id, day, level in work[:MAX_FILES]
            if host_id in names
        )
        with self._database.write("forget rollups") as connection:
            gone = rollup_rows.delete_days(connection, today - limits.rollup_days[-1])
        for name in gone:
            (self._blobs.folder / name).unlink(missing_ok=True)
        return done


def _too_much(host: str) -> errors.UsageError:
    return errors.UsageError(
        f"the window has too many intervals of {host}",
        why=f"an answer has at most {MAX_ROWS:,} of all cores",
        todo="choose a shorter window",
    )
