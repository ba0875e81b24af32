"""`overnight confirmations` and `confirm`, on a database and with a server."""

from __future__ import annotations

import json
import pathlib

import jsonschema
import pytest

from overnight.app import confirmations
from overnight.interfaces import cli
from overnight.interfaces.cli import confirmation_view
from overnight.model.confirmation import ConfirmationNeededError, Effect
from overnight.model.control_plane import Principal, Role

SCHEMA = json.loads(
    (pathlib.Path(__file__).parents[3] / "docs/schemas/confirmations-1.json").read_text()
)
CLAUDE = Principal("mcp", "claude\x1b[31m", Role.OPERATOR, assistant=True)
EFFECT = Effect(summary="drain pool ci", ends=("m-1",), claims=("c-1 of job\x1b[2J",))


def ask(home: pathlib.Path, effect: Effect = EFFECT) -> bool:
    """Make a call; return whether it is carried out."""
    rows = confirmations.Confirmations(home).rows
    try:
        rows.require(CLAUDE, "pool.drain", Role.ADMIN, {"name": "ci"}, effect)
    except ConfirmationNeededError:
        return False
    return True


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_person_reads_what_would_happen_and_confirms_it(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    def run(*words: str) -> str:
        assert cli.main(["--home", str(tmp_path), *words, "-O", output]) == 0
        return capsys.readouterr().out

    assert not ask(tmp_path)
    shown = run("confirmations")
    if output == "json":
        document = json.loads(shown)
        jsonschema.validate(document, SCHEMA)
        code = document["confirmations"][0]["code"]
    else:
        assert "drain pool ci\n  ends: m-1\n  claims: c-1 of job\\x1b[2J\n" in shown
        assert "\x1b" not in shown
        code = shown.split()[-1].strip("`")
    assert "confirmed" in run("confirm", code)
    assert ask(tmp_path)
    assert not ask(tmp_path)
    again = run("confirmations")
    code = (
        json.loads(again)["confirmations"][0]["code"]
        if output == "json"
        else again.split()[-1].strip("`")
    )
    assert "declined" in run("confirm", code, "--decline")


def test_nothing_to_confirm(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--home", str(tmp_path), "confirmations"]) == 0
    assert "no assistant waits" in capsys.readouterr().out
    assert cli.main(["--home", str(tmp_path), "confirm", "ABCD-EFGH"]) == 3
    assert "confirmations" in capsys.readouterr().err


def test_a_long_effect_is_shortened_and_its_cost_is_shown() -> None:
    names = tuple(f"host-{number}" for number in range(30))
    effect = Effect(
        summary="reserve 30 hosts", hosts=names, most_hosts=30, host_hours=360.0, cost=99.5, concerns=names
    )  # fmt: skip
    lines = confirmation_view.describe(effect)
    assert lines[1].endswith("host-19 and 10 more")
    assert lines[2] == "cost: 30 hosts, 360 host-hours at most, 100 in all"
    assert lines[-1] == "10 more"
