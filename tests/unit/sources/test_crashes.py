"""What crashes leave behind: pstore, kdump, wtmp."""

from __future__ import annotations

import base64
import os
import pathlib
import platform
import zlib

import crashedhost
import pytest

from overnight.sources import crashes

T = 1_794_725_459


def test_the_header_of_a_file_says_whether_it_is_a_panic(tmp_path: pathlib.Path) -> None:
    cases = {
        "Panic#2 Part1\n<0>[    1.000000] x\n": True,
        "Oops#1 Part1\nx\nPanic#2 Part1\n": True,
        "Oops#1\n": False,
        "Emergency#1 Part1\n": False,
        "Shutdown#1 Part1\n<6>[    1.000000] reboot: Restarting system\n": False,
        "<6>[    1.000000] says Panic#1 Part1 in a line\n": False,
        "": False,
    }
    host = crashedhost.CrashedHost(tmp_path)
    for text, is_panic in cases.items():
        host.put("sys/fs/pstore/dmesg-ramoops-0", text, T)
        (leftover,) = crashes.read_leftovers(tmp_path)
        assert leftover.is_panic is is_panic, text


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
    assert (oops.is_panic, oops.lines) == (False, ())
    assert (panic.is_panic, panic.time_us) == (True, T * 1_000_000)
    assert [line.text for line in panic.lines] == ["a", "b"]
    assert len(panic.paths) == 3
    assert (dump.is_panic, [line.text for line in dump.lines]) == (True, ["c"])
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


def test_a_file_of_another_user_is_not_the_kernels_word(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On some distributions every user may write to /var/crash."""
    host = crashedhost.CrashedHost(tmp_path)
    host.put("var/crash/forged/dmesg.1", "[    1.000000] Kernel panic - not syncing: forged\n", T)
    assert len(crashes.read_leftovers(tmp_path)) == 1
    if os.geteuid() == 0:
        os.chown(tmp_path / "var/crash/forged/dmesg.1", 1, 1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert crashes.read_leftovers(tmp_path) == ()


BOOT, DOWN, LOGIN = "boot", "shutdown", "login"


@pytest.mark.parametrize("time64", [False, True])
@pytest.mark.parametrize(
    ("records", "shut_down"),
    [
        ((BOOT, LOGIN, DOWN, BOOT), True),
        ((BOOT, DOWN, BOOT, LOGIN, BOOT, LOGIN), False),
        ((BOOT, LOGIN, DOWN, BOOT, DOWN), True),  # this boot is already going down
        ((LOGIN, BOOT), None),  # rotated
        ((LOGIN,), None),
        ((), None),
    ],
)
def test_the_order_of_the_records_decides(
    records: tuple[str, ...], shut_down: bool | None, time64: bool
) -> None:
    data = crashedhost.wtmp(*((kind, T + n) for n, kind in enumerate(records)), time64=time64)
    assert crashes.parse_wtmp(data, T * 1_000_000, time64=time64) is shut_down
    late = (T + 1000) * 1_000_000  # the file is not of this boot
    assert crashes.parse_wtmp(data, late, time64=time64) is None


# Written by utmpdump -r: boot, run level, login, shutdown; boot; boot.
WTMP = zlib.decompress(
    base64.b85decode(
        b"c-muPfPgv%{GhH*L7^x$DL=miw;D4&Lp=jsLkr!++!Qkth7k)olzwIrtCkUnO^FTv(!8A1vecZ>@W&5&NeF*-Al6}KU??al)"
        b";GYT4kVqJmzRjoEJFi55Hx2P;ot}~{J9{(OECQtTmBShl$NCAm*<V9e*!?6`1H>-TK-cV*o=n%fPx1q#D_lskxx2)"
    )
)


def test_the_records_of_another_program_are_read() -> None:
    assert len(WTMP) == 6 * crashes.UTMP.size
    assert crashes.parse_wtmp(WTMP, 0) is False
    assert crashes.parse_wtmp(WTMP[: -crashes.UTMP.size], 0) is True


def test_wtmp_is_read_from_its_end(tmp_path: pathlib.Path) -> None:
    assert crashes.read_shutdown(0, tmp_path) is None
    time64 = platform.machine() in crashes.TIME64
    records = [(BOOT, T), *((LOGIN, T + 1) for _ in range(5000)), (DOWN, T + 2), (BOOT, T + 3)]
    path = tmp_path / crashes.WTMP
    path.parent.mkdir(parents=True)
    path.write_bytes(crashedhost.wtmp(*records, time64=time64) + b"cut off")
    assert crashes.read_shutdown(T * 1_000_000, tmp_path) is True
