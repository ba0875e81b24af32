"""docs/audit.md shows the real output of `overnight audit` and names every finding."""

from __future__ import annotations

import json
import pathlib
import re
from typing import TYPE_CHECKING

import images

from overnight.interfaces import cli

if TYPE_CHECKING:
    import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
TEXT = (REPOSITORY / "docs/audit.md").read_text()


def test_the_example_is_what_the_command_prints(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images.deep_learning(tmp_path / "image")
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ["audit", "--root", "image"],
        ["audit", "--root", "image", "--fix", "packer"],
    ):
        assert cli.main(arguments) == 1
        output = capsys.readouterr().out.rstrip()
        assert f"$ overnight {' '.join(arguments)}\n{output}\n" in TEXT


def test_every_finding_is_explained() -> None:
    schema = json.loads((REPOSITORY / "docs/schemas/audit-1.json").read_text())
    known = set(schema["properties"]["findings"]["items"]["properties"]["id"]["enum"])
    rows = [line for line in TEXT.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])} == known
