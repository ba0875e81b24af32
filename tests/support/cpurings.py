"""Rings with the CPU time of cores, tick by tick."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping

import rings

from overnight.model import cpu
from overnight.store.ring import reader, writer

QUIET = (10, 0, 5, 85, 0, 0, 0, 0, 0, 0)
PINNED = (1, 0, 98, 0, 0, 0, 1, 0, 0, 0)
OFFSET = 0.37  # readings are not at whole seconds


def record(
    home: pathlib.Path,
    cores: int,
    seconds: Iterable[int],
    busy: Mapping[tuple[int, int], tuple[int, ...]] = {},
    absent: Iterable[tuple[int, int]] = (),
    modes: tuple[str, ...] = cpu.MODES,
    boot: str = rings.BOOT,
    host: str = rings.HOST,
) -> reader.Reader:
    """Record the seconds; `busy` has the ticks of (second, core) until that reading, else QUIET.

    `absent`: a (second, core) without a reading.
    """
    seconds, absent = list(seconds), set(absent)
    ring = writer.Writer(home, host, boot, budget_bytes=1 << 30, age_seconds=30 * 86400)
    ticks = {core: [10**6] * len(cpu.MODES) for core in range(cores)}
    places = [cpu.MODES.index(mode) for mode in modes]
    for second in range(seconds[0], seconds[-1] + 1):
        for core, row in ticks.items():
            step = busy.get((second, core), QUIET)
            ticks[core] = [a + b for a, b in zip(row, step, strict=True)]
        if second in seconds:
            rows = {
                str(core): tuple(row[n] for n in places)
                for core, row in ticks.items()
                if (second, core) not in absent
            }
            ring.numbers("cpu", modes, rings.at(second + OFFSET), rows)
            ring.tick(rings.at(second + OFFSET))
    ring.close()
    return reader.Reader(home)


def us(second: float) -> int:
    """Return when the reading of a second was made."""
    return rings.us(second + OFFSET)
