"""`overnight pool autoscale`: set, show, dry-run and remove a policy; text and JSON."""

from __future__ import annotations

import json
import pathlib

import jsonschema
import pytest

from overnight.interfaces import cli

SCHEMAS = pathlib.Path(__file__).parents[3] / "docs/schemas"


class PoolCommand:
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
        document = json.loads(self(*words, "-O", "json", code=code))
        jsonschema.validate(document, json.loads((SCHEMAS / f"{schema}.json").read_text()))
        return document


@pytest.fixture
def run(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> PoolCommand:
    command = PoolCommand(tmp_path / "home", capsys)
    command("create", "ci", "--template", "plain", "--target", "2")
    return command


def test_a_policy_is_set_shown_changed_and_removed(run: PoolCommand) -> None:
    assert run("autoscale", "ci") == "the size of pool ci is set by hand: target 2\n"
    assert run.json("autoscale", "ci")["policy"] is None
    output = run(
        "autoscale", "ci", "--miss", "2%", "--min", "1", "--max", "8", "--cooldown", "10m",
        "--window", "5m", "--at", "Mon-Fri 08:00-18:00 = 5", "--at", "* 01:00-02:00 = 3",
        "--burst", "3:1", "--warmup", "40s",
    )  # fmt: skip
    assert output.startswith("autoscale is on for pool ci\n")
    assert (
        "Autoscale: 2 % may miss, 1 to 8, claims of the last 5 min, cooldown 10 min,\n"
        "  bursts of 3, warm-up 40 s\n"
        "  at Mon-Fri 08:00-18:00 = 5\n  at * 01:00-02:00 = 3\n"
    ) in output
    policy = run.json("autoscale", "ci")["policy"]
    assert (policy["miss"], policy["burst"], policy["last_decision"]) == (
        0.02, {"mean": 3, "spread": 1}, None,
    )  # fmt: skip
    shown = run.json("show", "ci", schema="pool-1", code=1)
    assert shown["autoscale"] == policy
    assert "pool serve` makes it" in run("show", "ci", code=1)
    assert run("list").endswith(" autoscaled\n")
    # Options given again replace their values alone; "none" removes one.
    policy = run.json("autoscale", "ci", "--at", "none", "--warmup", "none")["policy"]
    assert (policy["openings"], policy["warm_up_seconds"], policy["miss"]) == ([], None, 0.02)
    assert "pool autoscale ci --off`" in run("update", "ci", "--target", "4", code=3)
    assert run("autoscale", "ci", "--off").startswith("autoscale is off\n")
    assert run("autoscale", "ci", "--off").startswith("autoscale was already off\n")
    run("update", "ci", "--target", "4")


def test_a_dry_run_explains_its_decision_and_changes_nothing(run: PoolCommand) -> None:
    assert "has no autoscale policy" in run("autoscale", "ci", "--dry-run", code=3)
    output = run("autoscale", "ci", "--min", "4", "--dry-run")
    assert "dry run: up to 4: min is 4\n" in output
    assert "assumed: a warm-up of 90 s: no member has become ready" in output
    would = run.json("autoscale", "ci", "--on", "--dry-run")["would"]
    assert (would["size"], would["warm_up_seconds"]) == (2, 90)
    assert run.json("autoscale", "ci")["policy"] is None
    run("autoscale", "ci", "--on")
    run("update", "ci", "--pause")
    assert "a pool with status paused is not scaled" in run("autoscale", "ci", "--dry-run")


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
def test_invalid_options_are_refused_and_change_nothing(
    run: PoolCommand, words: tuple[str, ...]
) -> None:
    output = run("autoscale", "ci", *words, code=2)
    assert [line.partition(":")[0] for line in output.splitlines()] == ["error", "why", "do"]
    assert run.json("autoscale", "ci")["policy"] is None
