"""What the host has is probed; what is missing is an error with the next command."""

from __future__ import annotations

import os
import pathlib

import pytest

from overnight import errors, instruments
from overnight.instruments import interrupt_time, runner, slow_syscalls
from overnight.sources import softirqs

FORMAT = """name: sched_switch
ID: 316
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:char prev_comm[16];	offset:8;	size:16;	signed:0;
	field:pid_t prev_pid;	offset:24;	size:4;	signed:1;
	field:__data_loc char[] path;	offset:24;	size:4;	signed:0;
"""


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    event = tmp_path / "sys/kernel/tracing/events/sched/sched_switch"
    event.mkdir(parents=True)
    (event / "format").write_text(FORMAT)
    return tmp_path


def test_tracepoints_and_fields_are_looked_up(root: pathlib.Path) -> None:
    instruments.need_tracepoints({"sched:sched_switch": ("prev_comm", "prev_pid", "path")}, root)
    with pytest.raises(errors.CannotError, match="no tracepoint sched:sched_wakeup"):
        instruments.need_tracepoints({"sched:sched_wakeup": ()}, root)
    with pytest.raises(errors.CannotError, match="no field prev_state of tracepoint"):
        instruments.need_tracepoints({"sched:sched_switch": ("prev_state",)}, root)


def test_without_tracefs_the_error_says_how_to_mount_it(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.CannotError) as caught:
        instruments.need_tracepoints({"sched:sched_switch": ()}, tmp_path)
    assert "mount -t tracefs" in caught.value.todo


def test_a_missing_tool_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for instrument in instruments.discover().values():
        with pytest.raises(errors.MissingToolError, match=f"{instrument.tool} is not on PATH") as caught:  # fmt: skip
            instrument.prepare("vfs_read" if instrument.needs_target else "")
        assert instruments.PACKAGES[instrument.tool] in caught.value.todo


def test_only_root_traces(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    (tmp_path / "bpftrace").write_text("")
    (tmp_path / "bpftrace").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(errors.MissingPermissionError) as caught:
        instruments.find_tool("bpftrace")
    assert "sudo" in caught.value.todo


@pytest.mark.parametrize("target", ['a" { } BEGIN { system("id") } //', "a b", "", "a\nb", "x" * 200, "é"])  # fmt: skip
def test_a_target_never_becomes_a_part_of_the_program(target: str) -> None:
    with pytest.raises(errors.UsageError, match="is not a process"):
        slow_syscalls.make_program(target)
    with pytest.raises(errors.UsageError, match="is not a kernel function"):
        instruments.discover()["function-latency"].prepare(target)


def test_a_name_is_as_long_as_the_kernel_keeps_it() -> None:
    assert 'comm == "systemd-network"' in slow_syscalls.make_program("systemd-networkd").text()
    assert "pid == 812" in slow_syscalls.make_program("812").text()


@pytest.mark.parametrize("allowed", ["kfunc", "kprobe", ""])
def test_a_function_is_traced_by_whichever_way_attaches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, root: pathlib.Path, allowed: str
) -> None:
    """On a played bpftrace: this kernel allows none of them."""
    tool = tmp_path / "bpftrace"
    tool.write_text(f'#!/bin/sh\ncase "$2" in *" {allowed or "none"}:vfs_read {{"*) exit 0;; esac\necho "ERROR: no such probe" >&2\nexit 1\n')  # fmt: skip
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    function = instruments.discover()["function-latency"]
    if not allowed:
        with pytest.raises(errors.CannotError) as caught:
            function.prepare("vfs_read", root)
        assert "kprobe: no such probe" in caught.value.why
        return
    (command,) = function.prepare("vfs_read", root).commands
    assert f"\n{allowed}:vfs_read {{ @at[tid] = nsecs; }}" in f"\n{command[-1]}"


def test_names_of_softirqs_and_interrupts_are_the_kernels(tmp_path: pathlib.Path) -> None:
    assert interrupt_time.read_interrupts(tmp_path) == {}
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/interrupts").write_text("   CPU0\n 36:  7  PCI-MSIX  0-edge  virtio1-req.0\nNMI: 0 Non-maskable\n")  # fmt: skip
    lines = pathlib.Path("/proc/softirqs").read_text().splitlines()[1:]
    assert tuple(line.partition(":")[0].strip() for line in lines) == softirqs.KINDS
    assert interrupt_time.read_interrupts(tmp_path) == {36: "virtio1-req.0"}


def test_times_of_either_clock_become_wall_clock() -> None:
    import time

    for clock in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME):
        then = time.clock_gettime_ns(clock) - 2_000_000_000
        assert abs(time.time_ns() // 1000 - 2_000_000 - runner.to_wall_clock(then)) < 500_000
    assert abs(runner.to_wall_clock(0) - time.time_ns() // 1000) < 500_000
