"""`overnight cpu` has the numbers of a real mpstat: exactly on the same counters, and beside it on this host."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import noise
import pytest
import rings

from overnight.interfaces import cli
from overnight.model import cpu as modes
from overnight.sources import cpu

pytestmark = pytest.mark.needs_mpstat
CORES = len(list(pathlib.Path("/sys/devices/system/cpu").glob("cpu[0-9]*")))
# Ticks of each core in every step, by mode; guests are part of user and nice.
STEPS = ((31, 7, 13, 29, 3, 2, 5, 10, 0, 0), (41, 11, 5, 17, 0, 3, 7, 1, 23, 4))
COLUMNS = ("usr", "nice", "sys", "iowait", "irq", "soft", "steal", "guest", "gnice", "idle")
SECONDS = 4


def run_mpstat(command: list[str]) -> list[dict[int | None, dict[str, float]]]:
    """Run `mpstat -P ALL -o JSON`; return its intervals: percent by core (None: all) and column."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=noise.HANG_SECONDS
    )
    (host,) = json.loads(done.stdout)["sysstat"]["hosts"]
    return [
        {
            None if row["cpu"] == "all" else int(row["cpu"]): {name: row[name] for name in COLUMNS}
            for row in interval["cpu-load"]
        }
        for interval in host["statistics"]
    ]


def run_cpu(home: pathlib.Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict]:
    assert cli.main(["--home", str(home), "cpu", *words, "-O", "json"]) == 0
    return json.loads(capsys.readouterr().out)["intervals"]


def make_stat(step: int) -> bytes:
    rows = [tuple(10**8 + step * n for n in STEPS[core % 2]) for core in range(CORES)]
    lines = [("cpu ", tuple(map(sum, zip(*rows, strict=True))))]
    lines += [(f"cpu{core}", row) for core, row in enumerate(rows)]
    return "".join(f"{name} {' '.join(map(str, row))}\n" for name, row in lines).encode() + b"intr 1 0\n"  # fmt: skip


@contextlib.contextmanager
def advance(stat: pathlib.Path) -> Iterator[None]:
    """Advance the counters all the time, at the same ratio: it does not matter when they are read."""
    stop = threading.Event()

    def write() -> None:
        with stat.open("r+b", buffering=0) as file:
            for step in range(1, 10**6):
                if stop.wait(0.05):
                    return
                os.pwrite(file.fileno(), make_stat(step), 0)  # as long as before

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.needs_root
def test_the_same_counters_give_the_same_numbers(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stat = tmp_path / "proc/stat"
    stat.parent.mkdir()
    stat.write_bytes(make_stat(0))
    script = 'mount --bind "$1" /proc/stat && exec mpstat -P ALL -o JSON 1 2'
    private = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(stat)]  # fmt: skip
    ring = rings.open_writer(tmp_path)
    read = cpu.open_ticks(tmp_path)
    with advance(stat):
        expected = run_mpstat(private)
        for second in range(3):
            ring.numbers("cpu", modes.MODES, rings.at(second), read())
            time.sleep(0.3)
    ring.close()
    intervals = run_cpu(tmp_path, capsys)
    assert (len(intervals), len(expected)) == (2, 2)
    assert len(expected[0]) == CORES + 1
    for interval, theirs in zip(intervals, expected, strict=True):
        ours = {row["core"]: row["values"] for row in (interval["all"], *interval["cores"])}
        assert ours == theirs


def seconds_by_core(intervals: list[dict], begin_us: float, end_us: float) -> dict:
    """Return the seconds by core and column of the intervals within these times."""
    spent: dict[int | None, dict[str, float]] = {}
    for each in intervals:
        if begin_us <= each["begin_us"] and each["end_us"] <= end_us:
            for row in (each["all"], *each["cores"]):
                sums = spent.setdefault(row["core"], dict.fromkeys(COLUMNS, 0.0))
                for name, share in row["values"].items():
                    sums[name] += share / 100 * each["seconds"]
    return spent


@pytest.mark.alone
def test_mpstat_beside_the_recorder_has_the_same_numbers(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both read counters that only rise, at different instants: mpstat's first and second reading are between two
    of ours. So its seconds are at least those of our readings between its two, and at most those of our readings
    around them. Where the machine delays mpstat, these are further apart.
    """
    record = [sys.executable, "-m", "overnight", "--home", str(tmp_path), "record"]
    running = subprocess.Popen([*record, "--signals-only", "--for", "3m"], stderr=subprocess.PIPE)
    busy = subprocess.Popen(["timeout", "180", sys.executable, "-c", "while True: pass"])
    try:
        wait_for_readings(tmp_path, 2)
        begin = time.time()
        (theirs,) = run_mpstat(["mpstat", "-P", "ALL", "-o", "JSON", str(SECONDS), "1"])
        end = time.time()
        wait_for_readings(tmp_path, 2, since_us=end * 1e6)
    finally:
        busy.terminate()
        busy.wait()
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=noise.HANG_SECONDS)
    ours = run_cpu(tmp_path, capsys, "-b", "0s")
    late = end - begin - SECONDS  # the first reading is at most this much later than `begin`
    before = max(each["begin_us"] for each in ours if each["begin_us"] <= begin * 1e6)
    after = min(each["end_us"] for each in ours if each["end_us"] >= end * 1e6)
    around = seconds_by_core(ours, before, after)
    between = seconds_by_core(ours, (begin + late) * 1e6, (end - late) * 1e6)
    assert between, "no reading between those of mpstat"
    slack = 0.02 * (SECONDS + 2)  # the ticks of a core are up to two more or fewer than its time
    missing = (after - before) / 1e6 - sum(around[None].values())
    wrong = {
        (core, name): (between[core][name], share, around[core][name])
        for core, shares in theirs.items()
        for name, share in shares.items()
        if not between[core][name] - slack <= share / 100 * (SECONDS + late)
        or not share / 100 * SECONDS <= around[core][name] + slack + max(0.0, missing)
    }
    assert wrong == {}
    assert max(spent["usr"] + spent["nice"] + spent["sys"] for spent in between.values()) > 0.5


def wait_for_readings(home: pathlib.Path, count: int, since_us: float = 0.0) -> None:
    from overnight.store.ring import reader

    until = time.monotonic() + noise.HANG_SECONDS
    while time.monotonic() < until:
        source = reader.Reader(home)
        times = [
            us
            for host in source.hosts()
            for frame in source.numbers(host, "cpu", 0, rings.EVER)
            for us in frame.wall_us
        ]
        if sum(us >= since_us for us in times) >= count:
            return
        time.sleep(0.3)
    raise AssertionError("the recorder stores no readings")
