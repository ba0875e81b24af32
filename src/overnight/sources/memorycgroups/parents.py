"""Where the dying ones hang: counted on v2, within bounds on v1."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from collections.abc import Callable

from overnight import sources
from overnight.model import cgroups
from overnight.sources.memorycgroups import counts

__all__ = ["Charge", "Parent", "own_cost", "read_parents", "share_out"]

BUDGET_S = 0.05
LIMIT = 20
PAGE = os.sysconf("SC_PAGE_SIZE")
HELD = ("cache", "rss", "swap")
DEEPEST = 100  # whoever may make cgroups may nest them; what is deeper counts to the one above


@dataclasses.dataclass(frozen=True)
class Parent:
    """A directory below which dying cgroups hang.

    `counted`: the kernel says how many. Otherwise their number follows from what they hold, and is
    only sure to lie between the two bounds.
    """

    path: str
    dying: int
    at_least: int
    at_most: int
    in_use: int  # directories directly below
    held_bytes: (
        int  # memory charged here, and neither its own nor a child's; 0 where it was counted
    )
    counted: bool


def read_parents(
    layout: cgroups.Layout,
    dying: int,
    root: pathlib.Path = sources.ROOT,
    *,
    limit: int = LIMIT,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Parent, ...]:
    """Below which directories the dying ones hang, most first.

    v2 counts exactly. v1 counts nothing, but what the dying hold stays charged to the directories
    above them: each holds one page at least, and its own structures are charged to its parent's kernel
    memory until they are freed (3e38e0aaca9e, 5.9). So what a directory has charged, less its own and
    less its children's, bounds how many can hang there. See `share_out` for what is made of that.
    """
    top = counts.folder_of(layout, root)
    if layout.memory_version == 2:
        return _counted(top, limit)
    deadline = clock() + budget_s
    charges = _charges(top, clock, deadline)
    if not charges:
        # Reads are slow, as on a host that suffers already: then by the counters that cost nothing.
        charges = _cheap_charges(top)
    else:
        # What a busy child gains between two reads looks held: it does not twice, by as much.
        for path, again in _charges(top, clock, deadline).items():
            one = charges.get(path)
            if one is not None:
                one.pages = min(one.pages, again.pages)
                one.kernel = min(one.kernel, again.kernel)
    return share_out(charges, dying, top, cost=own_cost(_cores(root)))[:limit]


def _below(path: str, depth: int) -> list[str]:
    return list(counts.children(path)) if depth < DEEPEST else []


def _counted(top: str, limit: int) -> tuple[Parent, ...]:
    found = []

    def visit(path: str, depth: int = 0) -> int:
        """Dying ones at and below; where there are none, nothing below is opened."""
        stat = counts.parse_cgroup_stat(sources.read_once(f"{path}/cgroup.stat") or b"")
        mine = stat.get("nr_dying_subsys_memory", stat.get("nr_dying_descendants", 0))
        if not mine:
            return 0
        below = _below(path, depth)
        own = mine - sum(visit(child, depth + 1) for child in below)
        if own > 0:
            found.append(Parent(_relative(path, top), own, own, own, len(below), 0, counted=True))
        return mine

    visit(top)
    return tuple(sorted(found, key=lambda one: (-one.dying, one.path))[:limit])


@dataclasses.dataclass
class Charge:
    """What a v1 directory has charged that is neither its own nor a child's, in bytes."""

    in_use: int
    pages: int
    kernel: int


def own_cost(cores: int) -> int:
    """Bytes of kernel memory that one memory cgroup is: 14.3 kB on 2 cores, 75 kB on 32 (measured)."""
    return 10_200 + 2_025 * cores


def share_out(charges: dict[str, Charge], dying: int, top: str, cost: int) -> tuple[Parent, ...]:
    """The dying ones by directory, within the bounds that the charges give.

    A directory that holds little cannot have many; one that holds much may have few large ones. So
    the tightest bounds are used up first, and what holds most gets what is left. Where the bounds of
    all do not make up the whole, the rest is not located.
    """
    # The root has no kernel memory of its own, and kernels before 5.9 charge none to parents: then
    # a directory's living children already cost more than it has.
    charged = all(
        one.kernel >= one.in_use * cost // 2
        for path, one in charges.items()
        if path != top and one.in_use
    )
    bounds = {}
    for path, one in charges.items():
        most = one.pages // PAGE
        if charged and path != top:
            most = min(most, round(one.kernel / cost * 1.25) - one.in_use)
        if most > 0:
            bounds[path] = min(most, dying)
    whole = sum(bounds.values())
    left = dying
    found = []
    for path, most in sorted(bounds.items(), key=lambda item: (item[1], item[0])):
        mine = min(most, left)
        left -= mine
        least = max(0, dying - (whole - most)) if whole >= dying else most
        one = charges[path]
        found.append(
            Parent(
                _relative(path, top), mine, min(least, mine), most, one.in_use, one.pages, counted=False
            )
        )  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.dying, one.path)))


def _charges(top: str, clock: Callable[[], float], deadline: float) -> dict[str, Charge]:
    """The charges of every directory; nothing once a read was slow: it would pin a core."""
    charges: dict[str, Charge] = {}

    def visit(path: str, depth: int = 0) -> tuple[int, int] | None:
        below = _below(path, depth)
        pages_below = kernel_below = 0
        for child in below:
            of_child = visit(child, depth + 1)
            if of_child is None:
                return None
            pages_below += of_child[0]
            kernel_below += of_child[1]
        began = clock()
        if began > deadline:
            return None
        stat = counts.parse_cgroup_stat(sources.read_once(f"{path}/memory.stat") or b"")
        if clock() - began > counts.STAT_SLOW_S:
            return None
        kernel = _number(f"{path}/memory.kmem.usage_in_bytes")
        total = sum(stat.get(f"total_{name}", 0) for name in HELD)
        held = total - sum(stat.get(name, 0) for name in HELD) - pages_below
        charges[path] = Charge(len(below), max(0, held), max(0, kernel - kernel_below))
        return total, kernel

    return charges if visit(top) is not None else {}


def _cheap_charges(top: str) -> dict[str, Charge]:
    """By usage alone: a directory's own memory counts as held there, so the bounds are wider.

    Usage is one number that the kernel keeps, however many cgroups are below.
    """
    charges: dict[str, Charge] = {}

    def visit(path: str, depth: int = 0) -> tuple[int, int]:
        below = _below(path, depth)
        kernel = _number(f"{path}/memory.kmem.usage_in_bytes")
        pages = 0 if path == top else max(0, _number(f"{path}/memory.usage_in_bytes") - kernel)
        sums = [visit(child, depth + 1) for child in below]
        charges[path] = Charge(
            len(below),
            max(0, pages - sum(one[0] for one in sums)),
            max(0, kernel - sum(one[1] for one in sums)),
        )
        return pages, kernel

    visit(top)
    # The root's usage is not charged but summed up, in old kernels by the very walk that is slow.
    del charges[top]
    return charges


def _cores(root: pathlib.Path) -> int:
    """As many as the kernel keeps structures for: the possible ones."""
    text = sources.read_once(str(root / "sys/devices/system/cpu/possible")) or b"0"
    last = text.strip().rpartition(b"-")[2].rpartition(b",")[2]
    return int(last) + 1 if last.isdigit() else 1


def _relative(path: str, top: str) -> str:
    return cgroups.key_of(os.fsencode(path[len(top) :] or "/"))


def _number(path: str) -> int:
    text = sources.read_once(path)
    return int(text) if text and text.strip().isdigit() else 0
