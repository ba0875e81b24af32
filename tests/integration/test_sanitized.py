"""The C code under AddressSanitizer and UBSan: no access outside its memory."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.long
def test_the_decoders_stay_within_their_memory() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("COV_", "PYTEST_"))}
    process = subprocess.run(
        [ROOT / "scripts/sanitized", sys.executable],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    assert " passed" in process.stdout
    assert "skipped" not in process.stdout
