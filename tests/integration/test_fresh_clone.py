"""The two commands on a fresh clone with a plain environment, first time and again."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
PLAIN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


@pytest.mark.long
@pytest.mark.needs_root
@pytest.mark.timeout(900)
def test_make_demo_and_make_test_in_a_fresh_clone(tmp_path: pathlib.Path) -> None:
    clone = tmp_path / "overnight"
    subprocess.run(["git", "clone", "-q", REPOSITORY, clone], check=True)
    plain = {**PLAIN, "HOME": os.environ["HOME"]}
    for target in ("demo", "demo", "test"):
        done = subprocess.run(
            ["make", target], cwd=clone, env=plain, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        assert "Traceback" not in done.stdout + done.stderr
    assert " passed" in done.stdout
    # Nothing that the two commands made may look like a change.
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True
    )
    assert status.stdout == ""
