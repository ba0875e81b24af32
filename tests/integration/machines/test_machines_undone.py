"""A run that boots a machine and is killed leaves nothing that the next run does not undo."""

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
book = journal.Journal("a machine")
one = nspawn.boot(book, {"loop.service": nspawn.unit("exit 3", service="Restart=always\\nRestartSec=50ms")})
print(one.name, one.leader, one.tree, flush=True)
time.sleep(99)
"""


def is_alive(pid: str) -> bool:
    """Whether it runs; one that is dead and not yet fetched by its new parent does not."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def left_of(name: str, leader: str, tree: str) -> list[str]:
    found = [str(path) for path in pathlib.Path("/sys/fs/cgroup").glob(f"*/{name}*")]
    found += [tree] if pathlib.Path(tree).exists() else []
    found += map(str, pathlib.Path(tree).parent.glob(f".#{name}*"))
    found += [f"process {leader}"] if is_alive(leader) else []
    found += [str(path) for path in pathlib.Path("/run/systemd/nspawn").glob(f"*/*{name}*")]
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    return found + [line for line in mounts.splitlines() if name in line]


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
    assert len(left_of(name, leader, tree)) >= 3  # cgroups, tree and PID 1 at least
    done, problems = journal.clean(tmp_path / "undo")
    assert problems == []
    assert len(done) == 1
    assert left_of(name, leader, tree) == []
    assert set(pathlib.Path("/run/systemd/nspawn/locks").glob("*")) <= locks
    assert list((tmp_path / "undo").iterdir()) == []
