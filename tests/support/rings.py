"""Rings for tests: a manual clock, a writer, and everything read back."""

from __future__ import annotations

import pathlib

from overnight.model import clock
from overnight.store.ring import reader, writer

BEGIN_US = 1_794_725_459_000_000
HOST = "db-7"
BOOT = "1a2b3c4d-0000-4000-8000-000000000000"
COLUMNS = ("user", "system", "idle")
EVER = 1 << 62

Numbers = dict[tuple[int, str, str], int]


def at(second: float, *, step: float = 0.0) -> clock.Clock:
    """Return the clock at a second; `step` is the shift of the wall clock in seconds."""
    mono = round((100 + second) * 1e9)
    return clock.Clock(BEGIN_US * 1000 + round((second + step) * 1e9), mono)


def us(second: float) -> int:
    return BEGIN_US + round(second * 1e6)


def open_writer(home: pathlib.Path, boot: str = BOOT, **options: float) -> writer.Writer:
    defaults: dict[str, float] = {"budget_bytes": 1 << 30, "age_seconds": 30 * 86400}
    return writer.Writer(home, HOST, boot, **{**defaults, **options})  # type: ignore[arg-type]


def rows_of(second: int, cores: int = 2) -> dict[str, tuple[int, ...]]:
    return {str(core): (3 * second + core, second // 2, 97 * second) for core in range(cores)}


def record(ring: writer.Writer, seconds: range, cores: int = 2) -> None:
    for second in seconds:
        ring.numbers("cpu", COLUMNS, at(second), rows_of(second, cores))
        ring.tick(at(second))


def expected_numbers(seconds: range, cores: int = 2) -> Numbers:
    return {
        (us(second), key, name): number
        for second in seconds
        for key, row in rows_of(second, cores).items()
        for name, number in zip(COLUMNS, row, strict=True)
    }


def everything(
    source: reader.Reader,
    signal: str = "cpu",
    begin_us: int = 0,
    end_us: int = EVER,
    keys: tuple[str, ...] | None = None,
    columns: tuple[str, ...] | None = None,
) -> Numbers:
    """Read each number by its time, key and column; no number may appear twice."""
    numbers: Numbers = {}
    for frame in source.numbers(HOST, signal, begin_us, end_us, keys, columns):
        assert frame.readings is not None or len(frame.wall_us) == len(frame.monotonic_ns)
        for key in frame.keys:
            for column in frame.columns:
                times, values = frame.series(key, column)
                for time_us, number in zip(times, values, strict=True):
                    assert (time_us, key, column) not in numbers
                    numbers[time_us, key, column] = number
    return numbers


def ring_files(home: pathlib.Path) -> list[pathlib.Path]:
    return sorted((home / "signals" / HOST).glob("*.ring"))


def open_files(home: pathlib.Path) -> list[pathlib.Path]:
    return sorted((home / "signals" / HOST).glob("*.open"))
