"""Logs of other tools: texts of real hosts in each format, with damaged lines among them."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import types

import pytest

from overnight import errors
from overnight.ingest import logs, perfdata
from overnight.ingest.logs import dmesg, journal, sadf, sysstat
from overnight.model.times import DAY_US, HOUR_US, MINUTE_US, SECOND_US

NIGHT = 1_794_851_554 * SECOND_US  # 2026-11-16 17:52:34 UTC
MIDNIGHT = NIGHT - 17 * HOUR_US - 52 * MINUTE_US - 34 * SECOND_US
ENA = "ena 0000:00:05.0 eth0: TX q 5 is paused for too long"
ENTRY = {
    "__REALTIME_TIMESTAMP": str(NIGHT + 7), "__MONOTONIC_TIMESTAMP": "2000005", "_TRANSPORT": "kernel",
    "_SOURCE_MONOTONIC_TIMESTAMP": "2000000", "_HOSTNAME": "db-7", "MESSAGE": ENA, "SYSLOG_FACILITY": "0",
}  # fmt: skip
LINES: dict[str, tuple[types.ModuleType, str, logs.Line]] = {
    "dmesg": (dmesg, f"[60794.882329] {ENA}", logs.Line(None, 60_794_882_329, ENA)),
    "dmesg with callers": (dmesg, f"[    4.882329] [   T12] {ENA}", logs.Line(None, 4_882_329, ENA)),
    "dmesg -T": (dmesg, f"[Mon Nov 16 17:52:34 2026] {ENA}", logs.Line(NIGHT, None, ENA)),
    "dmesg -T -x": (
        dmesg, f"user  :warn  : [Mon Nov 16 17:52:34 2026] {ENA}", logs.Line(NIGHT, None, ENA, True),
    ),
    "dmesg -x": (dmesg, f"kern  :warn  : [    1.000002] {ENA}", logs.Line(None, 1_000_002, ENA)),
    "dmesg -r": (dmesg, f"<12>[    1.000002] {ENA}", logs.Line(None, 1_000_002, ENA, True)),
    "dmesg iso": (
        dmesg, f"2026-11-16T18:52:34,000005+01:00 {ENA}", logs.Line(NIGHT + 5, None, ENA),
    ),
    "short": (journal, f"Nov 16 17:52:34 db-7 kernel: {ENA}", logs.Line(NIGHT, None, ENA)),
    "short-precise": (
        journal, f"Nov 16 17:52:34.000009 db-7 kernel: {ENA}", logs.Line(NIGHT + 9, None, ENA),
    ),
    "short-iso": (
        journal, f"2026-11-16T18:52:34+0100 db-7 kernel: {ENA}", logs.Line(NIGHT, None, ENA),
    ),
    "short-iso-precise": (
        journal, f"2026-11-16T18:52:34.000003+01:00 db-7 kernel: {ENA}", logs.Line(NIGHT + 3, None, ENA),
    ),
    "short-unix": (journal, f"1794851554.000004 db-7 kernel: {ENA}", logs.Line(NIGHT + 4, None, ENA)),
    "kern.log": (
        journal, f"Nov 16 17:52:34 db-7 kernel: [    1.000002] {ENA}", logs.Line(NIGHT, 1_000_002, ENA),
    ),
    "json": (journal, json.dumps(ENTRY), logs.Line(NIGHT + 2, 2_000_000, ENA)),
    "json of a process": (
        journal, json.dumps({**ENTRY, "SYSLOG_FACILITY": "1", "MESSAGE": list(ENA.encode())}),
        logs.Line(NIGHT + 2, 2_000_000, ENA, True),
    ),
}  # fmt: skip
# Each is skipped; the second number is how many count as damaged.
OTHERS = {
    dmesg: (("garbage", " indented: goes on", "[Mon Foo 99 17:52:34 2026] x", "\x00" * 99), 3),
    journal: (
        ("-- Boot 1a2b --", "Nov 16 17:52:34 db-7 systemd[1]: Started", "Foo 16 17:52:34 db-7 kernel: x",
         "{", '{"_TRANSPORT":"syslog"}', '{"MESSAGE":"no time"}', "[" * 15_000, "x" * 99_999),
        5,
    ),
}  # fmt: skip
MPSTAT = """\
Linux 6.1.0-18-amd64 (db-7) \t{date} \t_x86_64_\t(2 CPU)

