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
    text = units.render(name, ["--listen", "[::]:8417"], python="/opt/overnight/bin/python")
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
    text = units.render("serve", hostile, python="/usr/bin/python3")
    assert parse(text)["Service"]["ExecStart"].split(" serve ")[1] == (
        r'a\x0aExecStartPre=/bin/true %%H $$HOME \x3b\x20reboot @HARDENING@ "" a\x27b\x22c\x5cd'
    )
    assert "\nExecStartPre=" not in text


def test_secrets_come_from_files_and_never_from_arguments() -> None:
    files = {"--tls-cert": "/etc/my certs/a.crt", "--tls-key": "overnight.key"}
    text = units.render("serve", ["--listen", "0.0.0.0:8416"], files, python="/usr/bin/python3")
    assert re.findall("^LoadCredential=(.*)$", text, re.MULTILINE) == [
        "tls-cert:/etc/my certs/a.crt",
        "tls-key:overnight.key",
    ]
    service = parse(text)["Service"]
    assert service["ExecStart"].endswith(
        " serve --listen 0.0.0.0:8416 --tls-cert %d/tls-cert --tls-key %d/tls-key"
    )
    assert service["EnvironmentFile"] == "-/etc/overnight/server.env"
    assert "LoadCredential" not in units.render("agent", python="/usr/bin/python3")


def print_unit(capsys: pytest.CaptureFixture[str], *words: str) -> configparser.RawConfigParser:
    assert cli.main([*words, "--print-unit"]) == 0
    return parse(capsys.readouterr().out)


def test_agent_prints_a_unit_with_the_given_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(units, "FOLDERS", ())
    monkeypatch.setattr(sys, "executable", "/opt/overnight/bin/python")
    monkeypatch.setenv("OVERNIGHT_SERVER", "https://not-an-option.example")
    words = ("agent", "--token-file", "overnight-agent.token", "--signals-only", "--rules", "/a", "--rules", "b", "--upload-rate", "2MB", "-O", "json")  # fmt: skip
    service = print_unit(capsys, *words)["Service"]
    assert service["ExecStart"].split(" agent ")[1] == (
        f"--upload-rate 2MB --signals-only --rules /a --rules {pathlib.Path.cwd() / 'b'}"
        " --token-file %d/token-file"
    )
    assert service["LoadCredential"] == "token-file:overnight-agent.token"
    service = print_unit(capsys, "agent", "--server", "https://centre.example:8416")["Service"]
    assert service["ExecStart"].endswith(" agent --server https://centre.example:8416")
    assert "LoadCredential" not in service


def test_serve_prints_a_unit_that_reads_keys_and_writes_blobs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(units, "FOLDERS", ())
    words = ("serve", "--listen", "0.0.0.0:8416", "--tls-cert", "/etc/a b.crt", "--tls-key", "tls.key", "--blobs", "/srv/my 100%")  # fmt: skip
    assert cli.main([*words, "--print-unit"]) == 0
    text = capsys.readouterr().out
    assert re.findall("^LoadCredential=(.*)$", text, re.MULTILINE) == [
        "tls-cert:/etc/a b.crt",
        "tls-key:tls.key",
    ]
    assert "\nReadWritePaths=/srv/my\\ 100%%\n" in text
    assert parse(text)["Service"]["ExecStart"].split(" serve ")[1] == (
        r"--listen 0.0.0.0:8416 --blobs /srv/my\x20100%% --tls-cert %d/tls-cert --tls-key %d/tls-key"
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--home", "/srv", "serve"), "--home does not apply"),
        (("serve", "--database", "postgresql://anna:secret@db/x"), "--database has a password"),
        (("serve", "--database", "postgresql://db/x?password=secret"), "--database has a password"),
        (("serve", "--tls-key", "/etc/a\nExecStartPre=/bin/true"), "a unit cannot name"),
        (("agent", "--token-file", "-"), "--token-file - does not work"),
    ],
)
def test_options_that_a_unit_cannot_have_are_refused(
    words: tuple[str, ...],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(units, "FOLDERS", ())
    assert cli.main([*words, "--print-unit"]) == errors.ExitCode.USAGE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert problem in shown.err
    assert "secret" not in shown.err


def test_an_agent_needs_a_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OVERNIGHT_SERVER", raising=False)
    assert cli.main(["agent"]) == errors.ExitCode.USAGE
    assert "--server URL" in capsys.readouterr().err


@pytest.mark.parametrize("name", units.UNITS)
def test_systemd_accepts_the_unit_and_its_exposure_is_documented(
    name: str, tmp_path: pathlib.Path
) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze")
    path = tmp_path / units.UNITS[name]
    path.write_text(units.render(name, (), SECRETS.get(name), python=sys.executable))
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
