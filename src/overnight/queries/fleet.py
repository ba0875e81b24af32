"""Many hosts side by side: what each is, how long it was watched, what happened and what it is made of.

A fleet is read from a data home that holds several hosts, or given directly. How long a host was watched
counts as much as what happened on it: a rate has both.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from overnight.model.snapshot import Snapshot
from overnight.model.times import SECOND_US
from overnight.store.ring import layout
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    from overnight.model.event import Event

__all__ = ["LABELS", "Fleet", "Host", "Spell", "fold_spells", "read_fleet"]

# What tells hosts apart that were bought and built alike; each more costs power in the comparison.
LABELS = ("zone", "image", "kernel", "instance_type", "driver")
MOST_SNAPSHOT_BYTES = 64 << 20
# An event may be told with the look after the last one that was kept, or the one before the first.
NEAR_US = 120 * SECOND_US
EVER = 1 << 62


@dataclasses.dataclass(frozen=True)
class Spell:
    """Time in which a host was watched without a break in one boot.

    `uptime` is seconds since the boot when it begins: an agent that starts late has seen nothing of the
    time before, and that time is no exposure.
    """

    begin_us: int
    end_us: int
    uptime: float
    boot: str = ""

    @property
    def seconds(self) -> float:
        """How long it was watched."""
        return (self.end_us - self.begin_us) / SECOND_US


@dataclasses.dataclass(frozen=True)
class Host:
    """One host. `snapshot` is the one that speaks of the time in question, where one was taken."""

    name: str
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    spells: tuple[Spell, ...] = ()
    events: tuple[Event, ...] = ()
    snapshot: Snapshot | None = None

    @property
    def seconds(self) -> float:
        """How long it was watched, all spells together."""
        return sum(spell.seconds for spell in self.spells)

    def of_kind(self, kind: str) -> tuple[Event, ...]:
        """Its events of a kind; one that ends with a dot stands for all below it."""
        return tuple(
            one
            for one in self.events
            if one.kind == kind or (kind.endswith(".") and one.kind.startswith(kind))
        )

    def place(self, one: Event) -> tuple[int, float] | None:
        """In which spell an event fell, and how many seconds into it; None: not in watched time."""
        boot = layout.boot_name(one.boot) if one.boot else ""
        best: tuple[int, int] | None = None
        for number, spell in enumerate(self.spells):
            if boot and spell.boot and layout.boot_name(spell.boot) != boot:
                continue
            away = max(spell.begin_us - one.time_us, one.time_us - spell.end_us, 0)
            if away <= NEAR_US and (best is None or away < best[0]):
                best = (away, number)
        if best is None:
            return None
        spell = self.spells[best[1]]
        into = min(max(one.time_us, spell.begin_us), spell.end_us) - spell.begin_us
        return best[1], into / SECOND_US


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Hosts by name. `problems` says what could not be read."""

    hosts: tuple[Host, ...]
    problems: tuple[str, ...] = ()

    @property
    def watched(self) -> tuple[Host, ...]:
        """Those that were watched for any time at all."""
        return tuple(host for host in self.hosts if host.seconds > 0)

    @property
    def window_us(self) -> tuple[int, int]:
        """From the first look of any host to the last."""
        spells = [spell for host in self.hosts for spell in host.spells]
        if not spells:
            return 0, 0
        return min(one.begin_us for one in spells), max(one.end_us for one in spells)


def read_fleet(
    home: pathlib.Path, kinds: Collection[str] | None = None, *, snapshots: bool = True
) -> Fleet:
    """Every host under HOME, with its events of those kinds.

    The snapshot of a host with such events is the one taken nearest to the last of them, for it may have
    been mended since; that of any other host is its latest.
    """
    source = rings.Reader(home)
    told: dict[str, list[Event]] = {}
    for one in source.events(0, EVER, None, kinds):
        told.setdefault(one.host, []).append(one)
    problems: list[str] = []
    files = _snapshot_files(home) if snapshots else {}
    folders = {_folder(name): name for name in source.hosts()}
    files = {folders.get(folder, folder): found for folder, found in files.items()}
    hosts = []
    for name in sorted({*source.hosts(), *files}):
        seen = tuple(told.get(name, ()))
        at_us = seen[-1].time_us if seen else EVER
        hosts.append(
            Host(
                name,
                _labels(source, name),
                fold_spells(source.stretches(name), source.gaps(name)),
                seen,
                _snapshot_near(files.get(name, ()), at_us, problems),
            )
        )
    return Fleet(tuple(hosts), (*source.problems, *problems))


