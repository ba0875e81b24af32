"""The tables of processes: written with the part of a capture that needs them, optional, checked, masked."""

from __future__ import annotations

import dataclasses
import pathlib

import captures
import numpy as np
import pytest

from overnight import errors
from overnight.store import (
    capture,
    check,
    parquet,
    parquet_writer,
    process_reader,
    process_tables,
    segments,
    writer,
)
from overnight.store.bundle import profiles, scrubber

NIGHT, SECOND = captures.NIGHT, captures.SECOND
SECRET = "ghp_0123456789abcdefXY"
NAMES = ["init", "storm.py (python3)", "storm.py → true", "idle (bash)", "late.sh (bash)"]


def build(seconds: int = 10) -> capture.Capture:
    """Return samples of `true`, which storm.py starts, in the first second; late.sh starts in the last."""
    samples = [
        captures.Sample(
            time=NIGHT + second * SECOND, cpu=0, pid=7, tid=7, process=NAMES[2], unit="a"
        )
        for second in (0, seconds - 1)
    ]
    built = captures.build(samples, begin=NIGHT, end=NIGHT + seconds * SECOND)
    first = NIGHT // SECOND
    empty = [""] * 5
    return dataclasses.replace(
        built,
        tasks=dataclasses.replace(
            built.tasks, row=np.array([2], np.int32), launcher=["storm.py (python3)"]
        ),
        processes=capture.Processes(
            pid=np.array([1, 5, 7, 8, 9], np.int32),
            parent=np.array([-1, 0, 1, 0, 0], np.int32),
            started_us=np.array([0, 1, 2, 3, 4], np.int64),
            count=np.array([1, 1, 900, 1, 1], np.uint32),
            name=NAMES,
            comm=["init", "python3", "true", "bash", "bash"],
            executable=["/sbin/init", "/usr/bin/python3", "/bin/true", "", ""],
            command=["", f"python3 storm.py --header {SECRET} acme", "", "", ""],
            user=["root", "acme-bot", "", "", ""],
            cgroup=empty, unit=empty, container=empty, pod=empty,
        ),
        spawns=capture.Spawns(
            launcher=np.array([1, 1, 4], np.int32),
            name=["true", "true", "gzip"],
            second=np.array([first, first + 1, first + seconds - 1], np.int64),
            count=np.array([500, 400, 3], np.uint32),
        ),
    )  # fmt: skip


def store(
    home: pathlib.Path, captured: capture.Capture, seconds: int = 120
) -> list[segments.Segment]:
    return list(writer.write_capture(home, captured, segment_seconds=seconds))


def test_a_segment_has_the_processes_that_it_needs_and_their_ancestors(
    tmp_path: pathlib.Path,
) -> None:
    (whole,) = store(tmp_path / "whole", build())
    tables = process_reader.read(whole.path)
    assert tables.processes.name == [NAMES[0], NAMES[1], NAMES[2], NAMES[4]]
    assert tables.row.tolist() == [2]
    assert tables.launcher == ["storm.py (python3)"]
    assert tables.ancestors(2) == [1, 0]
    assert tables.spawns.launcher.tolist() == [1, 1, 3]
    assert tables.processes.count.tolist() == [1, 1, 900, 1]
    first, last = store(tmp_path / "split", build(300), 120)[:2]
    assert process_reader.read(first.path).spawns.name == ["true", "true"]
    assert process_reader.read(first.path).processes.name == NAMES[:3]
    assert process_reader.read(last.path).spawns.name == ["gzip"]
    assert check.check(segments.Catalogue(tmp_path / "split")).problems == ()


def test_a_capture_without_processes_is_stored_as_before(tmp_path: pathlib.Path) -> None:
    (segment,) = store(tmp_path, captures.build([captures.Sample(time=NIGHT, cpu=0)]))
    assert not segment.meta().files.keys() & set(process_tables.FILES)
    assert "row" not in parquet.query(
        f"SELECT * FROM {parquet.table(segment.path / 'tasks.parquet')}"
    )
    assert check.check(segments.Catalogue(tmp_path)).problems == ()


CONTRADICTIONS = {
    "processes.parquet": ("parent", 4), "spawns.parquet": ("launcher", 4), "tasks.parquet": ("row", -2),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_row_that_is_missing_is_found(tmp_path: pathlib.Path, name: str) -> None:
    (segment,) = store(tmp_path, build())
    column, value = CONTRADICTIONS[name]
    path = segment.path / name
    table = parquet.query(f"SELECT * FROM {parquet.table(path)}")
    table[column] = np.full_like(table[column], value)
    parquet_writer.write(path, {key: values.tolist() if values.dtype == object else values for key, values in table.items()})  # fmt: skip
    with pytest.raises(errors.DamagedFileError, match="missing process"):
        process_reader.read(segment.path)
    problems = check.check(segments.Catalogue(tmp_path)).problems
    assert any("missing process" in problem.what for problem in problems)


def test_a_bundle_has_no_secrets_of_processes(tmp_path: pathlib.Path) -> None:
    (segment,) = store(tmp_path / "home", build())
    masks = scrubber.Scrubber(["acme"])
    assert profiles.copy_segment(segment, tmp_path / "home", tmp_path / "copy", masks) == ""
    (copied,) = segments.Catalogue(tmp_path / "copy").segments("alpha")
    tables = process_reader.read(copied.path)
    assert tables.processes.command[1] == "python3 storm.py --header (masked) hidden-1"
    assert tables.processes.user[1] == "hidden-1-bot"
    assert tables.processes.name == process_reader.read(segment.path).processes.name
    assert {"command lines", "user names"} <= masks.masked.keys()
    assert check.check(segments.Catalogue(tmp_path / "copy")).problems == ()
    assert process_reader.read(segment.path).processes.user[1] == "acme-bot"


def test_a_damaged_table_of_processes_leaves_the_segment_out_of_a_bundle(
    tmp_path: pathlib.Path,
) -> None:
    (segment,) = store(tmp_path / "home", build())
    path = segment.path / process_tables.SPAWNS
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    why = profiles.copy_segment(segment, tmp_path / "home", tmp_path / "copy", scrubber.Scrubber())
    assert "spawns.parquet has changed" in why
