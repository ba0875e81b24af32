"""Drift: what sick hosts have and healthy ones do not, or the other way round, by their snapshots."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from overnight.detectors import fleet as package
from overnight.detectors.fleet import odds, permutation
from overnight.model.finding import Answer, Evidence, Finding, Need, Status, Subject, finding_id
from overnight.model.selection import Window

if TYPE_CHECKING:
    from overnight.model.snapshot import Snapshot, Value
    from overnight.queries import fleet as fleets

__all__ = ["DETECTOR", "KIND", "Comparison", "Difference", "Item", "compare", "look", "parse_items"]

Pairs = tuple[tuple[str, str], ...]

DETECTOR = "fleet.drift"
KIND = "fleet.drift"
LEAST = 2  # hosts on each side; that this is seldom enough, the smallest attainable p says
MOST_FINDINGS = 10
MOST_NAMED = 10
UNIT_KINDS = (".service", ".socket", ".timer", ".mount", ".target", ".path", ".slice", ".automount", ".swap")  # fmt: skip
# Which name stands for several that are the same on every host: what an operator can act on first.
ORDER = ("units", "packages", "modules", "sysctl", "cmdline")


class Item(NamedTuple):
    """Something a snapshot can say. `value` None: that the thing is there at all."""

    part: str
    key: str
    property: str = ""
    value: str | None = None

    def __str__(self) -> str:
        name = " ".join(filter(None, (self.key, self.property)))
        return f"{self.part}: {name}" + ("" if self.value is None else f" = {self.value}")


@dataclasses.dataclass(frozen=True)
class Difference:
    """One column with its items by name, the most telling first; those not `present` are absent where it is sick."""

    items: tuple[tuple[Item, bool], ...]
    column: odds.Column
    stands: bool  # it passes the gate: p_max

    @property
    def name(self) -> str:
        """The item that stands for all."""
        item, present = self.items[0]
        return str(item) if present else f"no {item}"

    @property
    def text(self) -> str:
        """On how many of which hosts."""
        one = self.column
        more = len(self.items) - 1
        return (
            f"{self.name}: on {one.sick_with} of {one.sick} sick hosts and {one.healthy_with} of "
            f"{one.healthy} healthy ones" + (f"; {more} more items go with it" if more else "")
        )


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Everything that differs, ranked; `why_not` says why nothing could be concluded, where so."""

    sick: tuple[str, ...]
    healthy: tuple[str, ...]
    without: tuple[str, ...]  # hosts that have no snapshot
    differences: tuple[Difference, ...]
    columns: int
    draws: int
    smallest_p: float
    why_not: str = ""

    @property
    def standing(self) -> tuple[Difference, ...]:
        """Those that chance does not explain."""
        return tuple(one for one in self.differences if one.stands)


def look(fleet: fleets.Fleet, kind: str) -> Answer:
    """Answer for one kind of event: hosts that had it are sick."""
    sick = [host.name for host in fleet.hosts if host.of_kind(kind)]
    made = compare(fleet, sick)
    if made.why_not:
        return Answer(
            DETECTOR,
            Status.NO_DATA,
            why=made.why_not,
            missing=(Need.SNAPSHOTS,) if made.without else (),
        )
    if not made.standing:
        best = made.differences[0] if made.differences else None
        said = (
            f"the most striking, {best.text}, has p = {permutation.fraction(best.column.p_max)} among "
            f"{made.columns} that differ (the smallest attainable here: {permutation.fraction(made.smallest_p)})"
            if best
            else "all snapshots say the same"
        )
        return Answer(
            DETECTOR,
            Status.CLEAR,
            why=f"nothing tells {len(made.sick)} sick hosts from {len(made.healthy)} healthy ones: {said}",
        )
    begin_us, end_us = fleet.window_us
    window = Window(begin_us, end_us)
    found = tuple(_finding(one, made, kind, window) for one in made.standing[:MOST_FINDINGS])
    return Answer(DETECTOR, Status.FOUND, found, found[0].summary)


