"""A wheel built with a C compiler has the extension; one built without it still installs."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """Copy tracked and new files, without build output."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for name in listed:
        if name.startswith(("src/", "pyproject", "setup", "README", "LICENSE")):
            target = tmp_path / "checkout" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((REPOSITORY / name).read_bytes())
    # The page that set-up built; tests/integration/test_viewer.py tests how npm builds it from web/.
    page = "src/overnight/reports/viewer.html"
    (tmp_path / "checkout" / page).write_bytes((REPOSITORY / page).read_bytes())
    return tmp_path / "checkout"


@pytest.mark.parametrize(
    ("compiler", "built"), [("cc", True), ("/bin/false", False), ("/nonexistent/cc", False)]
)
def test_a_wheel_with_and_without_a_compiler(
    checkout: pathlib.Path, tmp_path: pathlib.Path, compiler: str, built: bool
) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation", "-w", tmp_path, checkout],
        env={**os.environ, "CC": compiler},
        check=True,
        timeout=100,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    assert any(installed.rglob("_perfdata.*.so")) is built
    assert any(installed.rglob("_tree.*.so")) is built
    assert (installed / "overnight/reports/viewer.html").is_file()
    assert (installed / "overnight/sources/kernelrules/nic-ena.toml").is_file()
    assert (installed / "overnight/app/overnight.service").is_file()
    process = subprocess.run(
        [sys.executable, "-c", "from overnight.sources.perf import perfdata; print(perfdata.HAS_EXTENSION)"],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert process.stdout.strip() == str(built)
