"""`overnight record` on this host: a function that uses one core is recorded with core, time and name."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import random
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import jsonschema
import noise
import pytest

from overnight import errors
from overnight.app import open_segment
from overnight.model import times
from overnight.model.selection import Selection, Window
from overnight.queries import flame, heatmap, reader, top
from overnight.sources import cpu, perf
from overnight.store import check, segments
from overnight.store.ring import reader as rings

REPOSITORY = pathlib.Path(__file__).parents[2]
SCHEMA = json.loads((REPOSITORY / "docs/schemas/recording-1.json").read_text())
CORE = cpu.online()[-1]
BURN = """
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <time.h>
static volatile unsigned long spins;
__attribute__((noinline)) void overnight_burns_here(double seconds) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        for (int i = 0; i < 1000000; i++) spins++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begin.tv_sec + 1e-9 * (now.tv_nsec - begin.tv_nsec) < seconds);
}
int main(int count, char **arguments) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(atoi(arguments[1]), &cores);
    sched_setaffinity(0, sizeof cores, &cores);
    overnight_burns_here(atof(arguments[2]));
    return 0;
}
"""

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_perf]
RECORDERS = ["perf", pytest.param("native", marks=pytest.mark.long)]


@pytest.fixture(scope="module")
def burner(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A program called cc1plus-7: FlameScope cuts such names at the first digit."""
    folder = tmp_path_factory.mktemp("burner")
    (folder / "burn.c").write_text(BURN)
    binary = folder / "cc1plus-7"
    subprocess.run(
        ["gcc", "-O1", "-fno-omit-frame-pointer", "-o", binary, folder / "burn.c"], check=True
    )
    return binary


def start(home: pathlib.Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "overnight", "--home", str(home), "record", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_samples(home: pathlib.Path) -> None:
    deadline = time.monotonic() + noise.HANG_SECONDS
    while time.monotonic() < deadline:
        if list(home.glob("spool/*.writing")) and (home / "spool/status.json").exists():
            return
        time.sleep(0.05)
    raise TimeoutError("the recorder did not start")


def list_children(pid: int) -> list[int]:
    """Return the children of a process."""
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in tasks for child in path.read_text().split()]


def list_commands() -> Iterator[str]:
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue


@pytest.mark.parametrize("recorder", RECORDERS)
def test_a_busy_core_is_recorded_with_time_and_function(
    tmp_path: pathlib.Path, burner: pathlib.Path, recorder: str
) -> None:
    running = start(tmp_path, "--for", "7s", "--segment", "3s", "--frequency", "199", "--recorder", recorder, "-O", "json")  # fmt: skip
    wait_for_samples(tmp_path)
    recorders = {running.pid, *list_children(running.pid)}
    time.sleep(1)
    began = time.time_ns() // 1000
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([burner, str(CORE), "3"], check=True)
    ended = time.time_ns() // 1000
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Its share of the core, where other processes may have run, too.
    core_share = min(1.0, used / ((ended - began) / 1e6))
    out, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
    assert errors == ""
    recording = json.loads(out)
    jsonschema.validate(recording, SCHEMA)
    assert recording["gaps"] == []
    assert recording["profile"]["recorder"] == recorder
    assert recording["profile"]["lost"] == 0
    assert "cc1plus-7" in {share["process"] for share in recording["profile"]["processes"]}

    # The flight recorder names the processes of this recording, and no other.
    ring = rings.Reader(tmp_path)
    frames = ring.numbers(recording["host"], "recorder", 0, 1 << 62)
    assert {int(key.split()[0]) for frame in frames for key in frame.keys} == recorders

    source = reader.Reader(segments.Catalogue(tmp_path))
    busy = Window(began + 200_000, ended - 200_000)
    on_core = Selection(cores=(CORE,))
    # In those seconds the function used its share of that core.
    functions = top.top(source, busy, on_core, kind="functions")
    row = next(row for row in functions.rows if row.name == "overnight_burns_here")
    assert row.share_of_samples > 0.9 * core_share - 0.05
    assert 0.85 * core_share - 0.05 < row.cores < 1.1
    # Before it started, no stack has it.
    quiet = Window(began - 900_000, began - 50_000)
    assert "overnight_burns_here" not in flame.flame(source, quiet).names
    # The whole stack is below the process; other processes may have run on that core, too.
    tree = flame.flame(source, busy, Selection(cores=(CORE,), process="^cc1plus-7$"))
    names = [tree.names[i] for i in tree.frame[: int(tree.size[0])].tolist()]
    assert names[0] == "cc1plus-7"
    assert "overnight_burns_here" in names
    # The heatmap shows the same, also across the segment switch.
    heat = heatmap.by_core(source, busy, step_us=500_000)
    column = heat.rows.index(str(CORE))
    assert (heat.values[1:-1, column] > 0.8 * heat.full).all()
    assert check.check(source.catalogue).problems == ()


