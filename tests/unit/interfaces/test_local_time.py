"""Times: read and shown in UTC, with the local offset on a terminal, or in local time with --local."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

import pytest
import rings

from overnight.interfaces import cli
from overnight.interfaces.cli import local_time
from overnight.model.event import Event

NIGHT_US = 1_794_712_447_250_000  # 2026-11-15T03:14:07.250Z


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    local_time.LOCAL.set(False)
    time.tzset()


@pytest.mark.parametrize(
    ("local", "terminal", "shown"),
    [
        (False, False, "2026-11-15T03:14:07.250Z"),
        (False, True, "2026-11-15T03:14:07.250Z (04:14:07 +01:00)"),
        (True, False, "2026-11-15T04:14:07.250+01:00"),
        (True, True, "2026-11-15T04:14:07.250+01:00"),
    ],
)
def test_times_are_shown_for_the_reader(local, terminal, shown, monkeypatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    local_time.LOCAL.set(local)
    assert local_time.format_instant(NIGHT_US) == shown
    assert local_time.cell(NIGHT_US) == shown.partition(" ")[0]


def test_a_time_of_a_damaged_file_is_shown() -> None:
    local_time.LOCAL.set(True)
    assert local_time.format_instant(10**18).endswith("after 1970")


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (["-b", "2026-11-15T03:14", "-e", "+1m"], ["a"]),
        (["-b", "2026-11-15T03:14", "-e", "03:15"], ["a"]),
        (["-b", "2026-11-15 04:14 Europe/Berlin", "-e", "+1m"], ["a"]),
        (["-b", "2026-11-15T04:14", "-e", "04:15"], []),
        (["-b", "2026-11-15T04:14", "-e", "04:15", "--local"], ["a"]),
        (["-b", "2026-11-15T03:14Z", "-e", "+1m", "--local"], ["a"]),
    ],
)
def test_a_window_is_read_in_its_zone(tmp_path, capsys, words, kinds) -> None:
    writer = rings.open_writer(tmp_path)
    rings.record(writer, range(3))
    writer.event(Event(NIGHT_US, "a", host=rings.HOST, boot=rings.BOOT, id="a-1"))
    writer.close()
    assert cli.main(["--home", str(tmp_path), "events", *words, "-O", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["events"]
    assert [event["kind"] for event in listed] == kinds


def test_local_applies_to_marks_with_a_text() -> None:
    local_time.LOCAL.set(True)
    assert local_time.read(["04:14=a=b", "04:15"]) == ["04:14 local=a=b", "04:15 local"]
