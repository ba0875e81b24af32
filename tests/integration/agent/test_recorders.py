"""Both recorders on real cores: the same samples, no gap between segments, all segments readable."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import time

import perfdecoded
import perfsamples
import pytest

from overnight.sources import cpu, perf
from overnight.sources.perf import native_recorder, perf_recorder, perfdata, segmentfile

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_perf]
KINDS = ["native", "perf"]
CORES = cpu.online()[:2]


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(fields[0]) / 1e9


def let_run(recorder: perf.Recorder, pid: int, seconds: float) -> None:
    """Record until the process has used that CPU time: others may use its core, too."""
    until = cpu_seconds(pid) + seconds
    while cpu_seconds(pid) < until:
        assert recorder.poll(0.1).finished == ()


def close(first: int, second: int, slack: float = 0.04) -> bool:
    """Return whether two counts differ by at most four standard errors and the timers' start difference."""
    return abs(first - second) <= 4 * math.sqrt(first + second) + slack * max(first, second)


@pytest.mark.parametrize(
    ("frequency", "seconds"), [(499, 1.5), pytest.param(97, 3.0, marks=pytest.mark.long)]
)
def test_both_record_the_same_of_the_same_load(tmp_path, busy, make, script, frequency, seconds):
    recorders = {kind: make(kind, frequency) for kind in KINDS}
    with busy(CORES[0], 1.0, "all-of-it") as full, busy(CORES[-1], 0.5, "half-of-it") as half:
        for kind, recorder in recorders.items():
            (tmp_path / kind).mkdir()
            recorder.start(tmp_path / kind)
        begin = time.monotonic()
        used = {pid: -cpu_seconds(pid) for pid in (full, half)}
        while (left := begin + seconds - time.monotonic()) > 0:
            for recorder in recorders.values():
                assert not recorder.poll(min(0.2, left)).failed
        end = time.monotonic()
        used = {pid: used[pid] + cpu_seconds(pid) for pid in (full, half)}
        finished = {kind: recorder.stop().finished for kind, recorder in recorders.items()}
    samples = {
        kind: [s for path in paths for s in script(path) if begin <= s.time < end]
        for kind, paths in finished.items()
    }
    for kind in KINDS:
        assert recorders[kind].lost == 0
        by_pid = collections.Counter(s.pid for s in samples[kind])
        for pid in (full, half):
            assert close(by_pid[pid], round(frequency * used[pid])), (kind, by_pid, used)
        assert {(s.comm, s.cpu) for s in samples[kind] if s.pid in (full, half)} == {
            ("all-of-it", CORES[0]),
            ("half-of-it", CORES[-1]),
        }
    for key in (lambda s: s.cpu, lambda s: (s.pid, s.cpu), lambda s: (s.pid, s.leaf)):
        native, other = (collections.Counter(map(key, samples[kind])) for kind in KINDS)
        for name, count in (native | other).items():
            if count >= 50:
                assert close(native[name], other[name]), (name, native[name], other[name])


@pytest.mark.parametrize("kind", KINDS)
def test_processes_have_their_parents_however_short_they_lived(tmp_path, make, kind):
    recorder = make(kind, 97)
    recorder.start(tmp_path)
    subprocess.run(["sh", "-c", "/bin/true; exit 3"], check=False)
    (path,) = recorder.stop().finished
    with perfdata.open_perfdata(path) as file:
        table = perfdecoded.processes(file.decode())
    (own,) = (row for row, process in enumerate(table) if process.pid == os.getpid())
    assert table[own].start == 0
    assert table[own].executable == str(pathlib.Path("/proc/self/exe").readlink())
    (shell,) = (
        row for row, process in enumerate(table) if process.parent == own and process.name == "sh"
    )
    (child,) = (process for process in table if process.parent == shell)
    assert table[shell].start < child.start < child.end < table[shell].end
    assert (child.name, child.executable) == ("true", os.path.realpath("/bin/true"))


