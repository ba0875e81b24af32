"""An empty answer states one reason, the same in text, JSON and pictures."""

from __future__ import annotations

import base64
import gzip
import json
import pathlib
import re

import captures
import jsonschema
import pytest
import rings

from overnight.interfaces import cli
from overnight.model import times
from overnight.model.event import Event

NIGHT, SECOND = captures.NIGHT, captures.SECOND
SCHEMAS = pathlib.Path(__file__).parents[3] / "docs/schemas"
SPAN = f"{times.format_instant(rings.us(0))} to {times.format_instant(rings.us(4))}"
NO_CORE = "does not exist; recorded cores: 0-1"
UNRECORDED = "nothing was recorded in this window; recorded"
ALL_OF = "every filter matches something, but nothing matches all of"
# Command: reason, text.
CASES = {
    "top --core 99": ("no-core", f"core 99 {NO_CORE}"),
    "flame --core 7,98-99": ("no-core", f"core 7,98-99 {NO_CORE}"),
    "heatmap --core 99": ("no-core", f"core 99 {NO_CORE}"),
    "diff -b 5s --core 99": ("no-core", f"window: core 99 {NO_CORE}"),
    "top --process zzz": ("no-match", "no process matches zzz; most samples: web, job"),
    "flame --thread zzz": ("no-match", "no thread matches zzz; most samples: web-1, job-1"),
    "heatmap --unit zzz": ("no-match", "no unit matches zzz; most samples: web.service"),
    "top functions --function zzz": ("no-match", "no function matches zzz; most samples: main, read"),
    "flame --process job --side kernel": ("no-combination", f"{ALL_OF} --process job --side kernel"),
    "heatmap --mode softirq": ("none", "no softirq samples in this window; busy samples: 20"),
    "top -b 21s -e 29s": ("idle", "the cores were idle in this window"),
    "heatmap -b 40s -e 50s": ("not-recorded", f"{UNRECORDED}: until 2026-11-15T06:50:30.000Z, from 2026-11-15T06:51:00.000Z"),
    "top --perf-event 3": ("no-perf-event", "there is no perf event 3; recorded events: cpu-clock"),
    "events -b 10s": ("not-recorded", f"{UNRECORDED}: {SPAN}"),
    "events -b 3s": ("none", f"no events in this window; recorded: {SPAN}"),
    "events --kind zzz": ("no-match", "no event matches --kind zzz; most events: cpu.core_pinned, net.link_up"),
    "events --severity critical": ("no-match", "no event matches --severity critical; most events: warning, info"),
    "events --core 99": ("no-match", "no event matches --core 99; most events: 1"),
    "events --kind net. --core 1": ("no-combination", f"{ALL_OF} --kind net. --core 1"),
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    home = tmp_path_factory.mktemp("home")
    main, read = captures.user("main"), captures.kernel("read")
    resting = [
        captures.Sample(NIGHT + second * SECOND, captures.IDLE, process="swapper", pid=0)
        for second in (21, 25, 60, 89)
    ]
    web, job = (
        [captures.Sample(NIGHT + second * SECOND, path, process=name, thread=f"{name}-1", pid=pid, unit=unit) for second in seconds]
        for name, seconds, path, pid, unit in (
            ("web", range(12), (main, read), 7, "web.service"), ("job", range(12, 20), (main,), 8, ""),
        )
    )  # fmt: skip
    first = captures.build([*web, *job, *resting[:2]], begin=NIGHT, end=NIGHT + 30 * SECOND)
    captures.store(home, first)
    captures.store(
        home, captures.build(resting[2:], begin=NIGHT + 60 * SECOND, end=NIGHT + 90 * SECOND)
    )
    with_events = rings.open_writer(home)
    rings.record(with_events, range(5))
    for kind, core, severity in (("cpu.core_pinned", 1, "warning"), ("net.link_up", -1, "info")):
        event = Event(rings.us(1), kind, host=rings.HOST, boot=rings.BOOT, id=kind, core=core, severity=severity)  # fmt: skip
        with_events.event(event)
    with_events.close()
    return home


def test_every_empty_answer_states_why_in_text_and_json(home, capsys) -> None:
    answers, expected = {}, {}
    for command, (reason, text) in CASES.items():
        words = ["--home", str(home), *command.split()]
        assert cli.main(words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert cli.main([*words, "-O", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        name = document["schema"].removeprefix("overnight.").replace("/", "-")
        jsonschema.validate(document, json.loads((SCHEMAS / f"{name}.json").read_text()))
        empty = document["coverage"]["empty"] if "coverage" in document else document["empty"]
        answers[command] = (empty["reason"], text in lines or lines)
        expected[command] = (reason, True)
    assert answers == expected


def test_an_answer_with_samples_gives_no_reason(home, capsys) -> None:
    for command in ("top", "heatmap", "diff -b 5s -e 19s", "flame", "events"):
        assert cli.main(["--home", str(home), *command.split(), "-O", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        empty = document["coverage"]["empty"] if "coverage" in document else document["empty"]
        assert empty is None, command


def test_a_file_without_samples_holds_the_reason(home, capsys, tmp_path) -> None:
    said = {}
    for output in ("svg", "html", "collapsed"):
        file = tmp_path / output
        words = ["--home", str(home), "flame", "--core", "99", "-O", output, "-o", str(file)]
        assert cli.main(words) == 0
        said[output] = capsys.readouterr().err if output == "collapsed" else file.read_text()
    page = re.search(r'id="night">([^<]+)<', said["html"])
    assert page
    said["html"] = gzip.decompress(base64.b64decode(page[1])).decode(errors="replace")
    assert [output for output, text in said.items() if f"core 99 {NO_CORE}" not in text] == []


def test_a_heatmap_in_the_terminal_distinguishes_idle_from_not_recorded(
    home, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert cli.main(["--home", str(home), "heatmap"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[1] == "   1  " + " " * 30 + "░" * 30 + " " * 30
    assert set(rows[0][6:26]) == {"▁"}
    assert rows[4].endswith("█ is 100 samples, blank none, ░ not recorded")
    assert cli.main(["--home", str(home), "heatmap", "--by", "offset", "--rows", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[0][6:].count("░") == 30
    assert cli.main(["--home", str(home), "heatmap", "-e", "30s"]) == 0
    assert "░" not in capsys.readouterr().out
