from __future__ import annotations

import configparser
import pathlib
import sys

import pytest

from overnight import errors
from overnight.app import recorder_unit
from overnight.interfaces import cli


def test_the_printed_unit_runs_this_python(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recorder_unit, "FOLDERS", ())
    monkeypatch.setattr(sys, "executable", "/opt/my 100%/bin/python")
    assert cli.main(["record", "--print-unit"]) == 0
    unit = configparser.RawConfigParser(strict=False)
    unit.read_string(capsys.readouterr().out)
    command = (
        r"/opt/my\x20100%%/bin/python -m overnight --home %S/overnight-recorder record --for 12h"
    )
    assert unit["Service"]["ExecStart"] == command
    assert unit["Service"]["StateDirectory"] == "overnight-recorder"


def test_an_installation_that_the_unit_cannot_read_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_unit, "HIDDEN", {tmp_path / "hidden"})
    (tmp_path / "hidden/venv").mkdir(parents=True)
    (tmp_path / "closed").mkdir(mode=0o750)
    for folder, obstacle in {"hidden/venv": "hidden", "closed": "closed"}.items():
        monkeypatch.setattr(recorder_unit, "FOLDERS", (tmp_path / folder,))
        with pytest.raises(errors.CannotError) as caught:
            recorder_unit.render()
        assert caught.value.why.endswith(str(tmp_path / obstacle))
