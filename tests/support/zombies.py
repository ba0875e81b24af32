"""Real zombie cgroups: entered once, left, removed, and kept by one page of a tmpfs file."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator

from overnight.sources import cgroups

MEMORY = cgroups.read_layout().memory


class Zombies:
    """Below its own parent; `purge` lets them go."""

    def __init__(self, parent: pathlib.Path, files: pathlib.Path) -> None:
        self.parent = parent
        self.files = files
        self.made = 0

    @property
    def key(self) -> str:
        return "/" + str(self.parent.relative_to(str(MEMORY)))

    def make(self, number: int, below: str = "") -> None:
        """In a process of its own: what enters and leaves cgroups must not be the test."""
        place = self.parent / below
        place.mkdir(exist_ok=True)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._make(number, place)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        self.made += number

    def _make(self, number: int, place: pathlib.Path) -> None:
        for i in range(number):
            one = place / f"z{i}"
            one.mkdir()
            (one / "cgroup.procs").write_text("0")
            (self.files / f"{place.name}-{self.made + i}").write_text("x")
            (place / "cgroup.procs").write_text("0")
            one.rmdir()
        # Out of the parent before the end: what it still holds there would be a page of this process.
        (self.parent.parent / "cgroup.procs").write_text("0")

    def purge(self) -> None:
        for path in self.files.iterdir():
            path.unlink()


def remove_tree(top: pathlib.Path, seconds: float = 10) -> None:
    """Removes empty cgroups from the leaves up; one whose process has just ended is busy for a moment."""
    deadline = time.monotonic() + seconds
    while top.exists():
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                pathlib.Path(folder).rmdir()
        if top.exists():
            assert time.monotonic() < deadline, f"{top} stays busy"
            time.sleep(0.02)


@contextlib.contextmanager
def zombies() -> Iterator[Zombies]:
    files = pathlib.Path(tempfile.mkdtemp(prefix="overnight-zombies-", dir="/dev/shm"))
    parent = pathlib.Path(str(MEMORY)) / f"overnight-zombies-{os.getpid()}"
    parent.mkdir()
    try:
        yield Zombies(parent, files)
    finally:
        shutil.rmtree(files)
        remove_tree(parent)
