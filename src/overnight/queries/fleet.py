"""Read a fleet from a data home with several hosts."""

from __future__ import annotations

import datetime
import json
import pathlib
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from overnight.model.fleet import Fleet, Host, Spell
from overnight.model.snapshot import Snapshot
from overnight.model.times import SECOND_US
from overnight.store import added_events
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    from overnight.model.event import Event

# Labels that distinguish similar hosts; each additional one costs statistical power. Operators add their own with
# an event of kind host.labels.
LABELS = ("zone", "image", "kernel", "instance_type", "driver")
MAX_SNAPSHOT_BYTES = 64 << 20
EVER = 1 << 62


def read_fleet(
    home: pathlib.Path, kinds: Collection[str] | None = None, *, snapshots: bool = True
) -> Fleet:
    """Read every host under HOME, with its events of those kinds.

    The snapshot of a host with such events is the one nearest to the last of them, because the host may
    have been repaired since; that of any other host is its latest.
    """
    source = rings.Reader(home)
    events: dict[str, list[Event]] = {}
    own_labels: dict[str, dict[str, str]] = {}
    wanted = None if kinds is None else {*kinds, added_events.HOST_LABELS}
    for event in source.events(0, EVER, None, wanted):
        if event.kind == added_events.HOST_LABELS:
            texts = {name: str(value) for name, value in event.fields.items()}
            own_labels.setdefault(event.host, {}).update(texts)
        else:
            events.setdefault(event.host, []).append(event)
    problems: list[str] = []
    folders = {_folder(name): name for name in source.hosts()}
    dated_files = _snapshot_files(home).items() if snapshots else ()
    files = {folders.get(name, name): dated for name, dated in dated_files}
    hosts = []
    for name in sorted({*source.hosts(), *files}):
        seen = tuple(events.get(name, ()))
        at_us = seen[-1].time_us if seen else EVER
        hosts.append(
            Host(
                name,
                read_labels(source, name) | own_labels.get(name, {}),
                fold_spells(source.stretches(name), source.gaps(name)),
                seen,
                _snapshot_near(files.get(name, ()), at_us, problems),
            )
        )
    return Fleet(tuple(hosts), (*source.problems, *problems))


def fold_spells(
    stretches: Sequence[rings.Stretch], gaps: Sequence[rings.Gap] = ()
) -> tuple[Spell, ...]:
    """Return the observed time of a host: from the first reading of a boot to its last, without gaps.

    Not only what is still stored: old readings are removed except around events, and counting only
    those that stayed would make every old hour one with an event.

    >>> fold_spells([rings.Stretch("a", 0, 10, 5_000_000), rings.Stretch("a", 40, 60, 0)], [rings.Gap(20, 30, "")])
    (Spell(begin_us=0, end_us=20, uptime=5.0, boot='a'), Spell(begin_us=30, end_us=60, uptime=5.00003, boot='a'))
    """
    boots: dict[str, list[rings.Stretch]] = {}
    for stretch in stretches:
        boots.setdefault(stretch.boot, []).append(stretch)
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
        for begin, end, first, boot in sorted(spells, key=lambda spell: spell[:2])
    )


def read_labels(source: rings.Reader, host: str) -> dict[str, str]:
    """Return the latest labels of a host, the drivers of its interfaces as one label."""
    extent = source.extent(host)
    if extent is None:
        return {}
    facts = source.facts(host, "host", extent[1])
    state = facts.state or {}
    labels = {
        name: str(value)
        for name, value in state.get("", {}).items()
        if name in LABELS and value not in ("", None)
    }
    drivers = sorted({str(facts.get("driver") or "") for key, facts in state.items() if key} - {""})
    return labels | {"driver": " ".join(drivers)} if drivers else labels


def _snapshot_files(home: pathlib.Path) -> dict[str, list[tuple[int, pathlib.Path]]]:
    by_folder: dict[str, list[tuple[int, pathlib.Path]]] = {}
    for path in sorted((home / "snapshots").glob("*/*.json")):
        try:
            taken = datetime.datetime.strptime(path.stem + "+0000", "%Y%m%dT%H%M%SZ%z")
            time_us = int(taken.timestamp()) * SECOND_US
        except ValueError:
            time_us = 0  # another name: used if there is no other snapshot
        by_folder.setdefault(path.parent.name, []).append((time_us, path))
    return by_folder


def _folder(host: str) -> str:
    """Return the folder in which `overnight snapshot` stores a host's snapshots."""
    return (re.sub(r"[^A-Za-z0-9._-]", "_", host).lstrip(".") or "host")[:128]


def _snapshot_near(
    files: Sequence[tuple[int, pathlib.Path]], at_us: int, problems: list[str]
) -> Snapshot | None:
    for _, path in sorted(files, key=lambda timed: abs(timed[0] - at_us)):
        try:
            if path.stat().st_size > MAX_SNAPSHOT_BYTES:
                raise ValueError("the file is too large for a snapshot")
            document = json.loads(path.read_bytes())
            if not isinstance(document, dict):
                raise ValueError("not a JSON object")
            return Snapshot.from_json(document)
        except (OSError, ValueError, RecursionError) as error:
            problems.append(f"{path}: {error}")
    return None
