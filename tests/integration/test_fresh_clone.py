"""`make demo`, twice, and `make test` in a fresh clone with a plain environment."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
PLAIN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


@pytest.mark.long
@pytest.mark.needs_root
@pytest.mark.timeout(1800)
def test_make_demo_and_make_test_in_a_fresh_clone(tmp_path: pathlib.Path) -> None:
    clone = tmp_path / "overnight"
    subprocess.run(["git", "clone", "-q", REPOSITORY, clone], check=True)
    plain = {**PLAIN, "HOME": os.environ["HOME"]}
    for target in ("demo", "demo", "test"):
        process = subprocess.run(
            ["make", target], cwd=clone, env=plain, capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, (process.stdout + process.stderr)[-3000:]
        assert "Traceback" not in process.stdout + process.stderr
    assert " passed" in process.stdout
    # The commands must not leave files that git shows as changes.
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True
    )
    assert status.stdout == ""
