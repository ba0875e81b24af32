"""Drift: items that sick hosts have and healthy ones do not, or the reverse, by their snapshots."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from overnight.detectors import _base
from overnight.detectors import fleet as package
from overnight.detectors.fleet import odds, permutation
from overnight.model.finding import Answer, Need, Subject
from overnight.model.selection import Window
from overnight.model.snapshot import band_restarts
from overnight.model.text import fraction

if TYPE_CHECKING:
    from overnight.model.fleet import Fleet
    from overnight.model.snapshot import Snapshot, Value

Pairs = tuple[tuple[str, str], ...]

KIND = "fleet.drift"
MIN_SIDE = 2  # hosts on each side; seldom enough, as the smallest attainable p shows
MAX_NAMED = 10
UNIT_KINDS = (".service", ".socket", ".timer", ".mount", ".target", ".path", ".slice", ".automount", ".swap")  # fmt: skip
# Which item names several that are the same on every host: first what an operator can act on.
ORDER = ("units", "running", "packages", "modules", "bootstrap", "loaded", "listening", "sysctl", "cmdline")  # fmt: skip
# Results of a boot step, or states of a unit, that are not failures.
FINE = frozenset({"success", "skipped", "degraded", "active", "inactive", "activating", "deactivating", "reloading"})  # fmt: skip
VALUED = ("bootstrap", "running", "listening")  # parts whose values are more telling than presence


class Item(NamedTuple):
    """One fact of a snapshot. `value` None: that the thing is there at all."""

    part: str
    key: str
    property: str = ""
    value: str | None = None

    def __str__(self) -> str:
        name = " ".join(filter(None, (self.key, self.property)))
        return f"{self.part}: {name}" + ("" if self.value is None else f" = {self.value}")


def is_failure(item: Item) -> bool:
    """Return whether it is a failed step of the boot, or a failed unit."""
    states = {"bootstrap": ("result",), "running": ("active", "result")}.get(item.part, ())
    return item.property in states and item.value is not None and item.value not in FINE


def is_cause(item: Item) -> bool:
    """Return whether it is a failed step of the boot: what was not set up differs because of it."""
    return item.part == "bootstrap" and is_failure(item) and item.value != "not run"


def is_volatile(item: Item) -> bool:
    """Return whether it differs between equal hosts, too: it may confirm other items, but not hide them."""
    return item.property in ("restarts", "error")


@dataclasses.dataclass(frozen=True)
class Difference:
    """One column with its items, the most telling first; items not `present` are absent on sick hosts."""

    items: tuple[tuple[Item, bool], ...]
    column: odds.Column
    is_significant: bool  # by p_max

    @property
    def name(self) -> str:
        """The item that names the column."""
        return self.describe(*self.items[0])

    @property
    def unit(self) -> str:
        """The unit that the column is about: the first that is there, or runs, on one side only."""
        if self.items[0][0].part not in ("units", "running", "bootstrap"):
            return ""
        return next((i.key for i, _ in self.items if i.part in ("units", "running")), "")

    @property
    def others(self) -> tuple[str, ...]:
        """The other items, in words; of a unit that runs or a boot step the most telling only.

        What is not there has no values either.
        """
        named = {self.items[0][0][:2]}
        absent = {item[:2] for item, present in self.items if item.value is None and not present}
        texts = []
        for item, present in self.items[1:]:
            if item.value is not None and not present and item[:2] in absent:
                continue
            if item.part not in VALUED or item[:2] not in named:
                texts.append(self.describe(item, present))
            named.add(item[:2])
        return tuple(texts)

    def describe(self, item: Item, present: bool) -> str:
        """Return an item in words: `running: a.service active = active (inactive on the others)`."""
        if item.part not in VALUED or item.value is None:
            return str(item) if present else f"no {item}"
        values: dict[bool, list[str]] = {True: [], False: []}
        for other, on_sick in self.items:
            if other[:3] == item[:3] and other.value is not None:
                values[on_sick].append(other.value)
        sick, healthy = (", ".join(sorted(values[side])) for side in (True, False))
        there = str(item._replace(value=sick)) if sick else f"no {item._replace(value=healthy)}"
        return f"{there} ({healthy} on the others)" if sick and healthy else there

    @property
    def rank(self) -> int:
        """0: has a cause, a failed step of the boot; 2: has only items that differ between equal hosts."""
        if any(is_cause(item) for item, _ in self.items):
            return 0
        return 2 if all(is_volatile(item) for item, _ in self.items) else 1

    @property
    def text(self) -> str:
        """The name, and on how many hosts of each side it is."""
        column = self.column
        more = len(self.others)
        return (
            f"{self.name}: on {column.sick_with} of {column.sick} sick hosts and {column.healthy_with} of "
            f"{column.healthy} healthy ones"
            + (f"; the same hosts differ in {more} more" if more else "")
        )


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All differences, ranked; `why` is the reason where nothing can be concluded."""

    sick: tuple[str, ...]
    healthy: tuple[str, ...]
    without_snapshot: tuple[str, ...]  # hosts
    differences: tuple[Difference, ...]
    columns: int
    draws: int
    smallest_p: float
    why: str

    @property
    def significant(self) -> tuple[Difference, ...]:
        """The differences that chance does not explain."""
        return tuple(difference for difference in self.differences if difference.is_significant)


