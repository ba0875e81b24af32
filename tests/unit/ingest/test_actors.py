"""Processes of a recording: who they are, who started them, and how often."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import struct
import time

import numpy as np
import perfrecords as make
import pytest

from overnight.ingest import actors, identities, perfdata
from overnight.model.flame import FrameKind
from overnight.store import capture

LAYOUT = make.Layout()
SECOND = 1_000_000_000
MILLISECOND = 1_000_000
KUBEPODS = "/kubepods/pod0f3a1b2c-1111-2222-3333-444455556666/" + "3fa9" * 16
EXEC = make.MISC_COMM_EXEC


class Host:
    """A made-up /proc, whose processes began on the real clocks."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        (root / "proc").mkdir()
        (root / "etc").mkdir()
        (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
        self.begin = time.monotonic_ns() - 10 * SECOND  # of the recording
        self.wall = time.time_ns() - time.monotonic_ns()

    def start(
        self, pid: int, command: str, *, at: int, parent: int = 1, unit: str = "", exe: str = ""
    ) -> None:
        """Start a process `at` ns after the recording's begin."""
        folder = self.root / "proc" / str(pid)
        folder.mkdir(exist_ok=True)
        asleep = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
        ticks = (self.begin + at + asleep) * identities.TICKS // SECOND
        words = command.split()
        comm = (words[0] if words else "x").rpartition("/")[2]
        (folder / "stat").write_text(f"{pid} ({comm}) S {parent}" + " 0" * 17 + f" {ticks} 0 0\n")
        (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
        (folder / "cgroup").write_text(f"0::{unit}\n")
        (folder / "exe").unlink(missing_ok=True)
        (folder / "exe").symlink_to(exe or f"/usr/bin/{comm}")

    def read(self, *records: bytes, registry: identities.Registry | None = None) -> capture.Capture:
        path = self.root / "perf.data"
        features = {make.CLOCK_DATA: struct.pack("<IIQQ", 1, 1, self.begin + self.wall, self.begin)}
        path.write_bytes(make.file([LAYOUT.attr()], records, features=features))
        if registry is None:
            registry = identities.Registry(self.root)
            registry.refresh()
        symbols = perfdata.foreign_symbols(None, self.root)
        symbols = dataclasses.replace(symbols, registry=registry)
        return perfdata.read(path, symbols, begin=self.begin + self.wall)

    def listed(self, pid: int, comm: bytes, parent: int = 1) -> bytes:
        fork = LAYOUT.fork(0, pid, parent, misc=make.MISC_FORK_EXEC)
        return fork + LAYOUT.comm(0, pid, comm)

    def child(
        self, pid: int, parent: int, comm: bytes, at: int, lives: int, *, runs: bool = True
    ) -> bytes:
        """Record a process that was started `at` ns after the begin; `runs`: with one sample."""
        begin = self.begin + at
        records = LAYOUT.fork(begin, pid, parent) + LAYOUT.comm(begin + 1, pid, comm, misc=EXEC)
        if runs:
            records += LAYOUT.sample(begin + 2, pid=pid)
        return records + (LAYOUT.exit(begin + lives, pid) if lives else b"")


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


def names(parsed: capture.Capture) -> collections.Counter[tuple[str, str, str]]:
    """Count the samples by program, unit and launcher."""
    tasks = parsed.tasks
    keys = list(zip(tasks.process, tasks.unit, tasks.launcher, strict=True))
    return collections.Counter(keys[task] for task in parsed.task.tolist())


def test_a_fork_storm_is_one_row_that_names_its_launcher(host: Host) -> None:
    host.start(100, "python3 /opt/storm.py --token hunter2", at=-SECOND, unit="/a/storm.service")
    storm = [host.child(1000 + n, 100, b"true", n * 100 * MILLISECOND, 5 * MILLISECOND, runs=n % 2 == 0) for n in range(20)]  # fmt: skip
    # Through a shell that is as short: the launcher is the nearest ancestor that lives on.
    nested = host.child(2000, 100, b"sh", 0, 9 * MILLISECOND, runs=False)
    nested += host.child(2001, 2000, b"gzip", 1 * MILLISECOND, 5 * MILLISECOND)
    # Repeated from the file before: not started in this recording.
    repeated = host.child(3000, 100, b"true", -300 * MILLISECOND, 5 * MILLISECOND, runs=False)
    lasting = host.child(4000, 100, b"worker", 0, 3 * SECOND)
    parsed = host.read(host.listed(100, b"python3"), repeated, *storm, nested, lasting)
    assert names(parsed) == {
        ("storm.py → true", "storm.service", "storm.py (python3)"): 10,
        ("storm.py → gzip", "storm.service", "storm.py (python3)"): 1,
        ("worker", "storm.service", ""): 1,
    }
    table, spawns = parsed.processes, parsed.spawns
    assert table is not None
    assert spawns is not None
    launcher = table.name.index("storm.py (python3)")
    assert (table.pid[launcher], table.user[launcher]) == (100, "root")
    assert table.command[launcher] == "python3 /opt/storm.py --token (masked)"
    assert abs(int(table.started_us[launcher]) - (host.begin + host.wall - SECOND) // 1000) < 20_000
    merged = table.name.index("storm.py → true")
    assert (table.count[merged], table.parent[merged], table.comm[merged]) == (21, launcher, "true")
    assert table.parent[table.name.index("worker")] == launcher
    assert "sh" not in table.comm  # neither ran nor lived on
    rows = parsed.tasks.row
    assert rows is not None
    assert [table.name[row] for row in rows.tolist()] == parsed.tasks.process
    first = (host.begin + host.wall) // SECOND
    started: collections.Counter[tuple[str, int]] = collections.Counter()
    for row, name, second, count in zip(spawns.launcher.tolist(), spawns.name, spawns.second.tolist(), spawns.count.tolist(), strict=True):  # fmt: skip
        assert row == launcher
        started[name, second - first] += count
    assert sum(n for (name, _), n in started.items() if name == "true") == 20
    assert len([key for key in started if key[0] == "true"]) in (2, 3)  # clock seconds
    assert {name for name, _ in started} == {"true", "sh", "gzip", "worker"}


def test_a_reused_pid_never_has_the_command_line_of_another(host: Host) -> None:
    host.start(50, "python3 /opt/first.py", at=-5 * SECOND)
    host.start(60, "python3 /opt/second.py", at=2 * SECOND)
    host.start(70, "python3 /opt/third.py", at=3 * SECOND)
    host.start(80, "python3 /opt/fourth.py", at=-5 * SECOND, exe="/usr/bin/python3")
    parsed = host.read(
        host.listed(50, b"python3"),
        host.listed(80, b"gzip"),
        LAYOUT.mmap2(0, 0x1000, 0x1000, b"/usr/bin/gzip", pid=80),
        LAYOUT.sample(host.begin + 1, pid=50),
        LAYOUT.sample(host.begin + 1, pid=80),  # was read before its exec
        LAYOUT.exit(host.begin + SECOND, 50),
        host.child(50, 1, b"python3", 3 * SECOND, 0),
        host.child(60, 1, b"python3", 2 * SECOND + 9 * MILLISECOND, 0),
        host.child(70, 1, b"python3", SECOND, 3 * SECOND // 2),
    )
    assert [name for name, _, _ in names(parsed)] == [
        "first.py (python3)", "gzip", "python3", "second.py (python3)",
    ]  # fmt: skip
    assert parsed.tasks.process.count("python3") == 2  # 50 after its reuse, and 70 before


def test_a_program_replaced_by_exec_long_after_the_start_is_named_by_the_new_one(
    host: Host,
) -> None:
    """The executable is the same: only the moment of the exec shows that the command line is old."""
    for pid in (50, 60, 70):
        host.start(pid, "python3 /opt/launcher.py", at=-60 * SECOND)
    registry = identities.Registry(host.root)
    registry.refresh()
    for pid in (50, 70):
        host.start(pid, "python3 /opt/worker.py", at=-60 * SECOND)
    now = time.monotonic_ns()
    parsed = host.read(
        *(host.listed(pid, b"python3") for pid in (50, 60, 70)),
        LAYOUT.comm(now, 50, b"python3", misc=EXEC),
        LAYOUT.comm(now, 70, b"python3", misc=EXEC),
        *(LAYOUT.sample(now + 1, pid=pid) for pid in (50, 60, 70)),
        LAYOUT.exit(now + 2, 70),  # too early to be read again
        registry=registry,
    )
    assert parsed.tasks.process == ["worker.py (python3)", "launcher.py (python3)", "python3"]


def test_units_come_from_the_launcher_but_not_from_a_manager(host: Host) -> None:
    pods = host.root / "var/log/pods"
    (pods / "default_trainer-0_0f3a1b2c-1111-2222-3333-444455556666").mkdir(parents=True)
    host.start(20, "systemd --user", at=-SECOND, unit="/init.scope")
    host.start(30, "bash /opt/nightly.sh", at=-SECOND, unit=KUBEPODS)
    parsed = host.read(
        host.listed(20, b"systemd"),
        host.listed(30, b"bash"),
        host.child(200, 20, b"crashing", SECOND, MILLISECOND),
        host.child(300, 30, b"gzip", SECOND, MILLISECOND),
        host.child(301, 30, b"zstd", SECOND, 3 * SECOND),
        host.child(302, 30, b"nightly.sh", SECOND, MILLISECOND),  # a subshell
        host.child(400, 2, b"kworker/7:1", SECOND, MILLISECOND),
    )
    assert names(parsed) == {
        ("systemd → crashing", "", "systemd"): 1,
        ("nightly.sh → gzip", "default/trainer-0", "nightly.sh (bash)"): 1,
        ("nightly.sh → zstd", "default/trainer-0", ""): 1,
        ("nightly.sh (bash)", "default/trainer-0", "nightly.sh (bash)"): 1,
        ("kworker/7:1", "", ":2"): 1,
    }
    table = parsed.processes
    assert table is not None
    row = table.name.index("nightly.sh (bash)")
    assert (table.pod[row], table.container[row]) == ("default/trainer-0", "3fa93fa93fa9")
    assert table.cgroup[row] == KUBEPODS


def test_the_recordings_of_another_boot_get_no_command_lines(host: Host) -> None:
    host.start(50, "python3 /opt/first.py", at=-5 * SECOND)
    host.wall -= 3600 * SECOND
    parsed = host.read(host.listed(50, b"python3"), LAYOUT.sample(host.begin + 1, pid=50))
    assert parsed.tasks.process == ["python3"]


def test_a_process_is_remembered_after_it_ended_but_not_without_a_command_line(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identities, "REFRESH_SECONDS", 0.0)
    registry = identities.Registry(host.root)
    now = time.monotonic_ns() - host.begin
    host.start(7, "python3 /opt/a.py", at=-SECOND)
    host.start(8, "", at=now - SECOND // 10)
    host.start(9, "python3 /opt/parent.py", at=now - SECOND // 10)
    registry.refresh()
    assert set(registry.pids) == {7, 9}
    host.start(8, "python3 /opt/b.py", at=now - SECOND // 10)
    host.start(9, "python3 /opt/c.py", at=now - SECOND // 10)
    registry.refresh()
    for pid in (7, 8, 9):
        for file in (host.root / "proc" / str(pid)).iterdir():
            file.unlink()
        (host.root / "proc" / str(pid)).rmdir()
    registry.refresh()
    found = [registry.find(pid, 0, time.monotonic_ns(), ended=True) for pid in (7, 8, 9)]
    assert [each and each.program.name for each in found] == [
        "a.py (python3)", "b.py (python3)", "c.py (python3)",
    ]  # fmt: skip
    monkeypatch.setattr(identities, "FORGET_SECONDS", 0.0)
    registry.refresh()
    assert not registry.pids


def test_kernel_workers_are_divided_by_their_work() -> None:
    functions = ["worker_thread", "process_one_work", "wb_workfn", "vmstat_update", "schedule"]
    frames = capture.Frames(functions, ["[kernel]"] * 5, np.full(5, FrameKind.KERNEL, np.uint8))
    paths = [[0, 1, 2], [0, 1, 3, 4], [0, 4], [0, 1]]
    stacks = capture.Stacks(
        np.cumsum([0, *map(len, paths)]).astype(np.uint32), np.concatenate(paths).astype(np.uint32)
    )
    tasks = capture.Tasks(
        np.array([5, 6], np.int32), np.array([5, 6], np.int32), ["w", "x"], ["kworker/0:1", "x"],
        ["", ""], np.array([0, 1], np.int32), ["", ""],
    )  # fmt: skip
    task, stack = np.array([0, 0, 0, 0, 1, 0], np.uint32), np.array([0, 1, 2, 3, 0, 0], np.uint32)
    split, number = actors.split_workers(tasks, task, stacks, stack, frames)
    assert [split.process[i] for i in number.tolist()] == [
        "kworker/0:1 [wb_workfn]", "kworker/0:1 [vmstat_update]", "kworker/0:1", "kworker/0:1", "x",
        "kworker/0:1 [wb_workfn]",
    ]  # fmt: skip
    assert split.pid[number].tolist() == [5, 5, 5, 5, 6, 5]
