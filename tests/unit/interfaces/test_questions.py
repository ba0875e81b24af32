"""What the four questions about a night share: their options, and the formats that fit each."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import captures
import pytest
import typer.main

from overnight.app import windows
from overnight.interfaces import cli
from overnight.interfaces.cli import formats
from overnight.model.selection import Selection

QUESTIONS = ("heatmap", "flame", "diff", "top")
FIT = {
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


def test_every_question_has_every_option_of_the_shared_block() -> None:
    commands = typer.main.get_command(cli.build()).commands  # type: ignore[attr-defined]
    for name in QUESTIONS:
        have = {parameter.name for parameter in commands[name].params}
        want = {field.name for field in dataclasses.fields(windows.Query)}
        assert want - have == ({"idle"} if name == "heatmap" else set())
        assert "query" not in have


def test_every_filter_of_the_block_is_one_of_the_model() -> None:
    query = {field.name for field in dataclasses.fields(windows.Query)}
    known = {field.name for field in dataclasses.fields(Selection)}
    assert query - {"begin", "end", "host", "core", "perf_event"} == known - {"cores", "event"}


def test_filters_are_spelled_as_they_are_typed() -> None:
    query = windows.Query(begin="1s", host=("a",), core="0-3", process="d d", idle=True)
    assert query.filters_text() == "--core 0-3 --process d d --idle"
    assert windows.Query().filters_text() == ""


@pytest.mark.parametrize("output", [*formats.Format])
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_format_fits_or_the_error_names_those_that_do(
    home: pathlib.Path, name: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = home / "answer"
    begin = ["-b", "15s"] if name == "diff" else []
    code = cli.main(["--home", str(home), name, *begin, "-O", output, "-o", str(target)])
    said = capsys.readouterr()
    if output == "text":
        assert code == 2
        assert f"> {target}" in said.err
    elif output in FIT[name]:
        assert code == 0, said.err
        assert target.stat().st_size > 0
        assert said.out == ""
    else:
        assert code == 2
        assert f"cannot be written as {output}" in said.err
        todo = said.err.partition("do:")[2]
        assert all(other in todo for other in FIT[name])
        assert not target.exists()


def test_a_format_that_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["heatmap", "-O", "xml"]) == 2
    said = capsys.readouterr().err
    assert "no format 'xml'" in said
    assert "text, json, svg or html" in said


@pytest.mark.parametrize("name", QUESTIONS)
def test_errors_are_json_where_json_was_asked_for(
    home: pathlib.Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--home", str(home), name, "--core", "x", "-O", "json"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["kind"] == "usage"


def test_a_page_is_of_one_host(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_perf_event_is_chosen_by_its_name_and_pages_have_none(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = [
        dataclasses.replace(one, event=number % 4 == 0)
        for number, one in enumerate(
            captures.random_samples(5, 400, begin=NIGHT, end=NIGHT + 30 * SECOND)
        )
    ]
    made = captures.build(samples, events=("cycles", "cache-misses"))
    captures.store(tmp_path, made)

    def ask(*words: str) -> int:
        return cli.main(["--home", str(tmp_path), "top", "--idle", *words])

    def counted(*words: str) -> int:
        assert ask("-O", "json", *words) == 0
        return int(json.loads(capsys.readouterr().out)["coverage"]["samples"])

    missed, cycles = (sum(s.count for s in samples if s.event == n) for n in (1, 0))
    assert counted("--perf-event", "cache") == counted("--perf-event", "1") == missed
    assert counted() == counted("--perf-event", "cycles") == cycles
    assert ask("--perf-event", "c") == 2
    assert "cycles" in capsys.readouterr().err
    assert ask("--perf-event", "cache", "-O", "html") == 2
    assert "leave --perf-event out" in capsys.readouterr().err


def test_a_page_shows_busy_and_kernel_alone(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ["--home", str(home), "heatmap", "-O", "html", "-o", str(home / "x.html"), "--mode"]
    assert cli.main([*page, "softirq"]) == 2
    assert "svg" in capsys.readouterr().err
    assert cli.main([*page, "kernel", "--by", "offset"]) == 0


def test_a_page_of_no_table_is_refused(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--home", str(home), "top", "everything", "-O", "html"]) == 2
    assert "'everything' is not a kind" in capsys.readouterr().err
