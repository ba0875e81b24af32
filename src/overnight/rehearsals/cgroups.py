"""Memory cgroups of a machine, with a limit: a slice with a group per unit, and groups outside of it.

The machine's own view of the hierarchy is read-only, so these are bind-mounted. v1 and v2 differ in names.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from typing import TYPE_CHECKING

from overnight import errors
from overnight.model import cgroups, meminfo, mounts
from overnight.sources.memorycgroups import parents

if TYPE_CHECKING:
    from overnight import rehearsals
    from overnight.undo import journal

INSIDE = "/groups"  # where the machine sees them
SLICE, REST = "system.slice", "init.scope"
LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}
NO_LIMIT = {1: "-1", 2: "max"}
NO_SWAP = {1: ("memory.swappiness", "0"), 2: ("memory.swap.max", "0")}
WEIGHT = 100  # the default
FREE_SHARE = 0.25  # of the available memory, at most, for zombies
IN_MEMORY = ("tmpfs", "ramfs")


@dataclasses.dataclass(frozen=True)
class Groups:
    """`top` is the machine's cgroup, which gets the limit."""

    top: pathlib.Path
    version: int

    @classmethod
    def make(cls, journal: journal.Journal, name: str) -> Groups:
        """Create them, recorded in the journal first."""
        layout = cgroups.read_layout()
        if layout.memory is None or not layout.whole:
            raise errors.CannotError(
                "cannot create memory cgroups",
                why="the memory controller is not mounted, or only a part of it",
                todo="run this on a host, not in a container",
            )
        groups = cls(pathlib.Path(layout.memory) / name, layout.memory_version)
        journal.write("cgroup", groups.top)
        for folder in (groups.top, groups.top / REST, groups.top / SLICE):
            folder.mkdir()
            groups._open(folder)
        if not (groups.top / LIMIT[groups.version]).exists():
            raise errors.CannotError(
                "cannot limit memory cgroups on this host",
                why=f"{layout.memory} does not enable the memory controller for its children",
                todo=f"echo +memory > {layout.memory}/cgroup.subtree_control",
            )
        # Swapping the zombies' pages would free the zombies.
        file, value = NO_SWAP[groups.version]
        with contextlib.suppress(OSError):
            for folder in (groups.top, groups.top / SLICE):  # v1 reads that of the cgroup itself
                (folder / file).write_text(value)
        return groups

    def _open(self, folder: pathlib.Path) -> None:
        if self.version == 2 and folder.name != REST:
            with contextlib.suppress(OSError):
                (folder / "cgroup.subtree_control").write_text("+memory")

    def add(self, path: str, *, parent: bool = False) -> None:
        """Create a group, unless it is there. On v2 a `parent` of others has no processes."""
        folder = self.top / path
        folder.mkdir(exist_ok=True)
        if parent:
            self._open(folder)

    def weigh(self, workers: int) -> None:
        """Give the groups the CPU weight of `workers` processes: v2 shares CPU by cgroup, not by process."""
        weight = self.top / "cpu.weight"
        if weight.exists():
            weight.write_text(str(WEIGHT * workers))

    def require(self, zombies: int) -> None:
        """Raise CannotError where they would take too much memory: each costs at least 2 kB per core."""
        needed = zombies * parents.dying_cost()
        free = meminfo.read_available()
        if needed > FREE_SHARE * free:
            raise errors.CannotError(
                f"{zombies:,} zombies would take {needed >> 20} MB of memory",
                why=f"{free >> 20} MB is available, and a rehearsal uses at most a quarter",
                todo="run it on a host with more memory, or with fewer cores",
            )

    def limit(self, room: int) -> None:
        """Limit the machine to its present usage and `room` bytes."""
        usage = int((self.top / USAGE[self.version]).read_text())
        (self.top / LIMIT[self.version]).write_text(str(usage + room))

    def remove_limit(self) -> None:
        (self.top / LIMIT[self.version]).write_text(NO_LIMIT[self.version])


def disk_folder(stage: rehearsals.Stage) -> pathlib.Path:
    """Create a folder of the run on a disk file system: pages of tmpfs files cannot be reclaimed."""
    if _filesystem(stage.folder) not in IN_MEMORY:
        folder = stage.folder / "data"
    else:
        folder = pathlib.Path("/var/tmp") / f"{stage.journal.run}-data"  # noqa: S108 - its name is random
        if _filesystem(folder.parent) in IN_MEMORY:
            raise errors.CannotError(
                "no folder on a disk is available",
                why=f"{stage.folder} and {folder.parent} are both in memory (tmpfs)",
                todo="choose a data home on a disk: `overnight --home DIR rehearse`",
            )
    stage.journal.write("folder", folder)
    folder.mkdir()
    return folder


def _filesystem(path: pathlib.Path) -> str:
    """Return the file system type of the mount that holds a path: the longest, and of these the last."""
    visible = {mount.path: mount.type for mount in mounts.read_mounts()}
    holding = [mount for mount in visible if path.resolve().is_relative_to(mount)]
    return visible[max(holding, key=len)] if holding else ""
