"""`overnight event` and `overnight compare` on the command line: schemas, standard input, hostile names."""

from __future__ import annotations

import io
import json
import pathlib
import platform
import sys

import jsonschema
import pytest
import rings

from overnight.interfaces import cli
from overnight.model import times
from overnight.model.event import Event

SCHEMAS = pathlib.Path(__file__).parents[3] / "docs/schemas"


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    ring = rings.open_writer(tmp_path)
    rings.record(ring, range(0, 7200, 60))
    ring.close()
    return tmp_path


def run(home: pathlib.Path, *words: str) -> int:
    return cli.main(["--home", str(home), *words])


def get_json(home: pathlib.Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert run(home, *words, "-O", "json") == 0
    document = json.loads(capsys.readouterr().out)
    name = document["schema"].removeprefix("overnight.").replace("/", "-")
    jsonschema.validate(document, json.loads((SCHEMAS / f"{name}.json").read_text()))
    return document


def feed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    stdin = io.TextIOWrapper(io.BytesIO("\n".join(lines).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)


def test_an_event_is_added_listed_and_removed(home, capsys) -> None:
    at = ["--at", str(rings.us(600) // 1_000_000), "--host", rings.HOST]
    words = ["--label", "job=t-7", "--label", "gpu=h100", "--core", "1", "--text", "exit 137"]
    added = get_json(home, capsys, "event", "add", "--kind", "job.failed", *at, *words)
    assert (added["added"], added["hosts_without_signals"]) == (1, [])
    (event,) = get_json(home, capsys, "events", "--kind", "job.")["events"]
    assert (event["id"], event["core"], event["text"]) == (added["ids"][0], 1, "exit 137")
    assert event["fields"] == {"gpu": "h100", "job": "t-7"}
    assert run(home, "events", event["id"]) == 0
    shown = capsys.readouterr().out
    assert "gpu" in shown
    assert "monotonic" not in shown, "an operator does not know it"
    assert get_json(home, capsys, "event", "remove", *added["ids"])["removed"] == added["ids"]
    assert get_json(home, capsys, "events")["events"] == []


def test_the_profile_of_a_host_that_died_ends_with_it(home, capsys) -> None:
    ring = rings.open_writer(home)
    ring.event(Event(rings.us(600), "host.panic", host=rings.HOST, id="host.panic-aa"))
    ring.close()
    assert run(home, "events", "aa") == 0
    assert f"flame -b {times.format_instant(rings.us(595))} -e +5s" in capsys.readouterr().out


def test_an_event_is_of_now_and_of_this_host_by_default(home, capsys) -> None:
    assert run(home, "event", "add", "--kind", "job.failed") == 0
    shown = capsys.readouterr()
    assert platform.node() in shown.out
    assert f"no signals of {platform.node()} are recorded here" in shown.err
    assert run(home, "event", "add", "--at", "now") == 2
    assert "kind is missing" in capsys.readouterr().err


def test_lines_of_standard_input_and_of_a_file(home, capsys, monkeypatch) -> None:
    line = json.dumps({"at": rings.us(600) // 1_000_000, "labels": {"job": "a\x1b[31m\u202e"}})
    feed(monkeypatch, line, line)
    words = ["event", "add", "--kind", "job.failed", "--host", rings.HOST, "--file"]
    assert run(home, *words, "-") == 0
    shown = capsys.readouterr().out
    assert "added 1 event, 1 already there" in shown
    assert "\x1b" not in shown
    assert "a\\x1b[31m\\u202e" in shown
    file = home / "lines.jsonl"
    file.write_text(line + "\n" + "{\n")
    assert run(home, *words, str(file)) == 2
    assert "line 2: not a JSON object" in capsys.readouterr().err
    assert run(home, *words, str(home / "missing")) == 3
    capsys.readouterr()
    assert run(home, "compare", "--at", "1h", "--kind", "job.") == 0
    assert "\x1b" not in capsys.readouterr().out


def test_comparing_two_hours(home, capsys, monkeypatch) -> None:
    feed(monkeypatch, *(json.dumps({"at": rings.us(300 * n) // 1_000_000}) for n in range(1, 11)))
    assert run(home, "event", "add", "--kind", "job.failed", "--host", rings.HOST, "--file", "-") == 0  # fmt: skip
    capsys.readouterr()
    document = get_json(home, capsys, "compare", "--at", "1h")
    (row,) = document["rows"]
    assert (row["before"]["events"], row["after"]["events"], row["outcome"]) == (10, 0, "fell")
    assert row["before"]["exposure"] == pytest.approx(1.0)
    assert run(home, "compare", "--before", "1h", "--after", "70m..+10m") == 0
    text = capsys.readouterr().out
    assert "job.failed  10 → 0  240 → 0" in text
    assert "cannot tell yet (0 per host-day after, 240 before; ratio 0, " in text
    assert run(home, "compare", "--before", "1h") == 2
    assert "give --at" in capsys.readouterr().err
    assert run(home, "compare", "--at", "1h", "--kind", "gpu.") == 0
    assert "no event on either side" in capsys.readouterr().out
    assert run(home, "compare", "--group", f"host={rings.HOST}") == 3
    assert "nothing to compare for other values of host" in capsys.readouterr().err