@pytest.mark.parametrize("kind", KINDS)
def test_no_sample_is_lost_between_segments_and_each_is_complete(
    tmp_path, busy, make, script, kind
):
    frequency = 499
    recorder = make(kind, frequency)
    finished = []
    with busy(CORES[-1], 1.0, "steady") as pid:
        recorder.start(tmp_path)
        ready = [time.time_ns()]  # by then the next segment was being written
        for number in range(1, 4):
            until = time.monotonic() + 0.5
            while (left := until - time.monotonic()) > 0:
                finished += recorder.poll(left).finished
            recorder.switch()
            until = time.monotonic() + 30
            while len(finished) < number and time.monotonic() < until:
                finished += recorder.poll(0.2).finished
            ready.append(time.time_ns())
        finished += recorder.stop().finished
    assert len(finished) == 4
    segments = [[s for s in script(path) if s.cpu == CORES[-1]] for path in finished]
    for samples in segments:
        own = [s for s in samples if s.pid == pid]
        assert {s.comm for s in own} == {"steady"}
        lost = sum(s.file == "[unknown]" for s in own)
        assert lost < 0.02 * len(own), "running processes have no mappings in this segment"
    assert recorder.lost == 0
    gaps = [after[0].time - before[-1].time for before, after in itertools.pairwise(segments)]
    assert min(gaps) > 0
    # Once 6 ms were seen at one switch, without a lost sample and for a reason not known. Losses at single switches
    # show only in the recorder's own count above.
    assert statistics.median(gaps) <= 2 / frequency, gaps
    names = [perf.parse_segment_name(path.name) for path in finished]
    for name, samples, path, by in zip(names, segments, finished, ready, strict=True):
        assert name is not None
        data = path.read_bytes()
        wall, monotonic = struct.unpack_from("<QQ", data, data.rindex(struct.pack("<II", 1, 1)) + 8)
        first = wall + round(samples[0].time * 1e9) - monotonic
        assert name.start_ns - 5_000_000 < first < by + 100_000_000


def test_small_rings_wrap_and_lose_nothing_while_they_are_drained(tmp_path, busy):
    recorder = native_recorder.NativeRecorder(
        perf.read_identity(), frequency=1999, online=cpu.online, pages=2
    )
    with busy(CORES[-1], 1.0, "wrap"):
        recorder.start(tmp_path)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            recorder.poll(0.002)
    (path,) = recorder.stop().finished
    head = segmentfile.read_head(path)
    size = segmentfile.HEADER.unpack_from(head)[6]
    with path.open("rb") as file:
        data = memoryview(file.read())[len(head) : len(head) + size]
    assert [end for *_, end in segmentfile.walk(data)][-1] == size
    samples = perfsamples.read_samples(path)
    assert samples.lost == recorder.lost
    assert samples.finished
    assert len(samples) * 100 > 10 * 2 * 4096, "the rings never wrapped"
    for core in CORES:
        times = [t for t, c in zip(samples.time, samples.cpu, strict=True) if c == core]
        assert times == sorted(times)


@pytest.mark.parametrize("kernel", ["6.0", "before 6.0"])
def test_samples_lost_by_full_rings_are_counted(tmp_path, busy, monkeypatch, kernel):
    if kernel == "before 6.0":
        old = dataclasses.replace(native_recorder.ATTR, read_format=1)
        monkeypatch.setattr(native_recorder, "ATTR", old)
    recorder = native_recorder.NativeRecorder(
        perf.read_identity(), frequency=3999, online=cpu.online, pages=1
    )
    with busy(CORES[-1], 1.0, "flood"):
        recorder.start(tmp_path)
        time.sleep(0.7)
        recorder.poll(0)
        time.sleep(0.1)
    (path,) = recorder.stop().finished
    assert recorder.lost > 500
    # A ring that stays full has no record of its losses yet; the event counts them.
    assert 0 < perfsamples.read_samples(path).lost <= recorder.lost + 50


def test_a_core_that_goes_offline_and_comes_back_is_followed(tmp_path, busy, script):
    cores = list(CORES)
    recorder = native_recorder.NativeRecorder(
        perf.read_identity(), frequency=499, online=lambda: tuple(cores)
    )
    with busy(CORES[-1], 1.0, "hot-plug") as pid:
        recorder.start(tmp_path)
        let_run(recorder, pid, 0.3)
        gone = cores.pop()
        going = time.monotonic()
        recorder.reprobe()
        away = time.monotonic()
        recorder.poll(0.4)
        cores.append(gone)
        coming = time.monotonic()
        recorder.reprobe()
        back = time.monotonic()
        gaps = recorder.poll(0).gaps
        let_run(recorder, pid, 0.4)
        (path,) = recorder.stop().finished
    assert [gap.why for gap in gaps] == [f"core {gone} was off-line"]
    assert coming - away - 0.01 < (gaps[0].end_ns - gaps[0].begin_ns) / 1e9 < back - going + 0.01
    times = [s.time for s in script(path) if s.cpu == gone]
    assert min(times) < away < back < max(times)
    assert not [t for t in times if away + 0.01 < t < coming]


