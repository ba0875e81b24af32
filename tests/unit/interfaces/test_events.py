"""`overnight events`: filters, output and errors; recorded events as marks."""

from __future__ import annotations

import io
import json
import pathlib

import captures
import jsonschema
import pytest
import rich.console
import rich.text
import rings

from overnight.app import events as stored
from overnight.interfaces import cli
from overnight.interfaces.cli.commands import events
from overnight.model.event import Event

SCHEMA = pathlib.Path(__file__).parents[3] / "docs/schemas/events-1.json"


def make_event(second: float, kind: str, **fields: object) -> Event:
    values = {"host": rings.HOST, "boot": rings.BOOT, "id": f"{kind}-{second:.0f}", **fields}
    return Event(rings.us(second), kind, **values)  # type: ignore[arg-type]


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    writer = rings.open_writer(tmp_path)
    rings.record(writer, range(100))
    pinned = {"core": 39, "severity": "critical", "fields": {"busy_percent": 99.5, "rule": "x"}}
    writer.event(make_event(10, "cpu.core_pinned", text="core 39 was \x1b[31m pinned", **pinned))
    writer.event(make_event(12, "net.driver_reset", core=39, severity="critical", count=7))
    writer.event(make_event(50, "clock.unsynchronised", severity="info"))
    writer.note_gap(rings.us(60), rings.us(70), "the disk was full")
    writer.tick(rings.at(100))
    writer.close()
    return tmp_path


def run(home: pathlib.Path, *words: str) -> int:
    return cli.main(["--home", str(home), "events", *words])


def list_kinds(home: pathlib.Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert run(home, "-O", "json", *words) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    return [event["kind"] for event in document["events"]]


def test_all_events_are_listed_by_time(home, capsys) -> None:
    assert list_kinds(home, capsys) == [
        "cpu.core_pinned",
        "net.driver_reset",
        "clock.unsynchronised",
    ]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--severity", "warning"], ["cpu.core_pinned", "net.driver_reset"]),
        (["--kind", "net."], ["net.driver_reset"]),
        (["--kind", "net.driver"], []),
        (["--core", "0-40"], ["cpu.core_pinned", "net.driver_reset"]),
        (["--core", "3"], []),
        (["-b", "11s", "-e", "+10s"], ["net.driver_reset"]),
        (["--host", rings.HOST, "-b", "20s"], ["clock.unsynchronised"]),
        (["cpu.core_pinned-10"], ["cpu.core_pinned"]),
    ],
)
def test_filters(home, capsys, words, shown) -> None:
    assert list_kinds(home, capsys, *words) == shown


def test_text_shows_events_counts_and_gaps(home, capsys) -> None:
    assert run(home) == 0
    text = capsys.readouterr().out
    assert "net.driver_reset" in text
    assert "7 times" in text
    assert "the disk was full" in " ".join(text.split())
    assert "\x1b[31m" not in text


def test_one_event_is_shown_with_all_its_fields(home, capsys) -> None:
    assert run(home, "cpu.core_pinned-10") == 0
    text = capsys.readouterr().out
    assert "busy_percent" in text
    assert "boot 1a2b3c4d" in text
    assert f"overnight --home {home} flame -b 2026" in text
    assert f"overnight --home {home} diagnose 10" in text
    assert "--core 39" in text


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nothing-1"], 3, "no event 'nothing-1'"),
        (["--severity", "bad"], 2, "no severity 'bad'"),
        (["--core", "x"], 2, "not a list of cores"),
        (["--host", "elsewhere"], 3, "no signals of host 'elsewhere'"),
        (["-b", "20s", "-e", "10s"], 2, "-e must be after -b"),
    ],
)
def test_mistakes_are_explained(home, capsys, words, code, message) -> None:
    assert run(home, *words) == code
    assert message in capsys.readouterr().err


def test_without_a_recording_the_error_names_the_command(tmp_path, capsys) -> None:
    assert run(tmp_path) == 3
    assert " record --signals-only" in capsys.readouterr().err