def fold_spells(
    stretches: Sequence[rings.Stretch], gaps: Sequence[rings.Gap] = ()
) -> tuple[Spell, ...]:
    """Watched time of a host: from the first look of a boot to its last, less the gaps that were told.

    Not what is kept of it: old looks are trimmed except around events, and to count only those that
    stayed would make every old hour one in which something happened.

    >>> fold_spells([rings.Stretch("a", 0, 10, 5_000_000), rings.Stretch("a", 40, 60, 0)], [rings.Gap(20, 30, "")])
    (Spell(begin_us=0, end_us=20, uptime=5.0, boot='a'), Spell(begin_us=30, end_us=60, uptime=5.00003, boot='a'))
    """
    boots: dict[str, list[rings.Stretch]] = {}
    for one in stretches:
        boots.setdefault(one.boot, []).append(one)
    spells = []
    for boot, parts in boots.items():
        first = min(parts, key=lambda part: part.begin_us)
        end_us = max(part.end_us for part in parts)
        at_us = first.begin_us
        for gap in sorted(gaps, key=lambda gap: gap.begin_us):
            if gap.end_us <= at_us or gap.begin_us >= end_us:
                continue
            if gap.begin_us > at_us:
                spells.append((at_us, gap.begin_us, first, boot))
            at_us = gap.end_us
        if end_us > at_us:
            spells.append((at_us, end_us, first, boot))
    return tuple(
        Spell(begin, end, (first.uptime_us + begin - first.begin_us) / SECOND_US, boot)
        for begin, end, first, boot in sorted(spells, key=lambda one: one[:2])
    )


def _labels(source: rings.Reader, host: str) -> dict[str, str]:
    """The labels of a host as they were last; those of its interfaces' drivers as one."""
    extent = source.extent(host)
    if extent is None:
        return {}
    facts = source.facts(host, "host", extent[1])
    state = facts.state or {}
    found = {
        name: str(value)
        for name, value in state.get("", {}).items()
        if name in LABELS and value not in ("", None)
    }
    drivers = sorted({str(said.get("driver") or "") for key, said in state.items() if key} - {""})
    if drivers:
        found["driver"] = " ".join(drivers)
    return found


def _snapshot_files(home: pathlib.Path) -> dict[str, list[tuple[int, pathlib.Path]]]:
    found: dict[str, list[tuple[int, pathlib.Path]]] = {}
    for path in sorted((home / "snapshots").glob("*/*.json")):
        try:
            taken = datetime.datetime.strptime(path.stem + "+0000", "%Y%m%dT%H%M%SZ%z")
            time_us = int(taken.timestamp()) * SECOND_US
        except ValueError:
            time_us = 0  # a name of its own: it is used where there is no other
        found.setdefault(path.parent.name, []).append((time_us, path))
    return found


def _folder(host: str) -> str:
    """The name under which `overnight snapshot` keeps a host's."""
    return (re.sub(r"[^A-Za-z0-9._-]", "_", host).lstrip(".") or "host")[:128]


def _snapshot_near(
    files: Sequence[tuple[int, pathlib.Path]], at_us: int, problems: list[str]
) -> Snapshot | None:
    for _, path in sorted(files, key=lambda one: abs(one[0] - at_us)):
        try:
            if path.stat().st_size > MOST_SNAPSHOT_BYTES:
                raise ValueError("it is larger than any snapshot")
            document = json.loads(path.read_bytes())
            if not isinstance(document, dict):
                raise ValueError("it is no JSON object")
            return Snapshot.from_json(document)
        except (OSError, ValueError, RecursionError) as error:
            problems.append(f"{path}: {error}")
    return None
