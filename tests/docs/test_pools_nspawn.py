"""The commands of docs/pools.md about real machines, run in their order by a shell."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
TEXT = (REPOSITORY / "docs/pools.md").read_text()
BLOCKS = re.findall(r"^```sh nspawn\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.needs_root
@pytest.mark.needs_nspawn
def test_the_section_runs(tmp_path: pathlib.Path) -> None:
    assert len(BLOCKS) >= 2
    shim = tmp_path / "bin/overnight"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m overnight "$@"\n')
    shim.chmod(0o755)
    home = tmp_path / "home"
    script = "set -euo pipefail\n" + "".join(BLOCKS) + 'kill "$(jobs -p)"\nwait\n'
    path = f"{shim.parent}:{os.environ['PATH']}"
    running = subprocess.Popen(
        ["bash", "-c", script],
        env={**os.environ, "PATH": path, "OVERNIGHT_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = running.communicate(timeout=90)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        if running.returncode:
            drain = [shim, "--home", home, "pool", "drain", "lab"]
            subprocess.run(drain, check=False)
    assert running.returncode == 0, said
    assert "prepared" in said.splitlines()
    assert "overnight-member.service" in said
    assert "Tells the pool that this machine is ready" in said
    assert "Traceback" not in said
    assert not (home / "pools/nspawn").exists()