def compare(fleet: fleets.Fleet, sick: Collection[str]) -> Comparison:
    """Sick hosts against all others, by their snapshots."""
    ill = set(sick)
    hosts = [host for host in fleet.hosts if host.snapshot is not None]
    without = tuple(host.name for host in fleet.hosts if host.snapshot is None)
    sides = (
        tuple(host.name for host in hosts if host.name in ill),
        tuple(host.name for host in hosts if host.name not in ill),
    )
    lone = _too_few(*sides, without)
    if lone:
        return Comparison(*sides, without, (), 0, 0, 1.0, lone)
    least = odds.smallest_p(len(sides[0]), len(sides[1]), permutation.DRAWS)
    if least > package.ALPHA:
        why = (
            f"cannot conclude: {len(sides[0])} sick hosts against {len(sides[1])} healthy ones; even what "
            f"tells them apart without exception has no smaller p than {permutation.fraction(least)}"
        )
    else:
        why = ""
    items, present, known = _table([host.snapshot for host in hosts if host.snapshot])
    columns, draws = odds.rank(
        present,
        known,
        np.array([host.name in ill for host in hosts], np.bool_),
        permutation.generator(),
    )
    differences = tuple(
        Difference(
            tuple(sorted(((items[n], there) for n, there in one.items), key=_telling)),
            one,
            not why and one.p_max <= package.ALPHA,
        )
        for one in columns
    )
    return Comparison(
        *sides, without, differences, len(columns), draws,
        odds.smallest_p(len(sides[0]), len(sides[1]), draws) if draws else least, why,
    )  # fmt: skip


def _too_few(sick: tuple[str, ...], healthy: tuple[str, ...], without: tuple[str, ...]) -> str:
    if len(sick) >= LEAST and len(healthy) >= LEAST:
        return ""
    return (
        f"cannot conclude: snapshots of {len(sick)} sick and {len(healthy)} healthy hosts, and {LEAST} of "
        "each are the least"
        + (f"; {len(without)} hosts have none (overnight snapshot takes one)" if without else "")
    )


def parse_items(part: str, key: str, value: Value) -> tuple[Item, ...]:
    """What one thing of a snapshot says: that it is there, and each value of it.

    >>> [str(item) for item in parse_items("sysctl", "vm.swappiness", "10")]
    ['sysctl: vm.swappiness', 'sysctl: vm.swappiness = 10']
    """
    each = (("", value),) if isinstance(value, str) else value.items()
    return (Item(part, key), *(Item(part, key, name, text) for name, text in each))


def _variants(taken: list[Snapshot]) -> Iterator[tuple[tuple[Item, ...], list[int]]]:
    """Each thing as some hosts have it, but not all, and which hosts those are."""
    for part in sorted({name for one in taken for name in one.parts}):
        rows: dict[tuple[str, str | Pairs], list[int]] = {}
        value: Value
        for row, one in enumerate(taken):
            for key, value in one.parts.get(part, {}).items():
                # As it is written, which is sorted; a value is no key of a dict.
                said = value if isinstance(value, str) else tuple(value.items())
                rows.setdefault((key, said), []).append(row)
        for (key, said), having in rows.items():
            if len(having) < len(taken):
                value = said if isinstance(said, str) else dict(said)
                yield parse_items(part, key, value), having


def _table(
    taken: list[Snapshot],
) -> tuple[list[Item], permutation.Booleans, permutation.Booleans]:
    """All items that differ, which host has which, and of which that is known at all."""
    number: dict[Item, int] = {}
    having: list[list[int]] = []
    for mine, rows in _variants(taken):
        for item in mine:
            n = number.setdefault(item, len(number))
            if n == len(having):
                having.append([])
            having[n] += rows
    items = list(number)
    present = np.zeros((len(taken), len(items)), np.bool_)
    known = np.ones((len(taken), len(items)), np.bool_)
    for n, rows in enumerate(having):
        present[rows, n] = True
    parts = np.array([item.part for item in items], dtype=object)
    of_part = {part: parts == part for part in set(parts.tolist())}
    for row, one in enumerate(taken):
        for part, here in of_part.items():
            # What could not be read is neither there nor absent. Of a part that was read in pieces not
            # even what is there counts: hosts would be known to have it, and never not to.
            unread = _unread(one, part)
            if unread is None:
                known[row, here] = False
            elif unread:
                known[row, [n for n in np.flatnonzero(here) if _is_unread(items[n], unread)]] = (
                    False
                )
    return items, present, known


