"""The next run undoes everything that a killed run with a machine left."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from overnight.undo import journal

pytestmark = pytest.mark.needs_nspawn

BOOT = """
import time
from overnight.machines import nspawn
from overnight.undo import journal
run_journal = journal.Journal("a machine")
machine = nspawn.boot(run_journal, {"loop.service": nspawn.unit("exit 3", service="Restart=always\\nRestartSec=50ms")})
print(machine.name, machine.leader, machine.tree, flush=True)
time.sleep(99)
"""


def is_alive(pid: str) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def list_leftovers(name: str, leader: str, tree: str) -> list[str]:
    leftovers = [str(path) for path in pathlib.Path("/sys/fs/cgroup").glob(f"*/{name}*")]
    leftovers += [tree] if pathlib.Path(tree).exists() else []
    leftovers += map(str, pathlib.Path(tree).parent.glob(f".#{name}*"))
    leftovers += [f"process {leader}"] if is_alive(leader) else []
    leftovers += [str(path) for path in pathlib.Path("/run/systemd/nspawn").glob(f"*/*{name}*")]
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    return leftovers + [line for line in mounts.splitlines() if name in line]


def test_a_machine_is_undone_by_the_next_run(tmp_path: pathlib.Path) -> None:
    locks = set(pathlib.Path("/run/systemd/nspawn/locks").glob("*"))
    with subprocess.Popen(
        [sys.executable, "-c", BOOT],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OVERNIGHT_UNDO": str(tmp_path / "undo")},
    ) as run:
        assert run.stdout is not None
        name, leader, tree = run.stdout.readline().split()
        run.kill()
    assert len(list_leftovers(name, leader, tree)) >= 3  # cgroups, tree and PID 1 at least
    done, problems = journal.clean(tmp_path / "undo")
    assert problems == []
    assert len(done) == 1
    assert list_leftovers(name, leader, tree) == []
    assert set(pathlib.Path("/run/systemd/nspawn/locks").glob("*")) <= locks
    assert list((tmp_path / "undo").iterdir()) == []
