"""Options that the four profile queries share, and the formats that each can write."""

from __future__ import annotations

import dataclasses
import gzip
import json
import pathlib

import captures
import pytest
import typer.main

from overnight.app import windows
from overnight.interfaces import cli
from overnight.interfaces.cli import formats
from overnight.model import times
from overnight.model.selection import Selection

QUERIES = ("heatmap", "flame", "diff", "top")
WRITABLE = {
    "heatmap": {"text", "json", "svg", "html"},
    "flame": {"text", "json", "collapsed", "pprof", "speedscope", "svg", "html"},
    "diff": {"text", "json", "svg", "html"},
    "top": {"text", "json", "html"},
}
NIGHT, SECOND = captures.NIGHT, captures.SECOND


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    samples = captures.random_samples(5, 300, begin=NIGHT, end=NIGHT + 30 * SECOND)
    captures.store(tmp_path, captures.build(samples))
    return tmp_path


def test_every_query_has_every_shared_option() -> None:
    commands = typer.main.get_command(cli.build()).commands  # type: ignore[attr-defined]
    for name in QUERIES:
        options = {parameter.name for parameter in commands[name].params}
        shared = {field.name for field in dataclasses.fields(windows.Query)}
        assert shared - options == ({"idle"} if name == "heatmap" else set())
        assert "query" not in options


def test_every_shared_filter_is_in_the_selection() -> None:
    query = {field.name for field in dataclasses.fields(windows.Query)}
    known = {field.name for field in dataclasses.fields(Selection)}
    own = {"cores", "event", "pids"}  # only detectors select by pid
    assert query - {"begin", "end", "host", "core", "perf_event"} == known - own


def test_filters_are_spelled_as_they_are_typed() -> None:
    query = windows.Query(begin="1s", host=("a",), core="0-3", process="d d", idle=True)
    assert query.filters_text() == "--core 0-3 --process d d --idle"
    assert windows.Query().filters_text() == ""


