"""A cgroup at its memory limit, without zombies: each page read there must reclaim another first.

Processes map a file larger than the limit, many times each, and read through it. To reclaim a page the
kernel visits every mapping of it, as on a host where many processes map one index. The file has only holes:
its pages take memory but no disk.
"""

from __future__ import annotations

import mmap
import os
import pathlib
from typing import TYPE_CHECKING

from overnight import errors, rehearsals
from overnight.model import cgroups
from overnight.rehearsals import cgroups as rehearsal_cgroups
from overnight.rehearsals import processes

if TYPE_CHECKING:
    from overnight.model.truth import Truth

MIB = 1 << 20
FILE_TIMES = 3  # times the limit: two of three pages are not cached when read
MADV_POPULATE_READ = 22
ADDRESSES = 16 << 30  # a mapping of the file is addresses, not memory


class Reclaim:
    name = "reclaim"
    about = "Processes at their cgroup's memory limit reclaim pages on the victim's core."
    needs = ("root", "kmsg", "netns", "memory-cgroups")
    has_event = True

    def prepare(self, stage: rehearsals.Stage) -> None:
        """Create the cgroup with its limit, and the file."""
        chance = stage.chance
        word = chance.choice(("index", "shard", "column", "thumb", "parquet", "vector"))
        stage.facts["process"] = f"{word}-{chance.choice(('scan', 'merge', 'load', 'build'))}"
        stage.facts["processes"] = chance.randrange(3, 6)
        stage.facts["limit_mib"] = limit_mib = chance.randrange(24, 49, 4)
        stage.facts["mappings"] = chance.randrange(40, 72, 8)
        self._limit(stage, limit_mib * MIB)
        file = rehearsal_cgroups.disk_folder(stage) / f"{stage.journal.run}.index"
        with file.open("wb") as index:
            index.truncate(FILE_TIMES * limit_mib * MIB)
        stage.facts["file"] = str(file)

    @staticmethod
    def _limit(stage: rehearsals.Stage, size: int) -> None:
        layout = cgroups.read_layout()
        if layout.memory is None:
            raise errors.CannotError(
                "cannot set a memory limit on this host",
                why="no memory cgroups are mounted",
                todo="mount cgroup2, or choose another rehearsal",
            )
        # Not named after overnight: a cgroup of overnight would be taken for the recorder.
        name = f"{stage.facts['process']}-{stage.journal.run.rpartition('-')[2]}"
        place = pathlib.Path(layout.memory) / name
        stage.journal.write("cgroup", place)
        place.mkdir()
        limit = place / rehearsal_cgroups.LIMIT[layout.memory_version]
        if not limit.exists():
            raise errors.CannotError(
                "cannot set a memory limit on this host",
                why=f"{place} has no {limit.name}",
                todo=f"echo +memory > {layout.memory}/cgroup.subtree_control",
            )
        limit.write_text(str(size))
        stage.facts["cgroup"] = str(place)

    def strike(self, stage: rehearsals.Stage) -> None:
        module = "overnight.rehearsals.reclaim"
        processes.start_fault(stage, module, core=stage.core, addresses=ADDRESSES)

    def truth(self, stage: rehearsals.Stage) -> Truth:
        return rehearsals.starved_by_process(stage, "memory.reclaim")


def main() -> None:
    """Fork the other processes, then read."""
    settings = processes.begin()
    (pathlib.Path(settings["cgroup"]) / "cgroup.procs").write_text("0")
    file = os.open(settings["file"], os.O_RDONLY)
    processes.fork(
        settings, lambda number: _read(settings, file, number), settings["processes"] - 1
    )
    _read(settings, file, settings["processes"] - 1)


def _read(settings: dict[str, int], file: int, number: int) -> None:
    """Read through the file forever, each process from another offset."""
    size = os.fstat(file).st_size
    mappings = [mmap.mmap(file, size, prot=mmap.PROT_READ) for _ in range(settings["mappings"])]
    for mapping in mappings:
        mapping.madvise(mmap.MADV_RANDOM)  # no read-ahead
    at = size * number // settings["processes"] // MIB * MIB
    while True:
        _touch(mappings[0], at)
        at = (at + MIB) % size


def _touch(mapped: mmap.mmap, at: int) -> None:
    try:
        mapped.madvise(MADV_POPULATE_READ, at, MIB)
    except OSError:  # before 5.14, or interrupted: one page after the other
        mapped[at : at + MIB : mmap.PAGESIZE]


REHEARSALS = (Reclaim(),)

if __name__ == "__main__":
    main()
