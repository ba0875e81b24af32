"""The cgroup that prefers tests is removed, also that of a run that was killed."""

from __future__ import annotations

import doctest
import os
import pathlib

import noise
import pytest


def test_the_cgroup_of_the_cpu_is_found_beside_other_controllers() -> None:
    assert noise.find_cpu_cgroup("4:cpu,cpuacct:/user.slice/a\n3:cpuset:/\n0::/") == "user.slice/a"
    assert doctest.testmod(noise) == doctest.TestResults(failed=0, attempted=1)


@pytest.mark.needs_root
def test_a_killed_run_leaves_no_cgroup_behind(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (noise.CPU_HIERARCHY / "cpu.shares").exists():  # cgroup v2: nothing is created
        monkeypatch.setattr(noise, "CPU_HIERARCHY", tmp_path / "missing")
    else:
        (noise.CPU_HIERARCHY / "overnight-test-999999999").mkdir()
    with noise.prefer_this_process():
        pass
    for pid in ("999999999", os.getpid()):
        assert not (noise.CPU_HIERARCHY / f"overnight-test-{pid}").exists()
