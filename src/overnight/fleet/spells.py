"""Observed time of a host: spells grow, and never overlap or shrink. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from overnight.model.times import SECOND_US
from overnight.model.uplink import Observed

JOIN_US = 5 * SECOND_US  # a recorder reads every second; less between two readings is not a gap


def merge(known: Iterable[Observed], new: Iterable[Observed]) -> tuple[set[int], list[Observed]]:
    """Return the begins of spells to delete, and the spells to write.

    A boot's spells that touch become one, with the uptime of the first; time that is already that of another
    boot stays so.

    >>> a = Observed("a", 0, 10_000_000, 5)
    >>> merge([a], [Observed("a", 12_000_000, 20_000_000, 12_000_005)])
    (set(), [Observed(boot='a', begin_us=0, end_us=20000000, uptime_us=5)])
    >>> merge([a], [a])
    (set(), [])
    """
    before = {spell.begin_us: spell for spell in known}
    spells = dict(before)
    for given in new:
        for spell in _outside(given, [s for s in spells.values() if s.boot != given.boot]):
            near = [s for s in spells.values() if s.boot == spell.boot and _touch(s, spell)]
            # Others of the boot may be between them: the joined spell must not span these.
            parts = _outside(
                _join([*near, spell]), [s for s in spells.values() if s.boot != spell.boot]
            )
            for old in near:
                del spells[old.begin_us]
            # One that begins as before keeps its uptime: an agent may contradict itself.
            uptimes = {old.begin_us: old.uptime_us for old in near}
            for part in parts:
                uptime = uptimes.get(part.begin_us, part.uptime_us)
                spells[part.begin_us] = dataclasses.replace(part, uptime_us=uptime)
    return {*before} - {*spells}, [s for s in spells.values() if before.get(s.begin_us) != s]


def _touch(a: Observed, b: Observed) -> bool:
    return a.begin_us <= b.end_us + JOIN_US and b.begin_us <= a.end_us + JOIN_US


def _join(spells: list[Observed]) -> Observed:
    first = min(spells, key=lambda spell: spell.begin_us)
    return dataclasses.replace(first, end_us=max(spell.end_us for spell in spells))


def _outside(spell: Observed, others: list[Observed]) -> Iterator[Observed]:
    """Yield the parts of a spell that no other covers."""
    at = spell.begin_us
    for other in sorted(others, key=lambda other: other.begin_us):
        if other.end_us <= at or other.begin_us >= spell.end_us:
            continue
        if other.begin_us > at:
            yield _part(spell, at, other.begin_us)
        at = other.end_us
    if at < spell.end_us:
        yield _part(spell, at, spell.end_us)


def _part(spell: Observed, begin: int, end: int) -> Observed:
    uptime = spell.uptime_us + begin - spell.begin_us
    return Observed(spell.boot, begin, end, uptime)
