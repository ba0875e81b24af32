"""A recorded profile: the busy share of each core and second, read from a document of `overnight cpu -O json`."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from overnight import errors
from overnight.model import cpu
from overnight.model.text import plural

SCHEMA = "overnight.cpu/1"
MAX_BYTES = 512 << 20  # an hour of 512 cores
MAX_SECONDS = 7 * 86_400


@dataclasses.dataclass(frozen=True)
class Profile:
    """`shares` has the busy share, from 0 to 1, of every second by core."""

    host: str
    shares: Mapping[int, tuple[float, ...]]
    filled: int = 0  # seconds that were not recorded, and repeat the one before

    @property
    def seconds(self) -> int:
        return len(next(iter(self.shares.values())))

    def describe(self) -> str:
        filled = f", {self.filled} s of them not recorded" if self.filled else ""
        return f"{self.host}: {self.seconds} s of {plural(len(self.shares), 'core')}{filled}"


class Track:
    """One core's shares over time; after its end it begins again."""

    def __init__(self, shares: Sequence[float], start: float) -> None:
        self._shares, self._start = shares, start
        self._sums = [0.0, *itertools.accumulate(shares)]

    def share(self, now: float) -> float:
        return self._shares[int(max(now - self._start, 0.0)) % len(self._shares)]

    def wanted(self, now: float) -> float:
        """Return the CPU seconds due from the start to now."""
        rounds, rest = divmod(max(now - self._start, 0.0), len(self._shares))
        whole = min(int(rest), len(self._shares) - 1)
        return rounds * self._sums[-1] + self._sums[whole] + (rest - whole) * self._shares[whole]


def read_profile(path: pathlib.Path) -> Profile:
    """Raise CannotError where the file cannot be read, UsageError where it is not a profile."""
    try:
        size = path.stat().st_size
        document = json.loads(path.read_bytes()) if size <= MAX_BYTES else None
    except (OSError, ValueError) as error:
        raise errors.CannotError(
            f"cannot read the profile {path}: {error}",
            why="it is a document of the recorded load",
            todo="overnight cpu -b TIME -e +10m -O json > profile.json",
        ) from None
    try:
        return parse_profile(document)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise errors.UsageError(
            f"{path} is not a profile: {error}",
            why=f"a profile is a document of schema {SCHEMA}, of at most {MAX_BYTES >> 20} MiB",
            todo="overnight cpu -b TIME -e +10m -O json > profile.json",
        ) from None


def parse_profile(document: Any) -> Profile:
    """Average the readings over seconds. Steal is not busy time: the recorded host did not have it."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"its schema is not {SCHEMA}")
    intervals = sorted(document["intervals"], key=lambda each: int(each["begin_us"]))
    if not intervals:
        raise ValueError("it has no readings")
    begin = int(intervals[0]["begin_us"])
    count = round((int(intervals[-1]["end_us"]) - begin) / 1e6)
    if not 1 <= count <= MAX_SECONDS:
        raise ValueError(f"it is {count} s long, not 1 s to {MAX_SECONDS // 86_400} days")
    busy: dict[int, list[float]] = {}
    known: dict[int, list[float]] = {}  # recorded part of each second
    for each in intervals:
        span = (int(each["begin_us"]) - begin) / 1e6, (int(each["end_us"]) - begin) / 1e6
        for row in each["cores"]:
            core, share = int(row["core"]), _share(row)
            sums = busy.setdefault(core, [0.0] * count), known.setdefault(core, [0.0] * count)
            for second in range(max(int(span[0]), 0), min(int(span[1]) + 1, count)):
                part = min(span[1], second + 1) - max(span[0], second)
                if part > 0:
                    sums[0][second] += part * share
                    sums[1][second] += part
    if not busy:
        raise ValueError("it has no cores")
    shares = {core: _fill(busy[core], known[core]) for core in sorted(busy)}
    filled = sum(not any(row[second] for row in known.values()) for second in range(count))
    return Profile(str(document["host"]), shares, filled)


def map_cores(recorded: Sequence[int], targets: Sequence[int]) -> tuple[dict[int, int], str]:
    """Return the recorded core that each core replays, and a note where it is not the one of the same number."""
    if set(targets) <= set(recorded):
        pairs, note = {core: core for core in targets}, ""
    else:
        pairs = {core: recorded[n % len(recorded)] for n, core in enumerate(targets)}
        listed = ", ".join(
            f"{core} as {source}" for core, source in itertools.islice(pairs.items(), 8)
        )
        more = ", …" if len(pairs) > 8 else ""
        note = f"cores replay recorded cores in order: {listed}{more}"
    if left := sorted(set(recorded) - set(pairs.values())):
        note = f"{note}; " if note else ""
        note += f"not replayed: recorded core {cpu.format_cores(left)}"
    return pairs, note


def _share(row: Mapping[str, Any]) -> float:
    share = (float(row["used"]) - float(row["values"].get("steal", 0.0))) / 100
    return min(max(share, 0.0), 1.0)


def _fill(busy: Sequence[float], known: Sequence[float]) -> tuple[float, ...]:
    """Return shares by second; one without a reading repeats the one before, the first ones the first known."""
    shares = [amount / part if part > 0 else None for amount, part in zip(busy, known, strict=True)]
    last = next((share for share in shares if share is not None), 0.0)
    filled = []
    for share in shares:
        last = last if share is None else share
        filled.append(last)
    return tuple(filled)
