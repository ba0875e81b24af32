from __future__ import annotations

import pytest

from overnight.sources import cgroups

V1 = """24 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
"""
UNIFIED = "39 24 0:35 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize(
    ("mounts", "version", "memory"),
    [
        (V1, "v1", "/sys/fs/cgroup/memory"),
        (V1 + UNIFIED, "hybrid", "/sys/fs/cgroup/memory"),
        (V2, "v2", "/sys/fs/cgroup"),
        ("", "none", None),
        ("garbage - \n1 2 3 - cgroup2 x y", "none", None),
    ],
)
def test_layouts(mounts: str, version: str, memory: str | None) -> None:
    layout = cgroups.parse_layout(mounts)
    assert layout.version == version
    assert (str(layout.memory) if layout.memory else None) == memory


def test_a_v1_host_without_the_memory_controller_has_none_to_count_in() -> None:
    assert cgroups.parse_layout(V1.replace("memory", "blkio")).memory is None


def test_this_very_host() -> None:
    assert cgroups.read_layout().version in ("v1", "v2", "hybrid", "none")
