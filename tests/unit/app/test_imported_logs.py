"""Logs of other tools are stored as the recorder would have stored them."""

from __future__ import annotations

import json
import os
import pathlib
import signal

import pytest

from overnight import errors
from overnight.app import added_events, diagnose, imported_logs, imports
from overnight.interfaces import cli
from overnight.model import clock
from overnight.model.event import IMPORTED, Event
from overnight.model.finding import Status
from overnight.model.selection import Window
from overnight.model.times import HOUR_US, SECOND_US
from overnight.model.verdict import GapKind, Verdict
from overnight.queries import core_history
from overnight.store.ring import reader, writer

NIGHT = 1_794_851_554 * SECOND_US  # 2026-11-16 17:52:34 UTC
STALL = "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [worker:77]"
DMESG_T = f"[Mon Nov 16 17:52:30 2026] Linux version 6.1\n[Mon Nov 16 17:52:34 2026] {STALL}\n[Mon Nov 16 17:52:36 2026] {STALL}\n"
DMESG = (
    f"[   10.000000] Linux version 6.1\n[   14.250000] {STALL}\n[   16.250000] {STALL}\nbroken\n"
)
UTC = imports.Options(timezone="UTC")
SECONDS = 40


def make_mpstat(seconds: range = range(SECONDS), host: str = "db-7") -> str:
    heading = "CPU %usr %nice %sys %iowait %irq %soft %steal %guest %gnice %idle"
    text = f"Linux 6.1 ({host}) \t2026-11-16 \t_x86_64_\t(2 CPU)\n"
    for second in seconds:
        begin, end = (f"17:52:{n % 60:02}" if n < 60 else f"17:53:{n - 60:02}" for n in (second, second + 1))  # fmt: skip
        text += (
            f"\n{begin} {heading}\n{end} 0 10.00 0.00 5.00 0.00 0.00 0.00 0.00 0.00 0.00 85.00\n"
        )
        text += f"{end} 1 0.25 0.00 {second + 0.5:.2f} 0.00 0.00 0.00 0.00 0.00 0.00 {99.25 - second:.2f}\n"
    return text


