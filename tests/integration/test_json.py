"""JSON of every command fits its schema, and its text shows the lost samples."""

from __future__ import annotations

import json
import pathlib

import jsonschema
import pytest

from overnight.interfaces import cli

REPOSITORY = pathlib.Path(__file__).parents[2]
TEXT = """# hostname : db-7
# nrcpus online : 2
# event : name = cpu-clock, , sample_freq = 97
# captured on    : Sun Nov 15 03:14:09 2026

kubelet 100/101 [001] 50.000000: 10309278 cpu-clock:
\tffffffff81000000 mem_cgroup_iter+0x10 ([kernel.kallsyms])
\tffffffff81000100 do_syscall_64+0x20 ([kernel.kallsyms])
\t    55d000001000 main+0x5 (/usr/bin/kubelet)

python3 200/200 [000] 50.500000: 10309278 cpu-clock:
\t    55d000002000 train+0x5 (/usr/bin/python3)

swapper 0/0 [000] 52.000000: 10309278 cpu-clock:
\tffffffff82000000 default_idle+0x5 ([kernel.kallsyms])

"""

COMMANDS = {
    "heatmap-1": ["heatmap", "--mark", "1s=reset"],
    "stacks-1": ["flame"],
    "diff-1": ["diff", "-b", "400ms"],
    "top-1": ["top", "functions"],
    "store-check-1": ["store", "check"],
    "store-ingest-1": ["store", "ingest"],
    "pins-1": ["store", "pin", "reset", "-b", "0", "-e", "+1s", "--why", "NIC reset"],
}


@pytest.fixture
def home(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> pathlib.Path:
    capture = tmp_path / "capture.txt"
    capture.write_text(TEXT)
    folder = tmp_path / "home"
    assert cli.main(["--home", str(folder), "import", str(capture), "-O", "json"]) == 0
    check_schema("import-1", capsys.readouterr().out)
    return folder


def check_schema(name: str, text: str) -> None:
    schema = json.loads((REPOSITORY / f"docs/schemas/{name}.json").read_text())
    jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize("name", COMMANDS)
def test_json_fits_its_schema(
    home: pathlib.Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--home", str(home), *COMMANDS[name], "-O", "json"]) == 0
    check_schema(name, capsys.readouterr().out)


@pytest.mark.parametrize("arguments", [["heatmap"], ["heatmap", "--by", "offset"], ["flame"], ["flame", "--reverse"], ["top"], ["top", "units"], ["diff", "-b", "400ms"]], ids=" ".join)  # fmt: skip
def test_every_text_shows_recorded_and_lost_samples(
    home: pathlib.Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--home", str(home), *arguments]) == 0
    shown = capsys.readouterr().out
    assert "0 lost" in shown
    assert "recorded" in shown


@pytest.mark.parametrize("output", ["collapsed", "pprof", "speedscope", "svg", "json", "html"])
def test_every_format_is_written_to_a_file(
    home: pathlib.Path, tmp_path: pathlib.Path, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / f"out.{output}"
    assert cli.main(["--home", str(home), "flame", "-O", output, "-o", str(target)]) == 0
    body = target.read_bytes()
    assert body
    if output not in ("pprof", "html"):
        assert b"mem_cgroup_iter" in body
    assert str(target) in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["flame", "--host", "nobody"], 3, "no profiles of nobody"),
        (["flame", "-b", "last night"], 2, "is not a time"),
        (["flame", "-b", "5s", "-e", "1s"], 2, "-e must be after -b"),
        (["flame", "-b", "2001-01-01", "-e", "2001-01-02"], 3, "nothing was recorded"),
        (["top", "--process", "("], 2, "not a regular expression"),
        (["top", "everything"], 2, "'everything' is not a kind"),
        (["heatmap", "--core", "x"], 2, "not a list of cores"),
        (["heatmap", "--step", "1us"], 2, "is not a duration"),
        (["import", "/nonexistent"], 3, "cannot be read"),
        (["import", "/dev/null"], 3, "unknown format"),
        (["flame", "-O", "svg", "-o", "/nonexistent/x.svg"], 3, "cannot be written"),
    ],
)
def test_errors_are_explained(
    home: pathlib.Path,
    arguments: list[str],
    code: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["--home", str(home), *arguments]) == code
    output = capsys.readouterr().err
    assert words in output
    assert "Traceback" not in output


def test_a_window_is_pinned_listed_and_unpinned(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--home", str(home), "store"]
    assert cli.main([*store, "pin"]) == 0
    assert "no pins" in capsys.readouterr().out
    assert cli.main([*store, "pin", "reset", "-b", "0", "-e", "+1s", "--why", "NIC \x1b[31m"]) == 0
    listed = capsys.readouterr().out
    assert "\nreset  2026-11-15T" in listed
    assert "\x1b" not in listed
    assert cli.main([*store, "pin", "other", "-b", "0", "-e", "+1s"]) == 0
    capsys.readouterr()
    assert cli.main([*store, "unpin", "reset", "-O", "json"]) == 0
    document = capsys.readouterr().out
    check_schema("pins-1", document)
    assert [pin["id"] for pin in json.loads(document)["pins"]] == ["other"]
    assert cli.main([*store, "unpin", "reset"]) == 3
    assert cli.main([*store, "pin", "../x", "-b", "0"]) == 2


def test_a_missing_viewer_leaves_no_file_behind(
    home: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("importlib.resources.files", lambda _: tmp_path)
    assert (
        cli.main(["--home", str(home), "flame", "-O", "html", "-o", str(tmp_path / "x.html")]) == 3
    )
    assert "not built" in capsys.readouterr().err
    assert not list(tmp_path.glob("*x.html*"))


def test_an_empty_home_names_the_command_to_fill_it(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--home", str(tmp_path), "heatmap"]) == 3
    assert " record`" in capsys.readouterr().err
