"""The v2 count on a real v2 hierarchy; a perf event on each cgroup keeps it dying."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import platform
from collections.abc import Iterator

import pytest
import zombies

from overnight.model import cgroups
from overnight.sources.memorycgroups import counts, parents

UNIFIED = zombies.LAYOUT.unified
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}.get(platform.machine())
PERF_FLAG_PID_CGROUP = 4

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif(UNIFIED is None or PERF_EVENT_OPEN is None, reason="no cgroup v2 here"),
]


def hold(folder: pathlib.Path) -> int:
    """Open a perf event of the cgroup on the first core; the kernel keeps the cgroup until it is closed."""
    place = os.open(folder, os.O_RDONLY)
    try:
        # A counter of the CPU clock: type software, the rest of the 128 bytes zero.
        attributes = (1).to_bytes(4, "little") + (128).to_bytes(4, "little") + bytes(120)
        libc = ctypes.CDLL(None, use_errno=True)
        event = libc.syscall(PERF_EVENT_OPEN, attributes, place, 0, -1, PERF_FLAG_PID_CGROUP)
        assert event >= 0, os.strerror(ctypes.get_errno())
        return int(event)
    finally:
        os.close(place)


@pytest.fixture
def parent() -> Iterator[pathlib.Path]:
    folder = pathlib.Path(str(UNIFIED)) / f"overnight-dying-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        zombies.remove_tree(folder)


def test_dying_cgroups_are_counted_and_located(parent: pathlib.Path) -> None:
    # As on a host whose memory controller is on v2; that another controller keeps them here
    # makes no difference to nr_dying_descendants.
    layout = cgroups.Layout("v2", UNIFIED, UNIFIED, memory_version=2)
    before = counts.read_census(layout)
    with contextlib.ExitStack() as held:
        for below, number in (("a", 7), ("b/c", 3)):
            (parent / below).mkdir(parents=True)
            for i in range(number):
                cgroup = parent / below / str(i)
                cgroup.mkdir()
                held.callback(os.close, hold(cgroup))
                cgroup.rmdir()
        now = counts.read_census(layout)
        assert now.dying - before.dying == 10
        key = f"/{parent.name}"
        rows = {row.path: row for row in parents.read_parents(layout, now.dying)}
        assert (rows[f"{key}/a"].dying, rows[f"{key}/b/c"].dying) == (7, 3)
        assert rows[f"{key}/a"].counted
        assert f"{key}/b" not in rows