def test_perf_is_started_again_for_a_core_that_comes_back(tmp_path, busy, script):
    cores = list(CORES)
    recorder = perf_recorder.PerfRecorder(
        perf.read_identity(), frequency=499, online=lambda: tuple(cores)
    )
    with busy(CORES[-1], 1.0, "hot-plug") as pid:
        recorder.start(tmp_path)
        before = recorder.processes
        gone = cores.pop()
        assert recorder.follow_cores() == ""
        assert recorder.processes == before  # the other cores lose nothing
        recorder.poll(0.3)
        cores.append(gone)
        assert recorder.follow_cores() == ""
        back = time.monotonic()
        assert recorder.processes != before
        progress = recorder.poll(0)
        let_run(recorder, pid, 0.3)
        last = recorder.stop()
    off, again = sorted(progress.gaps, key=lambda gap: gap.begin_ns)
    assert off.why == f"core {gone} was off-line"
    assert off.begin_ns < again.begin_ns < again.end_ns
    assert again.why == f"perf was restarted to sample core {gone}"
    first, second = (*progress.finished, *last.finished)
    assert max(s.time for s in script(first)) < back
    assert [s for s in script(second) if s.cpu == gone and s.comm == "hot-plug"]


def test_a_core_that_never_comes_back_has_a_gap_to_the_end(tmp_path):
    cores = list(CORES)
    recorder = perf_recorder.PerfRecorder(
        perf.read_identity(), frequency=97, online=lambda: tuple(cores)
    )
    recorder.start(tmp_path)
    gone = cores.pop()
    recorder.follow_cores()
    assert recorder.poll(0.1).gaps == ()
    (gap,) = recorder.stop().gaps
    assert gap.why == f"core {gone} was off-line"
    assert gap.end_ns - gap.begin_ns >= 100_000_000


@pytest.mark.long  # as below
def test_perf_follows_a_core_that_went_offline_between_two_polls(tmp_path, busy, script):
    gone = CORES[-1]
    switch = pathlib.Path(f"/sys/devices/system/cpu/cpu{gone}/online")
    recorder = perf_recorder.PerfRecorder(perf.read_identity(), frequency=499, online=cpu.online)
    recorder.start(tmp_path)
    try:
        switch.write_text("0")
    finally:
        switch.write_text("1")
    assert recorder.follow_cores() == ""  # the list is unchanged: only the uevent shows it
    back = time.monotonic()
    with busy(gone, 1.0, "back-again"):  # an idle core may have no samples at all
        progress = recorder.poll(1.0)
    (path,) = recorder.stop().finished
    assert f"core {gone} was off-line" in [gap.why for gap in progress.gaps]
    assert max(s.time for s in script(path) if s.cpu == gone) > back


@pytest.mark.long  # switching a core off unpins the processes of others
def test_a_real_core_goes_offline_and_comes_back(tmp_path, script):
    gone = CORES[-1]
    switch = pathlib.Path(f"/sys/devices/system/cpu/cpu{gone}/online")
    recorder = native_recorder.NativeRecorder(
        perf.read_identity(), frequency=499, online=cpu.online
    )
    recorder.start(tmp_path)
    recorder.reprobe()
    try:
        recorder.poll(0.3)
        switch.write_text("0")
        recorder.poll(0.3)
    finally:
        switch.write_text("1")
    # Back before the next poll: only the stopped event shows it.
    recorder.reprobe()
    back = time.monotonic()
    spin = f"import os; os.sched_setaffinity(0, {{{gone}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin]) as busy:  # an idle core gives no samples
        gaps = recorder.poll(0.5).gaps
        recorder.poll(0.5)
        busy.kill()
    (path,) = recorder.stop().finished
    assert [gap.why for gap in gaps] == [f"core {gone} was off-line"]
    assert 0.2 < (gaps[0].end_ns - gaps[0].begin_ns) / 1e9 < 1
    assert max(s.time for s in script(path) if s.cpu == gone) > back
