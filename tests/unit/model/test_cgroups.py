from __future__ import annotations

import pytest

from overnight.model import cgroups

V1 = """24 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
33 24 0:29 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
"""
UNIFIED = "39 24 0:35 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize(
    ("mounts", "version", "memory", "interface"),
    [
        (V1, "v1", "/sys/fs/cgroup/memory", 1),
        (V1 + UNIFIED, "hybrid", "/sys/fs/cgroup/memory", 1),
        (V1.replace("memory", "blkio") + UNIFIED, "hybrid", "/sys/fs/cgroup/unified", 2),
        (V2, "v2", "/sys/fs/cgroup", 2),
        ("", "none", None, 0),
        ("garbage - \n1 2 3 - cgroup2 x y", "none", None, 0),
    ],
)
def test_layouts(mounts: str, version: str, memory: str | None, interface: int) -> None:
    layout = cgroups.parse_layout(mounts)
    assert layout.version == version
    assert (str(layout.memory) if layout.memory else None) == memory
    assert layout.memory_version == interface
    assert layout.whole


def test_a_v1_host_without_the_memory_controller_has_no_memory_hierarchy() -> None:
    assert cgroups.parse_layout(V1.replace("memory", "blkio")).memory is None


def test_the_systemd_hierarchy_is_found() -> None:
    assert str(cgroups.parse_layout(V1).systemd) == "/sys/fs/cgroup/systemd"
    assert cgroups.parse_layout(V2).systemd is None


@pytest.mark.parametrize(
    ("mounts", "cpu", "interface"),
    [
        (V1, "/sys/fs/cgroup/cpu,cpuacct", 1),
        (V1 + UNIFIED, "/sys/fs/cgroup/cpu,cpuacct", 1),
        (V1.replace("rw,cpu,", "rw,") + UNIFIED, "/sys/fs/cgroup/unified", 2),
        (V2, "/sys/fs/cgroup", 2),
        ("", "None", 0),
    ],
)
def test_the_cpu_controller_is_found(mounts: str, cpu: str, interface: int) -> None:
    layout = cgroups.parse_layout(mounts)
    assert (str(layout.cpu), layout.cpu_version) == (cpu, interface)


def test_a_partial_hierarchy_in_a_container_is_not_whole() -> None:
    part = V1.replace("0:28 / ", "0:28 /docker/7f ")
    assert not cgroups.parse_layout(part).whole


def test_a_mount_path_with_spaces_is_decoded() -> None:
    odd = V2.replace("/sys/fs/cgroup", r"/mnt/a\040b\134c")
    assert str(cgroups.parse_layout(odd).memory) == r"/mnt/a b\c"


def test_keys_are_printable_short_and_distinct() -> None:
    long = [cgroups.key_of(b"/" + b"x" * 8000 + tail) for tail in (b"a", b"b")]
    assert long[0] != long[1]
    assert max(map(len, long)) <= cgroups.MAX_KEY
    assert cgroups.key_of(b"/a\nb\x1b]0;x\x07").isprintable()
    assert cgroups.key_of("/größe".encode()) == "/größe"


def test_the_layout_of_this_host_is_read() -> None:
    assert cgroups.read_layout().version in ("v1", "v2", "hybrid", "none")
