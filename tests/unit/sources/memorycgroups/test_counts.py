"""The census on trees like those of real hosts: v1, v2, hybrid."""

from __future__ import annotations

import pathlib

import pytest

from overnight import sources
from overnight.sources import memorycgroups
from overnight.sources.memorycgroups import counts

V1_MOUNTS = """31 24 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 24 0:28 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
"""
UNIFIED = "39 24 0:35 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
V2_MOUNTS = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
PROC_CGROUPS = """#subsys_name\thierarchy\tnum_cgroups\tenabled
cpuset\t3\t1\t1
memory\t4\t{}\t1
pids\t8\t9\t1
"""


def v1_host(root: pathlib.Path, tracked: int, *, mounts: str = V1_MOUNTS) -> pathlib.Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(mounts)
    (root / "proc/cgroups").write_text(PROC_CGROUPS.format(tracked))
    top = root / "sys/fs/cgroup/memory"
    for path in ("system.slice/ecs.service", "system.slice/ssh.service", "kubepods/pod1"):
        (top / path).mkdir(parents=True)
    for folder in (top, *top.rglob("*")):
        (folder / "memory.stat").write_text("cache 0\n")
    return root


def v2_host(root: pathlib.Path, stat: str) -> pathlib.Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(V2_MOUNTS)
    (root / "proc/cgroups").write_text("#subsys_name\thierarchy\tnum_cgroups\tenabled\n")
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/cgroup.stat").write_text(stat)
    (root / "sys/fs/cgroup/memory.stat").write_text("anon 0\n")
    return root


@pytest.mark.parametrize("mounts", [V1_MOUNTS, V1_MOUNTS + UNIFIED], ids=["v1", "hybrid"])
def test_v1_dying_cgroups_are_the_tracked_ones_minus_the_directories(
    tmp_path: pathlib.Path, mounts: str
) -> None:
    root = v1_host(tmp_path, 68_680, mounts=mounts)
    layout = counts.read_layout(root)
    assert counts.read_census(layout, root) == counts.Census(68_680, 6, 68_674)


def test_more_directories_than_counted_cgroups_give_zero_dying(
    tmp_path: pathlib.Path,
) -> None:
    """A cgroup can be created between the two reads."""
    root = v1_host(tmp_path, 5)
    assert counts.read_census(counts.read_layout(root), root).dying == 0


@pytest.mark.parametrize(
    ("stat", "expected"),
    [
        ("nr_descendants 239\nnr_dying_descendants 700\n", (940, 240, 700)),
        (
            "nr_descendants 300\nnr_subsys_memory 240\nnr_dying_descendants 900\nnr_dying_subsys_memory 700\n",
            (940, 240, 700),
        ),
    ],
    ids=["any controller", "the memory controller's own"],
)
def test_v2_is_counted_by_the_kernel(
    tmp_path: pathlib.Path, stat: str, expected: tuple[int, int, int]
) -> None:
    root = v2_host(tmp_path, stat)
    assert counts.read_census(counts.read_layout(root), root) == counts.Census(*expected)


def test_hosts_without_a_count_have_no_data(tmp_path: pathlib.Path) -> None:
    with pytest.raises(sources.NoDataError, match="mountinfo"):
        counts.read_layout(tmp_path)
    root = v2_host(tmp_path, "nr_descendants 1\n")
    with pytest.raises(sources.NoDataError, match="dying"):
        counts.read_census(counts.read_layout(root), root)
    mountinfo = root / "proc/self/mountinfo"
    mountinfo.write_text("1 1 0:1 / / rw - ext4 x rw\n")
    with pytest.raises(sources.NoDataError, match="no memory controller"):
        counts.read_layout(root)
    mountinfo.write_text(V1_MOUNTS.replace("0:27 / ", "0:27 /docker/7f "))
    with pytest.raises(sources.NoDataError, match="part"):
        counts.read_layout(root)


def test_a_v1_host_without_the_controller_has_no_data(tmp_path: pathlib.Path) -> None:
    root = v1_host(tmp_path, 1)
    layout = counts.read_layout(root)
    (root / "proc/cgroups").write_text("memory\t0\t1\t0\n")
    with pytest.raises(sources.NoDataError, match="/proc/cgroups"):
        counts.read_census(layout, root)


class Clock:
    """A clock that advances by `step` at each reading."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.mark.parametrize(
    ("duration", "pause"), [(0.001, 600.0), (0.5, 3600.0)], ids=["quick", "slow: an hour of rest"]
)
def test_the_statistics_are_read_rarely(
    tmp_path: pathlib.Path, duration: float, pause: float
) -> None:
    root = v1_host(tmp_path, 9)
    clock = Clock()
    timer = counts.StatTimer(counts.read_layout(root), root, clock)
    clock.step = duration
    first = timer.read()
    assert first == pytest.approx(duration * 1e6, rel=0.01)
    clock.step = 0
    begun = 1000.0 + duration  # the reader's own first reading of the clock
    clock.now = begun + pause - 1
    assert timer.read() == first
    assert timer.reads == 1
    clock.now = begun + pause
    timer.read()
    assert timer.reads == 2


def test_the_signal_has_a_value_for_each_column(tmp_path: pathlib.Path) -> None:
    root = v1_host(tmp_path, 68_680)
    for signal in memorycgroups.SIGNALS:
        for row in signal.open(root)().values():
            assert len(row) == len(signal.columns)
    assert memorycgroups.SIGNALS[0].open(root)()[""][:3] == (68_680, 6, 68_674)


def test_directories_are_counted_when_link_counts_are_unusable(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems report one link for every directory."""
    for name in ("a/b", "a/c", "d"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/file").touch()
    assert counts.count_directories(str(tmp_path)) == 5
    real = sources.os.stat

    class Stat:
        st_nlink = 1

    monkeypatch.setattr(sources.os, "stat", lambda path: Stat() if path else real(path))
    assert counts.count_directories(str(tmp_path)) == 5
