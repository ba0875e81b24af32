"""`overnight pool size`: what is told to people and to programs, and what is refused."""

from __future__ import annotations

import doctest
import json
import pathlib

import jsonschema
import pytest
import rich.console
import typer

from overnight import errors
from overnight.interfaces import cli
from overnight.interfaces.cli import miss_curve, pool_options
from overnight.interfaces.cli.commands import pool_size
from overnight.pools import bursts, sizing

SCHEMA = pathlib.Path(__file__).parents[3] / "docs/schemas/pool-size-1.json"
USUAL = ("--claims-per-minute", "4", "--warmup", "90s")


def ask(*words: str) -> int:
    return cli.main(["pool", "size", *words])


@pytest.mark.parametrize("module", [miss_curve, pool_options])
def test_examples(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (USUAL, (10, 17, 13)),
        ((*USUAL, "--miss", "0.1 %"), (10, 20, 15)),
        ((*USUAL, "--miss", "0.001", "--callers", "wait"), (10, 20, 16)),
        ((*USUAL, "--burst", "5", "--cost", "0.4"), (10, 29, 25)),
        (("--claims-per-minute", "0", "--warmup", "90"), (0, 0, 0)),
    ],
)
def test_the_three_numbers_for_programs(
    words: tuple[str, ...], named: tuple[int, int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(*words, "-O", "json") == 0
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, json.loads(SCHEMA.read_text()))
    assert (told["runbook"], told["recommended"], told["recommended_event_driven"]) == named
    at_runbook = next(row for row in told["curve"] if row["size"] == told["runbook"])
    assert at_runbook["give_up"] == told["miss_at_runbook"]


def test_the_text_says_what_each_number_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(*USUAL, "--cost", "0.4") == 0
    told = capsys.readouterr().out
    for words in (
        "10   15.3 % of claims miss: the rule covers only the mean demand",
        "17   0.55 % of claims miss",
        "13   0.52 % miss if every claim wakes the pool, 4 fewer hosts",
        "◀ runbook",
        "Idle cost a month (730 h): 2,6",
    ):
        assert words in told


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
    found = sizing.size(demand)
    lines = miss_curve.draw(found, width)
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


def test_where_it_is_not_exact_it_says_so() -> None:
    for demand, word in (
        (sizing.Demand(4, 300), "simulated"),
        (sizing.Demand(400, 300), "upper bound"),
        (sizing.Demand(4, 90), ""),
    ):
        console = rich.console.Console(width=80, record=True, file=None, quiet=False)
        with console.capture() as told:
            pool_size.show(sizing.size(demand), console)
        assert (word or "Idle on average") in told.get()
        assert bool(word) == ("'give up' is" in told.get())


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
        (*USUAL, "--interval", "0"),
        (*USUAL, "--miss", "0"),
        (*USUAL, "--miss", "100%"),
        (*USUAL, "--miss", "1"),
        (*USUAL, "--miss", "-1%"),
        (*USUAL, "--miss", "one"),
        (*USUAL, "--miss", "nan"),
        (*USUAL, "--burst", "0"),
        (*USUAL, "--burst", "five"),
        (*USUAL, "--burst", "5:x"),
        (*USUAL, "--burst", "5:-1"),
        (*USUAL, "--callers", "shout"),
        (*USUAL, "--cost", "-1"),
        (*USUAL, "--over", "8h"),
        (*USUAL, "--cost", "inf"),
    ],
)
def test_what_makes_no_sense_is_refused_in_three_lines(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(*words) == errors.ExitCode.USAGE
    said = capsys.readouterr()
    assert [line.partition(":")[0] for line in said.err.splitlines()] == ["error", "why", "do"]
    assert said.out == ""


def test_it_joins_the_group_that_is_there() -> None:
    outer, group = typer.Typer(), typer.Typer()
    outer.add_typer(group, name="pool")
    pool_size.register(outer)
    assert len(outer.registered_groups) == 1
    assert [info.callback for info in group.registered_commands] == [pool_size.size]
