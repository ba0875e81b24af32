from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING

from overnight.app import rehearsal_host
from overnight.load.host_state import memory_cgroups
from overnight.model import cgroups, mounts
from overnight.rehearsals import cgroups as run_cgroups

if TYPE_CHECKING:
    import pytest

# A mount point may hold every byte but 0 and the slash: here none of UTF-8, and white space of Unicode.
HOSTILE = "/mnt/\udcff\u2028\u00a0x"
MOUNTS = os.fsencode(
    f"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    f"30 20 0:27 / /dev/shm rw - ramfs ramfs rw\n"
    f"31 20 0:28 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw,huge=never\n"
    f"32 20 0:29 / {HOSTILE} rw - xfs /dev/sdb rw\n"
    f"33 20 0:30 /part /cg rw - cgroup2 cgroup2 rw\n"
)


def test_every_reader_of_mounts_accepts_any_mount_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pathlib.Path, "read_bytes", lambda _: MOUNTS)
    paths = [mount.path for mount in mounts.read_mounts()]
    assert paths == ["/", "/dev/shm", "/dev/shm", HOSTILE, "/cg"]
    memory_cgroups._need_tmpfs(1)
    assert run_cgroups._filesystem(pathlib.Path(HOSTILE) / "data") == "xfs"
    assert "/mnt/\\udcff\\u2028\\xa0x" in rehearsal_host.take_inventory().mounts
    layout = cgroups.read_layout()
    assert (layout.version, layout.whole) == ("v2", False)