class Drift(package.FleetDetector):
    """Hosts that had the event are sick, the others healthy."""

    name = "fleet.drift"
    needs = (Need.EVENTS, Need.SNAPSHOTS)
    max_findings = 10

    def ask(self, fleet: Fleet, kind: str) -> Answer:
        compared = compare(fleet, [host.name for host in fleet.hosts if host.of_kind(kind)])
        if compared.why:
            missing = (Need.SNAPSHOTS,) if compared.without_snapshot else ()
            return self.no_data(compared.why, *missing)
        why = "all snapshots are the same"
        if compared.differences:
            best = max(compared.differences, key=lambda difference: difference.column.low)
            why = (
                f"the best of {compared.columns} has p = {fraction(best.column.p_max)} (the "
                f"smallest attainable is {fraction(compared.smallest_p)}): {best.text}"
            )
        drafts = [
            _draft(difference, compared, kind, Window(*fleet.window_us))
            for difference in compared.significant[: self.max_findings]
        ]
        return self.answer(
            drafts,
            clear=f"no item separates {len(compared.sick)} sick hosts from {len(compared.healthy)} healthy ones; {why}",
            remark=drafts[0].summary if drafts else "",
        )


def compare(fleet: Fleet, sick: Collection[str]) -> Comparison:
    ill = set(sick)
    hosts = [host for host in fleet.hosts if host.snapshot is not None]
    without = tuple(host.name for host in fleet.hosts if host.snapshot is None)
    sides = (
        tuple(host.name for host in hosts if host.name in ill),
        tuple(host.name for host in hosts if host.name not in ill),
    )
    sick_count, healthy_count = map(len, sides)
    if min(sick_count, healthy_count) < MIN_SIDE:
        why = (
            f"cannot conclude: there are snapshots of {sick_count} sick and {healthy_count} healthy hosts; at "
            f"least {MIN_SIDE} of each are needed"
            + (f"; hosts without one: {len(without)} (`overnight snapshot`)" if without else "")
        )
        return Comparison(*sides, without, (), 0, 0, 1.0, why)
    least = odds.smallest_p(sick_count, healthy_count, permutation.DRAWS)
    why = ""
    if least > package.ALPHA:
        why = (
            f"cannot conclude: {sick_count} sick hosts against {healthy_count} healthy ones; even an item "
            f"that all sick hosts have, and no healthy one, has p = {fraction(least)}"
        )
    items, present, known = _table([host.snapshot for host in hosts if host.snapshot])
    columns, draws = odds.rank(
        present,
        known,
        np.array([host.name in ill for host in hosts], np.bool_),
        permutation.generator(),
    )
    differences = tuple(
        Difference(
            tuple(sorted(((items[n], present) for n, present in column.items), key=_naming_order)),
            column,
            not why and column.p_max <= package.ALPHA,
        )
        for column in columns
    )
    counts = collections.Counter(difference.items[0][0].part for difference in differences)
    ordered = sorted(differences, key=lambda d: _reading_order(d, counts[d.items[0][0].part]))
    return Comparison(
        *sides, without, tuple(ordered), len(columns), draws,
        odds.smallest_p(sick_count, healthy_count, draws) if draws else least, why,
    )  # fmt: skip


def parse_items(part: str, key: str, value: Value) -> tuple[Item, ...]:
    """Return the items of one thing in a snapshot: that it is there, and each value of it.

    >>> [str(item) for item in parse_items("sysctl", "vm.swappiness", "10")]
    ['sysctl: vm.swappiness', 'sysctl: vm.swappiness = 10']
    """
    values = (("", value),) if isinstance(value, str) else value.items()
    banded = ((name, band_restarts(text) if name == "restarts" else text) for name, text in values)
    return (Item(part, key), *(Item(part, key, name, text) for name, text in banded))


def _variants(snapshots: list[Snapshot]) -> Iterator[tuple[tuple[Item, ...], list[int]]]:
    """Yield each thing as some hosts have it, but not all, and the rows of those hosts."""
    for part in sorted({name for snapshot in snapshots for name in snapshot.parts}):
        rows: dict[tuple[str, str | Pairs], list[int]] = {}
        value: Value
        for row, snapshot in enumerate(snapshots):
            for key, value in snapshot.parts.get(part, {}).items():
                # Snapshots are written sorted, so equal dicts give equal tuples, which can be keys.
                pairs = value if isinstance(value, str) else tuple(value.items())
                rows.setdefault((key, pairs), []).append(row)
        for (key, pairs), having in rows.items():
            if len(having) < len(snapshots):
                value = pairs if isinstance(pairs, str) else dict(pairs)
                yield parse_items(part, key, value), having


