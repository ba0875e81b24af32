"""`overnight rules`, from the command line."""

from __future__ import annotations

import io
import json
import pathlib
import sys

import jsonschema
import pytest

from overnight.interfaces import cli

REPOSITORY = pathlib.Path(__file__).parents[2]
LINE = "ena 0000:20:03.0 eth0: Trigger reset is on"
NPD = {
    "plugin": "kmsg",
    "rules": [
        {"type": "temporary", "reason": "Ext4Error", "pattern": "EXT4-fs error .*"},
        {"type": "temporary", "reason": "Greek", "pattern": r"\p{Greek}"},
    ],
}
RULE_FILE = """
[[rule]]
name = "mine"
kind = "my.kind"
severity = "info"
regex = 'burns \\[red\\]'
meaning = "It burns."
matches = ["it burns [red]"]
misses = ["cool"]
"""


def run(home: pathlib.Path, *arguments: str, code: int = 0) -> None:
    assert cli.main(["--home", str(home), "rules", *arguments]) == code


def read_document(capsys: pytest.CaptureFixture[str], name: str) -> dict[str, object]:
    parsed = json.loads(capsys.readouterr().out)
    jsonschema.validate(parsed, json.loads((REPOSITORY / f"docs/schemas/{name}.json").read_text()))
    return parsed


def test_rules_are_listed(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "list")
    assert "ena-tx-paused" in capsys.readouterr().out
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mine.toml").write_text(RULE_FILE)
    run(tmp_path, "list", "--rules", str(folder), "-O", "json")
    names = [rule["name"] for rule in read_document(capsys, "rules-1")["rules"]]
    assert "mine" in names
    assert "soft-lockup" in names


@pytest.mark.parametrize(
    "prefix",
    ["", "[12345.678901] ", "<3>[    5.000001] ", "Nov 15 03:14:07 db-7 kernel: ", "[Sun Nov 15 03:14:07 2026] ",
     "2026-11-15T03:14:07+0000 db-7 kernel: ", "3,1,2,-;"],
)  # fmt: skip
def test_a_log_is_read_with_any_prefix(
    tmp_path: pathlib.Path, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"nothing\n" + (prefix + LINE).encode() + b"\n\xff\xfe\x1b[31m\n")
    run(tmp_path, "test", str(log), "-O", "json")
    output = read_document(capsys, "rules-test-1")
    assert output["lines"] == 3
    (match,) = output["matches"]
    assert (match["line"], match["text"], match["kind"]) == (2, LINE, "net.driver_reset")
    assert match["fields"]["device"] == "0000:20:03.0"


def test_a_line_and_a_pipe_are_tested(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, "test", LINE + " \x1b[31m")
    shown = capsys.readouterr().out
    assert "ena-trigger-reset: net.driver_reset, critical; driver=ena device=0000:20:03.0" in shown
    assert "\x1b" not in shown
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINE.encode())))
    run(tmp_path, "test", "-")
    assert "1 of 1 line matched by a rule" in capsys.readouterr().out
    run(tmp_path, "test", "x" * 5000)
    assert "0 of 1 line matched" in capsys.readouterr().out


def test_a_rule_file_is_tested(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(RULE_FILE)
    run(tmp_path, "test", str(path))
    assert "1 rule tried: all samples match" in capsys.readouterr().out
    path.write_text(RULE_FILE.replace("cool", "it burns [red]"))
    run(tmp_path, "test", str(path), code=2)
    assert "listed in misses" in capsys.readouterr().err
    run(tmp_path, "test", str(tmp_path / "none.toml"), code=3)


def test_a_damaged_rule_in_the_home_is_an_error(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/mine.toml").write_text(RULE_FILE.replace("burns \\[", "burns ["))
    run(tmp_path, "list", code=2)
    errors = capsys.readouterr().err
    assert "mine.toml, rule mine" in errors
    assert "Traceback" not in errors


def test_imported_rules_are_used(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "kernel-monitor.json"
    source.write_text(json.dumps(NPD))
    run(tmp_path, "import", str(source), "-O", "json", code=1)
    output = read_document(capsys, "rules-import-1")
    assert output["rules"] == ["npd-ext4-error"]
    assert [problem["rule"] for problem in output["problems"]] == ["Greek"]
    run(tmp_path, "test", "EXT4-fs error (device sda1): bad")
    assert "npd-ext4-error: npd.ext4_error, warning" in capsys.readouterr().out
    run(tmp_path, "list")
    assert "untested" in capsys.readouterr().out
    run(tmp_path, "import", str(source), "-o", "/proc/none/x.toml", code=3)
    run(tmp_path, "import", str(source), "-o", str(tmp_path / "typo/x.toml"), code=3)
    assert not (tmp_path / "typo").exists()
    run(tmp_path, "import", str(tmp_path / "none.json"), code=3)
    run(tmp_path, "import", str(REPOSITORY / "README.md"), code=2)
