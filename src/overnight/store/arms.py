"""In which arm of an experiment a host was, and when: HOME/arms.jsonl, only ever appended to.

An arm is `hot` (as it aged, by itself or by `overnight age`), `cold` (just booted) or `purged` (aged, and
then purged); null where what was put on was taken off again. One JSON object a line::

    {"schema": "overnight.arm/1", "time_us": 1794700000000000, "host": "db-7", "boot": "0123…",
     "kernel": "6.18.5", "uptime_s": 604800.0, "arm": "hot", "did": "memory-cgroups", "run": "overnight-1a2b3c4d",
     "note": "", "counts": {"tracked": 68680, "in_use": 240, "dying": 68440}}

`counts` is what the host had of each kind of state right after it. A line that was cut off is passed over.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping

__all__ = ["ARMS", "SCHEMA", "Arm", "append", "last_of", "path_of", "read"]

SCHEMA = "overnight.arm/1"
ARMS = ("hot", "cold", "purged")


@dataclasses.dataclass(frozen=True)
class Arm:
    """One line."""

    time_us: int
    host: str
    boot: str
    kernel: str
    uptime_s: float
    arm: str | None
    did: str  # memory-cgroups, dentries, uptime, purge or undo
    run: str = ""
    note: str = ""
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """As it is written."""
        return {"schema": SCHEMA, **dataclasses.asdict(self)}


def path_of(home: pathlib.Path) -> pathlib.Path:
    """Where they are kept."""
    return home / "arms.jsonl"


def append(home: pathlib.Path, arm: Arm) -> None:
    """One line more, in one write, and on disk before this returns."""
    home.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    handle = os.open(path_of(home), flags, 0o644)
    try:
        # After a line that was cut off begins a new one.
        size = os.fstat(handle).st_size
        cut = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, b"\n" * cut + json.dumps(arm.as_json()).encode() + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)


def read(home: pathlib.Path) -> tuple[Arm, ...]:
    """All of them, as they were noted; what is no arm is passed over."""
    try:
        text = path_of(home).read_text(errors="replace")
    except OSError:
        return ()
    names = {field.name for field in dataclasses.fields(Arm)}
    found = []
    for line in text.splitlines():
        try:
            read = json.loads(line)
            if read.pop("schema") == SCHEMA:
                found.append(Arm(**{name: read[name] for name in names if name in read}))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return tuple(found)


def last_of(arms: tuple[Arm, ...], boot: str, at_us: int | None = None) -> Arm | None:
    """The latest of a boot, at an instant or at all: the arm that a recording then was in."""
    mine = [one for one in arms if one.boot == boot and (at_us is None or one.time_us <= at_us)]
    return max(mine, key=lambda one: one.time_us, default=None)
