"""Events of the boot before this one: on a host in a folder that came back."""

from __future__ import annotations

import pathlib

import crashedhost
import pytest
import rings

from overnight.agent import event_pins, previous_boot
from overnight.model import times
from overnight.model.event import Event, boot_name
from overnight.model.severity import Severity
from overnight.sources.kernelrules import rulefiles
from overnight.store.ring import layout, reader

NEXT = "9f8e7d6c-0000-4000-8000-000000000000"
LAST = 59  # the second of the last reading, 159 s after that boot
BOOTED = 190.0  # the second at which the host booted again
NOW = 200.0
RULES = rulefiles.built_in()
PANIC = """Panic#1 Part1
<0>[  158.900000] watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:4711]
<4>[  158.950000] CPU: 3 PID: 4711 Comm: kworker/3:1 Tainted: G             L     6.1.0-18-amd64 #1
<0>[  161.500000] Kernel panic - not syncing: softlockup: hung tasks
<4>[  161.600000] ---[ end Kernel panic - not syncing: softlockup: hung tasks ]---
"""
PSTORE = "sys/fs/pstore/dmesg-ramoops-0"
FORGED = "<14>[  158.000000] Kernel panic - not syncing: forged\n"  # facility 1: by a process


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    """A ring whose last reading is of another boot than this one."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    with_readings(folder, rings.BOOT, range(LAST + 1))
    return folder


def with_readings(home: pathlib.Path, boot: str, seconds: range) -> None:
    ring = rings.open_writer(home, boot)
    rings.record(ring, seconds)
    ring.close()


@pytest.fixture
def host(tmp_path: pathlib.Path) -> crashedhost.CrashedHost:
    crashed = crashedhost.CrashedHost(tmp_path / "root")
    crashed.reboot(NEXT, NOW - BOOTED)
    return crashed


def seconds_at(second: float) -> float:
    return rings.us(second) / 1e6


def find(
    home: pathlib.Path, host: crashedhost.CrashedHost, boot: str = NEXT, now: float = NOW
) -> list[Event]:
    """Return what the agent reports when it starts; it is stored, as by the recorder."""
    events = previous_boot.find_events(
        home, rings.HOST, boot, RULES, root=host.root, now_us=rings.us(now)
    )
    ring = rings.open_writer(home, boot)
    for event in events:
        ring.event(event)
    ring.close()
    return events


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def test_a_boot_without_a_shutdown_record_is_an_event_once(home, host) -> None:
    (event,) = find(home, host)
    assert (event.kind, event.severity) == ("host.unclean_reboot", Severity.CRITICAL)
    assert event.time_us == rings.us(LAST)
    assert event.boot == boot_name(rings.BOOT)
    assert event.monotonic_ns == rings.at(LAST).monotonic_ns
    assert event.fields["uncertain_seconds"] == BOOTED - LAST
    assert event.fields["booted"] == times.format_instant(rings.us(BOOTED))
    assert event.text == (
        "no shutdown record; the host booted again 2 min 11 s after the last reading"
    )
    # The agent was killed before its first reading, and starts again; then in the same boot.
    assert kinds(find(home, host)) == []
    with_readings(home, NEXT, range(195, 197))
    assert kinds(find(home, host)) == []


@pytest.mark.parametrize(
    ("records", "stopped", "reported"),
    [
        ((("boot", -100), ("shutdown", 60), ("boot", 190)), False, False),
        ((("boot", -100), ("boot", 190)), False, True),
        ((("boot", -100), ("boot", 190)), True, True),  # stopped by hand, and the host died later
        ((("boot", -900), ("shutdown", -500), ("boot", -100)), False, True),  # wtmp is not written
        ((("boot", -900), ("shutdown", -500), ("boot", -100)), True, False),
        ((), True, False),
        ((), False, True),
    ],
)
def test_a_shutdown_is_recorded_by_wtmp_or_by_the_agent(
    home, host, records: tuple[tuple[str, float], ...], stopped: bool, reported: bool
) -> None:
    if records:
        host.put("var/log/wtmp", crashedhost.wtmp(*((k, seconds_at(s)) for k, s in records)))
    if stopped:
        previous_boot.note_stop(home, rings.HOST, rings.BOOT)
    assert kinds(find(home, host)) == ["host.unclean_reboot"] * reported


def test_a_start_after_a_stop_in_the_same_boot_forgets_the_stop(home, host) -> None:
    previous_boot.note_stop(home, rings.HOST, rings.BOOT)
    assert find(home, host, boot=rings.BOOT) == []
    previous_boot.note_start(home, rings.HOST)
    assert kinds(find(home, host)) == ["host.unclean_reboot"]


def test_a_panic_has_the_time_core_and_process_of_its_last_words(home, host) -> None:
    host.put(PSTORE, PANIC + FORGED, seconds_at(61.6))
    panic, lockup = find(home, host)
    assert (panic.kind, panic.core, panic.process) == ("host.panic", 3, "kworker/3:1[4711]")
    assert panic.time_us == rings.us(61.6)
    assert panic.text == (
        "Kernel panic - not syncing: softlockup: hung tasks; the host booted again 2 min 8 s "
        "after the last line of the kernel log"
    )
    assert "uncertain_seconds" not in panic.fields
    assert panic.fields["files"] == f"/{PSTORE}"
    # Nobody could read this line as it was logged.
    assert (lockup.kind, lockup.core, lockup.time_us) == ("cpu.soft_lockup", 3, rings.us(58.9))
    assert lockup.boot == panic.boot
    # systemd moves the file, and the next boots find it still there.
    with_readings(home, NEXT, range(195, 300))
    (host.root / PSTORE).unlink()
    host.put("var/lib/systemd/pstore/1794725459/dmesg.txt", PANIC + FORGED, seconds_at(195))
    assert find(home, host, now=320) == []
    previous_boot.note_stop(home, rings.HOST, NEXT)
    assert find(home, host, boot="another", now=900) == []


def test_two_lockups_of_one_core_are_two_events(home, host) -> None:
    line = "<0>[  {}.500000] watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:4711]\n"
    host.put(PSTORE, line.format(108) + PANIC, seconds_at(61.6))
    lockups = [event for event in find(home, host) if event.kind == "cpu.soft_lockup"]
    assert [event.time_us for event in lockups] == [rings.us(8.5), rings.us(58.9)]


def test_a_lockup_that_was_seen_as_it_happened_is_not_reported_again(home, host) -> None:
    ring = rings.open_writer(home)
    ring.event(Event(rings.us(57), "cpu.soft_lockup", host=rings.HOST, id="seen", core=3))
    foreign = {"file_us": "x", "files": f"/{PSTORE}", "marks": 7}
    ring.event(Event(rings.us(-9000), "host.panic", host=rings.HOST, id="x", fields=foreign))
    ring.close()
    host.put(PSTORE, PANIC, seconds_at(61.6))
    assert kinds(find(home, host)) == ["host.panic"]


def test_a_dump_without_a_log_is_a_panic_at_the_last_reading(home, host) -> None:
    host.put("var/crash/202611150312/vmcore", "KDUMP", seconds_at(100))
    (event,) = find(home, host)
    assert (event.kind, event.time_us) == ("host.panic", rings.us(LAST))
    assert event.fields["uncertain_seconds"] == BOOTED - LAST
    with_readings(home, NEXT, range(195, 197))
    assert find(home, host) == []


def test_the_log_of_another_boot_moves_no_time(home, host) -> None:
    host.put(PSTORE, PANIC.replace("  16", "9916").replace("  15", "9915"), seconds_at(61.6))
    (event,) = find(home, host)
    assert (event.kind, event.time_us) == ("host.panic", rings.us(LAST))


def test_an_older_crash_has_the_time_of_its_file(home, host) -> None:
    previous_boot.note_stop(home, rings.HOST, rings.BOOT)
    host.put("var/crash/old/dmesg.1", PANIC.partition("\n")[2], seconds_at(-90_000))
    host.put("var/crash/ancient/vmcore", "", seconds_at(-500 * 86400))
    host.put(
        "var/lib/systemd/pstore/dmesg-ramoops-1", "Oops#1\n[    1.000000] x\n", seconds_at(-5000)
    )
    (event,) = find(home, host)
    assert (event.kind, event.time_us, event.boot) == ("host.panic", rings.us(-90_000), "")
    assert event.fields["time_of_file"] is True
    assert find(home, host) == []


def test_two_panics_in_a_row_are_two_events(home, host) -> None:
    host.put(PSTORE, PANIC, seconds_at(61.6))
    assert "host.panic" in kinds(find(home, host))
    with_readings(home, NEXT, range(195, 230))  # it lives for half a minute
    host.put(PSTORE, PANIC.replace("hung tasks", "again"), seconds_at(231))
    third = "77777777-0000-4000-8000-000000000000"
    host.reboot(third, 10)
    (second,) = [e for e in find(home, host, boot=third, now=270) if e.kind == "host.panic"]
    assert second.boot == boot_name(NEXT)
    assert "again" in second.text


def test_without_a_ring_nothing_is_known_of_an_earlier_boot(tmp_path, host) -> None:
    assert find(tmp_path / "new", host) == []


def test_the_last_seconds_are_pinned(home, host) -> None:
    (event,) = find(home, host)
    pins = event_pins.EventPins(lambda: (layout.ring_pins(home, rings.HOST),))
    pins.event(event)
    (pin,) = reader.Reader(home).pins(rings.HOST)
    assert pin.begin_us <= rings.us(0) < rings.us(LAST) < pin.end_us
