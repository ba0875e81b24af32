"""Output of `overnight census`, on file trees."""

from __future__ import annotations

import json
import pathlib
import platform
import time

import jsonschema
import pytest

from overnight.interfaces import cli
from overnight.model import clock
from overnight.store.ring import writer

SCHEMA = json.loads((pathlib.Path(__file__).parents[3] / "docs/schemas/census-1.json").read_text())


def make_tree(
    root: pathlib.Path, in_use: int, dying: int, below: str = "system.slice"
) -> pathlib.Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text("30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n")
    (root / "cg" / below).mkdir(parents=True)
    for folder in (root / "cg", root / "cg" / below):
        (folder / "cgroup.stat").write_text(
            f"nr_descendants {in_use - 1}\nnr_dying_descendants {dying}\n"
        )
    return root


def run(root: pathlib.Path, *options: str) -> int:
    return cli.main(["census", "--root", str(root), "--for", "0s", *options])


@pytest.mark.parametrize(("dying", "code"), [(300, 0), (68_440, 1)])
def test_the_first_line_has_the_counts_and_too_many_exit_with_1(
    tmp_path: pathlib.Path, dying: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(make_tree(tmp_path, 240, dying)) == code
    shown = capsys.readouterr().out
    first = shown.splitlines()[0]
    assert f"{240 + dying:,} tracked against 240 in use" in first
    assert f"{dying:,} dying" in first
    assert "/system.slice" in shown
    assert "estimated" not in shown


def test_json_fits_its_schema(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(make_tree(tmp_path, 240, 68_440), "-O", "json") == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert document["ratio"] == 286.17
    assert document["severity"] == "critical"


def test_cgroup_names_cannot_control_the_terminal(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(make_tree(tmp_path, 240, 300, below="[red]\x1b]0;x\x07")) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "/[red]\\x1b" in shown


def test_a_host_without_memory_cgroups_is_an_error(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path) == 3
    assert "--root /host" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--watch", "-O", "json"], "cannot be combined"), (["--for", "soon"], "duration")],
)
def test_invalid_options_are_refused(
    tmp_path: pathlib.Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(make_tree(tmp_path, 2, 1), *options) == 2
    assert words in capsys.readouterr().err


def test_watch_prints_a_line_each_time_until_interrupted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from overnight.app import census

    real, turns = census.take, [0]

    def take(root: pathlib.Path, **options: float) -> census.Report:
        turns[0] += 1
        if turns[0] == 4:
            raise KeyboardInterrupt
        return real(root, **options)

    monkeypatch.setattr(census, "take", take)
    assert run(make_tree(tmp_path, 240, 68_440), "--watch") == 130
    assert capsys.readouterr().out.count("68,680 tracked") == 3


@pytest.fixture
def falling(tmp_path: pathlib.Path) -> pathlib.Path:
    """A data home whose recording still runs and counts one less every ten seconds."""
    host, boot = platform.node() or "host", "0" * 32  # the trees here have no boot id
    ring = writer.Writer(tmp_path / "home", host, boot, budget_bytes=1 << 30, age_seconds=1e9)
    wall, monotonic = time.time_ns(), time.monotonic_ns()
    for age in range(5, 0, -1):
        at = clock.Clock(wall - age * 10**10, monotonic - age * 10**10)
        row = (480 + age, 240, 240 + age)
        ring.numbers("memory-cgroups", ("tracked", "in_use", "dying"), at, {"": row})
        ring.tick(at)
    ring.close()
    return tmp_path / "home"


@pytest.mark.parametrize("options", [["--for", "4s"], ["--watch"]], ids=" ".join)
def test_a_duration_or_watch_measures_the_growth_now(
    tmp_path: pathlib.Path,
    falling: pathlib.Path,
    options: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from overnight.app import census

    real, turns = census.take, [0]

    def take(root: pathlib.Path, **given: object) -> census.Report:
        turns[0] += 1
        if turns[0] == 2:
            raise KeyboardInterrupt
        return real(root, **{**given, "seconds": 0.0})

    monkeypatch.setattr(census, "take", take)
    words = ["--home", str(falling), "census", "--root", str(make_tree(tmp_path / "x", 240, 240))]
    cli.main([*words, *options])
    out = capsys.readouterr().out
    assert "240 dying" in out
    assert "an hour" not in out
    turns[0] = 0
    assert cli.main(words) == 0
    assert "240 dying; -" in capsys.readouterr().out
