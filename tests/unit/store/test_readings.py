"""Stored readings are bounded, and read up to the last complete line, however the instrument ended."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from overnight.model.instrument import Reading, ReadingKind, Usage
from overnight.store import readings

BEGAN = 1_794_712_000_000_000
HOST = "gpu/17"
USAGE = Usage(1.5, 0.25, 3, 4)
HOSTILE = Reading(BEGAN + 1, ReadingKind.CGROUP_CREATED, -1, 812, 'a"\n,\ud800\x1b', "/x\\y\n{", {"count": 2.0})  # fmt: skip


def second(n: int, core: int = 3) -> Reading:
    values = {"count": 10.0, "max_us": 100.0 * n}
    return Reading(BEGAN + n * 1_000_000, ReadingKind.RUN_QUEUE, core, values=values)


def write(home: pathlib.Path, *found: Reading, ended: bool = True) -> readings.ReadingWriter:
    writer = readings.ReadingWriter(home, HOST, "runqueue-latency", "", BEGAN)
    writer.add(found)
    writer.add_usage(USAGE, ended=ended)
    writer.close()
    return writer


def read(home: pathlib.Path, begin: int = 0, end: int = 1 << 62) -> list[Reading]:
    return [reading for _, reading in readings.read_readings(home, HOST, begin, end)]


def test_readings_and_their_cost_are_read_back(tmp_path: pathlib.Path) -> None:
    found = [second(1), second(1, 4), second(2), HOSTILE]
    writer = write(tmp_path, *found)
    assert read(tmp_path) == found
    (recording,) = readings.read_recordings(tmp_path, HOST)
    assert (recording.id, recording.began_us, recording.host) == (writer.id, BEGAN, HOST)
    assert (recording.ended, recording.running, recording.usage) == (True, False, USAGE)
    assert readings.read_recordings(tmp_path) == (recording,)
    assert "lost 3 events, dropped 4 readings" in recording.describe_cost()


def test_a_window_selects_readings(tmp_path: pathlib.Path) -> None:
    write(tmp_path, *map(second, range(1, 10)))
    chosen = read(tmp_path, BEGAN + 3_000_000, BEGAN + 5_000_000)
    assert [reading.values["max_us"] for reading in chosen] == [300.0, 400.0]
    assert not readings.read_recordings(tmp_path, HOST, end_us=BEGAN - 1)
    assert not readings.read_recordings(tmp_path, "other")
    assert not list(readings.read_readings(tmp_path, "other", 0, 1 << 62))


def test_readings_of_some_kinds(tmp_path: pathlib.Path) -> None:
    writer = write(tmp_path, second(1), dataclasses.replace(HOSTILE, time_us=second(1).time_us), second(2))  # fmt: skip
    assert writer.path.read_text().count('"readings"') == 2
    stored = readings.read_readings(tmp_path, HOST, 0, 1 << 62, [ReadingKind.RUN_QUEUE])
    assert [reading for _, reading in stored] == [second(1), second(2)]
    assert not list(readings.read_readings(tmp_path, HOST, 0, 1 << 62, ["softirq"]))


def test_every_cut_is_read_up_to_its_last_whole_line(tmp_path: pathlib.Path) -> None:
    writer = write(tmp_path, second(1), second(2), HOSTILE, ended=False)
    whole = writer.path.read_bytes()
    for end in range(len(whole)):
        writer.path.write_bytes(whole[:end])
        lines = whole[: end + 1].count(b'"readings"', 0, whole.rfind(b"\n", 0, end) + 1)
        assert len(read(tmp_path)) in (lines, lines + 1)
        for recording in readings.read_recordings(tmp_path, HOST):
            assert not recording.ended


def test_a_recording_of_this_process_is_running_until_it_ends(tmp_path: pathlib.Path) -> None:
    writer = readings.ReadingWriter(tmp_path, HOST, "cgroups", "")
    (recording,) = readings.read_recordings(tmp_path)
    assert recording.running
    writer.add_usage(USAGE, ended=True)
    writer.close()
    (recording,) = readings.read_recordings(tmp_path)
    assert not recording.running


def test_a_night_has_several_files_and_the_oldest_go(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "FILE_BYTES", 2_000)
    monkeypatch.setattr(readings, "MAX_BYTES", 10_000)
    writer = readings.ReadingWriter(tmp_path, HOST, "runqueue-latency", "", BEGAN)
    for n in range(1, 400):
        writer.add([second(n)])
        if n == 200:
            writer.add_usage(USAGE)
    writer.close()
    folder = writer.path.parent
    assert sum(path.stat().st_size for path in folder.iterdir()) < 14_000
    (recording,) = readings.read_recordings(tmp_path, HOST)
    assert recording.began_us == BEGAN
    assert read(tmp_path)[-1] == second(399)
    assert second(1) not in read(tmp_path)


def test_no_line_is_longer_than_readers_accept(tmp_path: pathlib.Path) -> None:
    texts = "\x01" * 5_000
    found = [Reading(BEGAN + 1, "off-cpu", 0, n, texts, texts, {"total_us": 1.0}) for n in range(100)]  # fmt: skip
    write(tmp_path, *found)
    assert len(read(tmp_path)) == 100


@pytest.mark.parametrize(
    "line",
    [
        "[]", "{", "null", '{"us":1794712000000001,"readings":3}', '{"us":1794712000000001,"readings":[3,null,{}]}',
        '{"us":1794712000000001,"readings":[{"kind":"x","core":"y"}]}', '{"us":1794712000000001,"readings":[{"kind":"x","values":[1]}]}',
        '{"us":1794712000000001,"readings":[{"kind":"x","values":{"a":"b"}}]}', '{"usage":{"lost":"x"},"us":5}',
        '{"us":1794712000000001,"readings":[{"kind":"x","core":1e999}]}', '{"us":"x"}',
    ],
)  # fmt: skip
def test_damaged_lines_are_skipped(tmp_path: pathlib.Path, line: str) -> None:
    writer = write(tmp_path, second(1))
    with writer.path.open("a") as file:
        file.write(line + "\n")
    assert read(tmp_path) in ([second(1)], [])
    readings.read_recordings(tmp_path, HOST)


def test_values_that_are_not_finite_are_left_out(tmp_path: pathlib.Path) -> None:
    writer = write(tmp_path)
    with writer.path.open("a") as file:
        file.write('{"us":1794712000000001,"readings":[{"kind":"x","values":{"a":NaN,"b":Infinity,"c":1}}]}\n')  # fmt: skip
    (reading,) = read(tmp_path)
    assert reading.values == {"c": 1.0}


def test_a_copy_has_the_window_with_cleaned_texts(tmp_path: pathlib.Path) -> None:
    home, target = tmp_path / "a", tmp_path / "b"
    writer = write(home, second(1), HOSTILE, second(5))
    count = readings.copy_readings(home, target, HOST, BEGAN, BEGAN + 4_000_000, lambda _: "masked")
    assert count == 1
    copied = read(target)
    assert [reading.subject for reading in copied] == ["", "masked"]
    assert copied[1].text == "masked"
    (recording,) = readings.read_recordings(target, HOST)
    assert (recording.id, recording.usage) == (writer.id, USAGE)
    assert readings.copy_readings(home, target, HOST, 0, BEGAN - 1) == 0


def test_a_file_of_another_version_is_not_read(tmp_path: pathlib.Path) -> None:
    writer = write(tmp_path, second(1))
    head, rest = writer.path.read_text().split("\n", 1)
    writer.path.write_text(json.dumps({**json.loads(head), "version": 2}) + "\n" + rest)
    assert read(tmp_path) == []
    assert readings.read_recordings(tmp_path) == ()