def test_recorded_events_are_marks_on_the_heatmap(home, capsys) -> None:
    second = captures.SECOND
    begin = rings.us(0) * (captures.SECOND // 1_000_000)
    samples = captures.random_samples(5, 300, begin=begin, end=begin + 30 * second)
    captures.store(home, captures.build(samples, host=rings.HOST))
    assert cli.main(["--home", str(home), "heatmap", "-O", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [event["kind"] for event in document["events"]] == [
        "cpu.core_pinned",
        "net.driver_reset",
    ]


def line_of(text: str, word: str) -> str:
    return next(line for line in text.splitlines() if word in line)


def test_a_line_has_short_id_severity_process_and_duration(tmp_path, capsys) -> None:
    writer = rings.open_writer(tmp_path)
    rings.record(writer, range(100))
    lasting = {"id": "cpu.core_pinned-1a2b3c4d", "until_us": rings.us(22), "process": "cedar-meter"}
    writer.event(make_event(10, "cpu.core_pinned", core=39, severity="critical", **lasting))
    writer.close()
    assert run(tmp_path) == 0
    text = capsys.readouterr().out
    assert text.split()[:2] == ["id", "time"]
    words = line_of(text, "core_pinned").split()
    assert words[0] == "1a2b3c4d"
    assert words[2:] == ["critical", "cpu.core_pinned", "39", "12", "s", "cedar-meter"]
    assert f"overnight --home {tmp_path} diagnose ID" in text


@pytest.fixture
def similar(tmp_path: pathlib.Path) -> pathlib.Path:
    """A data home with two events whose short ids begin alike."""
    writer = rings.open_writer(tmp_path)
    rings.record(writer, range(100))
    writer.event(make_event(10, "net.driver_reset", id="net.driver_reset-1a2b3c4d"))
    writer.event(make_event(20, "cpu.core_pinned", id="cpu.core_pinned-1a99aaaa"))
    writer.close()
    return tmp_path


@pytest.mark.parametrize("prefix", ["1a2b3c4d", "1a2", "net.driver_reset-1a2b3c4d", "net."])
def test_a_prefix_of_one_event_is_its_id(similar, capsys, prefix) -> None:
    assert list_kinds(similar, capsys, prefix) == ["net.driver_reset"]


def test_diagnose_and_bundle_take_a_prefix(similar, capsys) -> None:
    assert cli.main(["--home", str(similar), "diagnose", "1a2", "-O", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["event"]["id"] == "net.driver_reset-1a2b3c4d"
    file = similar / "x.overnight"
    assert cli.main(["--home", str(similar), "bundle", "create", "1a2", "-o", str(file)]) == 0
    assert file.exists()


@pytest.mark.parametrize(
    "words", [["events", "1a"], ["diagnose", "1a"], ["bundle", "create", "--event", "1a"]]
)
def test_a_prefix_of_several_events_is_refused_and_names_them(similar, capsys, words) -> None:
    assert cli.main(["--home", str(similar), *words]) == 2
    text = capsys.readouterr().err
    assert "'1a' matches 2 events" in text
    assert "net.driver_reset-1a2b3c4d" in text


def test_a_missing_bundle_is_not_taken_for_an_event(similar, capsys) -> None:
    assert cli.main(["--home", str(similar), "diagnose", "missing.overnight"]) == 3
    assert "no event" not in capsys.readouterr().err


@pytest.mark.parametrize(("width", "lines"), [(80, 2), (160, 1)])
def test_the_text_gets_its_own_line_on_a_narrow_terminal(width, lines) -> None:
    console = rich.console.Console(file=io.StringIO(), force_terminal=True, width=width)
    event = make_event(10, "cpu.core_pinned", text="core 39 was pinned", process="cedar-meter")
    events.show_table([event], console)
    shown = console.file.getvalue().splitlines()
    assert len(shown) == 2 * lines
    assert all(len(rich.text.Text.from_ansi(line).plain.rstrip()) <= width for line in shown)


def test_a_followed_event_is_one_line_however_narrow_the_terminal(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    event = Event(
        rings.us(3),
        "job.failed",
        "a text that is longer than the terminal is wide",
        "db-7",
        id="e-1",
    )
    monkeypatch.setattr(stored, "follow", lambda *_: iter([(event, None)]))
    assert cli.main(["--home", str(home), "events", "--follow"]) == 0
    line, end = capsys.readouterr().out.split("\n")
    assert line.endswith(f"job.failed  {event.text}")
    assert end == ""


@pytest.mark.parametrize("words", ["-b 5m", "-e 5m", "net.driver_reset-12"])
def test_follow_refuses_what_it_would_ignore(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    assert cli.main(["--home", str(home), "events", "--follow", *words.split()]) == 2
    assert "--follow cannot be combined with" in capsys.readouterr().err
