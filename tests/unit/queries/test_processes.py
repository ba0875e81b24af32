"""Details of actors and rates of spawns, from segments with and without the tables."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import captures
import numpy as np
import pytest

from overnight.interfaces import cli
from overnight.model.actor import Actor
from overnight.model.selection import Selection
from overnight.queries import processes, reader, top
from overnight.store import capture, segments

NIGHT, SECOND = captures.NIGHT, captures.SECOND
NAMES = ["init", "storm.py (python3)", "storm.py → true", "storm.py → gzip"]
STORM, TRUE = Actor(NAMES[1], "storm.service"), Actor(NAMES[2], "storm.service")


def night(begin: int, started: dict[int, int], storm_us: int = 77) -> capture.Capture:
    """Return ten seconds; `started` maps seconds to processes that storm.py started, itself at `storm_us`."""
    rows = {"storm.py (python3)": 1, "storm.py → true": 2}
    samples = [
        captures.Sample(time=begin + n * SECOND, cpu=n % 2, pid=pid, tid=pid, process=name, unit="storm.service")
        for n in range(10)
        for pid, name in ((5, NAMES[1]), (100 + n, NAMES[2]))
    ]  # fmt: skip
    built = captures.build(samples, begin=begin, end=begin + 10 * SECOND)
    tasks = built.tasks
    first = begin // SECOND
    empty = [""] * 6
    return dataclasses.replace(
        built,
        tasks=dataclasses.replace(
            tasks,
            row=np.array([rows[name] for name in tasks.process], np.int32),
            launcher=[NAMES[1] if rows[name] == 2 else "" for name in tasks.process],
        ),
        processes=capture.Processes(
            pid=np.array([1, 5, 100, 101, 0, 2], np.int32),
            parent=np.array([4, 5, 1, 1, -1, 0], np.int32),
            started_us=np.array([0, storm_us, 88, 99, 0, 0], np.int64),
            count=np.array([1, 1, 40, 2, 1, 1], np.uint32),
            name=[*NAMES, "swapper", "init"], comm=["init", "python3", "true", "gzip", "swapper", "init"],
            executable=["", "/usr/bin/python3", "/bin/true", "/bin/gzip", "", ""],
            command=["", "python3 /opt/storm.py", *[""] * 4], user=["root", "ci", *[""] * 4],
            cgroup=empty, unit=["", *["storm.service"] * 3, "", ""], container=empty, pod=empty,
        ),
        spawns=capture.Spawns(
            launcher=np.full(len(started) + 1, 1, np.int32),
            name=[*["true"] * len(started), "gzip"],
            second=np.array([*(first + second for second in started), first], np.int64),
            count=np.array([*started.values(), 2], np.uint32),
        ),
    )  # fmt: skip


def store(home: pathlib.Path) -> reader.Reader:
    captures.store(home, night(NIGHT, {0: 30, 1: 10}))
    captures.store(home, night(NIGHT + 10 * SECOND, {0: 5}))
    old = [captures.Sample(time=NIGHT + 25 * SECOND, process="storm.py (python3)")]
    captures.store(home, captures.build(old, begin=NIGHT + 20 * SECOND, end=NIGHT + 30 * SECOND))
    return reader.Reader(segments.Catalogue(home))


def test_an_actor_has_its_processes_of_all_segments(tmp_path: pathlib.Path) -> None:
    found = processes.describe(
        store(tmp_path), ["alpha"], captures.window(NIGHT, NIGHT + 30 * SECOND)
    )
    assert set(found) == {STORM, TRUE}
    (storm,), (true,) = found[STORM], found[TRUE]
    assert (storm.pid, storm.started_us, storm.count, storm.samples) == (5, 77, 1, 20)
    assert (storm.command, storm.user, storm.launcher) == ("python3 /opt/storm.py", "ci", "")
    assert storm.ancestors == ("init",)
    assert (true.count, true.samples, true.launcher) == (80, 20, NAMES[1])
    assert true.ancestors == (NAMES[1], "init")
    part = captures.window(NIGHT, NIGHT + 3 * SECOND)
    chosen = Selection(cores=(1,))
    assert processes.describe(store(tmp_path), ["alpha"], part, chosen)[STORM][0].samples == 1


@pytest.mark.parametrize(
    ("later_us", "count"), [(9_000_001, 1), (0, 1), (11_000_000, 1), (11_000_001, 2)]
)
def test_a_process_is_one_although_each_segment_reads_the_clock_again(
    tmp_path: pathlib.Path, later_us: int, count: int
) -> None:
    captures.store(tmp_path, night(NIGHT, {}, 9_000_000))
    captures.store(tmp_path, night(NIGHT + 10 * SECOND, {}, later_us))
    source = reader.Reader(segments.Catalogue(tmp_path))
    window = captures.window(NIGHT, NIGHT + 20 * SECOND)
    found = processes.describe(source, ["alpha"], window)[STORM]
    assert sorted(process.samples for process in found) == [20 // count] * count


def test_spawns_are_counted_by_second(tmp_path: pathlib.Path) -> None:
    source = store(tmp_path)
    spawns = processes.count_spawns(
        source, "alpha", captures.window(NIGHT + SECOND, NIGHT + 25 * SECOND)
    )
    (launcher,) = spawns.launchers
    assert (launcher.actor, launcher.pids) == (STORM, (5,))
    assert launcher.started.tolist() == [10, *[0] * 8, 7, *[0] * 14]
    assert spawns.recorded.tolist() == [True] * 19 + [False] * 5
    assert spawns.rate(launcher) == 17 / 19
    assert launcher.children == (processes.Child("true", 15, 19), processes.Child("gzip", 2, 0))
    assert (launcher.samples, launcher.child_samples) == (19, 19)
    nothing = processes.count_spawns(source, "beta", captures.window(NIGHT, NIGHT + SECOND))
    assert (nothing.launchers, nothing.recorded.any()) == ((), False)


def test_top_names_the_processes_where_asked(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, window = store(tmp_path), captures.window(NIGHT, NIGHT + 30 * SECOND)
    storm, true = top.top(source, window, who=True).rows
    assert (storm.name, storm.pids, storm.launchers) == (NAMES[1], (5,), ())
    assert (true.name, true.pids, true.launchers) == (NAMES[2], (), (NAMES[1],))
    assert storm.processes[0].command == "python3 /opt/storm.py"
    assert top.top(source, window).rows[0].processes == ()
    assert top.top(source, window, kind="units", who=True).rows[0].processes == ()
    assert cli.main(["--home", str(tmp_path), "top", "--who"]) == 0
    shown = capsys.readouterr().out
    assert "80 processes" in shown
    assert "init" in shown
    assert cli.main(["--home", str(tmp_path), "top", "-O", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["processes"][0]["user"] == "ci"