@pytest.mark.together
def test_a_binary_inside_a_container_is_symbolised(
    tmp_path: pathlib.Path, burner: pathlib.Path
) -> None:
    """The binary is in a separate mount namespace, at a path that does not exist on this host."""
    inside = tmp_path / "inside"
    inside.mkdir()
    # It runs until the segment is in the store: the binary is searched in its root.
    script = (
        f"mount -t tmpfs none '{inside}' && cp '{burner}' '{inside}/hidden' && "
        f"exec '{inside}/hidden' {CORE} 90"
    )
    home = tmp_path / "home"
    running = start(home, "--for", "10m", "--frequency", "199", "--recorder", "native")
    wait_for_samples(home)
    container = subprocess.Popen(["unshare", "--mount", "sh", "-c", script])
    try:
        until = time.monotonic() + noise.HANG_SECONDS
        schedstat = pathlib.Path(f"/proc/{container.pid}/schedstat")
        while int(schedstat.read_text().split()[0]) < 1.5e9:  # nanoseconds that it ran
            assert time.monotonic() < until
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=noise.HANG_SECONDS)
    finally:
        container.kill()
        container.wait()
    assert not (inside / "hidden").exists()
    source = reader.Reader(segments.Catalogue(home))
    functions = top.top(source, source.extent(), Selection(process="^hidden$"), kind="functions")
    shares = {row.name: row.share_of_samples for row in functions.rows}
    assert shares.get("overnight_burns_here", 0) > 0.8, shares


@pytest.mark.together
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_a_recording_stopped_early_is_kept_and_shown(
    tmp_path: pathlib.Path, number: signal.Signals
) -> None:
    running = start(tmp_path, "--for", "10m", "-O", "json")
    wait_for_samples(tmp_path)
    time.sleep(1.5)
    running.send_signal(number)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    recording = json.loads(out)
    assert 1 < recording["seconds"] < 30
    assert recording["profile"]["segments"] == 1


