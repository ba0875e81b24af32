"""Rollups of CPU readings: mean, maximum and worst second of each core in half a minute, and the observed time."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from overnight.model import cpu_modes

if TYPE_CHECKING:
    from overnight.agent.uplink import cpu_tail

WINDOW_SECONDS = 30
WINDOW_US = WINDOW_SECONDS * 1_000_000
# Between two readings. A longer pause, or a clock that was set, ends the observed time.
MAX_PAUSE_US, MAX_STEP_US = 30_000_000, 1_000_000
MIN_TICKS = 5  # fewer say nothing about a second

Document = dict[str, Any]


class Rollups:
    """Folds readings. A window ends at a whole half minute of the wall clock, or when the agent does."""

    def __init__(self) -> None:
        self._before: cpu_tail.Reading | None = None
        self._number = -1
        # By core: ticks busy and in all, highest percent busy and in the kernel, when it was busiest.
        self._cores: dict[int, list[int]] = {}
        self._spells: list[Document] = []

    def add(self, now: cpu_tail.Reading) -> Document | None:
        """Add a reading; return the window before it when that is complete."""
        number = now.wall_us // WINDOW_US
        done = self.finish() if number != self._number else None
        before, self._before, self._number = self._before, now, number
        if before is None or not _continues(before, now):
            return done
        spell = {"boot": now.boot, "begin_us": before.wall_us, "end_us": now.wall_us}
        extend(self._spells, {**spell, "uptime_us": before.mono_us})
        if before.cores == now.cores:
            self._count(before, now)
        return done

    def finish(self) -> Document | None:
        """Return the window so far, with the place of its last reading, and begin another."""
        cores, spells, self._cores, self._spells = self._cores, self._spells, {}, []
        if not spells or self._before is None:
            return None
        document: Document = {"place": self._before.place, "spells": spells}
        known = [(core, *values) for core, values in sorted(cores.items()) if values[1]]
        if known:
            begin_us, end_us = spells[0]["begin_us"], spells[-1]["end_us"]
            number, busy, total, top, kernel, worst = map(list, zip(*known, strict=True))
            document["rollup"] = {
                "begin_us": begin_us,
                "seconds": max(1, -(-(end_us - begin_us) // 1_000_000)),
                "cores": number,
                "mean": [round(100 * part / of) for part, of in zip(busy, total, strict=True)],
                "max": top,
                "kernel_max": kernel,
                "worst_ms": worst,
            }
        return document

    def _count(self, before: cpu_tail.Reading, now: cpu_tail.Reading) -> None:
        changes = {
            name: [max(0, new - old) for new, old in zip(now.ticks[name], before.ticks[name], strict=True)]
            for name in cpu_modes.TOTAL
        }  # fmt: skip
        busy, kernel, total = (
            [sum(ticks) for ticks in zip(*(changes[name] for name in names), strict=True)]
            for names in (cpu_modes.BUSY, cpu_modes.KERNEL, cpu_modes.TOTAL)
        )
        offset_ms = (now.wall_us - self._spells[0]["begin_us"]) // 1000
        for core, in_busy, in_kernel, ticks in zip(now.cores, busy, kernel, total, strict=True):
            values = self._cores.setdefault(core, [0, 0, 0, 0, 0])
            values[0] += in_busy
            values[1] += ticks
            if ticks > MIN_TICKS:
                percent = round(100 * in_busy / ticks)
                if percent > values[2]:
                    values[2], values[4] = percent, offset_ms
                values[3] = max(values[3], round(100 * in_kernel / ticks))


def parse_place(line: bytes) -> cpu_tail.Place:
    """Return where to continue behind a spooled window; at the first reading if there is none."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        name, offset = json.loads(line)["place"]
        return str(name), int(offset)
    return "", 0


def extend(spells: list[Document], spell: Document) -> None:
    """Add observed time; where it continues the last spell, that becomes longer."""
    last = spells[-1] if spells else {}
    if (last.get("boot"), last.get("end_us")) == (spell["boot"], spell["begin_us"]):
        last["end_us"] = spell["end_us"]
    else:
        spells.append(spell)


def _continues(before: cpu_tail.Reading, now: cpu_tail.Reading) -> bool:
    """Return whether the time between two readings was observed."""
    passed = now.mono_us - before.mono_us
    return (
        before.boot == now.boot
        and 0 < passed <= MAX_PAUSE_US
        and abs(now.wall_us - before.wall_us - passed) <= MAX_STEP_US
        and now.wall_us > before.wall_us
    )
