"""Undo journal, bundles, metrics, profiler and ingest under a fault: no false report, and they go on."""

from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import captures
import casebook
import exhaustion
import faults
import hoststatus
import nights
import noise
import pytest

from overnight import errors
from overnight.agent import profiler
from overnight.agent.outlets import openmetrics
from overnight.app import bundles, diagnose, recorder_processes, spool_ingest, spool_paths
from overnight.ingest import perfdata
from overnight.interfaces import cli
from overnight.model import cgroups
from overnight.model.event import Event
from overnight.model.verdict import GapKind, VerdictStatus
from overnight.sources import cpu, perf
from overnight.sources.perf import native_recorder
from overnight.store import capture, segments
from overnight.store.ring import writer
from overnight.undo import journal

pytestmark = pytest.mark.needs_root

Fault = Callable[[pathlib.Path], contextlib.AbstractContextManager[object]]
DISK: dict[str, tuple[Fault, str]] = {
    "ENOSPC": (faults.full_disk, "No space left on device"),
    "EROFS": (faults.read_only_disk, "Read-only file system"),
    "EMFILE": (lambda _: exhaustion.no_descriptors(), "Too many open files"),
}


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.mark.parametrize("name", DISK)
@faults.on_small_disk
def test_the_undo_journal_has_every_change_that_may_be_made(disk: pathlib.Path, name: str) -> None:
    fault, reason = DISK[name]
    run = journal.Journal("a test", disk / "undo")

    def change(times: int) -> None:
        for _ in range(times):
            run.write("file", disk / f"{run.run}-{len(run.targets())}")

    change(1)
    with fault(disk):
        with pytest.raises(OSError, match=reason):
            change(200)  # the last page of the file may have room for some
        with pytest.raises((OSError, errors.CannotError), match=reason):
            journal.Journal("another", disk / "undo")
    change(1)
    (left,) = journal.runs(disk / "undo")
    assert [entry["target"] for entry in left.changes] == run.targets()
    assert run.undo() == []
    assert journal.runs(disk / "undo") == ()


def test_without_descriptors_a_running_process_is_not_undone(tmp_path: pathlib.Path) -> None:
    run = journal.Journal("a test", tmp_path)
    with subprocess.Popen(["sleep", "600"], env=run.environment()) as child:
        with exhaustion.no_descriptors():
            (problem,) = run.undo()
        assert "Too many open files" in problem
        assert [left.what for left in journal.runs(tmp_path)] == ["a test"]
        assert child.poll() is None
        assert run.undo() == []
    assert journal.runs(tmp_path) == ()


@pytest.mark.parametrize("name", DISK)
@faults.on_small_disk
def test_a_bundle_is_whole_or_absent(tmp_path: pathlib.Path, disk: pathlib.Path, name: str) -> None:
    fault, reason = DISK[name]
    made = casebook.Home(tmp_path / "home", seconds=200).cpu()
    made.stacks(casebook.busy(0, 200, 1, "trainer", (captures.user("forward"),), hertz=10))
    event = made.event(second=150)
    made.case()
    file = disk / "reset.overnight"
    before = sorted(disk.iterdir())
    with fault(disk), pytest.raises((errors.CannotError, OSError)) as refused:
        bundles.create(made.folder, event, file)
    assert reason in getattr(refused.value, "why", str(refused.value))
    assert sorted(disk.iterdir()) == before
    bundles.create(made.folder, event, file)
    with bundles.open_temporarily(file) as opened:
        assert opened.header.event == event.id
        assert not [note for note in opened.header.notes if "damaged" in note]


def test_metrics_are_served_when_a_descriptor_is_free_again() -> None:
    endpoint = openmetrics.Endpoint("127.0.0.1", 0)
    endpoint.tick(hoststatus.make_status())
    client = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=noise.HANG_SECONDS)
    client.connect()
    with exhaustion.no_descriptors():
        client.request("GET", "/metrics")
    assert client.getresponse().read().endswith(b"# EOF\n")
    client.close()
    endpoint.close()