@pytest.mark.together
@pytest.mark.parametrize("recorder", RECORDERS)
def test_a_service_manager_ends_all_processes_without_a_failure(
    tmp_path: pathlib.Path, recorder: str
) -> None:
    running = start(tmp_path, "--for", "10m", "--segment", "1s", "--recorder", recorder, "-O", "json")  # fmt: skip
    catalogue, deadline = segments.Catalogue(tmp_path), time.monotonic() + noise.HANG_SECONDS
    while not catalogue.hosts():  # all of them work
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for pid in (running.pid, *list_children(running.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    out, stderr = running.communicate(timeout=noise.HANG_SECONDS)
    assert (running.returncode, stderr) == (0, "")
    assert json.loads(out)["failures"] == []


@pytest.mark.together
@pytest.mark.parametrize(
    ("module", "part"),
    [("overnight.agent", "flight-recorder"), ("overnight.app.spool_ingest", "ingest")],
)
def test_a_part_that_dies_is_reported_at_once_and_the_others_continue(
    tmp_path: pathlib.Path, module: str, part: str
) -> None:
    running = start(tmp_path, "--for", "10m", "--segment", "1s", "-O", "json")
    wait_for_samples(tmp_path)
    (child,) = [
        pid
        for pid in list_children(running.pid)
        if module in pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    ]
    os.kill(child, signal.SIGKILL)
    assert running.stderr is not None
    # Before the end of the recording.
    assert select.select([running.stderr], [], [], noise.HANG_SECONDS)[0], "nothing was reported"
    line = running.stderr.readline()
    assert "failed at" in line
    assert "killed by signal 9" in line
    died = max(tmp_path.glob("spool/*.perf.data"), default=None)
    deadline = time.monotonic() + noise.HANG_SECONDS
    while max(tmp_path.glob("spool/*.perf.data"), default=None) == died:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=noise.HANG_SECONDS)
    assert running.returncode == 3
    recording = json.loads(out)
    jsonschema.validate(recording, SCHEMA)
    assert [failure["part"] for failure in recording["failures"]] == [part]
    assert (recording["signals"] is None) == (part == "flight-recorder")


@pytest.mark.together
@pytest.mark.parametrize("recorder", RECORDERS)
def test_kill_9_loses_at_most_seconds(tmp_path: pathlib.Path, recorder: str) -> None:
    running = start(tmp_path, "--for", "10m", "--segment", "2s", "--recorder", recorder)
    wait_for_samples(tmp_path)
    recorders = [running.pid, *list_children(running.pid)]
    waited = noise.read_waited(recorders)
    time.sleep(random.uniform(3.0, 5.0))
    killed = time.time_ns() // 1000
    waited_us = round(1e6 * (noise.read_waited(recorders) - waited))
    running.kill()
    running.communicate()
    deadline = time.monotonic() + noise.HANG_SECONDS
    # The ingest process stores the remaining segments before it ends.
    while any(str(tmp_path) in line for line in list_commands()):
        assert time.monotonic() < deadline, "a process outlived the recording"
        time.sleep(0.1)
    process = subprocess.run(
        [sys.executable, "-m", "overnight", "--home", str(tmp_path), "store", "ingest"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    catalogue = segments.Catalogue(tmp_path)
    assert check.check(catalogue).problems == ()
    stored = catalogue.segments(perf.read_identity().host)
    assert len(stored) >= 2
    # The last stored samples are from the last two seconds, and the segments have no gaps.
    # The time that the recorder waited for a core does not count.
    assert killed - stored[-1].end_us < 2_500_000 + waited_us
    for before, after in itertools.pairwise(stored):
        assert abs(after.begin_us - before.end_us) < 300_000 + waited_us


@pytest.mark.together
def test_a_second_recording_into_the_same_home_is_refused(tmp_path: pathlib.Path) -> None:
    first = start(tmp_path, "--for", "10m")
    wait_for_samples(tmp_path)
    second = start(tmp_path, "--for", "1s")
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 3
    assert "already being recorded" in errors
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    assert first.returncode == 0


@pytest.mark.together
def test_the_recorder_stays_small() -> None:
    """The recorder imports no large modules: it runs on hosts whose memory belongs to their work."""
    code = (
        "import sys; from overnight.app import record; from overnight.interfaces import cli; cli.build();"
        "print(sorted({'numpy', 'duckdb', 'zstandard'} & set(sys.modules)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "[]"


def test_stacks_of_the_open_segment_are_announced_while_the_recorder_runs(
    tmp_path: pathlib.Path,
) -> None:
    """Also to `diagnose`, which must not advise to record."""
    process = start(tmp_path, "--for", "60s", "--segment", "60s")

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "overnight", "--home", str(tmp_path), *words],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    try:
        wait_for_samples(tmp_path)
        writing = open_segment.read_open(tmp_path)
        assert writing is not None
        available = times.format_instant(writing.end_us + open_segment.INGEST_US)
        for words in (["top"], ["flame"], ["heatmap", "--by", "offset"], ["heatmap", "-O", "html"]):
            done = ask(*words)
            assert done.returncode == errors.ExitCode.CANNOT, done.stderr
            assert f"available from {available}" in " ".join(done.stderr.split()), words
        assert ask("heatmap").returncode == 0  # of the signals
        done = ask("diagnose", "--at", "now")
        text = " ".join(done.stdout.split())
        assert f"available from {available}" in text, done.stderr
        assert "overnight record" not in text
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert ask("top").returncode == 0
