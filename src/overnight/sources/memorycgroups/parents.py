"""The parents of dying memory cgroups: counted on v2, estimated within bounds on v1."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from collections.abc import Callable

from overnight import sources
from overnight.model import cgroups
from overnight.sources.memorycgroups import counts

BUDGET_S = 0.05
MAX_PARENTS = 20
PAGE = os.sysconf("SC_PAGE_SIZE")
HELD = ("cache", "rss", "swap")
MAX_DEPTH = 100  # cgroups may be nested without limit; deeper ones count to their ancestor


@dataclasses.dataclass(frozen=True)
class Parent:
    """A directory with dying cgroups below it.

    With `counted` the kernel reports their number. Otherwise it is estimated from the memory that they
    hold, and lies between the two bounds.
    """

    path: str
    dying: int
    at_least: int
    at_most: int
    in_use: int  # directories directly below
    held_bytes: int  # memory charged here that is neither its own nor a child's; 0 if counted
    counted: bool


def read_parents(
    layout: cgroups.Layout,
    dying: int,
    root: pathlib.Path = sources.ROOT,
    *,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Parent, ...]:
    """Find the directories with dying cgroups below them, the largest number first.

    v2 counts exactly. v1 does not count them, but their memory stays charged to the directories above:
    each holds at least one page, and its own structures are charged to its parent's kernel memory until
    they are freed (3e38e0aaca9e, 5.9). So a directory's charge, without its own and its children's,
    bounds their number; `share_out` distributes them within these bounds.
    """
    top = counts.folder_of(layout, root)
    if layout.memory_version == 2:
        return _counted(top)
    deadline = clock() + budget_s
    charges = _charges(top, clock, deadline)
    if not charges:
        # Reads are slow, as on an affected host: use the counters that cost nothing.
        charges = _cheap_charges(top)
    else:
        # Memory that a busy child gains between two reads looks held, but not twice by as much.
        for path, again in _charges(top, clock, deadline).items():
            charge = charges.get(path)
            if charge is not None:
                charge.pages = min(charge.pages, again.pages)
                charge.kernel = min(charge.kernel, again.kernel)
    return share_out(charges, dying, top, cost=own_cost(_cores(root)))[:MAX_PARENTS]


def _below(path: str, depth: int) -> list[str]:
    if depth >= MAX_DEPTH:
        return []
    return [child.path for child in sources.child_directories(path)]


def _counted(top: str) -> tuple[Parent, ...]:
    parents = []

    def visit(path: str, depth: int = 0) -> int:
        """Count dying cgroups at and below `path`; without any, do not descend."""
        stat = counts.parse_cgroup_stat(sources.read_once(f"{path}/cgroup.stat") or b"")
        dying = stat.get("nr_dying_subsys_memory", stat.get("nr_dying_descendants", 0))
        if not dying:
            return 0
        below = _below(path, depth)
        here = dying - sum(visit(child, depth + 1) for child in below)
        if here > 0:
            parents.append(
                Parent(_relative(path, top), here, here, here, len(below), 0, counted=True)
            )
        return dying

    visit(top)
    return tuple(sorted(parents, key=lambda parent: (-parent.dying, parent.path))[:MAX_PARENTS])


@dataclasses.dataclass
class Charge:
    """Bytes charged to a v1 directory that are neither its own nor a child's."""

    in_use: int
    pages: int
    kernel: int


def own_cost(cores: int) -> int:
    """Return the kernel memory of one memory cgroup: 14.3 kB on 2 cores, 75 kB on 32 (measured)."""
    return 10_200 + 2_025 * cores


def dying_cost() -> int:
    """Return the memory that a dying cgroup keeps: its structures and one page."""
    return own_cost(_cores(sources.ROOT)) + PAGE


def share_out(charges: dict[str, Charge], dying: int, top: str, cost: int) -> tuple[Parent, ...]:
    """Distribute the dying cgroups over directories, within the bounds of their charges.

    A directory that holds little memory cannot have many; one that holds much may have few large ones.
    So the tightest bounds are filled first, and the directory with the largest bound gets the rest.
    Where the sum of all bounds is too small, the rest is not located.
    """
    # The root has no kernel memory of its own, and kernels before 5.9 do not charge parents: there a
    # directory's existing children already cost more than it has.
    charged = all(
        charge.kernel >= charge.in_use * cost // 2
        for path, charge in charges.items()
        if path != top and charge.in_use
    )
    bounds = {}
    for path, charge in charges.items():
        bound = charge.pages // PAGE
        if charged and path != top:
            bound = min(bound, round(charge.kernel / cost * 1.25) - charge.in_use)
        if bound > 0:
            bounds[path] = min(bound, dying)
    whole = sum(bounds.values())
    left = dying
    parents = []
    for path, bound in sorted(bounds.items(), key=lambda item: (item[1], item[0])):
        assigned = min(bound, left)
        left -= assigned
        least = min(max(0, dying - (whole - bound)) if whole >= dying else bound, assigned)
        numbers = (assigned, least, bound, charges[path].in_use, charges[path].pages)
        parents.append(Parent(_relative(path, top), *numbers, counted=False))
    return tuple(sorted(parents, key=lambda parent: (-parent.dying, parent.path)))


def _charges(top: str, clock: Callable[[], float], deadline: float) -> dict[str, Charge]:
    """Read the charges of every directory; {} once a read was slow, because it would saturate a core."""
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
    """Estimate by usage alone: a directory's own memory counts as held, so the bounds are wider.

    Usage is one number that the kernel maintains, however many cgroups are below.
    """
    charges: dict[str, Charge] = {}

    def visit(path: str, depth: int = 0) -> tuple[int, int]:
        below = _below(path, depth)
        kernel = _number(f"{path}/memory.kmem.usage_in_bytes")
        pages = 0 if path == top else max(0, _number(f"{path}/memory.usage_in_bytes") - kernel)
        sums = [visit(child, depth + 1) for child in below]
        charges[path] = Charge(
            len(below),
            max(0, pages - sum(child_sums[0] for child_sums in sums)),
            max(0, kernel - sum(child_sums[1] for child_sums in sums)),
        )
        return pages, kernel

    visit(top)
    # The root's usage is not charged but summed up, in old kernels by the same slow walk.
    del charges[top]
    return charges


def _cores(root: pathlib.Path) -> int:
    """Return the number of possible cores: the kernel has structures for each."""
    text = sources.read_once(str(root / "sys/devices/system/cpu/possible")) or b"0"
    last = text.strip().rpartition(b"-")[2].rpartition(b",")[2]
    return int(last) + 1 if last.isdigit() else 1


def _relative(path: str, top: str) -> str:
    return cgroups.key_of(os.fsencode(path[len(top) :] or "/"))


def _number(path: str) -> int:
    text = sources.read_once(path)
    return int(text) if text and text.strip().isdigit() else 0
