from __future__ import annotations

import pathlib

from overnight.sources.perf import command


def fake_perf(folder: pathlib.Path, script: str) -> str:
    path = folder / "perf"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_version_of_a_perf_that_runs(tmp_path: pathlib.Path) -> None:
    assert command.read_version(fake_perf(tmp_path, "echo perf version 6.8.12")) == "6.8.12"


def test_ubuntus_wrapper_without_its_tools_is_not_perf(tmp_path: pathlib.Path) -> None:
    script = "echo 'WARNING: perf not found for kernel 6.8.0-45' >&2; exit 2"
    assert command.read_version(fake_perf(tmp_path, script)) is None


def test_a_file_that_cannot_be_run_is_not_perf(tmp_path: pathlib.Path) -> None:
    assert command.read_version(str(tmp_path / "absent")) is None
