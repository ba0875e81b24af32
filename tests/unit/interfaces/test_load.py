"""Screen of `overnight load`: figures and limits with units, run length only when known."""

from __future__ import annotations

import io
import pathlib

import loadseconds
import pytest
import rich.console

from overnight import load
from overnight.app import load as app
from overnight.interfaces import cli
from overnight.interfaces.cli.commands import load as command
from overnight.load import constancy, measurement, runner, workloads

SECOND = measurement.Second(
    us=0, at=12.0, warm=True, values={"resident": 283e6, "written": 64e6, "cpu": 0.0098},
    sys={1: 0.012, 2: 0.079}, steal=0.001, waits=0.0,
    pressure={"cpu": 0.52, "memory": 0.0, "io": 0.04}, trials=0,
)  # fmt: skip
REQUEST = app.Request("memory", seconds=60.0)


def progress(second: measurement.Second, verdict: constancy.Verdict) -> app.Progress:
    metrics = workloads.find("memory").metrics(load.Options((1, 2)))
    return app.Progress(second, verdict, app.format_figures(metrics, second))


def judge(seconds: int, unsteady: float = 0.0) -> constancy.Verdict:
    cpu = load.Metric("cpu", "cores", "cpu")
    values = [0.6 + 0.01 * (n * 7919 % 13) / 13 for n in range(seconds)]
    return loadseconds.judge({cpu: values}, sys={3: [unsteady * (n % 2) for n in range(seconds)]})


def show(verdict: constancy.Verdict) -> str:
    outcome = runner.Outcome(
        "1", "cpu", "here", (3,), 0, 12_000_000, "time", 0, None, verdict, pathlib.Path("/x")
    )
    console = rich.console.Console(file=io.StringIO(), width=80)
    with console.capture() as output:
        command._show(outcome, console)
    return output.get()


def test_the_screen_fits_80_columns_and_every_figure_has_its_unit() -> None:
    console = rich.console.Console(file=io.StringIO(), width=80)
    with console.capture() as output:
        console.print(command._table(REQUEST, progress(SECOND, judge(3))))
    lines = output.get().splitlines()
    assert lines[1].split()[0] == "now"
    assert "resident 283 MB  written 64 MB/s  cpu 0.010 cores" in lines[1]
    assert "sys 7.9% on core 2  steal 0.1%  PSI cpu 52% memory 0% io 4%" in lines[2]
    assert all(len(line) <= 80 for line in lines)


def test_the_screen_shows_the_warm_up() -> None:
    cold = measurement.Second(**{**vars(SECOND), "warm": False})
    console = rich.console.Console(file=io.StringIO(), width=80)
    with console.capture() as output:
        console.print(command._table(REQUEST, progress(cold, judge(0))))
    assert "12 s of 1 min, warm-up" in output.get()


def test_a_limit_has_the_unit_of_its_figure() -> None:
    assert "points (limit 3 points)" in show(judge(60, unsteady=0.2))


@pytest.mark.parametrize(
    ("seconds", "unsteady", "gate"),
    [(3, 0.0, "too short"), (60, 0.2, "fail"), (3600, 0.0, "pass")],
)
def test_the_gate_is_pass_fail_or_too_short(seconds: int, unsteady: float, gate: str) -> None:
    verdict = judge(seconds, unsteady)
    assert show(verdict).startswith(f"{gate}: cpu for 12 s")
    assert command._state(progress(SECOND, verdict)) == gate


def test_a_few_seconds_do_not_estimate_a_run_length() -> None:
    assert "would decide" not in show(judge(3))
    assert "A run of about" in show(judge(60))


@pytest.mark.parametrize("words", [["trials", "--seed", "-1"], ["cpu", "--for", "0"]], ids=str)
def test_invalid_loads_are_usage_errors(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    assert cli.main(["--home", str(tmp_path), "load", *words]) == 2
    assert list(tmp_path.glob("loads/**/*.jsonl")) == []
