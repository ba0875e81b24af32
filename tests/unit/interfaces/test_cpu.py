"""`overnight cpu` in a terminal, as JSON and CSV; the heatmap of a recording without stacks."""

from __future__ import annotations

import csv
import io
import json
import pathlib

import captures
import cpurings
import jsonschema
import pytest
import rings
from cpurings import PINNED

from overnight.interfaces import cli
from overnight.load import profile
from overnight.model import times
from overnight.model.event import Event
from overnight.store.ring import writer

SCHEMAS = pathlib.Path(__file__).parents[3] / "docs/schemas"
CORES, PINNED_CORE, SECONDS = 96, 39, range(40, 46)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Two minutes of 96 cores: one is saturated for 6 s, a reading is lost, ten seconds are missing."""
    home = tmp_path_factory.mktemp("home")
    busy = {(second, PINNED_CORE): PINNED for second in SECONDS}
    busy |= {(50, core): (core % 30, 0, 0, 100 - core % 30, *[0] * 6) for core in range(CORES)}
    seconds = [n for n in range(120) if n != 60 and not 80 < n < 90]
    cpurings.record(home, CORES, seconds, busy, absent=[(55, 7)])
    ring = rings.open_writer(home)
    ring.note_gap(cpurings.us(80), cpurings.us(90), "the agent was stopped")
    ring.event(Event(rings.us(44), "cpu.core_pinned", "core 39 was busy", host=rings.HOST, boot=rings.BOOT, id="core-pinned-1", core=39))  # fmt: skip
    ring.close()
    return home


@pytest.fixture
def show(home, capsys, monkeypatch):
    def run(words: str, width: int = 80, code: int = 0) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        assert cli.main(["--home", str(home), *words.split()]) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return run


def document(text: str) -> dict:
    parsed = json.loads(text)
    name = parsed["schema"].removeprefix("overnight.").replace("/", "-")
    jsonschema.validate(parsed, json.loads((SCHEMAS / f"{name}.json").read_text()))
    return parsed


def test_many_cores_are_readable(show) -> None:
    for width in (80, 140):
        lines = show("cpu -b 49s -e 50s", width).splitlines()
        assert max(map(len, lines)) <= 80
        assert lines == [
            "db-7  2026-11-15  time (UTC)",
            "time         s core    usr   nice    sys iowait    irq   soft  steal   idle",
            "06:51:49  1.00  all  13.75   0.00   0.00   0.00   0.00   0.00   0.00  86.25",
            *(f"06:51:49  1.00{core:>5}{core % 30:>4}.00   0.00   0.00   0.00   0.00   0.00   0.00{100 - core % 30:>4}.00" for core in busiest(16)),
            "                    80 more cores, each 76.00 % or more idle or iowait (--limit)",
            "",
            "1 reading, one every 1 s; 0 missing",
        ]  # fmt: skip
    assert len(show("cpu -b 49s -e 50s --limit 96").splitlines()) == 2 + 97 + 2
    by_name = show("cpu -b 49s -e 50s --sort idle --limit 1").splitlines()
    assert by_name[3].split()[2] == "0"
    assert by_name[4].strip() == "95 more cores, each 100.00 % or less idle (--limit)"


def busiest(count: int) -> list[int]:
    return sorted(range(CORES), key=lambda core: -(core % 30))[:count]


def test_the_worst_core_of_each_interval(show) -> None:
    lines = show("cpu core-p --worst").splitlines()
    assert lines[0].startswith("cpu.core_pinned  2026-11-15T06:51:43.000Z  core 39 was busy")
    pinned = [line for line in lines if line.split()[2:3] == ["39"]]
    assert [line[:8] for line in pinned] == [f"06:51:{39 + n}" for n in range(6)]
    assert pinned[0].split()[3:6] == ["1.00", "0.00", "98.00"]
    (line,) = [x for x in show("cpu --every 1m --worst").splitlines() if x.startswith("06:51")]
    assert line.split()[2] == "39"


def test_what_is_missing_is_reported(show) -> None:
    lines = show("cpu --every 1h --limit 1").splitlines()
    assert lines[-3:] == [
        "108 readings, one every 1 s; 11 missing",
        "core 7 is missing in 2 readings",
        "not recorded 2026-11-15T06:52:19.370Z … 2026-11-15T06:52:29.370Z: the agent was stopped",
    ]
    assert "06:52:00  2.00  all" in show("cpu -b 59s -e 60s --limit 1")


def test_json_and_csv_have_every_core(show, home, capsys) -> None:
    found = document(show("cpu -b 43s -e 45s -O json --sort sys"))
    assert [len(each["cores"]) for each in found["intervals"]] == [CORES, CORES]
    assert found["intervals"][0]["cores"][0] == {
        "core": 39,
        "used": 100,
        "values": dict(zip(found["columns"], (1, 0, 98, 0, 0, 1, 0, 0, 0, 0), strict=True)),
    }
    assert document(show("cpu core-pinned-1 -O json"))["event"] == "core-pinned-1"
    assert document(show("cpu --every 1h -O json"))["absent"] == {"7": 2}
    assert (
        cli.main(
            ["--home", str(home), "cpu", "-b", "43s", "-e", "45s", "-O", "csv", "--core", "38,39"]
        )
        == 0
    )
    written = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(written.out)))
    assert [row["core"] for row in rows] == ["38", "39"] * 2
    assert rows[1] == {
        "host": "db-7", "begin": times.format_instant(cpurings.us(43)), "end": times.format_instant(cpurings.us(44)),
        "seconds": "1.000", "readings": "1", "core": "39", "usr": "1.0", "nice": "0.0", "sys": "98.0", "iowait": "0.0",
        "irq": "0.0", "soft": "1.0", "steal": "0.0", "guest": "0.0", "gnice": "0.0", "idle": "0.0",
    }  # fmt: skip
    assert "2 readings" in written.err
    assert show("cpu -b 43s -e 44s -O csv").splitlines()[1].split(",")[5] == "all"


def test_guests_have_columns_where_there_are_any(show, tmp_path, capsys, monkeypatch) -> None:
    assert "guest" not in show("cpu")
    cpurings.record(tmp_path, 1, range(3), {(2, 0): (90, 0, 5, 5, 0, 0, 0, 0, 60, 0)})
    tails = {80: " 0.0  60.0   5.0", 140: " 0.00  60.00   5.00"}
    for width, tail in tails.items():
        monkeypatch.setenv("COLUMNS", str(width))
        assert cli.main(["--home", str(tmp_path), "cpu"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[-3].endswith(tail)
        assert max(map(len, lines)) <= width


ERRORS = {
    "cpu -b 2001-01-01 -e 2001-01-02": (3, "nothing was recorded between", "the recording covers 2026-11-15T06:50:59"),
    "cpu -b 82s -e 85s": (3, "no CPU time is recorded from", "the agent was stopped; the recording of db-7 covers 2026"),
    "cpu --core 99": (3, "no CPU time of core 99 is recorded", "recorded cores: 0-95"),
    "cpu --core x": (2, "'x' is not a list of cores", ""),
    "cpu --host nobody": (3, "no signals of host 'nobody' are recorded", "recorded hosts: db-7"),
    "cpu nothing": (3, "no event 'nothing' is stored", ""),
    "cpu core-p -b 3s": (2, "event 'core-p' and -b or -e are mutually exclusive", ""),
    "cpu --every 2h": (2, "--every must be more than 0 and at most 1h (got 2 h)", ""),
    "cpu --every 0s": (2, "--every must be more than 0", ""),
    "cpu --every soon": (2, "'soon' is not a duration", ""),
    "cpu -o file": (2, "text cannot be written to file", ""),
    "heatmap --process x": (3, "no profiles are stored here", ""),
    "heatmap --by offset": (3, "no profiles are stored here", ""),
    "heatmap -b 2001-01-01 -e 2001-01-02": (3, "no profiles are stored here", ""),
}  # fmt: skip


def test_errors_name_what_is_recorded(show) -> None:
    answers = {words: show(words, 200, code) for words, (code, *_) in ERRORS.items()}
    wrong = {words: text for words, text in answers.items() if any(part not in text for part in ERRORS[words][1:])}  # fmt: skip
    assert wrong == {}


def test_a_table_shows_one_host(tmp_path, capsys) -> None:
    for host in ("db-7", "db-8"):
        cpurings.record(tmp_path, 1, range(3), host=host)
    assert cli.main(["--home", str(tmp_path), "cpu"]) == 2
    assert "recorded hosts: db-7, db-8" in capsys.readouterr().err
    assert cli.main(["--home", str(tmp_path), "cpu", "--host", "db-8"]) == 0


def test_a_host_with_events_only_has_no_cores(tmp_path, capsys) -> None:
    cpurings.record(tmp_path, 1, range(3))
    ring = writer.Writer(tmp_path, "web-1", rings.BOOT, budget_bytes=1 << 30, age_seconds=86400)
    ring.event(Event(rings.us(1), "job.failed", host="web-1", id="job-1"))
    ring.close()
    codes = {}
    for words in ("cpu", "heatmap", "heatmap --host web-1", "cpu --host web-1", "cpu job-1"):
        codes[words] = cli.main(["--home", str(tmp_path), *words.split(), "-O", "json"])
    assert [*codes.values()] == [0, 0, 3, 3, 3]
    assert "no reading of this host is stored" in capsys.readouterr().err


def test_a_heatmap_without_stacks_shows_the_cpu_time(show, tmp_path) -> None:
    lines = show("heatmap --core 38,39 -b 36s -e 49s").splitlines()
    assert lines[1] == "  38  " + "▁" * 14
    assert lines[2] == "  39  " + "▁" * 3 + "█" * 6 + "▁" * 5
    assert lines[3:6:2] == ["           ╵06:51:40", "busy time; a column shows 1 s; █ is 100 %"]
    note = "note: no stacks were recorded in this window; this is the CPU time of each core (`overnight "
    assert (lines[7], lines[8].startswith(note)) == ("recorded 14 s of 14 s", True)
    assert lines[8].endswith(" cpu`)")
    found = document(show("heatmap -O json"))
    assert (found["source"], len(found["rows"]), found["full"]) == ("signals", CORES, 100)
    column = [values[39] for values in found["values"]]
    assert [n for n, value in enumerate(column) if value > 50] == [39, 40, 41, 42, 43, 44]
    unknown = [n for n, values in enumerate(found["values"]) if values[1] == 0]
    assert unknown == [*range(80, 90), 119]
    assert found["coverage"]["gaps"] == [
        [cpurings.us(80), cpurings.us(90), "the agent was stopped"]
    ]
    shares = {
        mode: document(show(f"heatmap -O json --mode {mode} --core 39"))["values"][41]
        for mode in ("busy", "kernel", "softirq", "idle")
    }
    assert shares == {"busy": [100], "kernel": [99], "softirq": [1], "idle": [0]}
    summed = document(show("heatmap -O json --step 10s --core 39"))["values"]
    assert [row[0] for row in summed][3:5] == [24, 57]
    picture = tmp_path / "cores.svg"
    show(f"heatmap -O svg -o {picture}")
    assert "no stacks were recorded" in picture.read_text()
    assert "samples" not in picture.read_text()


def test_a_window_without_stacks_falls_back_to_signals(tmp_path, capsys) -> None:
    """It is the same window: times into the recording count from the first stack."""
    for second in (10, 100):
        begin, end = 1000 * rings.us(second), 1000 * rings.us(second + 10)
        sample = captures.Sample(begin, (captures.user("main"),), process="web", pid=7)
        captures.store(tmp_path, captures.build([sample], host=rings.HOST, begin=begin, end=end))
    cpurings.record(tmp_path, 2, range(120))
    sources = {}
    for words in ("", "-b 2s -e 4s", "-b 40s -e 50s", "-b 40s -e 50s --process web"):
        assert cli.main(["--home", str(tmp_path), "heatmap", *words.split(), "-O", "json"]) == 0
        found = document(capsys.readouterr().out)
        sources[words] = found["source"], (found["begin_us"] - rings.us(0)) / 1e6
    assert [*sources.values()] == [("stacks", 10), ("stacks", 12), ("signals", 50), ("stacks", 50)]


def test_the_document_is_a_profile_that_a_load_can_replay(show) -> None:
    parsed = profile.parse_profile(document(show("cpu -b 30s -e 100s -O json")))
    assert len(parsed.shares) == CORES
    busy = [second for second, share in enumerate(parsed.shares[PINNED_CORE]) if share > 0.99]
    assert len(busy) == len(SECONDS)
    assert busy == list(range(busy[0], busy[0] + len(SECONDS)))
    # The one lost reading is part of the next, and nine seconds are missing.
    assert parsed.filled in (8, 9, 10)
