"""`overnight record`: per-core CPU each second, and stack samples where they can be had."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import itertools
import json
import platform
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from overnight import errors
from overnight.model import recording
from overnight.sources import cpu
from overnight.sources.perf import command, events, perfdata

if TYPE_CHECKING:
    import pathlib
    import threading
    from collections.abc import Callable

__all__ = ["record", "summarise_cores", "summarise_samples"]

PERF_STOP_SECONDS = 15


def record(
    home: pathlib.Path,
    *,
    seconds: float,
    frequency: int,
    stop: threading.Event,
    progress: Callable[[float], None] = lambda _: None,
) -> recording.Recording:
    """Record this host until `seconds` have passed or `stop` is set; then say what it holds.

    What cannot be recorded is a gap in the result, not an error; only a host that tells nothing
    at all is one.
    """
    started = datetime.datetime.now(datetime.UTC)
    folder = _new_folder(home, started)
    gaps: list[str] = []
    capture = folder / "perf.data"
    perf = _start_perf(capture, frequency, seconds, gaps)
    begin = time.monotonic()
    try:
        ticks = _watch_cores(folder / "cpu.jsonl", begin + seconds, stop, progress)
    finally:
        elapsed = time.monotonic() - begin
        if perf:
            _stop_perf(perf, gaps)
    profile = None
    if perf and capture.exists() and capture.stat().st_size:
        samples = perfdata.read_samples(capture)
        if not samples.finished:
            gaps.append("perf was cut off: the last moments of the profile are missing")
        profile = dataclasses.replace(
            summarise_samples(samples, len(ticks[0]), elapsed, frequency),
            bytes=capture.stat().st_size,
        )
    result = recording.Recording(
        host=platform.node(),
        folder=str(folder),
        started=started.isoformat(timespec="seconds"),
        seconds=round(elapsed, 3),
        cores=summarise_cores(ticks),
        profile=profile,
        gaps=tuple(gaps),
    )
    (folder / "recording.json").write_text(json.dumps(result.as_json(), indent=1))
    return result


def _new_folder(home: pathlib.Path, started: datetime.datetime) -> pathlib.Path:
    """A folder of its own for this recording: two in one second do not share one."""
    parent = home / "recordings"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(1000):
            suffix = f"-{number}" if number else ""
            folder = parent / (started.strftime("%Y%m%dT%H%M%SZ") + suffix)
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                return folder
    except OSError as error:
        raise errors.MissingPermissionError(
            f"nothing can be written under {home}",
            why=str(error),
            todo="choose a folder of yours: overnight --home DIR record",
        ) from error
    raise errors.RecordingError(
        f"no free name under {parent}",
        why="a thousand recordings began in this second",
        todo="wait a second",
    )


def _start_perf(
    output: pathlib.Path, frequency: int, seconds: float, gaps: list[str]
) -> subprocess.Popen[bytes] | None:
    """Perf on all cores, or None and the reason among the gaps."""
    perf = command.find_perf()
    if perf is None:
        gaps.append("no stack samples: no perf on PATH (overnight doctor says how to get it)")
        return None
    probe = events.probe(cpu.online())
    if not probe.everywhere:
        reason = next(iter(probe.refused.values()), "no core to sample")
        gaps.append(f"no stack samples: perf_event_open was refused, {reason}")
        return None
    # perf ends by itself when the time is up, also when we were killed before it.
    bound = ["--", "sleep", str(seconds + 2)]
    return subprocess.Popen(
        [*command.record_arguments(perf, output, frequency), *bound],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _stop_perf(perf: subprocess.Popen[bytes], gaps: list[str]) -> None:
    """End perf so that it finishes its file; what it had to say becomes a gap when it failed."""
    if perf.poll() is None:
        perf.send_signal(signal.SIGINT)
    try:
        _, said = perf.communicate(timeout=PERF_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        perf.kill()
        perf.communicate()
        gaps.append(f"perf did not stop within {PERF_STOP_SECONDS} s and was killed")
        return
    # Stopped, perf ends its command with SIGTERM and then itself in the same way (perf 6.1).
    if perf.returncode not in (0, -signal.SIGINT, -signal.SIGTERM):
        text = said.decode("utf-8", "replace").strip()
        gaps.append(f"perf failed ({perf.returncode}): {text[-300:]}")


def _watch_cores(
    raw: pathlib.Path, deadline: float, stop: threading.Event, progress: Callable[[float], None]
) -> list[tuple[cpu.CpuTimes, ...]]:
    """Read every core each second, keeping the raw counters; at least two readings."""
    begin = time.monotonic()
    ticks = []
    with raw.open("w") as file:
        while True:
            cores = cpu.read_cpu()
            ticks.append(cores)
            entry = {
                "monotonic": time.monotonic(),
                "cores": [dataclasses.astuple(c) for c in cores],
            }
            file.write(json.dumps(entry) + "\n")
            now = time.monotonic()
            progress(now - begin)
            if len(ticks) > 1 and (now >= deadline or stop.is_set()):
                return ticks
            # On the second, not a second later each time; never shorter than a clock tick.
            stop.wait(max(0.1, min(begin + len(ticks), deadline) - now))


def summarise_cores(ticks: list[tuple[cpu.CpuTimes, ...]]) -> tuple[recording.CoreSummary, ...]:
    """Each core's own busy and kernel share, second by second; cores that went away are left."""
    by_core = [{times.core: times for times in tick} for tick in ticks]
    summaries = []
    for core in sorted(set.intersection(*(set(tick) for tick in by_core))):
        busy, kernel = [], []
        for before, after in itertools.pairwise(by_core):
            total = after[core].total - before[core].total
            # The last reading may follow the one before within a clock tick.
            if total > 0.05:
                busy.append(100 * (after[core].busy - before[core].busy) / total)
                kernel.append(100 * (after[core].kernel - before[core].kernel) / total)
        whole = by_core[-1][core].total - by_core[0][core].total
        used = by_core[-1][core].busy - by_core[0][core].busy
        summaries.append(
            recording.CoreSummary(
                core=core,
                busy_mean=round(100 * used / whole, 1) if whole else 0.0,
                busy_peak=round(max(busy, default=0.0), 1),
                kernel_peak=round(max(kernel, default=0.0), 1),
                busy=tuple(round(value, 1) for value in busy),
            )
        )
    return tuple(summaries)


def summarise_samples(
    samples: perfdata.Samples, cores: int, seconds: float, frequency: int
) -> recording.Profile:
    """Who was on the cores, by process name."""
    counts = collections.Counter(zip(samples.pid, samples.tid, strict=True))
    idle = sum(count for (pid, _), count in counts.items() if pid == 0)
    by_name: collections.Counter[str] = collections.Counter()
    for (pid, tid), count in counts.items():
        if pid != 0:
            by_name[samples.comms.get(pid) or samples.comms.get(tid) or f"pid {pid}"] += count
    busy = len(samples) - idle
    one_core = frequency * seconds
    return recording.Profile(
        samples=len(samples),
        idle_samples=idle,
        lost=samples.lost,
        frequency=frequency,
        bytes=0,
        processes=tuple(
            recording.ProcessShare(
                process=name,
                samples=count,
                share_of_samples=round(count / busy, 4),
                share_of_capacity=round(count / (one_core * cores), 4),
                cores=round(count / one_core, 3),
            )
            for name, count in by_name.most_common(20)
        ),
    )
