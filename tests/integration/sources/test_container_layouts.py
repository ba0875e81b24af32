"""Real cgroups, v1 and v2, with the names that runtimes give them, and the state that real runtimes wrote.

Docker itself is in test_container_runtimes.py. This test needs no runtime, so it also runs on a bare host with pure cgroup v2.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import time

import pytest
import runtimes

from overnight.detectors import _creators
from overnight.model import cgroups
from overnight.sources import cgroupchurn

pytestmark = [pytest.mark.needs_root, pytest.mark.together]

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures/containers"
ID = f"{os.getpid():064x}"  # another run of this test on the same host has other containers
# Letters alone: digits would count as the random part of a name.
NAME = f"agent-{str(os.getpid()).translate(str.maketrans('0123456789', 'abcdefghij'))}"
UNIT = f"overnight-test-{os.getpid()}.service"
# A client in the unit's own cgroup, which waits for a program that it moved into the new one.
LOOP = """
exec 9<> <(:)
while :; do
  mkdir -p "$1/$2"
  sh -c '(echo 0 > "$1/cgroup.procs"; exec sleep 2) & wait' client "$1/$2"
  while [ -d "$1/$2" ]; do rmdir "$1/$2" 2>/dev/null || sleep 0.05; done
  read -rt 3 -u 9  # a pause that starts no process
done
"""
LAYOUTS = [
    pytest.param("docker", ID, "docker:ecs-agent", id="Docker, cgroupfs"),
    pytest.param("system.slice", f"docker-{ID}.scope", "docker:ecs-agent", id="Docker, systemd"),
    pytest.param("default", NAME, f"containerd:default/{NAME}", id="containerd, cgroupfs"),
    pytest.param("system.slice", f"nerdctl-{NAME}.scope", f"containerd:default/{NAME}", id="containerd, systemd"),
]  # fmt: skip


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a root with the real /proc and /sys, and the state of runtimes."""
    for name in ("proc", "sys"):
        (tmp_path / name).symlink_to(f"/{name}")
    for source, target in (
        ("docker-config.v2.json", f"var/lib/docker/containers/{ID}/config.v2.json"),
        (
            "containerd-config.json",
            f"run/containerd/io.containerd.runtime.v2.task/default/{NAME}/config.json",
        ),
    ):
        file = tmp_path / target
        file.parent.mkdir(parents=True)
        file.write_bytes((FIXTURES / source).read_bytes())
    return tmp_path


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("parent", "name", "key"), LAYOUTS)
def test_a_container_is_named_with_the_unit_that_waits_for_it(
    root: pathlib.Path, parent: str, name: str, key: str
) -> None:
    memory = cgroups.read_layout().memory
    assert memory is not None
    top = pathlib.Path(memory) / f"overnight-test-{os.getpid()}"
    (top / parent).mkdir(parents=True)
    births, creators, supervisors = (signal.open(root) for signal in cgroupchurn.SIGNALS)
    try:
        with runtimes.as_unit(UNIT, "/bin/bash", "-c", LOOP, "loop", str(top / parent), name):
            for _ in range(60):
                births()
                time.sleep(1)
            rows, facts, acted = births(), creators(), supervisors()
    finally:
        for folder in (top / parent / name, top / parent, top):
            for _ in range(50):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                if not folder.exists():
                    break
                time.sleep(0.1)
    assert not top.exists()
    assert rows[key][0] >= 8
    assert facts[key]["cgroup"] == f"/{top.name}/{parent}"
    assert facts[key]["programs"] == "sleep"
    own = _creators.Supervisor(UNIT, *acted[f"{key} {UNIT}"])
    assert own.coincided >= own.births - 2, acted
    assert own.births < 8 or own.chance < 0.01
    assert subprocess.run(["pgrep", "-f", str(top)], check=False).returncode == 1
