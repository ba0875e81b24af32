from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import time
from typing import TYPE_CHECKING

import pytest
import uplinks

from overnight import errors
from overnight.agent.uplink import windows
from overnight.app import bundles, diagnose, window_bundle
from overnight.model import times

if TYPE_CHECKING:
    from overnight.store.bundle import header

SECOND_NS = 10**9
BEGIN_NS = 1_794_969_000 * SECOND_NS


def test_the_times_are_those_of_bundles() -> None:
    assert windows.BEFORE_US == bundles.BEFORE_S * 10**6
    assert windows.AFTER_US == bundles.AFTER_S * 10**6
    assert windows.MAX_EVENT_US == bundles.MAX_US


def segment(spool: pathlib.Path, start: str, end_s: int, *, done: bool) -> None:
    path = spool / f"db-7-20261118T{start}.000Z-1a2b3c4d.perf.data"
    path.touch()
    os.utime(path, ns=(0, BEGIN_NS + end_s * SECOND_NS))
    if done:
        with (spool / "ingested.txt").open("a") as file:
            file.write(f"{path.name}\n")


def test_a_window_waits_for_its_segments(tmp_path: pathlib.Path) -> None:
    end_us = BEGIN_NS // 1000 + 100 * 10**6  # 100 s after the begin, 2026-11-18 02:30:00
    spool = tmp_path / "spool"
    assert not window_bundle.is_pending(tmp_path, end_us)  # only signals
    spool.mkdir()
    assert not window_bundle.is_pending(tmp_path, end_us)
    (spool / "recording.writing").touch()
    (spool / "db-7-20261118T015000.000Z-1a2b3c4d.perf.data").symlink_to("removed meanwhile")
    assert window_bundle.is_pending(tmp_path, end_us)
    segment(spool, "015800", 60, done=True)
    assert window_bundle.is_pending(tmp_path, end_us)  # its end is still being written
    segment(spool, "020100", 180, done=False)
    assert window_bundle.is_pending(tmp_path, end_us)
    (spool / "ingested.txt").write_text("".join(f"{path.name}\n" for path in spool.glob("*.data")))
    assert not window_bundle.is_pending(tmp_path, end_us)


def read_header(file: pathlib.Path) -> header.Header:
    with bundles.open_temporarily(file) as bundle:
        return bundle.header


def test_a_bundle_of_an_event_and_of_a_window(tmp_path: pathlib.Path) -> None:
    home = tmp_path / "home"
    ring = uplinks.LiveRing(home)
    ring.seconds(60)
    event = ring.event("a", severity="warning")
    ring.seconds(60)
    folder = home / "uplink" / "windows"
    window_bundle.make(home, uplinks.HOST, event.id, event=event.id)
    begin_us = ring.wall_ns // 1000 - 30 * 10**6
    times = (begin_us, begin_us + 20 * 10**6)
    window_bundle.make(home, uplinks.HOST, "task-7", window=times)
    for name, own, span in (
        (event.id, event.id, (event.time_us - windows.BEFORE_US, event.time_us + windows.AFTER_US)),
        ("task-7", "", times),
    ):
        offer = json.loads((folder / f"{name}.json").read_text())
        data = (folder / f"{name}.overnight").read_bytes()
        assert offer == {
            "event": own,
            "sha256": hashlib.sha256(data).hexdigest(),
            "bytes": len(data),
            "begin_us": span[0],
            "end_us": span[1],
        }
        written = read_header(folder / f"{name}.overnight")
        assert written.host == uplinks.HOST
        assert [(s.begin_us, s.end_us) for s in written.windows if s.host == uplinks.HOST] == [span]
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".json", ".overnight", ".overnight"]  # fmt: skip


def test_a_first_bundle_ends_now_and_its_verdict_is_provisional(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    ring = uplinks.LiveRing(home, time.time() - 70)
    ring.seconds(60)
    event = ring.event("a", severity="critical")
    ring.seconds(9)
    (home / "spool").mkdir()
    (home / "spool/x.writing").touch()
    monkeypatch.setattr(window_bundle, "WAIT_SECONDS", 0.0)
    window_bundle.make(home, uplinks.HOST, "first", event=event.id)
    assert (home / "spool/wanted").exists()  # the profiler finishes its segment
    file = home / "uplink/windows/first.overnight"
    offer = json.loads(file.with_suffix(".json").read_text())
    assert event.time_us + 9 * 10**6 < offer["end_us"] <= time.time_ns() // 1000
    assert read_header(file).end_us == pytest.approx(offer["end_us"], abs=2)
    request = diagnose.Request(tmp_path, file)
    note, *others = diagnose.diagnose(request).verdict.notes
    assert note.startswith(
        f"provisional: {uplinks.HOST} has not uploaded the rest of the window, 2"
    )
    assert "which follows at about 2" in note
    # A server will have the rest, under the same id, and the agent needs no command to record it.
    of_file = diagnose.diagnose(request).verdict
    with bundles.open_temporarily(file) as opened:
        assert opened.home is not None
        of_server = diagnose.diagnose(
            diagnose.Request(opened.home, event_id=event.id, until_us=opened.header.end_us)
        ).verdict
    commands = [step.command for step in of_server.next]
    assert commands[0] == of_server.narrative.todo_command == f"overnight diagnose {event.id}"
    assert of_server.narrative.todo == f"{of_server.next[0].what}."
    assert "overnight record --for 12h" not in commands
    assert f"overnight diagnose {event.id}" not in [step.command for step in of_file.next]
    assert not [other for other in others if "provisional" in other]
    assert diagnose.diagnose(diagnose.Request(home, event_id=event.id)).verdict.notes == tuple(
        others
    )
    # A long time later nothing follows any more; a whole window lacks nothing.
    now_us = times.now_us
    monkeypatch.setattr(times, "now_us", lambda: now_us() + 430 * 10**6)
    verdict = diagnose.diagnose(request).verdict
    assert verdict.notes == tuple(others)
    assert "overnight record --for 12h" in [step.command for step in verdict.next]
    of_server = diagnose.diagnose(
        diagnose.Request(home, event_id=event.id, until_us=offer["end_us"])
    ).verdict
    assert {step.command for step in of_server.next} == {""}
    whole = dataclasses.replace(request, bundle=None, home=home, event_id=event.id, until_us=event.time_us + 120 * 10**6)  # fmt: skip
    monkeypatch.setattr(times, "now_us", now_us)
    assert diagnose.diagnose(whole).verdict.notes == tuple(others)


def test_an_event_that_is_gone_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.CannotError, match="no event 'x-1' is stored"):
        window_bundle.make(tmp_path, "db-7", "x-1", event="x-1")
