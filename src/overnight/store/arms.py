"""The experiment arms of a host over time: HOME/arms.jsonl, append-only.

An arm is `hot` (aged, naturally or with `overnight age`), `cold` (just booted), `purged` (aged, then purged) or `fixed` (as hot,
with only the fix applied); null after an undo. One JSON object per line::

    {"schema": "overnight.arm/1", "time_us": 1794700000000000, "host": "db-7", "boot": "0123…",
     "kernel": "6.18.5", "uptime_s": 604800.0, "arm": "hot", "did": "memory-cgroups", "run": "overnight-1a2b3c4d",
     "note": "", "counts": {"tracked": 68680, "in_use": 240, "dying": 68440}}

`counts` are the host's counts of each kind of state right afterwards. A truncated line is skipped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Mapping

from overnight.model import files
from overnight.store.ring import journal

SCHEMA = "overnight.arm/1"


@dataclasses.dataclass(frozen=True)
class Arm:
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
        return {"schema": SCHEMA, **dataclasses.asdict(self)}


def path_of(home: pathlib.Path) -> pathlib.Path:
    return home / "arms.jsonl"


def append(home: pathlib.Path, arm: Arm) -> None:
    files.make_folder(home)
    line = json.dumps(arm.as_json()).encode() + b"\n"
    files.append_lines(path_of(home), [line])


def read(home: pathlib.Path) -> tuple[Arm, ...]:
    """Return all arms in order; invalid lines are skipped."""
    names = {field.name for field in dataclasses.fields(Arm)}
    arms = []
    for _, entry in journal.read_lines(path_of(home)):
        if entry and entry.get("schema") == SCHEMA:
            with contextlib.suppress(TypeError):  # fields are missing
                arms.append(Arm(**{name: entry[name] for name in names if name in entry}))
    return tuple(arms)


def last_of(arms: tuple[Arm, ...], boot: str, at_us: int | None = None) -> Arm | None:
    """Return the latest arm of a boot, or the latest at an instant."""
    of_boot = [arm for arm in arms if arm.boot == boot and (at_us is None or arm.time_us <= at_us)]
    return max(of_boot, key=lambda arm: arm.time_us, default=None)
