"""A cgroup at its memory limit, without zombies: whoever reads a page there must free another first.

Processes of one name map a file that is larger than the limit, many times each, and go through it. To
free a page the kernel looks at every mapping of it, as on a host where many map one index. The file has
holes only: its pages cost memory and no disk.
"""

from __future__ import annotations

import mmap
import os
import pathlib
from typing import TYPE_CHECKING

from overnight import errors, rehearsals
from overnight.rehearsals import crowd, processes
from overnight.sources import cgroups

if TYPE_CHECKING:
    from overnight.model.truth import Truth

__all__ = ["REHEARSALS", "Reclaim", "main"]

MIB = 1 << 20
FILE_TIMES = 3  # of the limit: two pages in three are not there when they are asked for
MADV_POPULATE_READ = 22
ADDRESSES = 16 << 30  # a mapping of the file is addresses, not memory
LIMITS = {1: "memory.limit_in_bytes", 2: "memory.max"}


class Reclaim:
    """A `Rehearsal`."""

    name = "reclaim"
    about = "Processes at their cgroup's memory limit free pages on the victim's core."
    needs = ("root", "kmsg", "netns", "memory-cgroups")
    has_event = True

    def prepare(self, stage: rehearsals.Stage) -> None:
        """The cgroup with its limit, and the file."""
        chance = stage.chance
        word = chance.choice(("index", "shard", "column", "thumb", "parquet", "vector"))
        stage.facts["process"] = f"{word}-{chance.choice(('scan', 'merge', 'load', 'build'))}"
        stage.facts["processes"] = chance.randrange(3, 6)
        stage.facts["limit_mib"] = chance.randrange(24, 49, 4)
        stage.facts["mappings"] = chance.randrange(40, 72, 8)
        self._limit(stage)
        file = _folder_on_disk(stage) / f"{stage.journal.run}.index"
        stage.journal.write("file", file)
        with file.open("wb") as made:
            made.truncate(FILE_TIMES * _limit_bytes(stage))
        stage.facts["file"] = str(file)

    @staticmethod
    def _limit(stage: rehearsals.Stage) -> None:
        layout = cgroups.read_layout()
        if layout.memory is None:
            raise errors.CannotError(
                "no memory limit can be set here",
                why="no memory cgroups are mounted",
                todo="mount cgroup2, or choose another rehearsal",
            )
        # Not by our own name: what is in a group of overnight's is held to be the recorder.
        name = f"{stage.facts['process']}-{stage.journal.run.rpartition('-')[2]}"
        place = pathlib.Path(layout.memory) / name
        stage.journal.write("cgroup", place)
        place.mkdir()
        limit = place / LIMITS[layout.memory_version]
        if not limit.exists():
            raise errors.CannotError(
                "no memory limit can be set here",
                why=f"{place} has no {limit.name}",
                todo=f"echo +memory > {layout.memory}/cgroup.subtree_control",
            )
        limit.write_text(str(_limit_bytes(stage)))
        stage.facts["cgroup"] = str(place)

    def strike(self, stage: rehearsals.Stage) -> None:
        """They begin to read."""
        facts = stage.facts
        first = processes.start(
            stage,
            "overnight.rehearsals.reclaim",
            name=str(facts["process"]),
            core=stage.core,
            seconds=180,
            addresses=ADDRESSES,
            **{name: facts[name] for name in ("processes", "mappings", "cgroup", "file")},
        )
        processes.ends_with_fault(stage, first)

    def truth(self, stage: rehearsals.Stage) -> Truth:
        """Reclaim by these processes, the full core, the reset."""
        process = str(stage.facts["process"])
        return rehearsals.starved(
            stage, ("memory.reclaim", {"core": stage.core, "process": process})
        )


def _limit_bytes(stage: rehearsals.Stage) -> int:
    limit = stage.facts["limit_mib"]
    assert isinstance(limit, int)
    return limit * MIB


def _folder_on_disk(stage: rehearsals.Stage) -> pathlib.Path:
    """Pages of a file in memory (tmpfs) cannot be freed: with them the limit would only kill."""
    for folder in (stage.folder, pathlib.Path("/var/tmp"), pathlib.Path.home()):  # noqa: S108 - a random name
        if folder.is_dir() and _filesystem(folder) not in ("tmpfs", "ramfs"):
            return folder
    raise errors.CannotError(
        "there is nothing whose memory could be freed",
        why=f"{stage.folder}, /var/tmp and the home folder are all in memory (tmpfs)",
        todo="overnight --home DIR rehearse reclaim   with a folder on a disk",
    )


def _filesystem(folder: pathlib.Path) -> str:
    """The kind of the mount that holds a folder, as /proc/self/mounts names it."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2] == wanted:
            return right.split()[0]
    return ""


def main() -> None:
    """The first process, which becomes the others, too."""
    told = processes.begin()
    (pathlib.Path(told["cgroup"]) / "cgroup.procs").write_text("0")
    file = os.open(told["file"], os.O_RDONLY)
    crowd.fork(told, lambda number: _read(told, file, number), told["processes"] - 1)
    _read(told, file, told["processes"] - 1)


def _read(told: dict[str, int], file: int, number: int) -> None:
    """Go through the file for ever, each from another place on."""
    size = os.fstat(file).st_size
    made = [mmap.mmap(file, size, prot=mmap.PROT_READ) for _ in range(told["mappings"])]
    for one in made:
        one.madvise(mmap.MADV_RANDOM)  # page by page: nothing is read ahead
    at = size * number // told["processes"] // MIB * MIB
    while True:
        _touch(made[0], at)
        at = (at + MIB) % size


def _touch(mapped: mmap.mmap, at: int) -> None:
    try:
        mapped.madvise(MADV_POPULATE_READ, at, MIB)
    except OSError:  # before 5.14, or interrupted: one page after the other
        mapped[at : at + MIB : mmap.PAGESIZE]


REHEARSALS = (Reclaim(),)

if __name__ == "__main__":
    main()
