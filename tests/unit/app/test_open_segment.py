"""Stacks that a running recording has not stored yet: when they will be there."""

from __future__ import annotations

import json
import pathlib
import time

import pytest
import rings

from overnight import errors
from overnight.app import diagnose, heatmap, open_segment, top, windows
from overnight.model.event import Event
from overnight.model.finding import Need
from overnight.sources import perf
from overnight.sources.perf import recovery

NOW = time.time_ns()
FILE = f"{rings.HOST}-20260301T020304.056Z-0123abcd.perf.data.writing"


def write_spool(home: pathlib.Path, *, mode: str = "recording", age: float = 1.0, began: float = 30.0) -> None:  # fmt: skip
    folder = home / "spool"
    folder.mkdir(parents=True)
    now = time.time_ns()
    status = {"mode": mode, "updated_ns": now - round(age * 1e9), "segment_seconds": 120.0}
    (folder / "status.json").write_text(json.dumps(status))
    recovery.write_current(folder, recovery.Current(FILE, perf.Clock(now - round(began * 1e9), 0)))


@pytest.mark.parametrize(
    ("mode", "age", "is_open"),
    [("recording", 1, True), ("recording", 11, False), ("stopped", 1, False), ("paused", 1, False)],
)
def test_only_a_running_recording_writes(
    tmp_path: pathlib.Path, mode: str, age: float, is_open: bool
) -> None:
    assert open_segment.read_open(tmp_path) is None
    write_spool(tmp_path, mode=mode, age=age)
    assert (open_segment.read_open(tmp_path) is not None) == is_open


def test_the_time_is_that_of_the_segment_s_end_and_its_ingest() -> None:
    segment = open_segment.OpenSegment(rings.us(0), rings.us(120), "db-7")
    assert str(segment) == (
        "stacks from 2026-11-15T06:50:59.000Z to 2026-11-15T06:52:59.000Z are still being written:"
        " available from 2026-11-15T06:53:19.000Z"
    )


@pytest.mark.parametrize("ask", ["top", "heatmap"])
def test_a_question_about_stacks_says_when_they_will_be_there(
    tmp_path: pathlib.Path, ask: str
) -> None:
    write_spool(tmp_path)
    questions = {
        "top": lambda: windows.open_samples(top.Request(tmp_path, windows.Query())),
        "heatmap": lambda: heatmap.draw_heatmap(
            heatmap.Request(tmp_path, windows.Query(), by="offset")
        ),
    }
    with pytest.raises(errors.CannotError) as raised:
        questions[ask]()
    assert "available from" in raised.value.why
    assert "record" not in str(raised.value.todo).replace("recorded", "")


@pytest.mark.parametrize(
    ("query", "what"),
    [
        (windows.Query(begin="3h ago", end="2h ago"), "no profiles are stored"),
        (windows.Query(begin="+10m", end="+20m"), "no profiles are stored"),
        (windows.Query(host=("web-1",)), "no profiles of web-1"),
        (windows.Query(begin="20s", end="10s"), "-e must be after -b"),
    ],
)
def test_other_mistakes_are_not_put_down_to_the_open_segment(
    tmp_path: pathlib.Path, query: windows.Query, what: str
) -> None:
    write_spool(tmp_path)
    with pytest.raises(errors.OvernightError, match=what) as raised:
        windows.open_samples(top.Request(tmp_path, query))
    assert "still being written" not in raised.value.why


def test_a_heatmap_of_signals_says_when_the_stacks_will_be_there(tmp_path: pathlib.Path) -> None:
    record(tmp_path, until_s=1)
    write_spool(tmp_path)
    cases = {"": True, "2m": False}
    for end, is_open in cases.items():
        drawn = heatmap.draw_heatmap(heatmap.Request(tmp_path, windows.Query(end=end)))
        note = drawn.cells.coverage.notes[0]
        assert ("still being written: available from" in note) == is_open, note
        assert note.startswith("no stacks were recorded") != is_open
        assert note.endswith("; this is the CPU time of each core (`overnight cpu`)")


def record(home: pathlib.Path, *, until_s: float) -> Event:
    """Signals of the last minutes, the last reading so many seconds ago, and an event 5 s before it."""
    ring = rings.open_writer(home)
    last = time.time() - until_s
    for second in range(-200, 1):
        at = rings.at(last + second - rings.BEGIN_US / 1e6)
        ring.numbers("cpu", rings.COLUMNS, at, rings.rows_of(second + 200))
    at_us = round((last - 5) * 1e6)
    event = Event(at_us, "net.driver_reset", host=rings.HOST, id="e-1", severity="critical")
    ring.event(event)
    ring.close()
    return event


@pytest.mark.parametrize(("until_s", "is_running"), [(1, True), (30, False)])
def test_a_diagnosis_while_recording_does_not_advise_to_record(
    tmp_path: pathlib.Path, until_s: float, is_running: bool
) -> None:
    event = record(tmp_path, until_s=until_s)
    if is_running:
        write_spool(tmp_path)
    for chosen in (event, None):
        verdict, _ = diagnose.diagnose_event(tmp_path, chosen)
        commands = [step.command for step in verdict.next] + [verdict.narrative.todo_command]
        assert ("overnight record --for 12h" in commands) != is_running
        if is_running and chosen:
            assert commands[0] == commands[-1] == "overnight diagnose e-1"
            assert "available from" in verdict.next[0].what
            assert not [step for step in verdict.next[1:] if "available from" in step.what]
            assert any("available from" in gap.why for gap in verdict.gaps), Need.PROFILES
