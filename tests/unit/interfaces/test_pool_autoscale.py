"""`overnight pool autoscale`: set, shown, tried, taken away; to people and to programs."""

from __future__ import annotations

import json
import pathlib

import jsonschema
import pytest

from overnight.interfaces import cli

SCHEMAS = pathlib.Path(__file__).parents[3] / "docs/schemas"


class Asked:
    def __init__(self, home: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self.capsys = home, capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        self.capsys.readouterr()
        assert cli.main(["--home", str(self.home), "pool", *words]) == code
        out, err = self.capsys.readouterr()
        return err if code > 1 else out

    def json(
        self, *words: str, schema: str = "pool-autoscale-1", code: int = 0
    ) -> dict[str, object]:
        told = json.loads(self(*words, "-O", "json", code=code))
        jsonschema.validate(told, json.loads((SCHEMAS / f"{schema}.json").read_text()))
        return told


@pytest.fixture
def ask(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    asked = Asked(tmp_path / "home", capsys)
    asked("create", "ci", "--template", "t", "--target", "2")
    return asked


def test_its_life(ask: Asked) -> None:
    assert ask("autoscale", "ci") == "the size of pool ci is set by hand: target 2\n"
    assert ask.json("autoscale", "ci")["policy"] is None
    said = ask(
        "autoscale", "ci", "--miss", "2%", "--min", "1", "--max", "8", "--cooldown", "10m",
        "--window", "5m", "--at", "Mon-Fri 08:00-18:00 = 5", "--at", "* 01:00-02:00 = 3",
        "--burst", "3:1", "--warmup", "40s",
    )  # fmt: skip
    assert said.startswith("autoscale is on for pool ci\n")
    assert (
        "Autoscale: 2 % may miss, 1 to 8, claims of the last 5m, cooldown 10m,\n"
        "  bursts of 3, warm-up 40s\n"
        "  at Mon-Fri 08:00-18:00 = 5\n  at * 01:00-02:00 = 3\n"
    ) in said
    policy = ask.json("autoscale", "ci")["policy"]
    assert (policy["miss"], policy["burst"], policy["last_decision"]) == (
        0.02, {"mean": 3, "spread": 1}, None,
    )  # fmt: skip
    shown = ask.json("show", "ci", schema="pool-1", code=1)
    assert shown["autoscale"] == policy
    assert "no decision yet: overnight pool serve makes it" in ask("show", "ci", code=1)
    assert "(target 2, autoscaled, min 0, max 12)" in ask("list")
    # Said anew, alone; and what can be taken back.
    policy = ask.json("autoscale", "ci", "--at", "none", "--warmup", "none")["policy"]
    assert (policy["openings"], policy["warm_up_seconds"], policy["miss"]) == ([], None, 0.02)
    assert "overnight pool autoscale ci --off" in ask("update", "ci", "--target", "4", code=3)
    assert ask("autoscale", "ci", "--off").startswith("autoscale is off\n")
    assert ask("autoscale", "ci", "--off").startswith("autoscale was already off\n")
    ask("update", "ci", "--target", "4")


def test_a_dry_run_says_why_and_changes_nothing(ask: Asked) -> None:
    assert "has no autoscale policy" in ask("autoscale", "ci", "--dry-run", code=3)
    said = ask("autoscale", "ci", "--min", "4", "--dry-run")
    assert "dry run: up to 4: min is 4\n" in said
    assert "assumed: a warm-up of 90 s: no member has become ready" in said
    would = ask.json("autoscale", "ci", "--on", "--dry-run")["would"]
    assert (would["size"], would["warm_up_seconds"]) == (2, 90)
    assert ask.json("autoscale", "ci")["policy"] is None
    ask("autoscale", "ci", "--on")
    ask("update", "ci", "--pause")
    assert "a pool with status paused is not scaled" in ask("autoscale", "ci", "--dry-run")


@pytest.mark.parametrize(
    "words",
    [
        ("--miss", "all"),
        ("--miss", "100%"),
        ("--max", "13"),
        ("--min", "5", "--max", "4"),
        ("--at", "weekdays"),
        ("--at", "mon 08:00-09:00 = 99"),
        ("--window", "0"),
        ("--cooldown", "soon"),
        ("--zero-after", "never"),
        ("--zero-after", "1h", "--min", "1"),
        ("--burst", "0.5"),
        ("--off", "--on"),
        ("--off", "--min", "2"),
        ("--off", "--dry-run"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_kept(
    ask: Asked, words: tuple[str, ...]
) -> None:
    said = ask("autoscale", "ci", *words, code=2)
    assert [line.partition(":")[0] for line in said.splitlines()] == ["error", "why", "do"]
    assert ask.json("autoscale", "ci")["policy"] is None
