from __future__ import annotations

import os
import pathlib

import pytest

from overnight.sources import processes
from overnight.sources.processes import membership


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/system.slice/ecs.service/task", "ecs.service"),
        ("/user.slice/user-0.slice/session-1.scope", "session-1.scope"),
        ("/user.slice", "/user.slice"),
        ("/kubepods/pod7f", "/kubepods/pod7f"),
        ("/.service", "/.service"),
        ("", ""),
    ],
)
def test_the_innermost_unit(path: str, unit: str) -> None:
    assert processes.unit_of(path) == unit


def test_an_ended_process_has_no_unit() -> None:
    assert processes.read_unit(2**22 + 1) == ""
    assert isinstance(processes.read_unit(os.getpid()), str)


def test_pods_are_named_by_the_folders_of_kubelet(tmp_path: pathlib.Path) -> None:
    uid, container = "0f3a1b2c-1111-2222-3333-444455556666", "3f" * 32
    logs = tmp_path / "var/log/pods"
    for name in (f"kube-system_agent-x7_{uid}", "not-a-pod", "a_b_c_d"):
        (logs / name).mkdir(parents=True)
    slice_ = f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
    for path, owner in (
        (f"/kubepods/burstable/pod{uid}/{container}", "kube-system/agent-x7"),
        (f"/kubepods.slice/{slice_}/cri-containerd-{container}.scope", "kube-system/agent-x7"),
        (f"/kubepods/pod{uid.replace('0', '1')}", f"/kubepods/pod{uid.replace('0', '1')}"),
        ("/system.slice/pod.service", "pod.service"),
    ):
        assert membership.owner_of(path, tmp_path) == owner
        folder = tmp_path / "proc/7"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup").write_text(f"0::{path}\n")
        assert membership.read_unit(7, tmp_path) == owner
    assert (
        membership.parse_container(f"/kubepods.slice/cri-containerd-{container}.scope") == "3f" * 6
    )
    assert membership.parse_container(f"/docker/{container}") == "3f" * 6
    assert membership.parse_container("/docker/3f") == ""
    assert (
        membership.owner_of(f"/kubepods/pod{uid}", tmp_path / "elsewhere") == f"/kubepods/pod{uid}"
    )
