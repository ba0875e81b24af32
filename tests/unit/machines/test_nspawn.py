"""The parts of a machine; tests/integration boots one."""

from __future__ import annotations

import configparser
import pathlib

import pytest

from overnight import errors
from overnight.machines import container, nspawn
from overnight.undo import journal, operations


def test_a_unit_has_what_systemd_needs() -> None:
    text = nspawn.unit("exit 3", service="Restart=always\nRestartSec=50ms")
    read = configparser.ConfigParser(interpolation=None)
    read.optionxform = str  # type: ignore[assignment,method-assign]  # systemd is case-sensitive
    read.read_string(text)
    assert dict(read["Service"]) == {
        "ExecStart": "/bin/sh -c 'exit 3'",
        "Restart": "always",
        "RestartSec": "50ms",
    }
    assert read["Install"]["WantedBy"] == "multi-user.target"
    assert "WantedBy=\n" in nspawn.unit("exit 3", wanted=False)


@pytest.mark.parametrize("lacks", ["root", "nspawn"])
def test_without_root_or_nspawn_nothing_starts(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    monkeypatch.setattr(container.os, "geteuid", lambda: 1000 if lacks == "root" else 0)
    monkeypatch.setattr(
        container.shutil, "which", lambda _: None if lacks == "nspawn" else "/usr/bin/x"
    )
    with journal.Journal("a test", tmp_path / "undo") as run_journal:
        with pytest.raises(errors.CannotError, match="cannot boot"):
            nspawn.boot(run_journal)
        assert run_journal.targets() == []


def test_leftovers_of_a_killed_nspawn_are_removed_and_nothing_else(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "NSPAWN", tmp_path)
    for name in ("overnight-1", "overnight-12", "web"):
        (tmp_path / "propagate" / name / "inside").mkdir(parents=True)
    (tmp_path / "unix-export").mkdir()
    (tmp_path / "unix-export/overnight-1").touch()
    for _ in range(2):
        operations.UNDO["machine"]("overnight-1")
    assert {path.name for path in tmp_path.glob("*/*")} == {"overnight-12", "web"}
