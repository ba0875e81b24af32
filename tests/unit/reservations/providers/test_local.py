from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys
import time

import pytest

from overnight import reservations
from overnight.model import process_identity
from overnight.model.reservation import AgentTasks, Lease, Order
from overnight.reservations import decisions
from overnight.reservations.providers import (
    _local_processes,
    _local_recorder,
    _recorder_guard,
    local,
)

ORDER = Order(provider="local")
S = 1_000_000
# Acts as a recorder: ends on SIGTERM, with what its child stored.
RECORDER = """
import signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
def end(*_):
    child.kill(); child.wait(); sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(600)
"""


def lease(number: int = 1, seconds: int = 3600) -> Lease:
    until = time.time_ns() // 1000 + seconds * S
    # Processes are found by it, also those of tests that run in parallel.
    return Lease(f"r-{os.getpid():08x}{number:04x}", f"ops-{number}", until, until)


@pytest.fixture
def here(tmp_path: pathlib.Path) -> local.Local:
    settings = reservations.Settings(home=tmp_path / "home")
    return local.Local(settings, tmp_path / "run", sleep=lambda _: None)


def test_one_lease_at_a_time(here: local.Local, tmp_path: pathlib.Path) -> None:
    first, second = lease(1), lease(2)
    [candidate] = here.list_hosts(ORDER)
    assert candidate.taken == ""
    assert {"kernel", "cores"} <= {*candidate.facts}
    here.claim(candidate.name, ORDER, first)
    here.claim(candidate.name, ORDER, first)
    with pytest.raises(reservations.TakenError, match="is reserved by ops-1"):
        here.claim(candidate.name, ORDER, second)
    with pytest.raises(reservations.TakenError):
        here.mark(candidate.name, ORDER, second)
    assert not here.renew(candidate.name, ORDER, second)
    [held] = here.list_held(ORDER)
    assert (held.id, held.lease, held.claimed) == (first.id, first, True)
    assert here.list_hosts(ORDER)[0].taken == "ops-1"
    here.release(candidate.name, ORDER, second.id)
    assert here.list_held(ORDER)
    here.release(candidate.name, ORDER, first.id)
    assert here.list_held(ORDER) == []
    here.release(candidate.name, ORDER, first.id)
    assert [path.name for path in (tmp_path / "run").iterdir()] == []


def test_a_later_expiry_is_written(here: local.Local) -> None:
    first = lease()
    here.claim(here.host, ORDER, first)
    later = dataclasses.replace(first, until_us=first.until_us - S)
    assert here.renew(here.host, ORDER, later)
    assert [held.lease for held in here.list_held(ORDER)] == [later]


def test_an_unreadable_mark_is_taken_and_can_be_released(
    here: local.Local, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / local.FILE).write_text("{")
    [held] = here.list_held(ORDER)
    assert (held.id, held.lease) == ("", None)
    assert held.since_us is not None
    with pytest.raises(reservations.TakenError, match="an unreadable mark"):
        here.claim(here.host, ORDER, lease())
    here.release(here.host, ORDER, "")
    assert here.list_held(ORDER) == []


def test_another_machine_is_not_touched(here: local.Local) -> None:
    """A database may be shared by machines; each has a provider `local`."""
    assert here.reaches(here.host)
    assert not here.reaches("elsewhere")
    own = lease()
    here.claim(here.host, ORDER, own)
    for call in (
        lambda: here.claim("elsewhere", ORDER, own),
        lambda: here.mark("elsewhere", ORDER, own),
        lambda: here.renew("elsewhere", ORDER, own),
        lambda: here.release("elsewhere", ORDER, own.id),
        lambda: here.list_workloads("elsewhere", ORDER, own),
    ):
        with pytest.raises(reservations.PlatformError, match="elsewhere is another machine"):
            call()
    assert here.list_held(ORDER)


def test_a_folder_that_cannot_be_used_is_a_platform_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "run").write_text("")
    here = local.Local(reservations.Settings(home=tmp_path), tmp_path / "run")
    with pytest.raises(reservations.PlatformError, match="cannot use"):
        here.claim(here.host, ORDER, lease())