def write(folder: pathlib.Path, **contents: str) -> list[pathlib.Path]:
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_text(content)
        os.utime(folder / name, (NIGHT // SECOND_US + 600,) * 2)
    return [folder / name for name in contents]


def read_events(home: pathlib.Path) -> list[tuple[int, str, str, int, int]]:
    return [(e.time_us - NIGHT, e.kind, e.host, e.core, e.count) for e in found_events(home)]


def found_events(home: pathlib.Path) -> list[Event]:
    events = reader.Reader(home).events(0, 1 << 62)
    return [event for event in events if event.kind != IMPORTED]


def test_a_kernel_log_becomes_the_events_of_the_recorder(tmp_path: pathlib.Path) -> None:
    paths = write(tmp_path / "in", wall=DMESG_T)
    options = imports.Options(host="db-7", timezone="UTC")
    (first,) = imports.import_files(tmp_path / "home", paths, options)
    assert (first.lines, first.events, first.known, first.begin_us) == (3, 1, False, NIGHT - 4 * SECOND_US)  # fmt: skip
    (event,) = found_events(tmp_path / "home")
    assert (event.kind, event.core, event.process, event.count) == (
        "cpu.soft_lockup",
        1,
        "worker",
        2,
    )
    assert event.until_us == NIGHT + 2 * SECOND_US
    assert event.text == STALL
    (again,) = imports.import_files(tmp_path / "home", paths, options)
    assert again.known
    assert found_events(tmp_path / "home") == [event]
    assert added_events.remove(tmp_path / "home", [event.id]).ids == (event.id,)


def test_files_complete_each_other(tmp_path: pathlib.Path) -> None:
    """The host is from mpstat, the boot time from dmesg -T; the order of the files does not matter."""
    write(tmp_path / "in", a_dmesg=DMESG, b_wall=DMESG_T, c_mpstat=make_mpstat(), d_notes="nothing")
    found = {file.path[-6:]: file for file in imports.import_files(tmp_path / "home", [tmp_path / "in"], UTC)}  # fmt: skip
    assert list(found) == ["mpstat", "b_wall", "_dmesg"]
    assert {file.host for file in found.values()} == {"db-7"}
    assert found["_dmesg"].damaged == 1
    assert any("boot time 2026-11-16T17:52:20" in note for note in found["_dmesg"].notes)
    assert read_events(tmp_path / "home") == [(0, "cpu.soft_lockup", "db-7", 1, 2)], (
        "each event once"
    )


def test_what_no_file_shows_is_asked_for(tmp_path: pathlib.Path) -> None:
    wall, alone, mpstat = write(tmp_path / "in", wall=DMESG_T, alone=DMESG, mpstat=make_mpstat())
    home = tmp_path / "home"
    for paths, options, match in (
        ([alone], imports.Options(), "does not name its host"),
        ([alone], imports.Options(host="db-7"), "seconds since boot"),
        ([wall], imports.Options(host="db-7"), "have no time zone"),
        ([mpstat], imports.Options(), "have no time zone"),
        ([mpstat], imports.Options(begin="17:00"), "needs one perf.data file"),
        ([mpstat], imports.Options(timezone="Mars/Base"), "no time zone"),
    ):
        with pytest.raises(errors.UsageError, match=match):
            list(imports.import_files(home, paths, options))
    given = imports.Options(host="db-7", boot="2026-11-16 18:52:20", timezone="Europe/Berlin")
    list(imports.import_files(home, [alone], given))
    assert read_events(home) == [(250_000, "cpu.soft_lockup", "db-7", 1, 2)]


def test_a_folder_without_a_known_file_is_an_error(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "in", notes="nothing")
    with pytest.raises(errors.CannotError, match="has a known format"):
        list(imports.import_files(tmp_path / "home", [tmp_path / "in"], UTC))


def read_history(home: pathlib.Path) -> core_history.History:
    window = Window(NIGHT - HOUR_US, NIGHT + HOUR_US)
    return core_history.read_history(reader.Reader(home), "db-7", window)


def test_cpu_readings_are_the_signal_of_the_recorder(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    # A gap of ten seconds is a gap, not a slow interval.
    text = make_mpstat(range(20)) + make_mpstat(range(30, 40)).partition("\n")[2]
    paths = write(tmp_path / "in", mpstat=text)
    (imported,) = imports.import_files(home, paths, UTC)
    assert (imported.readings, imported.damaged, imported.known) == (30, 0, False)
    history = read_history(home)
    assert [each.seconds for each in history.intervals] == [1.0] * 30
    sys = [each.cores[1].values["sys"] for each in history.intervals]
    assert sys == [n + 0.5 for n in (*range(20), *range(30, 40))]
    before = {path.name: path.read_bytes() for path in home.glob("signals/*/*")}
    (again,) = imports.import_files(home, paths, UTC)
    assert again.known
    assert {path.name: path.read_bytes() for path in home.glob("signals/*/*")} == before
    for command in (["cpu", "-b", "2026-11-16T17:52:00Z"], ["heatmap"]):
        assert cli.main(["--home", str(home), *command, "-O", "json"]) == 0
        assert json.loads(capsys.readouterr().out)
    for options in (["-O", "html"], ["--by", "offset"], ["--process", "nginx"]):
        assert cli.main(["--home", str(home), "heatmap", *options]) == 3
        assert "as text; -O svg and -O json do, too" in capsys.readouterr().err, options


def test_a_core_pinned_in_imported_readings_is_the_event_of_the_recorder(
    tmp_path: pathlib.Path,
) -> None:
    home, text = tmp_path / "home", make_mpstat()
    for second in range(20, 26):
        idle = f"1 0.25 0.00 {second + 0.5:.2f} 0.00 0.00 0.00 0.00 0.00 0.00 {99.25 - second:.2f}"
        assert idle in text
        text = text.replace(idle, "1 1.00 0.00 98.00 0.00 0.00 1.00 0.00 0.00 0.00 0.00")
    paths = write(tmp_path / "in", mpstat=text)
    (imported,) = imports.import_files(home, paths, UTC)
    assert imported.events == 1
    (event,) = found_events(home)
    assert (event.kind, event.core, event.severity) == ("cpu.core_pinned", 1, "critical")
    assert (event.time_us - NIGHT) // SECOND_US == -14  # 17:52:20
    assert event.fields["seconds"] == 6.0
    list(imports.import_files(home, paths, UTC))
    assert found_events(home) == [event]


def test_after_a_killed_import_the_next_one_cleans_up(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    paths = write(tmp_path / "in", mpstat=make_mpstat())
    child = os.fork()
    if not child:
        monkeypatch.setattr(writer.Writer, "close", lambda _: os.kill(os.getpid(), signal.SIGKILL))
        try:
            list(imports.import_files(home, paths, UTC))
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    assert (home / imported_logs.TEMPORARY).is_dir()
    assert reader.Reader(home).hosts() == ()
    (imported,) = imports.import_files(home, paths, UTC)
    assert not imported.known
    assert [path.name for path in (home / "signals").iterdir()] == ["db-7"]
    assert not (home / imported_logs.TEMPORARY).exists()
    assert len(read_history(home).intervals) == SECONDS


def test_readings_that_would_fill_the_disk_are_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imported_logs, "MAX_STRETCHES", 3)
    parts = [make_mpstat(range(n, n + 1)) for n in range(0, 40, 10)]
    paths = write(tmp_path / "in", mpstat="".join(parts))
    with pytest.raises(errors.DamagedFileError, match="more than 3 gaps"):
        list(imports.import_files(tmp_path / "home", paths, UTC))
    assert list((tmp_path / "home/signals").iterdir()) == []
    assert not (tmp_path / "home" / imported_logs.TEMPORARY).exists()


def diagnose_at(home: pathlib.Path, second: int) -> tuple[Verdict, dict[str, str]]:
    at = str((NIGHT + second * SECOND_US) // SECOND_US)
    request = diagnose.Request(home, host="db-7", reported=diagnose.Reported(at))
    verdict = diagnose.diagnose(request).verdict
    return verdict, {answer.detector: answer.why for answer in verdict.answers if answer.status is Status.NO_DATA}  # fmt: skip


def test_what_was_not_imported_is_missing_evidence(tmp_path: pathlib.Path) -> None:
    """A detector does not rule out what no file shows, and the verdict names it."""
    contents = {"mpstat": make_mpstat(), "wall": DMESG_T}
    log = "not in the imported files: the kernel log at the event"
    cases = {  # files, second of the incident, whether the kernel log shows it
        "all files": (("mpstat", "wall"), 1, True),
        "no kernel log": (("mpstat",), 1, False),
        "no CPU time": (("wall",), 1, True),
        "a kernel log that ended before": (("mpstat", "wall"), 4, False),
    }
    for name, (files, second, is_logged) in cases.items():
        home = tmp_path / name
        paths = write(tmp_path / "in", **{file: contents[file] for file in files})
        list(imports.import_files(home, paths, imports.Options(host="db-7", timezone="UTC")))
        verdict, silent = diagnose_at(home, second)
        gaps = {gap.kind: gap for gap in verdict.gaps}
        assert gaps[GapKind.NOT_IMPORTED].what.startswith("not in the imported files: memory cgroups, restarts"), name  # fmt: skip
        assert [silent.get(each) == log for each in ("stalls", "oom", "storage")] == [not is_logged] * 3, name  # fmt: skip
        assert (GapKind.KERNEL_LOG in gaps) == (not is_logged), name
        assert silent["storage"] == ("not in the imported files: I/O pressure" if is_logged else log), name  # fmt: skip
        assert {"zombies", "crash-loops", "limits"} <= silent.keys(), name
        why = gaps[GapKind.SIGNALS].why if GapKind.SIGNALS in gaps else ""
        assert ("the imported files contain none of it" in why) == ("mpstat" not in files), name
        checked = {suspect.name: suspect.text for suspect in verdict.suspects}
        assert checked["disk"] == "no data: not in the imported files: disks and pressure", name
        assert verdict.status == "inconclusive", name
        assert "not in the imported files" in verdict.narrative.missing, name


def test_a_file_beside_a_recording_is_not_all_there_is(tmp_path: pathlib.Path) -> None:
    home = tmp_path / "home"
    paths = write(tmp_path / "in", wall=DMESG_T)
    list(imports.import_files(home, paths, imports.Options(host="db-7", timezone="UTC")))
    ring = writer.Writer(home, "db-7", "1" * 32, budget_bytes=1 << 30, age_seconds=1e9)
    for second in range(-30, 5):
        now = clock.Clock(*[(NIGHT + second * SECOND_US) * 1000] * 2)
        ring.numbers("pressure", ("some",), now, {"io": [0]})
        ring.tick(now)
    ring.close()
    verdict, silent = diagnose_at(home, 4)
    assert not {GapKind.NOT_IMPORTED, GapKind.KERNEL_LOG} & {gap.kind for gap in verdict.gaps}
    assert "stalls" not in silent


def test_softirqs_that_sar_does_not_show_are_not_ruled_out(tmp_path: pathlib.Path) -> None:
    text = make_mpstat()
    for column in ("%irq", "%soft"):
        text = text.replace(f" {column}", "").replace(" 0.00 0.00 0.00 0.00 0.00", " 0.00 0.00 0.00 0.00")  # fmt: skip
    for name, content, is_silent in (("mpstat", make_mpstat(), False), ("sar", text, True)):
        paths = write(tmp_path / "in", **{name: content})
        list(imports.import_files(tmp_path / name, paths, UTC))
        _, silent = diagnose_at(tmp_path / name, -10)
        assert ("softirq" in silent) == is_silent, name


def test_the_same_seconds_of_two_tools_count_once(tmp_path: pathlib.Path) -> None:
    """The file with the shorter intervals wins, whatever its name; the other fills what it lacks."""
    home = tmp_path / "home"
    sar = "Linux 6.1 (db-7) \t2026-11-16 \t_x86_64_\t(2 CPU)\n\n"
    sar += "17:51:50 CPU %user %nice %system %iowait %steal %idle\n"
    for end in ("17:52:00", "17:52:10", "17:52:20", "17:52:50", "17:53:00"):
        sar += f"{end} 0 50.00 0.00 0.00 0.00 0.00 50.00\n"
    paths = write(tmp_path / "in", a_sar=sar, b_mpstat=make_mpstat(range(5, 35)))
    first, second = imports.import_files(home, paths, UTC)
    assert (first.path[-6:], first.readings, first.notes) == ("mpstat", 30, ())
    note = "3 of its readings are left out: the CPU time of those seconds is stored already"
    assert (second.readings, second.notes) == (5, (note,))

    def find_stored() -> list[tuple[int, int]]:
        minute, stored = NIGHT - 34 * SECOND_US, reader.Reader(home).stretches("db-7")
        return [((each.begin_us - minute) // SECOND_US, (each.end_us - minute) // SECOND_US) for each in stored]  # fmt: skip

    assert find_stored() == [(-10, 0), (5, 35), (50, 60)]
    again = list(imports.import_files(home, paths, UTC))
    assert [(each.known, each.notes) for each in again] == [(True, ()), (True, (note,))]
    assert find_stored() == [(-10, 0), (5, 35), (50, 60)]