@pytest.mark.parametrize("output", [*formats.Format])
@pytest.mark.parametrize("name", QUERIES)
def test_an_unsuitable_format_is_an_error_that_names_the_others(
    home: pathlib.Path, name: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = home / "answer"
    begin = ["-b", "15s"] if name == "diff" else []
    code = cli.main(["--home", str(home), name, *begin, "-O", output, "-o", str(target)])
    captured = capsys.readouterr()
    if output == "text":
        assert code == 2
        assert f"> {target}" in captured.err
    elif output in WRITABLE[name]:
        assert code == 0, captured.err
        assert target.stat().st_size > 0
        assert captured.out == ""
    else:
        assert code == 2
        assert f"cannot be written as {output}" in captured.err
        todo = captured.err.partition("do:")[2]
        assert all(other in todo for other in WRITABLE[name])
        assert not target.exists()


@pytest.mark.parametrize(
    ("name", "output"),
    [(name, output) for name in QUERIES for output in sorted(WRITABLE[name] - {"html"})],
)
def test_every_query_reports_a_damaged_segment(
    tmp_path: pathlib.Path, name: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = captures.random_samples(5, 900, begin=NIGHT, end=NIGHT + 360 * SECOND)
    source = captures.store(tmp_path, captures.build(samples))
    damaged = source.catalogue.segments("alpha")[-1]
    (damaged.path / "nodes.parquet").unlink()
    begin = ["-b", "150s"] if name == "diff" else []
    target = [] if output == "text" else ["-o", str(tmp_path / "answer")]
    assert cli.main(["--home", str(tmp_path), name, *begin, "-O", output, *target]) == 0
    why = "nodes.parquet cannot be read: No such file or directory"
    if output == "text":
        assert f"{damaged.path.name} of alpha is damaged" in " ".join(
            capsys.readouterr().out.split()
        )
        return
    answer = (tmp_path / "answer").read_bytes()
    if output == "pprof":
        answer = gzip.decompress(answer)
    if output == "json" and name != "flame":
        (damage,) = json.loads(answer)["coverage"]["damaged"]
        assert (damage["segment"], damage["why"]) == (damaged.path.name, why)
        assert damage["samples"] == damaged.meta().samples
    elif output in ("collapsed", "speedscope"):  # they have no place for notes
        assert why in capsys.readouterr().err
    else:
        assert damaged.path.name.encode() in answer


def test_an_unknown_format_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["heatmap", "-O", "xml"]) == 2
    output = capsys.readouterr().err
    assert "no format 'xml'" in output
    assert "text, json, svg or html" in output


@pytest.mark.parametrize("name", QUERIES)
def test_errors_are_json_with_output_json(
    home: pathlib.Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--home", str(home), name, "--core", "x", "-O", "json"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["kind"] == "usage"


def test_a_page_is_limited_to_one_host(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = captures.random_samples(5, 300, begin=NIGHT, end=NIGHT + 30 * SECOND)
    captures.store(tmp_path, captures.build(samples, host="a"), captures.build(samples, host="b"))
    base = ["--home", str(tmp_path)]
    assert cli.main([*base, "top", "-O", "html"]) == 2
    assert "--host a" in capsys.readouterr().err
    compare = [*base, "diff", "-b", "15s", "--host", "a", "--baseline-host", "b"]
    assert cli.main([*compare, "-O", "html"]) == 2
    assert "-O text, json or svg" in capsys.readouterr().err
    assert cli.main([*compare, "-O", "svg"]) == 0
    assert "B  b, " in capsys.readouterr().out


def test_a_perf_event_is_chosen_by_name_but_not_for_pages(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = [
        dataclasses.replace(sample, event=number % 4 == 0)
        for number, sample in enumerate(
            captures.random_samples(5, 400, begin=NIGHT, end=NIGHT + 30 * SECOND)
        )
    ]
    capture = captures.build(samples, events=("cycles", "cache-misses"))
    captures.store(tmp_path, capture)

    def run(*words: str) -> int:
        return cli.main(["--home", str(tmp_path), "top", "--idle", *words])

    def count_samples(*words: str) -> int:
        assert run("-O", "json", *words) == 0
        return int(json.loads(capsys.readouterr().out)["coverage"]["samples"])

    missed, cycles = (sum(s.count for s in samples if s.event == n) for n in (1, 0))
    assert count_samples("--perf-event", "cache") == count_samples("--perf-event", "1") == missed
    assert count_samples() == count_samples("--perf-event", "cycles") == cycles
    assert run("--perf-event", "c") == 2
    assert "cycles" in capsys.readouterr().err
    assert run("--perf-event", "cache", "-O", "html") == 2
    assert "leave --perf-event out" in capsys.readouterr().err


def test_a_page_shows_only_busy_and_kernel(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ["--home", str(home), "heatmap", "-O", "html", "-o", str(home / "x.html"), "--mode"]
    assert cli.main([*page, "softirq"]) == 2
    assert "svg" in capsys.readouterr().err
    assert cli.main([*page, "kernel", "--by", "offset"]) == 0


def test_a_page_of_an_unknown_table_is_refused(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--home", str(home), "top", "everything", "-O", "html"]) == 2
    assert "'everything' is not a kind" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["top"], ["flame"]])
def test_a_ranking_shows_its_window(
    home: pathlib.Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    first = NIGHT // 1000 + 5_000_000
    begin = times.format_instant(first)
    assert cli.main(["--home", str(home), *words, "-b", begin, "-e", "+10s"]) == 0
    window = f"{begin} … {times.format_instant(first + 10_000_000)}"
    assert window in capsys.readouterr().out


def test_the_time_line_of_a_heatmap_has_ticks(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert cli.main(["--home", str(home), "heatmap"]) == 0
    lines = capsys.readouterr().out.splitlines()
    [axis] = [line for line in lines if "╵" in line]
    for at in [n for n, character in enumerate(axis) if character == "╵"]:
        second = times.format_instant(NIGHT // 1000 + (at - 6) * 1_000_000)
        assert axis[at + 1 : at + 9] == second[11:19], "a tick stands at its column"
    assert axis.count("╵") >= 2
