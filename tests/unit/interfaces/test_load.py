"""`overnight load` on a screen: figures with their units, limits in theirs, and no promise it cannot keep."""

from __future__ import annotations

import io
import pathlib

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


def judged(seconds: int, unsteady: float = 0.0) -> constancy.Verdict:
    at = [float(n) for n in range(seconds)]
    sys = {3: [unsteady * (n % 2) for n in range(seconds)]}
    cpu = constancy.Series(
        "cpu", "cores", [0.6 + 0.01 * (n * 7919 % 13) / 13 for n in range(seconds)]
    )
    return constancy.judge(constancy.Seconds(at, [cpu], sys=sys, steal=[0.0] * seconds))


def shown(verdict: constancy.Verdict) -> str:
    made = runner.Outcome(
        "1", "cpu", "here", (3,), 0, 12_000_000, "time", 0, None, verdict, pathlib.Path("/x")
    )
    console = rich.console.Console(file=io.StringIO(), width=80)
    with console.capture() as said:
        command._show(made, console)
    return said.get()


def test_the_screen_fits_80_columns_and_every_figure_has_its_unit() -> None:
    console = rich.console.Console(file=io.StringIO(), width=80)
    with console.capture() as said:
        console.print(command._table(REQUEST, progress(SECOND, judged(3))))
    lines = said.get().splitlines()
    assert lines[1].split()[0] == "now"
    assert "resident 283 MB  written 64 MB/s  cpu 0.010 cores" in lines[1]
    assert "sys 7.9% on core 2  steal 0.1%  PSI cpu 52% memory 0% io 4%" in lines[2]
    assert all(len(line) <= 80 for line in lines)


def test_the_screen_says_warm_up_as_long_as_it_is() -> None:
    cold = measurement.Second(**{**vars(SECOND), "warm": False})
    console = rich.console.Console(file=io.StringIO(), width=80)
    with console.capture() as said:
        console.print(command._table(REQUEST, progress(cold, judged(0))))
    assert "12s of 1m, warm-up" in said.get()


def test_a_limit_has_the_unit_of_what_it_limits() -> None:
    assert "points (limit 3 points)" in shown(judged(60, unsteady=0.2))


def test_so_few_seconds_do_not_tell_how_long_a_run_would() -> None:
    assert "would decide" not in shown(judged(3))
    assert "A run of about" in shown(judged(60))


@pytest.mark.parametrize("words", [["trials", "--seed", "-1"], ["cpu", "--for", "0"]], ids=str)
def test_what_cannot_run_is_a_slip_of_the_caller(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    assert cli.main(["--home", str(tmp_path), "load", *words]) == 2
    assert list(tmp_path.glob("loads/**/*.jsonl")) == []
