from __future__ import annotations

import configparser
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from overnight import errors
from overnight.app import units
from overnight.interfaces import cli

DOCUMENT = (pathlib.Path(__file__).parents[3] / "docs/security.md").read_text()
SETTINGS = {
    "record": ("overnight", "overnight-recorder", "record --for 12h"),
    "agent": ("overnight", "overnight-recorder", "agent"),
    "serve": ("overnight-server", "overnight-server", "serve"),
}
SECRETS = {
    "agent": {"--token-file": "overnight-agent.token"},
    "serve": {"--tls-cert": "/etc/overnight/tls.crt", "--tls-key": "/etc/overnight/tls.key"},
}


def parse(text: str) -> configparser.RawConfigParser:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    return unit


def test_the_printed_unit_runs_this_python(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(units, "FOLDERS", ())
    monkeypatch.setattr(sys, "executable", "/opt/my 100%/bin/python")
    assert cli.main(["record", "--print-unit"]) == 0
    unit = parse(capsys.readouterr().out)
    command = (
        r"/opt/my\x20100%%/bin/python -m overnight --home %S/overnight-recorder record --for 12h"
    )
    assert unit["Service"]["ExecStart"] == command
    assert unit["Service"]["StateDirectory"] == "overnight-recorder"


@pytest.mark.parametrize("name", units.UNITS)
def test_every_unit_has_its_user_folder_and_command(name: str) -> None:
    text = units.fill(name, "/opt/overnight/bin/python", ["--listen", "[::]:8417"])
    service = parse(text)["Service"]
    user, folder, words = SETTINGS[name]
    assert (service["User"], service["StateDirectory"]) == (user, folder)
    assert service["ExecStart"] == (
        f"/opt/overnight/bin/python -m overnight --home %S/{folder} {words} --listen [::]:8417"
    )
    assert not re.search(r"@[A-Z_]+@", text)
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"


def test_arguments_cannot_add_settings_or_expand() -> None:
    hostile = [
        "a\nExecStartPre=/bin/true",
        "%H",
        "$HOME",
        "; reboot",
        "@HARDENING@",
        "",
        "a'b\"c\\d",
    ]
    text = units.fill("serve", "/usr/bin/python3", hostile)
    assert parse(text)["Service"]["ExecStart"].split(" serve ")[1] == (
        r'a\x0aExecStartPre=/bin/true %%H $$HOME \x3b\x20reboot @HARDENING@ "" a\x27b\x22c\x5cd'
    )
    assert "\nExecStartPre=" not in text


def test_secrets_come_from_files_and_never_from_arguments() -> None:
    files = {"--tls-cert": "/etc/my certs/a.crt", "--tls-key": "overnight.key"}
    text = units.fill("serve", "/usr/bin/python3", ["--listen", "0.0.0.0:8416"], files)
    assert re.findall("^LoadCredential=(.*)$", text, re.MULTILINE) == [
        r"tls-cert:/etc/my\x20certs/a.crt",
        "tls-key:overnight.key",
    ]
    service = parse(text)["Service"]
    assert service["ExecStart"].endswith(
        " serve --listen 0.0.0.0:8416 --tls-cert %d/tls-cert --tls-key %d/tls-key"
    )
    assert service["EnvironmentFile"] == "-/etc/overnight/server.env"
    assert "LoadCredential" not in units.fill("agent", "/usr/bin/python3")


@pytest.mark.parametrize("name", units.UNITS)
def test_systemd_accepts_the_unit_and_its_exposure_is_documented(
    name: str, tmp_path: pathlib.Path
) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze")
    path = tmp_path / units.UNITS[name]
    path.write_text(units.fill(name, sys.executable, (), SECRETS.get(name)))
    verified = subprocess.run(
        ["systemd-analyze", "verify", path], capture_output=True, text=True, check=True
    )
    assert verified.stderr == ""
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", path],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", judged.stdout)
    stated = re.search(rf"^\| `{name}` \|.*\| ([\d.]+) \|$", DOCUMENT, re.MULTILINE)
    assert exposure is not None
    assert stated is not None
    # Without the manager systemd-analyze cannot see one setting that is worth 0.1.
    assert float(exposure[1]) <= float(stated[1]) + 0.1


def test_an_installation_that_the_unit_cannot_read_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "HIDDEN", {tmp_path / "hidden"})
    (tmp_path / "hidden/venv").mkdir(parents=True)
    (tmp_path / "closed").mkdir(mode=0o750)
    for folder, obstacle in {"hidden/venv": "hidden", "closed": "closed"}.items():
        monkeypatch.setattr(units, "FOLDERS", (tmp_path / folder,))
        with pytest.raises(errors.CannotError) as caught:
            units.render("record")
        assert caught.value.why.endswith(str(tmp_path / obstacle))
