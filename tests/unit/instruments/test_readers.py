"""What the tools printed on a real host (bpftrace 0.17 and perf 6.1 on Linux 6.18) as readings."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from overnight.instruments import (
    _bpftrace,
    _commands,
    cgroup_churn,
    function_latency,
    interrupt_time,
    interrupt_tracepoints,
    off_cpu,
    runqueue_latency,
    scheduler_tracepoints,
    slow_syscalls,
)
from overnight.model.instrument import Reading, ReadingKind
from overnight.queries import readings

if TYPE_CHECKING:
    from overnight import instruments

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "instruments"
MAKERS = {
    "cgroup-churn": lambda: cgroup_churn.make_reader(4),
    "interrupt-time": lambda: interrupt_time.make_reader({36: "virtio1-req.0"}),
    "interrupt-tracepoints": interrupt_tracepoints.make_reader,
    "off-cpu": lambda: off_cpu.make_reader(True),
    "runqueue-latency": runqueue_latency.make_reader,
    "scheduler-tracepoints": scheduler_tracepoints.make_reader,
    "slow-syscalls": lambda: slow_syscalls.make_reader("sleep", "x86_64"),
}


def read(name: str, reader: instruments.Reader) -> Iterator[tuple[int, Reading]]:
    for line in (FIXTURES / f"{name}.txt").read_bytes().splitlines(keepends=True):
        yield from reader.feed(line)


def read_all(name: str) -> list[Reading]:
    return [reading for _, reading in read(name, MAKERS[name]())]


def test_waits_of_each_core_and_of_the_tasks_that_waited_long() -> None:
    found = read_all("runqueue-latency")
    sums = [reading for reading in found if not reading.subject]
    assert {reading.core for reading in sums} == {0, 1}
    for reading in sums:
        values = reading.values
        assert 0 < values["p50_us"] <= values["p99_us"] <= values["max_us"]
        assert values["count"] > 10
    long = [reading for reading in found if reading.subject]
    assert "python" in {reading.subject for reading in long}
    assert all(reading.values["max_us"] >= runqueue_latency.LONG_US for reading in long)
    assert max(reading.values["max_us"] for reading in sums) == 285_025


def test_softirqs_have_their_names_and_interrupts_their_devices() -> None:
    found = read_all("interrupt-time")
    assert {"TIMER", "NET_RX", "RCU"} <= {
        reading.subject for reading in found if reading.kind == ReadingKind.SOFTIRQ
    }
    (*_, disk) = [reading for reading in found if reading.kind == ReadingKind.HARDIRQ and "36" in reading.subject]  # fmt: skip
    assert disk.subject == "36 virtio1-req.0"
    for reading in found:
        assert reading.values["max_us"] <= reading.values["total_us"]


def test_the_process_that_creates_a_cgroup_whatever_the_names_hold() -> None:
    found = [reading for reading in read_all("cgroup-churn") if reading.values["memory"] == 1.0]
    created, removed, released = (
        next(reading for reading in found if reading.kind == kind and reading.text)
        for kind in (ReadingKind.CGROUP_CREATED, ReadingKind.CGROUP_REMOVED, ReadingKind.CGROUP_RELEASED)
    )  # fmt: skip
    assert created.subject == removed.subject == 'a b,c"\ufffd/z'
    assert created.text == removed.text == released.text == '/in"st|é \\x\ufffd\x01q'
    assert released.subject.startswith("kworker/")
    counts = {reading.kind: (reading.subject, reading.values["count"]) for reading in found if "count" in reading.values}  # fmt: skip
    assert counts[ReadingKind.CGROUP_CREATED] == (created.subject, 1)
    (row,) = [row for row in readings.sum_rows(found) if row.kind == ReadingKind.CGROUP_CREATED]
    assert (row.count, row.text) == (1, created.text)


def test_a_cgroup_whose_process_was_lost_has_none() -> None:
    reader = cgroup_churn.make_reader(0)
    ((at, reading),) = reader.feed(b'{"type": "printf", "data": "mkdir 7 0 9 /a\\n"}')
    assert (at, reading.subject, reading.pid, reading.text) == (7, "", 9, "/a")


def test_slow_system_calls_by_name() -> None:
    (reading,) = read_all("slow-syscalls")
    assert (reading.kind, reading.subject, reading.text) == ("syscall", "clock_nanosleep", "sleep")
    assert reading.values["max_us"] == pytest.approx(500_000, rel=0.1)
    elsewhere = slow_syscalls.make_reader("sleep", "riscv64")
    assert {reading.subject for _, reading in read("slow-syscalls", elsewhere)} == {"syscall 230"}


def test_stacks_of_tasks_that_block() -> None:
    reading = max(read_all("off-cpu"), key=lambda reading: reading.values["total_us"])
    assert reading.subject == "sleep"
    assert reading.text.split(";")[:3] == ["__schedule", "schedule", "do_nanosleep"]
    assert reading.values["total_us"] == pytest.approx(500_000, rel=0.1)


def test_kernel_threads_are_left_out_unless_one_is_the_target() -> None:
    key = '"9,\\n    schedule+3\\n    kthread+24\\n,kworker/0:1": 5000'
    lines = (f'{{"type": "map", "data": {{"@off": {{{key}}}}}}}', '{"type": "printf", "data": "tick 1\\n"}')  # fmt: skip
    found = {}
    for with_kernel in (False, True):
        reader = off_cpu.make_reader(with_kernel)
        found[with_kernel] = [each for line in lines for each in reader.feed(line.encode())]
    assert not found[False]
    assert found[True][0][1].text == "schedule;kthread"


def test_a_functions_latency_has_the_form_of_other_latencies() -> None:
    text = (FIXTURES / "runqueue-latency.txt").read_bytes()
    reader = function_latency.make_reader("vfs_read")
    found = [reading for line in text.splitlines() for _, reading in reader.feed(line)]
    assert {(reading.kind, reading.subject) for reading in found} == {("function", "vfs_read")}


@pytest.mark.parametrize(("perf", "other"), [("scheduler-tracepoints", {"run-queue"}), ("interrupt-tracepoints", {"softirq", "hardirq"})])  # fmt: skip
def test_tracepoints_of_perf_give_the_same_readings(perf: str, other: set[str]) -> None:
    found = list(read(perf, MAKERS[perf]()))
    assert {reading.kind for _, reading in found} <= other
    assert {reading.core for _, reading in found} == {0, 1}
    assert {at % 1_000_000_000 for at, _ in found} == {0}
    for _, reading in found:
        if "count" in reading.values:
            assert reading.values["count"] > 0
            assert 0 <= reading.values["max_us"] < 4e6


def test_a_preempted_task_waits_and_a_sleeping_one_does_not() -> None:
    reader = scheduler_tracepoints.make_reader()
    switch = "[003] {}: sched:sched_switch: prev_comm={} prev_pid={} prev_prio=120 prev_state={} ==> next_comm={} next_pid={} next_prio=120\n"
    lines = [
        switch.format("5.000000000", "a ==> b", 1, "R+", "idle", 0),
        switch.format("5.100000000", "swapper/3", 0, "R", "a ==> b", 1),
        switch.format("5.200000000", "a ==> b", 1, "S", "swapper/3", 0),
        switch.format("5.900000000", "swapper/3", 0, "R", "a ==> b", 1),
        switch.format("7.900000000", "x", 2, "S", "swapper/3", 0),
    ]
    found = [each for line in lines for each in reader.feed(line.encode())]
    assert [reading.values["max_us"] for _, reading in found] == [100_000, 100_000]
    assert found[1][1].subject == "a ==> b"


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_damaged_lines_are_skipped(name: str) -> None:
    text = (FIXTURES / f"{name}.txt").read_bytes()
    whole = len(read_all(name))
    for step in (3, 7, 50):
        reader = MAKERS[name]()
        cut = [line[: len(line) - len(line) // step] for line in text.splitlines()]
        damaged = [each for line in cut for each in reader.feed(line)]
        assert len(damaged) <= whole + 3
    reader = MAKERS[name]()
    for line in (b"", b"[]", b"{", b'{"type": "printf"}', b'{"type": "map", "data": 3}', b"\xff\x00", b'{"type": "map", "data": {"@max": null}}', b'{"type": "printf", "data": "tick x"}'):  # fmt: skip
        assert not list(reader.feed(line))


def test_lost_events_are_counted() -> None:
    reader = runqueue_latency.make_reader()
    for events in (3, 4):
        assert not list(reader.feed(b'{"type": "lost_events", "data": {"events": %d}}' % events))
    assert reader.lost == 7
    perf = scheduler_tracepoints.make_reader()
    assert not list(perf.feed(b"[001] 24156.810998279: PERF_RECORD_LOST lost 12\n"))
    assert perf.lost == 12


def test_lines_of_a_command_are_bounded_and_printable() -> None:
    reader = _commands.LineReader("softnet")
    assert not list(reader.feed(b"\n"))
    ((at, reading),) = reader.feed(b"\x1b[31mred" + b"x" * 10_000 + b"\r\n")
    assert (at, reading.subject) == (0, "softnet")
    assert "\x1b" not in reading.text
    assert len(reading.text) < 2_000


def test_the_reason_of_bpftrace_is_its_first_error() -> None:
    text = b"""ERROR: Unknown error -1: couldn't set RLIMIT_MEMLOCK for bpftrace. If your program is not loading
stdin:1:1-16: WARNING: vfs_read is not traceable
create_probe_event: open(/sys/kernel/tracing/kprobe_events): No such file or directory
ERROR: Error attaching probe: 'kprobe:vfs_read'
"""
    assert _bpftrace.find_reason(text) == "Error attaching probe: 'kprobe:vfs_read'"
    assert _bpftrace.find_reason(b"Permission denied\n") == "Permission denied"
    assert _bpftrace.find_reason(b"") == ""
