"""The recording loop under kills, a full disk and a stepped clock."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator

import noise
import perfsamples
import pytest

from overnight import errors
from overnight.agent import profiler, spool
from overnight.model.pins import Pin
from overnight.sources import perf

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_perf, pytest.mark.together]
# Most hosts have perf; the long tests run the other recorder too.
KINDS = [pytest.param("native", marks=pytest.mark.long), "perf"]


def segments(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.glob("*.perf.data"))


def unfinished(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.glob("*.writing*"))


def gaps(folder: pathlib.Path) -> tuple[perf.Gap, ...]:
    return spool.Journal(folder / "gaps.jsonl").read()


@contextlib.contextmanager
def small_disk(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "overnight", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize(("kind", "number"), [("native", signal.SIGINT), ("perf", signal.SIGTERM)])
def test_a_stop_leaves_everything_finished(tmp_path, agent, readable, kind, number):
    running = agent(tmp_path, recorder=kind, frequency=499)
    running.until(lambda status: status["segments"] >= 1)
    assert running.end(number) == 0
    assert running.status["mode"] == "stopped"
    assert unfinished(tmp_path) == []
    assert running.perfs() == []
    paths = segments(tmp_path)
    assert len(paths) == running.status["segments"] >= 2
    assert all(readable(path) and perfsamples.read_samples(path).finished for path in paths)
    assert sum(path.stat().st_size for path in paths) >= running.status["written_bytes"] > 0
    assert 0 < running.status["cpu_percent"] < 50
    assert gaps(tmp_path) == ()


@pytest.mark.parametrize("kind", KINDS)
def test_kill_9_at_any_moment_leaves_everything_readable(tmp_path, agent, readable, wait_for, kind):
    folder = tmp_path
    running = agent(folder, recorder=kind, frequency=499)
    running.until(lambda status: status["mode"] == "recording")
    recorders = [running.process.pid, *running.perfs()]
    waited = noise.read_waited(recorders)
    time.sleep(random.uniform(0.8, 2.2))
    killed, killed_wall = time.monotonic(), time.time_ns()
    waited = noise.read_waited(recorders) - waited
    running.end(signal.SIGKILL)
    wait_for(lambda: not running.perfs())
    last = 0
    for path in [*segments(folder), *unfinished(folder)]:
        samples = perfsamples.read_samples(path)
        last = max([last, *samples.time])
        # perf itself shows nothing of an unfinished file; the next run finishes it.
        assert readable(path) or not samples.finished
    # One drain a second; the time that the recorder waited for a core is not lost.
    assert killed - last / 1e9 < 2 + waited
    left = len([*segments(folder), *unfinished(folder)])
    # The next run takes over the lock, finishes the segment and records the gap.
    two = agent(folder, recorder=kind, frequency=499)
    two.until(lambda status: status["mode"] == "recording")
    recording_wall = time.time_ns()
    assert two.end(signal.SIGTERM) == 0
    paths = segments(folder)
    assert len(paths) > left
    assert unfinished(folder) == []
    assert all(readable(path) and perfsamples.read_samples(path).finished for path in paths)
    (gap,) = gaps(folder)
    assert str(running.process.pid) in gap.why
    assert killed_wall - (2 + waited) * 1e9 < gap.begin_ns < gap.end_ns < recording_wall


def test_kill_9_of_perf_is_a_gap_and_recording_continues(tmp_path, agent, readable):
    running = agent(tmp_path, recorder="perf", frequency=499)
    running.until(lambda status: status["segments"] >= 1)
    (killed,) = running.perfs()
    recorders = [running.process.pid, killed]
    waited = noise.read_waited(recorders)
    time.sleep(0.3)
    before = time.time()
    waited = noise.read_waited(recorders) - waited
    os.kill(killed, signal.SIGKILL)
    # "failed" lasts half a second: a test that waits for a core itself may never see it.
    running.until(lambda status: status["gaps"] >= 1 and status["mode"] == "recording")
    again = time.time()
    running.until(lambda status, n=running.status["segments"]: status["segments"] > n)
    assert running.end(signal.SIGTERM) == 0
    (gap,) = gaps(tmp_path)
    assert "SIGKILL" in gap.why
    assert before - 1.5 - waited < gap.begin_ns / 1e9 < before + 0.1
    assert before < gap.end_ns / 1e9 < again
    paths = segments(tmp_path)
    assert all(readable(path) for path in paths)
    # Samples drained before the kill are there: perf was pinged within the second before.
    samples = map(perfsamples.read_samples, paths)  # a segment cut short by the kill may have none
    ends = [max(segment.time) / 1e9 for segment in samples if len(segment)]
    offset = time.time() - time.monotonic()
    assert min(before - end - offset for end in ends if end + offset <= before + 0.1) < 1.5 + waited


def test_a_nearly_full_disk_pauses_recording_and_loses_nothing(tmp_path, agent, readable):
    with small_disk(tmp_path / "disk") as folder:
        running = agent(folder, recorder="perf", frequency=499, floor_bytes=4 << 20)
        running.until(lambda status: status["segments"] >= 1)
        (folder / "filler").write_bytes(bytes(running.status["free_bytes"] - (3 << 20)))
        running.until(lambda status: status["mode"] == "paused")
        kept_before = {path: path.read_bytes() for path in segments(folder)}
        assert unfinished(folder) == []
        assert running.perfs() == []
        (folder / "filler").unlink()
        running.until(lambda status: status["segments"] > len(kept_before))
        assert running.end(signal.SIGTERM) == 0
        assert all(path.read_bytes() == data for path, data in kept_before.items())
        assert all(readable(path) for path in segments(folder))
        (gap,) = gaps(folder)
        assert "disk" in gap.why
        assert gap.end_ns > gap.begin_ns


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_full_to_the_last_byte_loses_nothing_written(
    tmp_path, agent, readable, wait_for, kind
):
    with small_disk(tmp_path / "disk") as folder:
        running = agent(folder, recorder=kind, frequency=997)
        running.until(lambda status: status["segments"] >= 1)
        with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        # status.json cannot be written either: watch the spool instead.
        wait_for(lambda: not unfinished(folder))
        kept_before = {path: perfsamples.read_samples(path) for path in segments(folder)}
        (folder / "filler").unlink()
        running.until(lambda status: status["segments"] > len(kept_before))
        assert running.end(signal.SIGTERM) == 0
        for path, samples in kept_before.items():
            assert len(perfsamples.read_samples(path)) == len(samples)
        assert max(map(len, kept_before.values())) > 0
        for path in segments(folder):
            perfsamples.read_samples(path)
        assert gaps(folder), "nothing tells of the time without samples"
        assert all("No space left on device" in gap.why for gap in gaps(folder))
        assert all(readable(path) for path in segments(folder) if path.stat().st_size)


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_at_the_start_is_reported_as_the_disk(tmp_path, kind):
    with small_disk(tmp_path / "disk") as folder:
        (folder / "spool").mkdir()
        with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        options = profiler.ProfilerOptions(folder / "spool", recorder=kind, seconds=1.0)
        with pytest.raises(errors.CannotError, match="into") as refused:
            profiler.run(options, threading.Event())
        assert "No space left on device" in refused.value.why
        assert "free" in refused.value.todo
        assert "perf" not in refused.value.what


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_step_is_recorded_and_the_next_segment_has_the_new_time(
    tmp_path, monkeypatch, kind
):
    real, hour = perf.read_clock, 3600 * 10**9
    reports: list[profiler.Status] = []

    def stepped() -> perf.Clock:
        clock = real()
        late = len(reports) >= 2  # the first segment is being written since a tick
        return perf.Clock(clock.wall_ns + hour * late, clock.monotonic_ns)

    monkeypatch.setattr(perf, "read_clock", stepped)
    monkeypatch.setattr(profiler, "TICK_SECONDS", 0.25)
    options = profiler.ProfilerOptions(
        tmp_path, recorder=kind, frequency=199, seconds=1.7, floor_bytes=0
    )
    summary = profiler.run(options, threading.Event(), reports.append)
    assert [gap.why for gap in summary.gaps] == ["the clock was set +3600.000 s"]
    before, after = summary.segments
    for path, shift in ((before, 0), (after, hour)):
        data = path.read_bytes()
        wall, mono = struct.unpack_from("<QQ", data, data.rindex(struct.pack("<II", 1, 1)) + 8)
        assert abs(wall - mono - real().offset_ns - shift) < 50_000_000
        name = perf.parse_segment_name(path.name)
        assert name is not None
        assert abs(name.start_ns - real().wall_ns - shift) < 60 * 10**9


def test_two_recordings_do_not_share_a_folder(tmp_path, agent):
    running = agent(tmp_path, recorder="native")
    running.until(lambda status: status["mode"] == "recording")
    with pytest.raises(errors.CannotError, match="another recording") as refused:
        profiler.run(profiler.ProfilerOptions(tmp_path), threading.Event())
    assert str(running.process.pid) in refused.value.why


def test_the_budget_is_kept_and_pins_are_respected(tmp_path, agent):
    running = agent(
        tmp_path, recorder="native", frequency=997, budget_bytes=1, keep_seconds=0,
        segment_seconds=0.5,
    )  # fmt: skip
    running.until(lambda status: status["segments"] >= 1)
    store = spool.Spool(tmp_path, 1, 0)
    now = time.time_ns()
    store.pins.pin(Pin("event-1", now, now, "a driver reset"))
    running.until(lambda status: status["segments"] >= 4)
    assert running.end(signal.SIGTERM) == 0
    kept = store.segments()
    assert any(segment.overlaps(store.pins.pins()[0]) for segment in kept)
    assert len(kept) < running.status["segments"]
    assert running.status["over_budget"]


def test_without_perf_the_other_recorder_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.MissingToolError, match="perf is not on PATH") as refused:
        profiler.run(profiler.ProfilerOptions(tmp_path), threading.Event())
    assert "native" in refused.value.todo


def test_other_processes_can_read_the_status(tmp_path, monkeypatch):
    monkeypatch.setattr(profiler, "TICK_SECONDS", 0.25)
    seen: list[profiler.Status] = []
    options = profiler.ProfilerOptions(tmp_path, recorder="native", seconds=0.55, floor_bytes=0)
    began = time.monotonic()
    summary = profiler.run(options, threading.Event(), seen.append)
    written = json.loads((tmp_path / profiler.STATUS).read_text())
    assert written == seen[-1].as_json()
    # One at the start, one at each tick, one at the end; fewer if the host delays it.
    assert 3 <= len(seen) <= 5
    assert {status.mode for status in seen[:-1]} == {"recording"}
    assert seen[-1].mode == "stopped"
    assert (summary.lost, len(summary.segments)) == (0, 1)
    assert 0.55 <= summary.seconds < time.monotonic() - began
    assert 0 < summary.cpu_seconds < 1
