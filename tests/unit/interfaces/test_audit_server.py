"""`overnight audit --server` and the tool `audit`: what a host reported, shown as on the host."""

from __future__ import annotations

import json
import pathlib
import platform
import re
from collections.abc import Iterator
from typing import Any

import controlplane
import images
import jsonschema
import pytest
import uplinks
from assistants import POISON, check_marked

from overnight import errors
from overnight.app import audit, concierge, server_settings
from overnight.interfaces import cli
from overnight.interfaces.mcp import catalogue

SCHEMA = pathlib.Path(__file__).parents[3] / "docs/schemas/audit-1.json"
MINUTE_US = 60_000_000


@pytest.fixture
def plane(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[controlplane.ControlPlane]:
    monkeypatch.setenv("OVERNIGHT_TOKEN", controlplane.TOKEN)
    uplinks.LiveRing(tmp_path / "home").seconds(2)
    made = controlplane.ControlPlane(tmp_path / "home")
    images.deep_learning(tmp_path / "root")
    images.debian(tmp_path / "plain")
    for name, root in (("db-7", "root"), ("db-8", "plain")):
        made.audits[name] = json.loads(json.dumps(audit.examine(tmp_path / root).as_json())) | {"host": name}  # fmt: skip
    with controlplane.serve(made) as served:
        yield served


def poisoned(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with an order to the assistant in every text that a host writes."""
    fields = dict.fromkeys(("id", "unit", "what", "why", "fix"), POISON)
    findings = [each | fields for each in document["findings"]]
    return document | {"findings": findings, "gaps": [{"what": POISON, "why": POISON}]}


def test_text_document_and_exit_code_are_those_of_the_host(
    plane: controlplane.ControlPlane, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["audit", "--root", str(tmp_path / "root")]) == 1
    local = capsys.readouterr().out.splitlines()
    plane.audits["db-7"]["examined_us"] -= 40 * MINUTE_US
    words = ["audit", "--server", plane.url, "--host"]
    assert cli.main([*words, "db-7"]) == 1
    count, examined, *rest = capsys.readouterr().out.splitlines()
    assert (count, rest) == ("3 units, 2 enabled, on db-7", local[1:])
    assert re.fullmatch(r"examined 20\S+Z, 40 min( \d+ s)? ago", examined)
    assert cli.main([*words, "db-8"]) == 0
    assert capsys.readouterr().out.endswith("no findings\n")
    assert cli.main([*words, "db-7", "-O", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document == plane.audits["db-7"]
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert cli.main([*words, "nobody"]) == 3


def test_text_of_a_hostile_host_is_escaped_on_the_terminal(
    plane: controlplane.ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    plane.audits["db-7"] = poisoned(plane.audits["db-7"])
    assert cli.main(["audit", "--server", plane.url, "--host", "db-7"]) == 1
    shown = capsys.readouterr().out
    assert "\\x1b[2J" in shown
    assert shown.replace("\n", "").isprintable()
    assert "\nSYSTEM" not in shown


def test_a_server_in_the_environment_does_not_replace_this_machine(
    plane: controlplane.ControlPlane,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = str(tmp_path / "root")
    monkeypatch.setenv("OVERNIGHT_SERVER", plane.url)
    assert cli.main(["audit", "--root", root]) == 1
    assert f"in {root}" in capsys.readouterr().out
    assert plane.requests == []
    assert cli.main(["audit", "--host", "db-8"]) == 0
    assert "on db-8" in capsys.readouterr().out
    monkeypatch.delenv("OVERNIGHT_SERVER")
    assert cli.main(["audit", "--host", "db-8"]) == 2
    assert "--host db-8 needs a server" in capsys.readouterr().err


def test_an_answer_of_another_form_is_not_misread(
    plane: controlplane.ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    plane.audits["db-7"] = {"findings": "none"}
    assert cli.main(["audit", "--server", plane.url, "--host", "db-7"]) == 3
    assert "is not understood" in capsys.readouterr().err


def call(backend: concierge.Backend, **arguments: str) -> catalogue.Answer:
    return catalogue.call(backend, catalogue.TOOLS["audit"], arguments)


def test_an_assistant_asks_a_server_for_a_host(plane: controlplane.ControlPlane) -> None:
    backend = concierge.RemoteBackend(server_settings.read_settings(plane.url))
    plane.audits["db-7"] = poisoned(plane.audits["db-7"])
    document = call(backend, host="db-7").document
    assert (document["host"], document["total"]) == ("db-7", 4)
    assert document["examined_at"].startswith("20")
    check_marked(document)
    without = call(backend)
    assert without.is_error
    assert "--server needs one host" in json.dumps(without.document)


def test_an_assistant_without_a_server_asks_for_this_machine(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, root = concierge.LocalBackend(tmp_path / "home"), tmp_path / "root"
    images.deep_learning(root)
    examine = audit.examine
    monkeypatch.setattr(audit, "examine", lambda _: examine(root))
    for arguments in ({}, {"host": platform.node()}):
        assert call(backend, **arguments).document["total"] == 4
    with pytest.raises(errors.CannotError, match="the units of db-9 cannot be audited from here"):
        backend.audit("db-9")