def _unread(one: Snapshot, part: str) -> set[str] | None:
    """The things of a part that a snapshot has gaps for; None: it cannot be said which."""
    if part not in one.parts:
        return None
    found = set()
    for gap in one.gaps:
        if gap.part != part:
            continue
        # A unit's file, or a drop-in of it, is a gap of that unit alone.
        names = [name.removesuffix(".d") for name in gap.what.split("/")[:0:-1]]
        named = [name for name in names if part == "units" and name.endswith(UNIT_KINDS)]
        if named:
            found.add(named[0])
        elif gap.what.startswith("/") or gap.what == part:
            return None
        else:
            found.add(gap.what)
    return found


def _is_unread(item: Item, unread: set[str]) -> bool:
    """Whether a gap names it, or what it belongs to: `net.ipv6` stands for all below it."""
    if item.key in unread:
        return True
    words = item.key.split(".")
    return any(".".join(words[:n]) in unread for n in range(1, len(words) + 1))


def _telling(one: tuple[Item, bool]) -> tuple[int, str, str, bool, str]:
    item, present = one
    place = ORDER.index(item.part) if item.part in ORDER else len(ORDER)
    # A setting's value says more than that there is one; a unit or package is rather there or not.
    bare = (item.value is None) != (item.part in ("units", "packages", "modules"))
    return (
        place + (0 if present else len(ORDER) + 1),
        item.key,
        item.property,
        bare,
        str(item.value),
    )


def _finding(one: Difference, made: Comparison, kind: str, window: Window) -> Finding:
    item, present = one.items[0]
    column = one.column
    subject = Subject(item=one.name, unit=item.key if item.part == "units" else "")
    named = [f"{'' if there else 'no '}{other}" for other, there in one.items[1 : MOST_NAMED + 1]]
    left = len(one.items) - 1 - len(named)
    evidence = [
        Evidence(
            f"{one.text}. A host {'with' if present else 'without'} it is {column.lift:.1f} times as "
            "likely sick as any host",
            "snapshots",
            {
                "sick_hosts_with": column.sick_with,
                "sick_hosts": column.sick,
                "healthy_hosts_with": column.healthy_with,
                "healthy_hosts": column.healthy,
                "lift": round(column.lift, 3),
            },
            window,
            f"overnight drift --kind {kind}",
        ),
        Evidence(
            f"log-odds {column.log_odds:.2f}, its lower 95 % bound {column.low:.2f}; Fisher's p = "
            f"{permutation.fraction(column.p)}, q = {permutation.fraction(column.q)}; with sick hosts chosen at "
            f"random the best of {made.columns} columns was as good in {permutation.fraction(column.p_max)} of the "
            f"draws (the smallest attainable is {permutation.fraction(made.smallest_p)})",
            "snapshots",
            {"p": column.p, "q": column.q, "p_max": column.p_max, "smallest_p": made.smallest_p},
            window,
        ),
    ]
    if named:
        evidence.append(
            Evidence(
                f"the same on every host, so not to be told apart: {', '.join(named)}"
                + (f" and {left} more" if left else ""),
                "snapshots",
                {"items": len(one.items)},
                window,
            )
        )
    return Finding(
        finding_id(DETECTOR, KIND, subject, window.begin_us),
        DETECTOR,
        KIND,
        subject,
        window,
        # Several things that go together: one of them, and none is surer than its share.
        min(0.99, 1 - column.p_max) * (1.0 if len(one.items) <= 3 else 0.8),
        f"hosts with {kind} differ from healthy ones in {one.text}; p = {permutation.fraction(column.p_max)}",
        tuple(evidence),
        {
            "log_odds": round(column.log_odds, 4),
            "log_odds_low": round(column.low, 4),
            "lift": round(column.lift, 4),
            "p_value": column.p,
            "q_value": column.q,
            "p_max": column.p_max,
            "items": float(len(one.items)),
        },
    )