def process(pid: int, ticks: int, *, parent: int = 1, session: int = 0, words: tuple[str, ...] = ()) -> _local_processes.Process:  # fmt: skip
    return _local_processes.Process(pid, "7", parent, session or pid, f"p{pid}", ticks, words)


def test_foreign_processes_are_those_with_a_share_that_belong_to_nobody_here() -> None:
    tick = _local_processes.TICK
    before = {
        50: process(50, 0),
        51: process(51, 0),
        52: process(52, 0, parent=2),
        53: process(53, 0, words=("python3", "-m", "overnight", "serve")),
        54: process(54, 0, session=40),
        55: process(55, 0),
        56: dataclasses.replace(process(56, 0), started="6"),
    }
    after = {pid: dataclasses.replace(p, ticks=tick) for pid, p in before.items()}
    after[51] = dataclasses.replace(before[51], ticks=tick // 20)
    after[55] = dataclasses.replace(before[55], ticks=2 * tick)
    after[56] = process(56, tick)  # another process with the same pid
    after[57] = process(57, tick)  # new: its share is not known
    found = _local_processes.find_foreign(before, after, 1.0, {40})
    assert [(p.pid, cores) for p, cores in found] == [(55, 2.0), (50, 1.0)]


@pytest.mark.parametrize(
    ("words", "is_recorder"),
    [
        ("python3 -m overnight --home /x record --for 12h", True),
        ("/opt/overnight/bin/python /opt/overnight/bin/overnight agent --server x", True),
        ("python3 -m overnight.agent --home /x", True),
        ("python3 -m overnight serve", False),
        ("vim record", False),
        ("python3 -m http.server record", False),
    ],
)
def test_a_recorder_is_known_by_its_command(words: str, is_recorder: bool) -> None:
    assert process(7, 0, words=tuple(words.split())).is_recorder is is_recorder


@pytest.mark.parametrize(
    ("share", "changes", "is_foreign"),
    [
        (0.1, {}, True),
        (0.09, {}, False),
        (1.0, {"pid": _local_processes.KERNEL}, False),
        (1.0, {"pid": 40}, False),  # its own process, in another session
        (1.0, {"session": 40}, False),
    ],
)
def test_a_process_is_foreign_from_a_tenth_of_a_core(
    share: float, changes: dict[str, int], is_foreign: bool
) -> None:
    ticks = round(10 * share * _local_processes.TICK)
    after = dataclasses.replace(process(50, ticks, session=50), **changes)
    before = dataclasses.replace(after, ticks=0)
    found = _local_processes.find_foreign({after.pid: before}, {after.pid: after}, 10.0, {40})
    assert [cores for _, cores in found] == ([share] if is_foreign else [])


def test_the_time_of_a_process_is_that_of_its_program_and_of_the_kernel() -> None:
    stat = b"7 (sh) S 1 7 5 0" + b" 0" * 6 + b" 11 22" + b" 0" * 6 + b" 99" + b" 0" * 20
    found = _local_processes.parse_process(7, stat)
    assert (found.ticks, found.started, found.parent, found.session) == (33, "99", 1, 5)


def test_what_a_reservation_started_is_its_own_and_the_rest_is_foreign(
    here: local.Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorder runs in its own session, and its children may not have its environment."""
    own, looks = lease(), [0, 9 * _local_processes.TICK]
    started = process(50, 0, session=40)

    def read() -> dict[int, _local_processes.Process]:
        ticks = looks.pop(0)
        return {
            pid: process(pid, ticks, session=session)
            for pid, session in ((50, 40), (51, 40), (52, 52))
        }

    monkeypatch.setattr(_local_processes, "read_processes", read)
    monkeypatch.setattr(
        _local_processes, "find_marked", lambda _, lease_id: [started] if lease_id == own.id else []
    )
    found = here.list_workloads(here.host, ORDER, own)
    assert [(w.name, w.kind) for w in found] == [("p52 (pid 52)", "process")]
    looks[:] = [0, 9 * _local_processes.TICK]
    [candidate] = here.list_hosts(ORDER)
    warnings = here.plan(candidate, ORDER).warnings  # nothing is reserved yet
    assert warnings == tuple(f"p{pid} (pid {pid}) is not stopped" for pid in (50, 51, 52))


def test_a_mark_has_its_time_and_a_host_its_boot_in_microseconds(here: local.Local) -> None:
    nobody = dataclasses.replace(lease(), owner="")
    here.claim(here.host, ORDER, nobody)
    [held], [candidate] = here.list_held(ORDER), here.list_hosts(ORDER)
    now_us = time.time_ns() // 1000
    assert held.since_us is not None
    assert abs(now_us - held.since_us) < 60 * S
    assert candidate.taken == nobody.id  # whose owner is not known
    assert candidate.booted_us is not None
    up = float(pathlib.Path("/proc/uptime").read_text().split()[0])
    assert abs(now_us - candidate.booted_us - up * S) < 120 * S


@pytest.mark.parametrize(
    ("unsynced", "runs", "skew_us"), [(0, True, -1500), (1, False, None), (0, False, -1500)]
)
def test_the_clock_of_a_host_counts_only_while_it_is_synchronized(
    monkeypatch: pytest.MonkeyPatch, unsynced: int, runs: bool, skew_us: int | None
) -> None:
    read = {"": (unsynced, 0, -1500, 16, 16)}
    monkeypatch.setattr(_local_recorder.clocksync, "open_clocksync", lambda: lambda: read)
    heard = _local_recorder.hear(runs=runs)
    assert heard.skew_us == skew_us
    assert (heard.agent_us is not None) is runs


@pytest.mark.parametrize("token", ["", "t-1"])
def test_a_recorder_gets_its_server_tasks_and_token_and_lasts_until_the_cap(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    own, seen = dataclasses.replace(lease(), until_us=5, cap_us=7), list[list[str]]()
    popen = subprocess.Popen

    def start(command: list[str], **options: object) -> object:
        seen.append(command)
        return popen([sys.executable, "-c", RECORDER], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(_local_recorder.subprocess, "Popen", start)
    monkeypatch.setattr(_local_recorder, "START_SECONDS", 0.3)
    settings = reservations.Settings(home=tmp_path / "home")
    tasks = AgentTasks(kinds=("load",))
    setup = reservations.AgentSetup(server="https://centre", token=token, tasks=tasks)
    mark = f"{own.id}/m-1"
    try:
        _local_recorder.start(
            settings, own, setup, belongs_to=(tmp_path / "stat", "99"), mark=mark, host="m-1"
        )
        [command] = seen
        guarded = [str(tmp_path / "stat"), "99", "7", *_local_recorder.RENAME, "m-1"]
        assert command[command.index(_recorder_guard.__file__) + 1 :][: len(guarded)] == guarded
        given = ["--token-file", "-"] if token else []
        file = tmp_path / "home" / _local_recorder.TASKS
        tail = ["agent", "--server", "https://centre", *given, "--signals-only", f"--default-config={file}"]  # fmt: skip
        assert command[-len(tail) :] == tail
        assert file.read_text() == tasks.format()
        running = _local_processes.read_processes()
        assert _local_processes.find_marked(running, mark)
        assert not _local_processes.find_marked(running, own.id)
    finally:
        _local_recorder.stop(mark)


def test_own_session_has_the_ancestors() -> None:
    known = {9: process(9, 0, parent=8, session=5), 8: process(8, 0, parent=1), 7: process(7, 0)}
    assert _local_processes.own_session(known, 9) == {5, 8, 9}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a small program in place of a recorder."""
    popen = subprocess.Popen

    def start(command: list[str], **options: object) -> object:
        words = [sys.executable, "-c", RECORDER] if "record" in command else command
        return popen(words, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(_local_recorder.subprocess, "Popen", start)
    monkeypatch.setattr(_local_recorder, "START_SECONDS", 0.3)
    monkeypatch.setattr(local.Local, "hear", lambda *_: reservations.Heard())


def test_the_recorder_ends_with_its_reservation_and_no_other_process_does(
    here: local.Local, tmp_path: pathlib.Path, quick: None
) -> None:
    own, boot = lease(), process_identity.read_boot()
    bystander = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={**os.environ, _local_processes.MARK: "r-ffffffffffff"},
    )
    try:
        here.claim(here.host, ORDER, own)
        here.start_agent(here.host, ORDER, own, reservations.AgentSetup(server=""))
        deadline = time.monotonic() + 20
        marked: list[_local_processes.Process] = []
        while len(marked) < 2:  # its child, too
            assert time.monotonic() < deadline
            marked = _local_processes.find_marked(_local_processes.read_processes(), own.id)
        here.release(here.host, ORDER, own.id)
        for ended in marked:
            assert not process_identity.is_running(ended.pid, ended.started, boot)
        assert bystander.poll() is None
        assert [path.name for path in (tmp_path / "run").iterdir()] == []
        assert (tmp_path / "home" / _local_recorder.LOG).exists()
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize("end", ["released", "expired", "another lease", "damaged"])
def test_a_guard_ends_its_recorder_with_the_lease(tmp_path: pathlib.Path, end: str) -> None:
    own, file = lease(), tmp_path / local.FILE
    file.write_text(own.text())
    words = [str(file), own.id, "0", sys.executable, "-c", "import time; time.sleep(600)"]
    guard = subprocess.Popen([sys.executable, "-I", "-S", _recorder_guard.__file__, *words])
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            guard.wait(3 * _recorder_guard.POLL_SECONDS)
        if end == "released":
            file.unlink()
        else:
            over = dataclasses.replace(own, until_us=own.until_us - 3600 * S - _recorder_guard.GRACE_US)  # fmt: skip
            texts = {"expired": over.text(), "another lease": lease(2).text(), "damaged": "{"}
            file.write_text(texts[end])
        assert guard.wait(20) != 0
    finally:
        guard.terminate()
        guard.wait()


def test_a_guard_ends_its_recorder_with_a_process_and_at_the_cap() -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        file = pathlib.Path(f"/proc/{other.pid}/stat")
        started, now_us = process_identity.read_start(other.pid), time.time_ns() // 1000
        assert _recorder_guard.goes_on(file, started, now_us + 60 * S)
        assert not _recorder_guard.goes_on(file, started, now_us)
        assert not _recorder_guard.goes_on(file, "7", now_us + 60 * S)
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert not _recorder_guard.goes_on(file, started, now_us + 60 * S)  # a zombie
    assert not _recorder_guard.goes_on(file, started, now_us + 60 * S)


def test_the_grace_of_a_guard_is_that_of_the_janitor() -> None:
    assert _recorder_guard.GRACE_US == decisions.GRACE_SECONDS * S


def test_a_recorder_that_does_not_start_is_an_error(
    here: local.Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local.Local, "hear", lambda *_: reservations.Heard())
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(_local_recorder, "START_SECONDS", 20)
    with pytest.raises(reservations.PlatformError, match="does not start") as caught:
        here.start_agent(here.host, ORDER, lease(), reservations.AgentSetup(server=""))
    assert caught.value.why == "exit code 1"


def test_a_second_recorder_is_never_started(
    here: local.Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local.Local, "hear", lambda *_: reservations.Heard(5))
    monkeypatch.setattr(_local_recorder, "start", pytest.fail)
    here.start_agent(here.host, ORDER, lease(), reservations.AgentSetup(server=""))


def test_a_busy_process_is_reported(tmp_path: pathlib.Path) -> None:
    here = local.Local(reservations.Settings(home=tmp_path), tmp_path / "run")
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    try:
        for _ in range(20):  # a loaded host gives it little time
            found = here.list_workloads(here.host, ORDER, lease())
            if any(f"(pid {busy.pid})" in workload.name for workload in found):
                break
        else:
            pytest.fail("not reported")
        assert not any(f"(pid {os.getpid()})" in workload.name for workload in found)
    finally:
        busy.kill()
        busy.wait()