{0}     CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle
{1}     all    5.00    0.00    9.00    0.00    0.00    0.00    0.00    0.00    0.00   86.00
{1}       0   10.00    0.00    9.00    1.00    0.00    0.50    0.00    5.00    0.00   74.50
{1}       1    0.00    0.00    9.00    0.00    0.00    0.00    0.00    0.00    0.00   91.00

{1}     CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle
{2}       0    0.00    0.00  100.00    0.00    0.00    0.00    0.00    0.00    0.00    0.00
{2}       1    0.00    0.00    what    0.00    0.00    0.00    0.00    0.00    0.00  100.00
{2}      -3    0.00    0.00    0.00    0.00    0.00    0.00    0.00    0.00    0.00  100.00
{2}       1    0.00    0.00   90.00   90.00    0.00    0.00    0.00    0.00    0.00  100.00

Average:     CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle
Average:       0   10.00    0.00    9.00    1.00    0.00    0.00    0.00    5.00    0.00   75.00
"""
CLOCKS = {
    "24 h": ("23:59:58", "23:59:59", "00:00:00"),
    "12 h": ("11:59:58 PM", "11:59:59 PM", "12:00:00 AM"),
}
DATES = {
    "11/16/26": 0,
    "11/16/2026": 0,
    "16/11/2026": 0,
    "2026-11-16": 0,
    "16.11.2026": 0,
    "11/12/26": 1,
}
SAR = """\
Linux 6.1.0-18-amd64 (db-7) \t2026-11-16 \t_x86_64_\t(2 CPU)

17:50:00        CPU     %user     %nice   %system   %iowait    %steal     %idle
18:00:00        all      5,00      0,00      9,00      0,00      0,00     86,00
18:00:00          0     10,00      0,00      9,00      1,00      0,00     80,00

18:00:00      tps      rtps
18:10:00     1,00      2,00