@pytest.mark.parametrize(
    "kind", ["native", pytest.param("perf", marks=[pytest.mark.needs_perf, pytest.mark.together])]
)
def test_a_profiler_without_descriptors_goes_on_and_reports_them(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(profiler, "TICK_SECONDS", 0.2)
    fault, stop, before = contextlib.ExitStack(), threading.Event(), 0
    reports: list[profiler.Status] = []

    def watch(status: profiler.Status) -> None:
        nonlocal before
        reports.append(status)
        if len(reports) == 3:
            before = status.segments
            fault.enter_context(exhaustion.no_descriptors())
        elif len(reports) == 8:
            fault.close()
        elif status.segments > before + 1 and len(reports) > 8:
            stop.set()

    options = profiler.ProfilerOptions(
        tmp_path, recorder=kind, segment_seconds=0.4, seconds=noise.HANG_SECONDS, floor_bytes=0
    )  # type: ignore[arg-type]
    with fault:
        summary = profiler.run(options, stop, watch)
    assert stop.is_set()
    assert len(summary.segments) > before
    assert all("Too many open files" in gap.why for gap in summary.gaps), summary.gaps
    assert bool(summary.gaps) == (kind == "native")  # perf itself goes on


# Memory


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A spool with raw segments of this host."""
    folder = tmp_path_factory.mktemp("recorded") / "spool"
    folder.mkdir()
    profiler.run(
        profiler.ProfilerOptions(folder, recorder="native", seconds=1.2, segment_seconds=1.0),
        threading.Event(),
    )
    return folder


LIMITED = """
import json, pathlib, resource, sys
from overnight.app import spool_ingest
home = pathlib.Path(sys.argv[1])
first, second = spool_ingest.find_pending(home / "spool")
later = second.rename(home / "later")
spool_ingest.MEMORY_SECONDS = 0.0
ingester = spool_ingest.Ingester(home, 1 << 40, 0)
report = [list(ingester.run())]  # it loads every library
later.rename(second)
pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(), hard))
report.append(list(ingester.run()))
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
report.append(list(ingester.run()))
print(json.dumps(report))
"""


def test_a_segment_that_memory_does_not_suffice_for_is_ingested_later(
    tmp_path: pathlib.Path, recorded: pathlib.Path
) -> None:
    shutil.copytree(recorded, tmp_path / "spool")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    before, (during,), after = json.loads(done.stdout)
    assert (before, after) == ([], [])
    assert during.endswith("is not ingested yet: Cannot allocate memory")
    assert len(segments.Catalogue(tmp_path).segments(perf.read_identity().host)) == 2


def test_a_segment_that_lacked_memory_does_not_stop_the_next_one(
    tmp_path: pathlib.Path, recorded: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(recorded, tmp_path / "spool")
    ingester, read = spool_ingest.Ingester(tmp_path, 1 << 40, 0), perfdata.read
    large = spool_ingest.find_pending(tmp_path / "spool")[0]

    def read_small(path: pathlib.Path, *more: Any, **options: Any) -> capture.Capture:
        if path == large:
            raise MemoryError
        return read(path, *more, **options)

    monkeypatch.setattr(perfdata, "read", read_small)
    assert list(ingester.run()) == [f"{large.name} is not ingested yet: Cannot allocate memory"]
    assert spool_ingest.find_pending(tmp_path / "spool") == (large,)
    assert list(ingester.run()) == []  # not each second
    monkeypatch.undo()
    ends = time.monotonic() + spool_ingest.MEMORY_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: ends)
    assert list(ingester.run()) == []
    assert spool_ingest.find_pending(tmp_path / "spool") == ()


@contextlib.contextmanager
def memory_cgroup(limit: int) -> Iterator[pathlib.Path]:
    layout = cgroups.read_layout()
    assert layout.memory is not None
    with journal.Journal("a test") as run:
        folder = pathlib.Path(layout.memory) / run.run
        run.write("cgroup", folder)
        folder.mkdir()
        name = "memory.max" if layout.memory_version == 2 else "memory.limit_in_bytes"
        (folder / name).write_text(str(limit))
        yield folder


def test_an_ingest_process_that_the_oom_killer_ends_hides_nothing(
    tmp_path: pathlib.Path, recorded: pathlib.Path
) -> None:
    home, host = tmp_path / "home", perf.read_identity().host
    folder = spool_paths.spool_folder(home)
    folder.mkdir(parents=True)
    with (
        memory_cgroup(8 << 20) as cgroup,
        recorder_processes.run_ingest(home, 1 << 40, 0.0, []) as ingest,
    ):
        (cgroup / "cgroup.procs").write_text(str(ingest.process.pid))
        shutil.copytree(recorded, folder, dirs_exist_ok=True)
        ingest.process.wait(noise.HANG_SECONDS)
        failure = ingest.check()
    assert failure.startswith("killed by signal 9, and the kernel ended a process")
    first = spool_ingest.find_pending(folder)[0]
    name = perf.parse_segment_name(first.name)
    assert name is not None
    event = Event(name.start_ns // 1000 + 500_000, "net.driver_reset", host=host, id="reset-1")
    ring = writer.Writer(home, host, "0" * 32, budget_bytes=1 << 30, age_seconds=1e9)
    ring.event(event)
    ring.close()
    verdict, _ = diagnose.diagnose_event(home, event)
    assert verdict.status is not VerdictStatus.CAUSE_FOUND
    why = "2 raw segments not ingested: `overnight store ingest`"
    assert [gap.kind for gap in verdict.gaps if why in gap.why] == [GapKind.STACKS]
    assert list(spool_ingest.ingest_leftovers(home)) == []
    verdict, _ = diagnose.diagnose_event(home, event)
    assert not [gap for gap in verdict.gaps if "overnight store ingest" in gap.why]
    assert len(segments.Catalogue(home).segments(host)) == 2


@pytest.mark.parametrize("left", [0, 8192])
@faults.on_small_disk
def test_a_full_disk_names_the_file_and_the_sizes(
    disk: pathlib.Path, capsys: pytest.CaptureFixture[str], left: int
) -> None:
    home = disk.parent / "night"
    event = nights.build(home)
    with faults.full_disk(disk, left):
        for words, file in (
            (["diagnose", event.id, "-O", "html", "-o", str(disk / "report.html")], "report.html"),
            (["snapshot", "-o", str(disk / "host.json")], "host.json"),
            (["bundle", "create", event.id, "-o", str(disk / "x.overnight")], "x.overnight"),
        ):
            assert cli.main(["--home", str(home), *words]) == 3
            error = capsys.readouterr().err
            assert str(disk / file) in error, error
            assert f"No space left on device; 0.0 of 4.2 MB are free in {disk}" in error, error
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize("words", ["-O html", "-O text", "-O json"])
@faults.on_small_disk
def test_output_that_is_redirected_to_a_full_disk_is_named(disk: pathlib.Path, words: str) -> None:
    home, file = disk.parent / "night", disk / "report"
    event = nights.build(home)
    command = [
        sys.executable,
        "-m",
        "overnight",
        "--home",
        str(home),
        "diagnose",
        event.id,
        *words.split(),
    ]
    with faults.full_disk(disk), file.open("wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert f"cannot use {file}" in done.stderr
    assert f"No space left on device; 0.0 of 4.2 MB are free in {disk}" in done.stderr


@pytest.mark.parametrize("left", [0, 16 << 10])
@faults.on_small_disk
def test_an_import_into_a_full_disk_names_the_file_and_the_sizes(
    disk: pathlib.Path, capsys: pytest.CaptureFixture[str], left: int
) -> None:
    log, stacks = disk.parent / "dmesg.txt", disk.parent / "stacks.txt"
    log.write_text("".join(f"[{n:5}.000000] line {n}\n" for n in range(900)))
    stacks.write_text("".join(f"main;f{n};g{n * 7919} 3\n" for n in range(9000)))
    home = disk / "home"
    with faults.full_disk(disk, left):
        for file in (stacks, log)[: 2 - bool(left)]:
            options = ["--host", "db-7", "--boot", "2026-11-15 06:00"]
            assert cli.main(["--home", str(home), "import", str(file), *options]) == 3
            error = capsys.readouterr().err
            assert f"error: cannot store {file} in {home}" in error
            assert "No space left on device; 0.0 of 4.2 MB are free in" in error, error


@faults.on_small_disk
def test_readings_that_were_not_written_are_reported_with_the_sizes(disk: pathlib.Path) -> None:
    summary = {
        "signals": 1,
        "events": 0,
        "dropped": 39,
        "cpu_seconds": 0,
        "seconds": 1,
        "rss_bytes": 0,
        "problems": [],
    }
    problems: list[str] = []
    with faults.full_disk(disk):
        recorder_processes._parse_summary(disk, summary, problems)
    recorder_processes._parse_summary(disk, summary, problems)
    assert problems == [
        f"39 readings not written (No space left on device; 0.0 of 4.2 MB are free in {disk})",
        f"39 readings not written (the disk was full, or fails; 4.2 of 4.2 MB are free in {disk})",
    ]


@pytest.mark.needs_perf
@faults.on_small_disk
def test_a_recording_that_cannot_begin_names_the_sizes(
    disk: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with faults.full_disk(disk, 8 << 10):  # less than the records of the running processes take
        assert cli.main(["--home", str(disk), "record", "--for", "1s", "--profiles-only"]) == 3
        error = capsys.readouterr().err
        assert f"of 4.2 MB are free in {disk}/spool" in error, error


@pytest.mark.parametrize(
    "failed", ["the segment could not be written", "the next segment could not be created"]
)
@faults.on_small_disk
def test_a_profiler_whose_disk_fills_names_the_sizes(disk: pathlib.Path, failed: str) -> None:
    recorder = native_recorder.NativeRecorder(
        perf.Identity("h", "0" * 32), frequency=997, online=cpu.online
    )
    recorder.start(disk)
    with faults.full_disk(disk):
        if "next" in failed:
            recorder.switch()
        else:
            sum(range(10_000_000))  # more than a page of samples
        failure = recorder.poll(0).failed
    recorder.stop()
    assert failure == f"{failed}: No space left on device; 0.0 of 4.2 MB are free in {disk}"


@pytest.mark.needs_perf
@faults.on_small_disk
def test_a_full_data_home_names_the_file_and_the_sizes(
    disk: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(words: str) -> str:
        assert cli.main(["--home", str(disk), *words.split()]) == 3
        return capsys.readouterr().err

    with faults.full_disk(disk):
        for words, file in {
            "age uptime": "arms.jsonl",
            "event add --kind job.failed": "signals",
            "load cpu --for 1s": "loads/",
            "record --for 1s --profiles-only": "spool",
            "token list": "pools/pools.db-writers",
        }.items():
            error = run(words)
            assert f"{disk}/{file}" in error, error
            assert f"0.0 of 4.2 MB are free in {disk}/" in error.replace(
                f"in {disk})", f"in {disk}/"
            )
    assert cli.main(["--home", str(disk), "token", "list"]) == 0
    with faults.full_disk(disk):
        error = run("token create --role agent")
        assert f"No space left on device; 0.0 of 4.2 MB are free in {disk}/pools" in error
