"""Logs of other tools: texts of real hosts in each format, with damaged lines among them."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import types

import pytest

from overnight import errors
from overnight.ingest import formats, logs, perfdata
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
    "dmesg with a core": (dmesg, f"[    4.882329] [    C1] {ENA}", logs.Line(None, 4_882_329, ENA)),
    "dmesg -T": (dmesg, f"[Mon Nov 16 17:52:34 2026] {ENA}", logs.Line(NIGHT, None, ENA)),
    "dmesg -T -x": (
        dmesg, f"user  :warn  : [Mon Nov 16 17:52:34 2026] {ENA}", logs.Line(NIGHT, None, ENA, True),
    ),
    "dmesg -x of a program": (
        dmesg, f"local0:info  : [    1.000002] {ENA}", logs.Line(None, 1_000_002, ENA, True),
    ),
    "dmesg -x": (dmesg, f"kern  :warn  : [    1.000002] {ENA}", logs.Line(None, 1_000_002, ENA)),
    "dmesg -r": (dmesg, f"<12>[    1.000002] {ENA}", logs.Line(None, 1_000_002, ENA, True)),
    "dmesg -r of the kernel": (dmesg, f"<7>[    1.000002] {ENA}", logs.Line(None, 1_000_002, ENA)),
    "dmesg -r of a program": (dmesg, f"<8>[    1.000002] {ENA}", logs.Line(None, 1_000_002, ENA, True)),
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
    "short-iso in UTC": (
        journal, f"2026-11-16T17:52:34,5Z db-7 kernel: {ENA}", logs.Line(NIGHT + 500_000, None, ENA),
    ),
    "short-unix": (journal, f"1794851554.000004 db-7 kernel: {ENA}", logs.Line(NIGHT + 4, None, ENA)),
    "kern.log": (
        journal, f"Nov 16 17:52:34 db-7 kernel: [    1.000002] {ENA}", logs.Line(NIGHT, 1_000_002, ENA),
    ),
    "kern.log with priorities": (
        journal, f"<6>Nov 16 17:52:34 db-7 kernel: {ENA}", logs.Line(NIGHT, None, ENA),
    ),
    "json": (journal, json.dumps(ENTRY), logs.Line(NIGHT + 2, 2_000_000, ENA)),
    "json without a facility": (
        journal, json.dumps({name: value for name, value in ENTRY.items() if name != "SYSLOG_FACILITY"}),
        logs.Line(NIGHT + 2, 2_000_000, ENA),
    ),
    "json of a process": (
        journal, json.dumps({**ENTRY, "SYSLOG_FACILITY": "1", "MESSAGE": list(ENA.encode())}),
        logs.Line(NIGHT + 2, 2_000_000, ENA, True),
    ),
}  # fmt: skip
# Each is skipped; the second number is how many count as damaged.
OTHERS = {
    dmesg: (("garbage", " indented: goes on", "\tindented: goes on", "[Mon Foo 99 17:52:34 2026] x", "\x00" * 99), 3),
    journal: (
        ("-- Boot 1a2b --", "Nov 16 17:52:34 other systemd[1]: Started", "  goes on", "\tgoes on",
         "Nov 16 17:52:34 db-7 kernel-of-a-process: x", "Foo 16 17:52:34 db-7 kernel: x",
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
    "12 h of another locale": ("11:59:58 p.m.", "11:59:59 p.m.", "12:00:00 a.m."),
}
DATES = {
    "2026/11/16": 0,
    "2026.11.16": 0,
    "16/11/26": 0,
    "16.11.26": 0,
    "16-11-26": 0,
    "16-11-2026": 0,
    "11/16/26": 0,
    "11/16/2026": 0,
    "16/11/2026": 0,
    "2026-11-16": 0,
    "16.11.2026": 0,
    "16.11.2026.": 0,
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


CORES = "        CPU     %user     %nice   %system   %iowait    %steal     %idle"
IDLE = "          {0}      0.00      0.00      0.00      0.00      0.00    100.00"


def make_file(
    folder: pathlib.Path,
    content: str | bytes,
    zone: str | None = "UTC",
    modified_us: int = NIGHT + MINUTE_US,
) -> logs.LogFile:
    path = folder / "log"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.utime(path, (modified_us / SECOND_US,) * 2)
    return logs.LogFile(path, zone)


def make_sar(date: str, *lines: str) -> str:
    """Return a report of sar; `CPU` stands for the heading, a number for the row of an idle core."""
    texts = [f"Linux 6.1.0-18-amd64 (db-7) \t{date} \t_x86_64_\t(2 CPU)"]
    for line in lines:
        clock, _, rest = line.partition(" ")
        rest = IDLE.format(rest) if rest.isdecimal() else rest.replace("CPU", CORES, 1)
        texts.append(f"{clock} {rest}")
    return "\n".join(texts)


def read_sar(folder: pathlib.Path, *lines: str) -> tuple[list[tuple[int, int]], logs.LogFile]:
    """Return begin and end of each reading, in seconds of the day, and the file."""
    file = make_file(folder, make_sar("2026-11-16", *lines))
    spans = [(each.begin_us - MIDNIGHT, each.end_us - MIDNIGHT) for each in sysstat.read(file)]
    return [(begin // SECOND_US, end // SECOND_US) for begin, end in spans], file


def test_each_kernel_log_is_recognised_and_read(tmp_path: pathlib.Path) -> None:
    modules = (dmesg, journal, sadf, sysstat)
    for name, (module, text, line) in LINES.items():
        assert [each for each in modules if each.sniff(text.encode())] == [module], name
        if module is dmesg:
            assert dmesg.needs_boot(text.encode()) is (line.wall_us is None), name
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


def test_each_report_of_a_file_has_a_date_and_tables_of_its_own(tmp_path: pathlib.Path) -> None:
    """As `cat` joins those of several days, and of several hosts."""
    first = make_sar("2026-11-15", "23:58:00 CPU", "23:59:00 0")
    second = make_sar("2026-11-16", "00:01:00 0", "00:02:00 CPU", "00:03:00 0")
    file = make_file(tmp_path, f"{first}\n{second.replace('db-7', 'db-8')}\n")
    spans = [(each.begin_us - MIDNIGHT, each.end_us - MIDNIGHT) for each in sysstat.read(file)]
    assert spans == [(-2 * MINUTE_US, -MINUTE_US), (2 * MINUTE_US, 3 * MINUTE_US)]
    assert (file.host, file.damaged) == ("db-7", 0)
    # Without its own date it has no times.
    file = make_file(tmp_path, f"{first}\n{make_sar('yesterday', '00:02:00 CPU', '00:03:00 0')}")
    assert len(list(sysstat.read(file))) == 1
    assert file.damaged == 3


def test_other_tables_of_mpstat_are_no_damage(tmp_path: pathlib.Path) -> None:
    lines = ("12:00:00 CPU", "12:01:00 0", "12:01:00 CPU:intr/s", "12:02:00 0 17.5")
    text = make_sar("2026-11-16", *lines).replace(f"{CORES}:intr/s", "CPU    intr/s")
    (reading,) = sysstat.read(file := make_file(tmp_path, text))
    assert (reading.end_us - reading.begin_us, file.damaged) == (MINUTE_US, 0)


def test_readings_between_full_minutes(tmp_path: pathlib.Path) -> None:
    found, _ = read_sar(tmp_path, "00:01:30 CPU", "00:02:45 0")
    assert found == [(90, 165)]


def test_a_restart_begins_anew(tmp_path: pathlib.Path) -> None:
    restart = "00:02:30 LINUX RESTART (2 CPU)"
    before = ("00:00:00 CPU", "00:01:00 0", "00:02:00 0")
    # What sar prints: a heading after the restart. Then a table that goes on without one.
    found, file = read_sar(tmp_path, *before, restart, "00:03:00 CPU", "00:04:00 0")
    assert (found, file.damaged) == ([(0, 60), (60, 120), (180, 240)], 0)
    found, file = read_sar(tmp_path, *before, restart, "00:04:00 0", "00:05:00 0")
    assert (found, file.damaged) == ([(0, 60), (60, 120), (240, 300)], 0)


def test_a_time_of_day_that_goes_back_is_damage_or_the_next_day(tmp_path: pathlib.Path) -> None:
    hour = HOUR_US // SECOND_US
    found, file = read_sar(tmp_path, "12:00:00 CPU", "12:01:00 0", "12:00:30 0", "12:02:00 0")
    assert found == [(12 * hour, 12 * hour + 60), (12 * hour + 30, 12 * hour + 120)]
    assert file.damaged == 1
    found, file = read_sar(tmp_path, "12:00:00 CPU", "06:00:00 0")  # six hours back: not yet
    assert (found, file.damaged) == ([], 1)
    found, file = read_sar(tmp_path, "12:00:00 CPU", "05:59:59 0")
    assert (found, file.damaged) == ([(12 * hour, 30 * hour - 1)], 0)


def test_a_row_needs_a_heading_of_cores_and_a_date(tmp_path: pathlib.Path) -> None:
    found, _ = read_sar(tmp_path, "00:01:00 0", "00:02:00 CPU", "00:03:00 0")
    assert found == [(120, 180)]
    found, file = read_sar(tmp_path, "00:02:00 CPU", "00:02:00 0", "00:03:00 0")
    assert (found, file.damaged) == ([(120, 180)], 1), "an interval without a length"
    # A core that was off has no numbers; the table goes on.
    off = f"00:02:00 1 {'-nan ' * 6}"
    found, file = read_sar(tmp_path, "00:01:00 CPU", off, "00:02:00 0")
    assert (found, file.damaged) == ([(60, 120)], 1)
    # A row of another table, whose first number is no core.
    found, file = read_sar(tmp_path, "00:00:00 CPU", "00:01:00 tps rtps", "00:02:00 0")
    assert (found, file.damaged) == ([], 0)
    file = make_file(tmp_path, make_sar("yesterday", "00:00:00 CPU", "00:01:00 0"))
    assert list(sysstat.read(file)) == []
    assert file.damaged == 3
    rows = (f"00:01:00 {core}" for core in (sysstat.MAX_CORES, sysstat.MAX_CORES - 1))
    found, file = read_sar(tmp_path, "00:00:00 CPU", *rows)
    assert (found, file.damaged) == ([(0, 60)], 1)


def test_percentages_that_are_not_shares_of_time_are_damage() -> None:
    for user, idle in ((0.0, 90.0), (9.0, 101.0)):
        assert sysstat.to_modes({"usr": user, "idle": idle})["idle"] == idle
    for user, idle in ((0.0, 89.9), (10.1, 100.0), (0.0, 101.1), (-1.0, 100.0)):
        with pytest.raises(ValueError, match="idle"):
            sysstat.to_modes({"usr": user, "idle": idle})
    # sar's short table counts guests already; mpstat's does not.
    assert sysstat.to_modes({"user": 15.0, "guest": 5.0, "idle": 85.0})["user"] == 15.0
    assert sysstat.to_modes({"user": 1.5, "system": 8.0, "idle": 90.5})["system"] == 8.0
    assert sysstat.to_modes({"usr": 10.0, "gnice": 5.0, "idle": 85.0})["nice"] == 5.0
    assert sysstat.to_modes({"nice": 10.0, "usr": 0.0, "gnice": 5.0, "idle": 85.0})["nice"] == 15.0


def test_a_journal_from_a_zone_ahead_of_utc(tmp_path: pathlib.Path) -> None:
    new_year = MIDNIGHT + 46 * DAY_US  # 2027-01-01 00:00 UTC
    at = f"{{}} db-7 kernel: {ENA}"
    for day, zone, modified_us, expected in (
        # Already the new year at the host, not yet where the file was written.
        ("Jan  1 09:00:00", "+14:00", new_year - 4 * HOUR_US, new_year - 5 * HOUR_US),
        ("Jan  1 09:00:00", "UTC", new_year - 4 * HOUR_US, new_year + 9 * HOUR_US),
        # More than a day ahead: no zone is. It is the year before.
        ("Jan  2 09:00:00", "UTC", new_year - 4 * HOUR_US, new_year - 364 * DAY_US + 9 * HOUR_US),
        ("Feb 29 00:00:00", "UTC", new_year, new_year - 1037 * DAY_US),  # 2024
        # Also where this year has that day, but not yet.
        ("Feb 29 00:00:00", "UTC", new_year + 400 * DAY_US, new_year - 1037 * DAY_US),
        # As late as a zone can be ahead.
        ("Jan  1 20:00:00", "UTC", new_year - 4 * HOUR_US, new_year + 20 * HOUR_US),
    ):
        (line,) = journal.read(make_file(tmp_path, at.format(day), zone, modified_us))
        assert line.wall_us == expected, (day, zone)


def test_a_journal_in_json_shows_when_the_kernel_wrote_a_line(tmp_path: pathlib.Path) -> None:
    for change, wall_us, monotonic_us in (
        ({"_SOURCE_MONOTONIC_TIMESTAMP": None}, NIGHT + 7, None),
        # Received before it was written: no clock does that.
        ({"__MONOTONIC_TIMESTAMP": "1000000"}, NIGHT + 7, 2_000_000),
        ({"__MONOTONIC_TIMESTAMP": "9000000"}, NIGHT + 7 - 7_000_000, 2_000_000),
    ):
        (line,) = journal.read(make_file(tmp_path, json.dumps({**ENTRY, **change})))
        assert (line.wall_us, line.monotonic_us) == (wall_us, monotonic_us), change
    for change, text in (
        ({"MESSAGE": None}, ""),
        ({"MESSAGE": [255, 65]}, "\\xffA"),
    ):
        (line,) = journal.read(make_file(tmp_path, json.dumps({**ENTRY, **change})))
        assert line.text == text
    received = {name: value for name, value in ENTRY.items() if name[:3] != "__M"}
    (line,) = journal.read(make_file(tmp_path, json.dumps(received)))
    assert (line.wall_us, line.monotonic_us) == (NIGHT + 7, 2_000_000)
    for change in ({"_TRANSPORT": "syslog"}, {"_TRANSPORT": "stdout"}):
        file = make_file(tmp_path, json.dumps({**ENTRY, **change}))
        assert list(journal.read(file)) == []
        assert not file.damaged
    long = json.dumps({**ENTRY, "MESSAGE": "x" * (journal.MAX_TEXT + 1), "_HOSTNAME": "h" * 256})
    (line,) = journal.read(file := make_file(tmp_path, long))
    assert (len(line.text), len(file.host or "")) == (journal.MAX_TEXT, 255)


def test_a_line_as_long_as_allowed_is_read(tmp_path: pathlib.Path) -> None:
    start = "[    1.000002] "
    for length, lines, damaged in ((logs.MAX_LINE, 2, 0), (logs.MAX_LINE + 1, 1, 1)):
        text = start + "x" * (length - len(start))
        file = make_file(tmp_path, f"{text}\n{start}end\r\n")
        found = [each.text for each in dmesg.read(file)]
        assert (len(found), found[-1], file.damaged) == (lines, "end", damaged)
    # What is not UTF-8 is shown, and loses no line.
    assert [each.text for each in dmesg.read(make_file(tmp_path, f"{start}".encode() + b"\xff"))] == ["\\xff"]  # fmt: skip


def test_a_line_that_is_too_long_is_damaged_wherever_a_piece_of_the_file_ends(
    tmp_path: pathlib.Path,
) -> None:
    for length in range(formats.READ_SIZE - 2, formats.READ_SIZE + 2):
        content = f"[    1.000002] {'x' * (length - 15)}\n[    1.000003] end\n"
        (line,) = dmesg.read(file := make_file(tmp_path, content))
        assert (line.text, file.damaged) == ("end", 1), length


def test_a_file_that_begins_with_other_lines_or_ends_early_is_read(tmp_path: pathlib.Path) -> None:
    """It was cut off at both ends: by `tail`, and by a writer that was killed."""
    text = "".join(f"[    1.{n:06}] {ENA}\n" for n in range(5_000))
    for others, known in ((4, True), (5, False)):
        assert dmesg.sniff(("rest of a line\n" * others + text).encode()) is known
    file = make_file(tmp_path, gzip.compress(text.encode())[:-200])
    assert 0 < len(list(dmesg.read(file))) <= 5_000
    assert formats.TRUNCATED in file.notes


def test_who_wrote_the_lines_is_noted_only_if_the_log_does_not_show_it(
    tmp_path: pathlib.Path,
) -> None:
    for name, noted in (("dmesg", True), ("dmesg -T -x", False), ("dmesg -r", False)):
        list(dmesg.read(file := make_file(tmp_path, LINES[name][1])))
        assert (dmesg.UNKNOWN_WRITER in file.notes) is noted, name


def test_the_first_host_that_a_file_names_counts(tmp_path: pathlib.Path) -> None:
    """A file that several hosts wrote is of none; the import reports it under one name, always the same."""
    for text in (LINES["short"][1], LINES["json"][1]):
        both = f"{text}\n{text.replace('db-7', 'db-8')}\n"
        list(journal.read(file := make_file(tmp_path, both)))
        assert file.host == "db-7"
    list(journal.read(file := make_file(tmp_path, json.dumps({**ENTRY, "_HOSTNAME": ["db-9"]}))))
    assert (file.host, file.damaged, file.entries) == (None, 0, 0)


def test_notes_are_kept_in_order_and_each_once(tmp_path: pathlib.Path) -> None:
    file = make_file(tmp_path, "")
    for text in ("first", "second", "first"):
        file.note(text)
    assert list(file.notes) == ["first", "second"]


def test_only_times_between_2000_and_2100_count(tmp_path: pathlib.Path) -> None:
    file = make_file(tmp_path, "")
    for begin_us, end_us, accepted in (
        (logs.EARLIEST_US, logs.EARLIEST_US, True),
        (logs.EARLIEST_US - 1, logs.EARLIEST_US, False),
        (logs.LATEST_US - 1, logs.LATEST_US - 1, True),
        (logs.LATEST_US - 1, logs.LATEST_US, False),
        (NIGHT + 1, NIGHT, False),
    ):
        assert file.accept(begin_us, end_us) is accepted, (begin_us, end_us)
    assert (file.entries, file.damaged) == (2, 3)
    assert (file.begin_us, file.end_us) == (logs.EARLIEST_US, logs.LATEST_US - 1)
    for times in (((20, 30), (10, 15)), ((10, 15), (20, 30)), ((10, 30), (15, 20))):  # in any order
        file = make_file(tmp_path, "")
        assert all(file.accept(NIGHT + begin, NIGHT + end) for begin, end in times)
        assert (file.begin_us, file.end_us) == (NIGHT + 10, NIGHT + 30), times


def test_hosts_of_one_json_file_are_named_only_if_there_is_one(tmp_path: pathlib.Path) -> None:
    one = SADF["sysstat"]["hosts"][0]
    for names, host in ((("db-7",), "db-7"), (("db-7", "db-7"), "db-7"), (("db-7", "db-8"), None)):
        document = {"sysstat": {"hosts": [{**one, "nodename": name} for name in names]}}
        file = make_file(tmp_path, json.dumps(document), None)
        assert len(list(sadf.read(file))) == len(names)
        assert file.host == host


def test_sadf_and_mpstat_in_json(tmp_path: pathlib.Path) -> None:
    assert sadf.sniff(json.dumps(SADF).encode())
    assert sadf.sniff(json.dumps(SADF, indent=8).join("\n\n").encode())
    (reading,) = sadf.read(file := make_file(tmp_path, json.dumps(SADF), None))
    cores = {3: {"user": 1.5, "system": 8.0, "idle": 90.5}}
    assert reading == logs.Reading(NIGHT - MINUTE_US, NIGHT, cores)
    assert [note for note in file.notes if "Europe/Berlin" in note]
    assert file.damaged == 2
    (named,) = sadf.read(file := make_file(tmp_path, json.dumps(SADF), "UTC"))
    assert (named.end_us, file.notes) == (NIGHT + HOUR_US, {}), "--timezone comes first"
    (reading,) = sadf.read(file := make_file(tmp_path, json.dumps(MPSTAT_JSON)))
    assert reading.end_us == MIDNIGHT + DAY_US
    assert reading.cores[0]["user"] == 15.0
    assert sadf.NO_MINUTES in file.notes
    with pytest.raises(errors.DamagedFileError, match="not complete JSON"):
        list(sadf.read(make_file(tmp_path, json.dumps(SADF)[:-3])))


def test_each_reading_of_mpstat_in_json_begins_where_that_of_its_host_before_ended(
    tmp_path: pathlib.Path,
) -> None:
    (one,) = MPSTAT_JSON["sysstat"]["hosts"]
    more = [{**one["statistics"][0], "timestamp": f"12:00:0{n}"} for n in range(3)]
    later = [{**one["statistics"][0], "timestamp": f"12:01:0{n}"} for n in range(2)]
    hosts = [{**one, "statistics": more}, {**one, "statistics": later}]
    found = list(sadf.read(make_file(tmp_path, json.dumps({"sysstat": {"hosts": hosts}}))))
    noon = MIDNIGHT + 12 * HOUR_US
    spans = [tuple((at - noon) // SECOND_US for at in (each.begin_us, each.end_us)) for each in found]  # fmt: skip
    assert spans == [(0, 1), (1, 2), (60, 61)]


def test_what_is_not_a_host_or_a_core_in_json_is_left_out(tmp_path: pathlib.Path) -> None:
    (one,) = SADF["sysstat"]["hosts"]
    stamp = {"date": "2026-11-16", "time": "17:52:34", "utc": 1, "interval": 60}
    idle = {"user": 0, "idle": 100}
    rows = [{"cpu": cpu, **idle} for cpu in ("all", -1, "node 0")]
    entries = [
        {"timestamp": stamp, "cpu-load": rows},
        {"timestamp": stamp, "cpu-load": [None]},
        {"timestamp": None, "cpu-load": []},
        "x",
    ]
    document = {"sysstat": {"hosts": [{**one, "nodename": "n" * 300, "statistics": entries}]}}
    assert list(sadf.read(file := make_file(tmp_path, json.dumps(document)))) == []
    assert (file.damaged, file.host) == (3, "n" * 255)
    for host in ("x", None, {}, {**one, "statistics": None}, {**one, "statistics": 5}):
        document = {"sysstat": {"hosts": [host]}}
        with pytest.raises(errors.DamagedFileError, match="not complete JSON"):
            list(sadf.read(make_file(tmp_path, json.dumps(document))))


def test_readings_of_sadf_have_a_length_and_possible_cores(tmp_path: pathlib.Path) -> None:
    idle = {"user": 0, "idle": 100}
    last = sysstat.MAX_CORES - 1
    for interval, core, cores in ((60, last, {last}), (60, last + 1, None), (0, 0, None)):
        stamp = {"date": "2026-11-16", "time": "17:52:34", "utc": 1, "interval": interval}
        entry = {"timestamp": stamp, "cpu-load": [{"cpu": str(core), **idle}]}
        document = {"sysstat": {"hosts": [{"nodename": "db-7", "statistics": [entry]}]}}
        found = list(sadf.read(make_file(tmp_path, json.dumps(document))))
        assert [set(each.cores) for each in found] == ([] if cores is None else [cores]), core


def test_the_date_is_the_closest_to_the_files_own(tmp_path: pathlib.Path) -> None:
    """Dates with two readings: in November the first, a month later the second."""
    for modified_us, day_us in (
        (NIGHT, MIDNIGHT - 4 * DAY_US),  # 12 November
        (MIDNIGHT + 26 * DAY_US, MIDNIGHT + 25 * DAY_US),  # 11 December
    ):
        text = make_sar("11/12/26", "00:00:00 CPU", "00:01:00 0")
        (reading,) = sysstat.read(make_file(tmp_path, text, modified_us=modified_us))
        assert reading.begin_us == day_us


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