18:10:00  LINUX RESTART (2 CPU)
"""
SADF = {
    "sysstat": {"hosts": [{"nodename": "db-7", "timezone": "Europe/Berlin", "statistics": [
        {"timestamp": {"date": "2026-11-16", "time": "18:52:34", "utc": 0, "interval": 60},
         "cpu-load": [{"cpu": "all", "user": 1, "idle": 99}, {"cpu": "3", "user": 1.5, "system": 8, "idle": 90.5}]},
        {"timestamp": {"date": "tomorrow"}, "cpu-load": []},
        {"timestamp": {"date": "2026-11-16", "time": "17:53:34", "utc": 1, "interval": 60}, "cpu-load": [{"cpu": "3", "user": 900}]},
    ]}]}
}  # fmt: skip
MPSTAT_JSON = {
    "sysstat": {"hosts": [{"nodename": "db-7", "date": "11/16/26", "statistics": [
        {"timestamp": stamp, "cpu-load": [{"cpu": "0", "usr": 10, "guest": 5, "idle": 85}]}
        for stamp in ("23:59:59", "00:00:00")
    ]}]}
}  # fmt: skip


def make_file(folder: pathlib.Path, content: str | bytes, zone: str | None = "UTC") -> logs.LogFile:
    path = folder / "log"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.utime(path, (NIGHT // 10**6 + 60,) * 2)
    return logs.LogFile(path, zone)


def test_each_kernel_log_is_recognised_and_read(tmp_path: pathlib.Path) -> None:
    modules = (dmesg, journal, sadf, sysstat)
    for name, (module, text, line) in LINES.items():
        assert [each for each in modules if each.sniff(text.encode())] == [module], name
        others, damaged = OTHERS[module]
        content = "\n".join((text, *others, text))
        for data in (content.encode(), gzip.compress(content.encode())):
            file = make_file(tmp_path, data)
            assert list(module.read(file)) == [line, line], name
            assert (file.damaged, file.host) == (damaged, None if module is dmesg else "db-7"), name


def test_a_time_without_a_zone_needs_one(tmp_path: pathlib.Path) -> None:
    for name in ("dmesg -T", "short"):
        module, text, line = LINES[name]
        (berlin,) = module.read(make_file(tmp_path, text, "Europe/Berlin"))
        assert berlin.wall_us == (line.wall_us or 0) - HOUR_US
        (offset,) = module.read(make_file(tmp_path, text, "-02:00"))
        assert offset.wall_us == (line.wall_us or 0) + 2 * HOUR_US
        for zone, match in ((None, "have no time zone"), ("Mars/Base", "no time zone 'Mars/Base'")):
            with pytest.raises(errors.UsageError, match=match):
                list(module.read(make_file(tmp_path, text, zone)))
    with pytest.raises(errors.UsageError, match="have no time zone"):
        list(sysstat.read(make_file(tmp_path, SAR, None)))


def test_a_day_without_a_year_is_the_last_one(tmp_path: pathlib.Path) -> None:
    (line,) = journal.read(file := make_file(tmp_path, "Dec 31 17:52:34 db-7 kernel: x"))
    assert line.wall_us == NIGHT + 45 * DAY_US - 365 * DAY_US
    assert journal.NO_YEAR in file.notes


def test_mpstat_in_other_locales_and_over_midnight(tmp_path: pathlib.Path) -> None:
    for clock in CLOCKS.values():
        for date, notes in DATES.items():
            text = MPSTAT.format(*clock, date=date)
            assert [each for each in (dmesg, journal, sadf, sysstat) if each.sniff(text.encode())] == [sysstat]  # fmt: skip
            file = make_file(tmp_path, text)
            first, second = sysstat.read(file)
            day = MIDNIGHT - (4 * DAY_US if notes else 0)
            if notes:  # 11/12 may be in December: November is closer to the file's time
                assert file.notes.keys() == {"11/12/26 is read as 2026-11-12, the closest to the file's modification time"}  # fmt: skip
            assert (first.begin_us, first.end_us) == (day + DAY_US - 2 * SECOND_US, day + DAY_US - SECOND_US)  # fmt: skip
            assert (second.begin_us, second.end_us) == (day + DAY_US - SECOND_US, day + DAY_US)
            assert first.cores.keys() == {0, 1}
            assert first.cores[0]["user"] == 15.0, "the kernel counts the guests as user"
            assert first.cores[0]["softirq"] == 0.5
            assert second.cores.keys() == {0}
            assert (file.damaged, file.host) == (3, "db-7")


def test_sar_with_other_tables(tmp_path: pathlib.Path) -> None:
    (reading,) = sysstat.read(file := make_file(tmp_path, SAR))
    assert reading.end_us == MIDNIGHT + 18 * HOUR_US
    assert reading.end_us - reading.begin_us == 10 * MINUTE_US
    assert reading.cores == {0: {"user": 10.0, "nice": 0.0, "system": 9.0, "iowait": 1.0, "steal": 0.0, "idle": 80.0}}  # fmt: skip
    assert not file.damaged


def test_sadf_and_mpstat_in_json(tmp_path: pathlib.Path) -> None:
    assert sadf.sniff(json.dumps(SADF).encode())
    (reading,) = sadf.read(file := make_file(tmp_path, json.dumps(SADF), None))
    cores = {3: {"user": 1.5, "system": 8.0, "idle": 90.5}}
    assert reading == logs.Reading(NIGHT - MINUTE_US, NIGHT, cores)
    assert [note for note in file.notes if "Europe/Berlin" in note]
    assert file.damaged == 2
    (reading,) = sadf.read(make_file(tmp_path, json.dumps(MPSTAT_JSON)))
    assert reading.end_us == MIDNIGHT + DAY_US
    assert reading.cores[0]["user"] == 15.0
    with pytest.raises(errors.DamagedFileError, match="not complete JSON"):
        list(sadf.read(make_file(tmp_path, json.dumps(SADF)[:-3])))


def test_the_time_in_a_name() -> None:
    at = 1_772_334_000_000_000_000  # 2026-03-01 03:00:00 UTC
    names = {
        "perf-db-7-20260301T030000Z-120s.data": (None, at, False),
        "perf-db-7-20260301T040000+0100.data": (None, at, False),
        "perf.2026-03-01_03-00-00.data": ("UTC", at, False),
        "perf-2026-03-01T03:00.data": ("UTC", at, False),
        "20260301-0400.perf": ("Europe/Berlin", at, False),
        "perf-1772334000.data": (None, at, False),
        "perf.data.2026030103000042": ("UTC", at, True),
    }
    for name, (zone, ns, is_end) in names.items():
        assert perfdata.parse_name(name, zone) == perfdata.Wall(ns, is_end=is_end), name
    for name in ("perf.data", "perf-20260301.data", "2026-13-01T03:00:00Z", "perf-20260301T030000"):
        assert perfdata.parse_name(name, None) is None, name