def _table(
    snapshots: list[Snapshot],
) -> tuple[list[Item], permutation.Booleans, permutation.Booleans]:
    """Return all items that differ, which host has which, and where that is known."""
    having: dict[Item, list[int]] = collections.defaultdict(list)
    for variant, rows in _variants(snapshots):
        for item in variant:
            having[item] += rows
    items = list(having)
    present = np.zeros((len(snapshots), len(items)), np.bool_)
    known = np.ones((len(snapshots), len(items)), np.bool_)
    for n, rows in enumerate(having.values()):
        present[rows, n] = True
    parts = np.array([item.part for item in items], dtype=object)
    of_part = {part: parts == part for part in set(parts.tolist())}
    for row, snapshot in enumerate(snapshots):
        for part, here in of_part.items():
            # Unread items are neither present nor absent. In a part that was read incompletely, present
            # items do not count either: hosts could be known to have them, but never to lack them.
            unread = _unread(snapshot, part)
            if unread is None:
                known[row, here] = False
            elif unread:
                known[row, [n for n in np.flatnonzero(here) if _is_unread(items[n], unread)]] = (
                    False
                )
    return items, present, known


def _unread(snapshot: Snapshot, part: str) -> set[str] | None:
    """Return the things of a part that a snapshot could not read; None: it is not known which."""
    if part not in snapshot.parts:
        return None
    unread = set()
    for gap in snapshot.gaps:
        if gap.part != part:
            continue
        # An unread unit file or drop-in concerns that unit alone.
        names = [name.removesuffix(".d") for name in gap.what.split("/")[:0:-1]]
        named = [name for name in names if part == "units" and name.endswith(UNIT_KINDS)]
        if named:
            unread.add(named[0])
        elif gap.what.startswith("/") or gap.what == part:
            return None
        else:
            unread.add(gap.what)
    return unread


def _is_unread(item: Item, unread: set[str]) -> bool:
    """Return whether the item or a parent of it is unread: `net.ipv6` covers all below it."""
    words = item.key.split(".")
    return any(".".join(words[:n]) in unread for n in range(1, len(words) + 1))


def _reading_order(difference: Difference, of_part: int) -> tuple[int, float, float]:
    """Sort significant differences by cause, the others by p times the number of them in the same part.

    In a small fleet none may be significant: one of hundreds of packages separates the hosts as well by chance. One of the
    few steps of the boot hardly does.
    """
    column, rank = difference.column, difference.rank
    if difference.is_significant:
        return 0, rank, -column.low
    return 1 + (rank == 2), column.p * of_part, -column.low


def _naming_order(pair: tuple[Item, bool]) -> tuple[int, int, str, bool, bool, str, bool, str]:
    item, present = pair
    rank = ORDER.index(item.part) if item.part in ORDER else len(ORDER)
    # The value of a setting is more telling than its presence; of a unit or package, the presence is.
    is_bare = (item.value is None) != (item.part in ("units", "packages", "modules"))
    return (
        # A cause is one on either side: hosts whose boot failed lack what the others have.
        0 if is_cause(item) else 2 if is_volatile(item) else 1,
        rank + (0 if present else len(ORDER) + 1),
        item.key,
        not is_failure(item),
        item.value is None and item.part in VALUED,
        item.property,
        is_bare,
        str(item.value),
    )


def _draft(difference: Difference, compared: Comparison, kind: str, window: Window) -> _base.Draft:
    _, is_present = difference.items[0]
    column, smallest = difference.column, compared.smallest_p
    p, q, p_max = map(fraction, (column.p, column.q, column.p_max))
    draft = _base.Draft(
        KIND,
        Subject(item=difference.name, unit=difference.unit),
        window,
        # One of several items that go together is the cause, so that each is less sure.
        min(0.99, 1 - column.p_max) * (1.0 if len(difference.others) <= 2 else 0.8),
        f"hosts with {kind} differ from healthy ones in {difference.text}; p = {p_max}",
        magnitude={
            "log_odds": column.log_odds,
            "log_odds_low": column.low,
            "lift": column.lift,
            "p_value": column.p,
            "q_value": column.q,
            "p_max": column.p_max,
            "items": len(difference.items),
        },
    )
    draft.support(
        f"{difference.text}. A host {'with' if is_present else 'without'} it is {column.lift:.1f} times as "
        "likely to be sick as any host",
        "snapshots",
        look=f"overnight drift --kind {kind}",
        sick_hosts_with=column.sick_with,
        sick_hosts=column.sick,
        healthy_hosts_with=column.healthy_with,
        healthy_hosts=column.healthy,
        lift=round(column.lift, 3),
    )
    draft.support(
        f"log-odds {column.log_odds:.2f}, lower 95 % bound {column.low:.2f}; Fisher's p = {p}, q = {q}; with"
        f" sick hosts chosen at random, the best of {compared.columns} columns was as good in {p_max} of the"
        f" draws (the smallest attainable is {fraction(smallest)})",
        "snapshots",
        p=column.p,
        q=column.q,
        p_max=column.p_max,
        smallest_p=smallest,
    )
    named = difference.others[:MAX_NAMED]
    if named:
        left = len(difference.others) - len(named)
        more = f" and {left} more" if left else ""
        text = f"the same on every host, so they cannot be distinguished: {', '.join(named)}{more}"
        draft.support(text, "snapshots", items=len(difference.items))
    return draft


DETECTORS = (Drift(),)
