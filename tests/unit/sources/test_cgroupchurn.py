"""Births and deaths by real inotify, on ordinary directories; on real cgroups in tests/integration."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import inspect
import os
import pathlib
import sys
from collections.abc import Iterator

import exhaustion
import pytest

from overnight import sources
from overnight.sources import cgroupchurn

MOUNTS = """31 24 0:27 / /cg/memory rw - cgroup cgroup rw,memory
32 24 0:28 / /cg/systemd rw - cgroup cgroup rw,name=systemd
39 24 0:35 / /cg/unified rw - cgroup2 cgroup2 rw
"""


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def top(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "cg/memory/ecs.service").mkdir(parents=True)
    return tmp_path / "cg/memory"


@pytest.fixture
def churn(top: pathlib.Path, clock: Clock) -> Iterator[cgroupchurn.Churn]:
    with contextlib.closing(cgroupchurn.Churn((str(top),), clock=clock)) as churn:
        yield churn


def test_existing_cgroups_are_not_births(churn: cgroupchurn.Churn) -> None:
    assert churn.read() == {}


def test_a_cgroup_that_lives_between_two_polls_is_counted(
    churn: cgroupchurn.Churn, top: pathlib.Path
) -> None:
    for i in range(6):
        (top / f"ecs.service/{i}").mkdir()
        (top / f"ecs.service/{i}").rmdir()
    assert churn.read() == {"/ecs.service": (6, 6, 6, 0)}


def test_a_reused_name_is_a_new_cgroup_each_time(
    churn: cgroupchurn.Churn, top: pathlib.Path, clock: Clock
) -> None:
    task = top / "ecs.service/task"
    task.mkdir()
    churn.read()
    for _ in range(3):
        task.rmdir()
        task.mkdir()
    clock.now += 2
    assert churn.read() == {"/ecs.service": (4, 3, 3, 2000)}
    (task / "inside").mkdir()
    assert churn.read()["/ecs.service/task"] == (1, 0, 0, 0)


def test_lifetimes_and_short_lived_cgroups(
    churn: cgroupchurn.Churn, top: pathlib.Path, clock: Clock
) -> None:
    for name in ("quick", "slow"):
        (top / "ecs.service" / name).mkdir()
    churn.read()
    clock.now += 10
    (top / "ecs.service/quick").rmdir()
    churn.read()
    clock.now += 90
    (top / "ecs.service/slow").rmdir()
    assert churn.read()["/ecs.service"] == (2, 2, 1, 110_000)


def test_a_cgroup_older_than_the_watch_dies_at_an_unknown_age(
    churn: cgroupchurn.Churn, top: pathlib.Path
) -> None:
    (top / "ecs.service").rmdir()
    assert churn.read() == {"/": (0, 1, 0, 0)}


def test_births_in_a_new_cgroup_count_before_it_is_watched(
    churn: cgroupchurn.Churn, top: pathlib.Path
) -> None:
    (top / "new/below/deep").mkdir(parents=True)
    assert churn.read() == {"/": (1, 0, 0, 0), "/new": (1, 0, 0, 0), "/new/below": (1, 0, 0, 0)}


def test_a_removed_parent_has_no_row(churn: cgroupchurn.Churn, top: pathlib.Path) -> None:
    (top / "pod/a").mkdir(parents=True)
    churn.read()
    (top / "pod/a").rmdir()
    (top / "pod").rmdir()
    assert churn.read() == {"/": (1, 1, 1, 0)}


def test_quiet_parents_have_no_row(
    churn: cgroupchurn.Churn, top: pathlib.Path, clock: Clock
) -> None:
    (top / "ecs.service/a").mkdir()
    churn.read()
    clock.now += cgroupchurn.QUIET_S + 1
    assert churn.read() == {}


def test_watches_are_bounded_and_births_at_the_edge_still_seen(
    top: pathlib.Path, clock: Clock
) -> None:
    for i in range(10):
        (top / f"many/{i}").mkdir(parents=True)
    with contextlib.closing(cgroupchurn.Churn((str(top),), max_watches=3, clock=clock)) as churn:
        assert churn.read() == {cgroupchurn.UNWATCHED: (10, 0, 0, 0)}
        (top / "new").mkdir()
        assert churn.read()["/"] == (1, 0, 0, 0)
        clock.now += 5
        (top / "new").rmdir()
        assert churn.read()["/"] == (1, 1, 1, 5000)


def test_one_cgroup_in_two_hierarchies_is_one_row(tmp_path: pathlib.Path, clock: Clock) -> None:
    tops = [tmp_path / name for name in ("memory", "systemd")]
    for top in tops:
        (top / "a.service").mkdir(parents=True)
    with contextlib.closing(cgroupchurn.Churn(tuple(map(str, tops)), clock=clock)) as churn:
        for top in tops:
            (top / "a.service/x").mkdir()
        (tops[1] / "a.service/only").mkdir()
        assert churn.read() == {"/a.service": (2, 0, 0, 0)}


def test_hostile_names(churn: cgroupchurn.Churn, top: pathlib.Path) -> None:
    for name in (b"\x1b[31m", b"\xff\xfe", b"n" * 255, "ü".encode() * 100):
        (top / os.fsdecode(name) / "x").mkdir(parents=True)
    keys = list(churn.read())
    assert len(keys) == 5
    assert all(key.isprintable() for key in keys)


def test_files_are_not_cgroups(churn: cgroupchurn.Churn, top: pathlib.Path) -> None:
    (top / "file").touch()
    assert churn.read() == {}


def test_an_overflow_causes_a_new_scan(
    churn: cgroupchurn.Churn, top: pathlib.Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports an overflow of its queue as an event of watch -1."""
    (top / "ecs.service/a").mkdir()
    (top / "ecs.service").rename(top.parent / "aside")  # both events are dropped
    (top / "b").mkdir()
    events = [cgroupchurn.EVENT.pack(-1, cgroupchurn.IN_Q_OVERFLOW, 0, 0)]

    def read(descriptor: int, size: int) -> bytes:
        if events:
            return events.pop()
        raise BlockingIOError

    monkeypatch.setattr(cgroupchurn.os, "read", read)
    assert churn.read() == {"/": (1, 1, 0, 0)}


def test_every_hierarchy_of_the_host_is_watched(tmp_path: pathlib.Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(MOUNTS)
    assert cgroupchurn.hierarchies(tmp_path) == tuple(
        str(tmp_path / "cg" / name) for name in ("memory", "systemd", "unified")
    )
    (tmp_path / "proc/self/mountinfo").write_text("")
    with pytest.raises(sources.NoDataError):
        cgroupchurn.hierarchies(tmp_path)


def test_exhausted_inotify_instances_are_not_a_missing_inotify(top: pathlib.Path) -> None:
    with exhaustion.no_descriptors(), pytest.raises(OSError, match="max_user_instances"):
        cgroupchurn.Churn((str(top),))


def test_directories_beyond_the_limit_of_inotify_watches_are_counted(
    top: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullLibrary(ctypes.CDLL):
        def inotify_add_watch(self, *_: object) -> int:
            ctypes.set_errno(errno.ENOSPC)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", FullLibrary)
    with contextlib.closing(cgroupchurn.Churn((str(top),))) as churn:
        assert churn.read() == {cgroupchurn.UNWATCHED: (2, 0, 0, 0)}


def test_births_nested_deeper_than_the_recursion_limit(
    churn: cgroupchurn.Churn, top: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (top / "/".join("x" * 300)).mkdir(parents=True)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        rows = churn.read()
    finally:
        sys.setrecursionlimit(before)
    assert sum(row[0] for row in rows.values()) == 300
