"""What crashes leave behind: pstore, kdump, wtmp."""

from __future__ import annotations

import os
import pathlib
import platform

import crashedhost
import pytest

from overnight.sources import crashes
from overnight.sources.crashes import Ending, Reason

T = 1_794_725_459


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Panic#2 Part1\n<0>[    1.000000] x\n", Reason.PANIC),
        ("Oops#1 Part1\nx\nPanic#2 Part1\n", Reason.PANIC),
        ("Oops#1\n", Reason.OOPS),
        ("Emergency#1 Part1\n", Reason.EMERGENCY),
        ("Shutdown#1 Part1\n<6>[    1.000000] reboot: Restarting system\n", Reason.UNKNOWN),
        ("<6>[    1.000000] says Panic#1 Part1 in a line\n", Reason.UNKNOWN),
        ("", Reason.UNKNOWN),
    ],
)
def test_the_reason_is_the_headers(text: str, reason: Reason) -> None:
    assert crashes.parse_reason(text) is reason


def test_the_parts_of_one_crash_are_one_leftover(tmp_path: pathlib.Path) -> None:
    """EFI variables are small: part 1 is the newest."""
    host = crashedhost.CrashedHost(tmp_path)
    host.put("sys/fs/pstore/dmesg-efi-179472545901001", "Panic#1 Part1\n<0>[   12.500000] b\n", T)
    host.put("sys/fs/pstore/dmesg-efi-179472545902001", "Panic#1 Part2\n<4>[   12.400000] a\n", T)
    host.put("sys/fs/pstore/dmesg-erst-1.enc.z", "\x00\x01", T + 1)
    host.put("sys/fs/pstore/console-ramoops-0", "[   12.400000] clean\n", T)
    host.put("var/lib/systemd/pstore/1794000000/001/dmesg.txt", "Oops#1 Part1\n", T - 5000)
    host.put("var/crash/202611150312/dump.202611150312", "KDUMP", T + 120)
    host.put("var/crash/202611150312/dmesg.202611150312", "[   12.600000] c\n", T + 121)
    host.put("var/crash/_usr_bin_x.0.crash", "ProblemType: Crash\n", T)
    host.put(
        "var/crash/127.0.0.1-2026-11-15-03:12:44/vmcore-dmesg.txt", "[    9.000000] d\n", T + 9000
    )
    (tmp_path / "var/crash/loop").symlink_to("loop")
    oops, panic, dump, other = crashes.read_leftovers(tmp_path)
    assert (oops.reason, oops.lines) == (Reason.OOPS, ())
    assert (panic.reason, panic.time_us) == (Reason.PANIC, T * 1_000_000)
    assert [line.text for line in panic.lines] == ["a", "b"]
    assert len(panic.paths) == 3
    assert (dump.reason, [line.text for line in dump.lines]) == (Reason.PANIC, ["c"])
    assert dump.paths[0] == "/var/crash/202611150312/dump.202611150312"
    assert other.lines[0].monotonic_us == 9_000_000


def test_hostile_files_are_bounded(tmp_path: pathlib.Path) -> None:
    host = crashedhost.CrashedHost(tmp_path)
    lines = "".join(f"<6>[{n:5}.000000] {'x' * 2000}\x1b[31m\n" for n in range(5000))
    host.put("sys/fs/pstore/dmesg-ramoops-0", "Panic#1 Part1\n" + lines, T)
    os.mkfifo(tmp_path / "sys/fs/pstore/dmesg-ramoops-1")
    (leftover,) = crashes.read_leftovers(tmp_path)
    assert 0 < len(leftover.lines) <= crashes.MAX_LINES
    assert leftover.lines[-1].monotonic_us == 4_999_000_000
    assert all(len(line.text) <= 2 * crashes.MAX_TEXT for line in leftover.lines)
    assert "\x1b" not in leftover.lines[-1].text


BOOT, DOWN, LOGIN = "boot", "shutdown", "login"


@pytest.mark.parametrize("time64", [False, True])
@pytest.mark.parametrize(
    ("records", "ending"),
    [
        ((BOOT, LOGIN, DOWN, BOOT), Ending.SHUTDOWN),
        ((BOOT, DOWN, BOOT, LOGIN, BOOT, LOGIN), Ending.NO_SHUTDOWN),
        ((BOOT, LOGIN, DOWN, BOOT, DOWN), Ending.SHUTDOWN),  # this boot is already going down
        ((LOGIN, BOOT), Ending.UNKNOWN),  # rotated
        ((LOGIN,), Ending.UNKNOWN),
        ((), Ending.UNKNOWN),
    ],
)
def test_the_order_of_the_records_decides(
    records: tuple[str, ...], ending: Ending, time64: bool
) -> None:
    data = crashedhost.wtmp(*((kind, T + n) for n, kind in enumerate(records)), time64=time64)
    assert crashes.parse_wtmp(data, T * 1_000_000, time64=time64) is ending
    late = (T + 1000) * 1_000_000  # the file is not of this boot
    assert crashes.parse_wtmp(data, late, time64=time64) is Ending.UNKNOWN


def test_wtmp_is_read_from_its_end(tmp_path: pathlib.Path) -> None:
    assert crashes.read_ending(0, tmp_path) is Ending.UNKNOWN
    time64 = platform.machine() in crashes.TIME64
    records = [(BOOT, T), *((LOGIN, T + 1) for _ in range(5000)), (DOWN, T + 2), (BOOT, T + 3)]
    path = tmp_path / crashes.WTMP
    path.parent.mkdir(parents=True)
    path.write_bytes(crashedhost.wtmp(*records, time64=time64) + b"cut off")
    assert crashes.read_ending(T * 1_000_000, tmp_path) is Ending.SHUTDOWN
