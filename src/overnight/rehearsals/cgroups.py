"""Memory cgroups of a machine: a slice with a limit, one group a unit below it, and a place outside of it.

The machine's own view of this hierarchy is read-only, so it is bound into it. v1 and v2 differ in names.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from typing import TYPE_CHECKING

from overnight import errors
from overnight.sources import cgroups
from overnight.sources.memorycgroups import parents

if TYPE_CHECKING:
    from overnight import rehearsals
    from overnight.undo import journal

__all__ = ["INSIDE", "REST", "SLICE", "Groups", "disk_folder", "zombie_bytes"]

INSIDE = "/groups"  # where the machine sees them
SLICE, REST = "system.slice", "init.scope"
LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}
NO_LIMIT = {1: "-1", 2: "max"}
NO_SWAP = {1: ("memory.swappiness", "0"), 2: ("memory.swap.max", "0")}
WEIGHT = 100  # of whoever has no other
FREE_SHARE = 0.25  # of the free memory: more is not taken for zombies
IN_MEMORY = ("tmpfs", "ramfs")


@dataclasses.dataclass(frozen=True)
class Groups:
    """`top` is the machine's; the slice below it is what gets a limit."""

    top: pathlib.Path
    version: int

    @classmethod
    def make(cls, journal: journal.Journal, name: str) -> Groups:
        """Made, and noted in the ledger before."""
        layout = cgroups.read_layout()
        if layout.memory is None or not layout.whole:
            raise errors.CannotError(
                "no memory cgroup can be made",
                why="the memory controller is not mounted here, or only a part of it",
                todo="run this on a host, not in a container",
            )
        made = cls(pathlib.Path(layout.memory) / name, layout.memory_version)
        journal.write("cgroup", made.top)
        for folder in (made.top, made.top / REST, made.top / SLICE):
            folder.mkdir()
            made._open(folder)
        if not (made.top / SLICE / LIMIT[made.version]).exists():
            raise errors.CannotError(
                "memory cgroups cannot have a limit here",
                why=f"{layout.memory} does not hand the memory controller on",
                todo=f"echo +memory > {layout.memory}/cgroup.subtree_control",
            )
        # What zombies hold must not go to swap: it would let them go.
        file, value = NO_SWAP[made.version]
        with contextlib.suppress(OSError):
            (made.top / SLICE / file).write_text(value)
        return made

    def _open(self, folder: pathlib.Path) -> None:
        if self.version == 2 and folder.name != REST:
            with contextlib.suppress(OSError):
                (folder / "cgroup.subtree_control").write_text("+memory")

    def add(self, unit: str, *, parent: bool = False) -> None:
        """A group of a unit, below the slice. On v2 a `parent` of others has no process of its own."""
        folder = self.top / SLICE / unit
        folder.mkdir()
        if parent:
            self._open(folder)

    def weigh(self, workers: int) -> None:
        """All below get as much of a core as so many processes of others, not as one: v2 shares by cgroups."""
        weight = self.top / "cpu.weight"
        if weight.exists():
            weight.write_text(str(WEIGHT * workers))

    def require(self, zombies: int) -> None:
        """CannotError where so many would take too much of the memory: each costs 2 kB a core and more."""
        cores = len(list(pathlib.Path("/sys/devices/system/cpu").glob("cpu[0-9]*")))
        needed = zombies * (parents.own_cost(cores) + parents.PAGE)  # fmt: skip
        free = _available()
        if needed > FREE_SHARE * free:
            raise errors.CannotError(
                f"{zombies} zombies would take {needed >> 20} MB",
                why=f"of {free >> 20} MB that are free no more than a quarter is used for this",
                todo="run it on a host with more memory, or with fewer cores",
            )

    def limit(self, room: int) -> None:
        """What the slice uses now and so many bytes more: only then does it bite."""
        usage = int((self.top / SLICE / USAGE[self.version]).read_text())
        (self.top / SLICE / LIMIT[self.version]).write_text(str(usage + room))

    def unlimited(self) -> None:
        """As before."""
        (self.top / SLICE / LIMIT[self.version]).write_text(NO_LIMIT[self.version])


def zombie_bytes() -> int:
    """What one zombie holds here: its structures, which grow with the cores, and its page."""
    cores = len(list(pathlib.Path("/sys/devices/system/cpu").glob("cpu[0-9]*")))
    return parents.own_cost(cores) + parents.PAGE


def _available() -> int:
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return 0


def disk_folder(stage: rehearsals.Stage) -> pathlib.Path:
    """A folder of the run on a real file system: in memory nothing is page cache that can be freed."""
    if _filesystem(stage.folder) not in IN_MEMORY:
        folder = stage.folder / "data"
    else:
        folder = pathlib.Path("/var/tmp") / f"{stage.journal.run}-data"  # noqa: S108 - its name is a secret
        if _filesystem(folder.parent) in IN_MEMORY:
            raise errors.CannotError(
                "there is no disk to read from",
                why=f"{stage.folder} and {folder.parent} are both in memory",
                todo="choose another data home: overnight --home DIR rehearse",
            )
    stage.journal.write("folder", folder)
    folder.mkdir()
    return folder


def _filesystem(path: pathlib.Path) -> str:
    """The type of the mount that holds a path."""
    found = ("", "")
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        place, kind = line.split()[1:3]
        if path.resolve().is_relative_to(place) and len(place) >= len(found[0]):
            found = (place, kind)
    return found[1]
