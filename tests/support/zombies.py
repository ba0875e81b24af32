"""Real zombie cgroups: each was removed, and one page of a tmpfs file keeps it alive."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator

from overnight.model import cgroups

LAYOUT = cgroups.read_layout()
MEMORY = pathlib.Path(str(LAYOUT.memory))
POSSIBLE = LAYOUT.memory_version == 1  # on v2 this needs a delegated tree


class Zombies:
    """Zombie cgroups below one parent; `purge` frees them."""

    def __init__(self, parent: pathlib.Path, files: pathlib.Path) -> None:
        self.parent = parent
        self.files = files
        self.count = 0

    @property
    def key(self) -> str:
        return "/" + str(self.parent.relative_to(MEMORY))

    def make(self, number: int, below: str = "") -> None:
        """Make zombies in a child process: the test process must not enter cgroups."""
        folder = self.parent / below
        folder.mkdir(exist_ok=True)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._make(number, folder)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        self.count += number

    def _make(self, number: int, folder: pathlib.Path) -> None:
        # Back to its original cgroup: no page of this process may stay in the parent.
        home = next(
            line.split(":", 2)[2]
            for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()
            if "memory" in line.split(":")[1].split(",")
        )
        leave = MEMORY / home.lstrip("/") / "cgroup.procs"
        for i in range(number):
            cgroup = folder / f"z{i}"
            cgroup.mkdir()
            (cgroup / "cgroup.procs").write_text("0")
            (self.files / f"{folder.name}-{self.count + i}").write_text("x")
            leave.write_text("0")
            cgroup.rmdir()

    def purge(self) -> None:
        for path in self.files.iterdir():
            path.unlink()
        # A core caches charges, and they keep a zombie alive: this drains the caches.
        for folder, _, _ in os.walk(self.parent, topdown=False):
            (pathlib.Path(folder) / "memory.force_empty").write_text("0")


def remove_tree(top: pathlib.Path, seconds: float = 10) -> None:
    """Remove empty cgroups from the leaves up; one whose process has just ended is busy for a moment."""
    deadline = time.monotonic() + seconds
    while top.exists():
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                pathlib.Path(folder).rmdir()
        if top.exists():
            assert time.monotonic() < deadline, f"{top} stays busy"
            time.sleep(0.02)


def tracked() -> int:
    """Return the number of memory cgroups in the kernel, read in another way than the source does."""
    for line in pathlib.Path("/proc/cgroups").read_text().splitlines():
        if line.startswith("memory\t"):
            return int(line.split("\t")[2])
    raise AssertionError("/proc/cgroups does not count memory cgroups")


@contextlib.contextmanager
def zombies() -> Iterator[Zombies]:
    files = pathlib.Path(tempfile.mkdtemp(prefix="overnight-zombies-", dir="/dev/shm"))
    parent = MEMORY / f"overnight-zombies-{os.getpid()}"
    before = tracked()
    parent.mkdir()
    leak = Zombies(parent, files)
    try:
        yield leak
    finally:
        shutil.rmtree(files)
        remove_tree(parent)
        # The kernel frees them after a grace period; the next test counts from there. Others may
        # have made a few meanwhile.
        deadline = time.monotonic() + 10
        while tracked() > before + leak.count // 50 and time.monotonic() < deadline:
            time.sleep(0.05)
