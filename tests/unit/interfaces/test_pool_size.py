"""`overnight pool size`: text, JSON and refused options."""

from __future__ import annotations

import inspect
import json
import pathlib

import jsonschema
import pytest
import rich.console
import typer

from overnight import errors
from overnight.interfaces import cli
from overnight.interfaces.cli import miss_curve
from overnight.interfaces.cli.commands import pool_size
from overnight.pools import bursts, sizing

SCHEMA = pathlib.Path(__file__).parents[3] / "docs/schemas/pool-size-1.json"
DEMAND = ("--claims-per-minute", "4", "--warmup", "90s")


def run(*words: str) -> int:
    return cli.main(["pool", "size", *words])


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        (DEMAND, (10, 17, 13)),
        ((*DEMAND, "--miss", "0.1 %"), (10, 20, 15)),
        ((*DEMAND, "--miss", "0.001", "--callers", "wait"), (10, 20, 16)),
        ((*DEMAND, "--burst", "5", "--cost", "0.4"), (10, 29, 25)),
        (("--claims-per-minute", "0", "--warmup", "90"), (0, 0, 0)),
    ],
)
def test_json_has_the_three_sizes(
    words: tuple[str, ...], sizes: tuple[int, int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words, "-O", "json") == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert (
        document["runbook"],
        document["recommended"],
        document["recommended_event_driven"],
    ) == sizes
    at_runbook = next(row for row in document["curve"] if row["size"] == document["runbook"])
    assert at_runbook["give_up"] == document["miss_at_runbook"]


def test_the_text_explains_each_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*DEMAND, "--cost", "0.4") == 0
    output = capsys.readouterr().out
    for words in (
        "10   15.3 % of claims miss: the rule covers only the mean demand",
        "17   0.55 % of claims miss",
        "13   0.52 % miss if every claim wakes the pool, 4 fewer hosts",
        "◀ runbook",
        "Idle cost a month (730 h): 2,6",
    ):
        assert words in output


@pytest.mark.parametrize("width", [72, 80, 100])
@pytest.mark.parametrize(
    "demand",
    [
        sizing.Demand(4, 90),
        sizing.Demand(4, 90, miss=1e-9),
        sizing.Demand(4, 90, miss=0.9),
        sizing.Demand(400, 280),
        sizing.Demand(4, 90, burst=bursts.Burst(20)),
    ],
    ids=str,
)
def test_the_picture_fits_its_terminal(demand: sizing.Demand, width: int) -> None:
    answer = sizing.size(demand)
    lines = miss_curve.draw(answer, width)
    assert max(len(line.plain) for line in lines) <= width
    assert len(lines) <= miss_curve.MAX_ROWS + 3
    labels = " ".join(line.plain.partition("◀")[2] for line in lines)
    for name in ("runbook", "tick", "woken"):
        assert name in labels


def test_a_longer_bar_misses_more() -> None:
    lines = miss_curve.draw(sizing.size(sizing.Demand(4, 90)), 80)[1:]
    lengths = [sum(line.plain.count(mark) for mark in miss_curve.MARKS) for line in lines]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1] + 20


def test_simulated_numbers_and_bounds_are_labelled() -> None:
    for demand, word in (
        (sizing.Demand(4, 300), "simulated"),
        (sizing.Demand(400, 300), "upper bound"),
        (sizing.Demand(4, 90), ""),
    ):
        console = rich.console.Console(width=80, record=True, file=None, quiet=False)
        with console.capture() as output:
            pool_size.show(sizing.size(demand), console)
        assert (word or "Idle on average") in output.get()
        assert bool(word) == ("'give up' is" in output.get())


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--claims-per-minute", "4"),
        ("--claims-per-minute", "nan", "--warmup", "90s"),
        ("--claims-per-minute", "-4", "--warmup", "90s"),
        ("--claims-per-minute", "4", "--warmup", "soon"),
        ("--claims-per-minute", "4", "--warmup", "0"),
        ("--claims-per-minute", "4", "--warmup", "0.5ms"),
        (*DEMAND, "--interval", "0"),
        (*DEMAND, "--miss", "0"),
        (*DEMAND, "--miss", "100%"),
        (*DEMAND, "--miss", "1"),
        (*DEMAND, "--miss", "-1%"),
        (*DEMAND, "--miss", "one"),
        (*DEMAND, "--miss", "nan"),
        (*DEMAND, "--burst", "0"),
        (*DEMAND, "--burst", "five"),
        (*DEMAND, "--burst", "5:x"),
        (*DEMAND, "--burst", "5:-1"),
        (*DEMAND, "--callers", "shout"),
        (*DEMAND, "--cost", "-1"),
        (*DEMAND, "--over", "8h"),
        (*DEMAND, "--cost", "inf"),
    ],
)
def test_invalid_options_are_refused_in_three_lines(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == errors.ExitCode.USAGE
    captured = capsys.readouterr()
    assert [line.partition(":")[0] for line in captured.err.splitlines()] == ["error", "why", "do"]
    assert captured.out == ""


def test_it_joins_the_existing_pool_group() -> None:
    outer, group = typer.Typer(), typer.Typer()
    outer.add_typer(group, name="pool")
    pool_size.register(outer)
    assert len(outer.registered_groups) == 1
    (added,) = group.registered_commands
    assert added.callback is not None
    assert inspect.unwrap(added.callback) is pool_size.size
