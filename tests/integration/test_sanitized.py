"""The C code under AddressSanitizer and UBSan: no byte read or written that is not its own."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.long
def test_the_decoders_keep_within_their_memory() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("COV_", "PYTEST_"))}
    done = subprocess.run(
        [ROOT / "scripts/sanitized", sys.executable],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
