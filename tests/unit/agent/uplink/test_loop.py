from __future__ import annotations

import hashlib
import itertools
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uplink_server
import uplinks

from overnight.agent.uplink import backoff, loop, rollup_spool
from overnight.model import uplink
from overnight.store.ring import layout

# Half a window after a whole half minute: the window at the end of a block continues in the next block.
BEGIN_S = 1_794_969_000 + 15


class Killed(BaseException):
    """The process ends here: nothing handles it."""


def run_uplink(ring: uplinks.LiveRing, wait: Callable[[float], bool]) -> None:
    """Run the uplink of a host that is not enrolled: it spools, and reports nothing."""
    options = loop.Options(
        str(ring.home), str(ring.folder), uplinks.HOST, uplinks.BOOT, "http://127.0.0.1:9"
    )
    loop.Uplink(options, lambda _: None).run(wait)


def test_a_kill_behind_a_spooled_window_counts_no_second_twice(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = uplinks.LiveRing(tmp_path, BEGIN_S)
    ring.seconds(layout.BLOCK_SECONDS - 10)
    (first_block,) = ring.folder.glob("*.open")

    def record_and_kill(_: float) -> bool:
        ring.seconds(30)
        monkeypatch.setattr(rollup_spool.RollupSpool, "add", add_and_kill)
        return False

    def add_and_kill(spool: rollup_spool.RollupSpool, line: bytes) -> None:
        add(spool, line)
        raise Killed

    add = rollup_spool.RollupSpool.add
    with pytest.raises(Killed):
        run_uplink(ring, record_and_kill)
    monkeypatch.setattr(rollup_spool.RollupSpool, "add", add)
    while first_block.exists():  # it is packed before the uplink is started again
        ring.second()
    run_uplink(ring, lambda _: True)

    lines = (tmp_path / "uplink/rollups-0.jsonl").read_bytes().splitlines()
    spells = [spell for line in lines for spell in json.loads(line)["spells"]]
    steps_us = [b["begin_us"] - a["end_us"] for a, b in itertools.pairwise(spells)]
    assert steps_us == [0] * len(steps_us)
    assert spells[0]["begin_us"] == (BEGIN_S + 1) * 10**6
    assert spells[-1]["end_us"] == ring.wall_ns // 1000


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[uplink_server.UplinkServer]:
    """A server near by; what takes seconds elsewhere takes a moment here."""
    monkeypatch.setattr(loop, "COALESCE_SECONDS", 0.0)
    monkeypatch.setattr(backoff, "MAX_DELAY_SECONDS", 0.05)
    with uplink_server.running() as running:
        yield running


@pytest.fixture
def ring(tmp_path: pathlib.Path) -> uplinks.LiveRing:
    ring = uplinks.LiveRing(tmp_path, BEGIN_S)
    ring.seconds(1)
    return ring


def follow(
    ring: uplinks.LiveRing,
    server: uplink_server.UplinkServer,
    done: Callable[[], object],
    seconds: float = 20.0,
    **options: Any,
) -> list[str]:
    """Run the uplink until something is done; return its log."""
    log: list[str] = []
    until = time.monotonic() + seconds

    def wait(pause: float) -> bool:
        time.sleep(min(pause, 0.01))
        return bool(done()) or time.monotonic() > until

    given = loop.Options(
        str(ring.home), str(ring.folder), uplinks.HOST, uplinks.BOOT, server.url,
        **{"token": uplink_server.TOKEN, **options},
    )  # fmt: skip
    loop.Uplink(given, log.append).run(wait)
    return log


def count(server: uplink_server.UplinkServer, route: str) -> int:
    return sum(f"/agents/{route}" in request for request in server.requests)


def spool(ring: uplinks.LiveRing, rollups: int) -> None:
    """Leave rollups of another process, which begin at 0, 1, 2 …."""
    (ring.home / "uplink").mkdir(exist_ok=True)
    own = rollup_spool.RollupSpool(ring.home / "uplink", 1 << 30)
    row = {
        "seconds": 30,
        **{key: [0] for key in ("cores", "mean", "max", "kernel_max", "worst_ms")},
    }
    for n in range(rollups):
        seen = {"boot": "ab", "begin_us": 2 * n, "end_us": 2 * n + 1, "uptime_us": n}
        own.add(json.dumps({"spells": [seen], "rollup": {"begin_us": n, **row}}).encode())


def offer(ring: uplinks.LiveRing, size: int) -> str:
    """Leave a bundle of another process; return its digest."""
    folder, data = ring.home / "uplink/windows", os.urandom(size)
    folder.mkdir(parents=True)
    digest = hashlib.sha256(data).hexdigest()
    (folder / "e-1.overnight").write_bytes(data)
    named = {"event": "e-1", "sha256": digest, "bytes": size, "begin_us": 1, "end_us": 2}
    (folder / "e-1.json").write_text(json.dumps(named))
    return digest


def test_a_bundle_is_offered_once_and_wanted_until_it_is_uploaded(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer
) -> None:
    """Reports without an offer come before the last piece; they do not take back what was asked for."""
    digest = offer(ring, 200_000)

    def refuse(path: str) -> str | int:
        return 503 if "/blobs/" in path and len(server.stored.reports) < 3 else ""

    server.fault = refuse
    follow(ring, server, lambda: server.stored.complete)
    assert server.stored.complete == {digest}
    assert [len(report.windows) for report in server.stored.reports].count(1) == 1
    assert count(server, "report") < 20


def test_nothing_is_uploaded_while_the_server_wants_no_reports(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer
) -> None:
    offer(ring, 1_000_000)
    server.retry_after = "60"
    uploads: list[int] = []

    def refuse(path: str) -> str | int:
        if not path.endswith("report") or not server.stored.reports:
            return ""
        uploads.append(count(server, "blobs"))
        return 503

    server.fault = refuse
    until: list[float] = []

    def is_late() -> bool:
        if server.stored.blobs and not ring.events:
            ring.event("a")  # reported within the second
        until[:] = until or ([time.monotonic() + 1.0] if uploads else [])
        return bool(until) and time.monotonic() > until[0]

    follow(ring, server, is_late, upload_rate=3e5)
    assert uploads == [count(server, "blobs")]  # not one more, and no last report either
    assert not server.stored.complete


def test_without_a_token_a_refused_credential_is_the_problem(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer
) -> None:
    follow(ring, server, lambda: server.stored.reports)
    server.stored.credentials.clear()
    log = follow(ring, server, lambda: count(server, "report") > 5, token="")
    assert log == [line for line in log if "unknown credential" in line]
    assert count(server, "enrol") == 1


def test_a_token_is_used_once(ring: uplinks.LiveRing, server: uplink_server.UplinkServer) -> None:
    def forget() -> bool:
        if server.stored.reports:
            server.stored.credentials.clear()
        ring.event(str(len(server.requests)))
        return count(server, "report") > 5

    follow(ring, server, forget)
    assert count(server, "enrol") == 1


def test_a_refused_event_takes_no_rollup_and_no_history_with_it(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer
) -> None:
    names = [ring.event(str(n)).id for n in range(4)]
    spool(ring, 2)
    history = ring.home / "uplink/history.json"
    seen = {"boot": "cd", "begin_us": 90, "end_us": 95, "uptime_us": 1}
    history.write_text(json.dumps({"spells": [seen]}))
    refused: list[int] = []
    server.refuses = lambda report: any(event.id == names[2] for event in report.events) and not refused.append(1)  # type: ignore[func-returns-value]  # fmt: skip
    follow(ring, server, lambda: server.stored.lost and not history.exists())
    assert set(server.stored.events) == {*names} - {names[2]}
    assert server.stored.lost == [uplink.Lost(events=1)]
    assert set(server.stored.rollups) == {0, 1}
    spells = [spell for report in server.stored.reports for spell in report.spells]
    assert uplink.Observed("cd", 90, 95, 1) in spells
    assert len(refused) <= 6  # halves of the batch, not of the limit


def test_refused_rollups_are_counted_each(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer
) -> None:
    spool(ring, 5)
    server.refuses = lambda report: any(each.begin_us in (1, 2) for each in report.rollups)
    follow(ring, server, lambda: 4 in server.stored.rollups and server.stored.lost)
    assert set(server.stored.rollups) == {0, 3, 4}
    assert sum(each.rollups for each in server.stored.lost) == 2
    assert sum(each.events for each in server.stored.lost) == 0


def test_a_server_that_refuses_empty_reports_is_asked_less_often_and_loses_nothing(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "MAX_DELAY_SECONDS", 300.0)
    server.refuses = lambda _: True
    follow(ring, server, lambda: False, seconds=0.8)
    assert count(server, "report") <= 3
    monkeypatch.setattr(backoff, "MAX_DELAY_SECONDS", 0.05)
    name = ring.event("a").id
    tried = count(server, "report")
    server.refuses = lambda _: count(server, "report") < tried + 12
    follow(ring, server, lambda: server.stored.events)
    assert set(server.stored.events) == {name}
    assert not server.stored.lost


def test_a_task_is_reported_again_after_a_failure_of_the_server(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer
) -> None:
    folder = ring.home / "uplink/tasks/7"
    folder.mkdir(parents=True)
    expires_us = time.time_ns() // 1000 + 10**9
    arguments = {"event": "e-1"}
    server.tasks = [uplink.Task("7", uplink.TaskKind.UPLOAD_WINDOW, arguments, expires_us)]
    (folder / "task.json").write_text(json.dumps({"id": "7", "expires_us": expires_us}))
    (folder / "state.json").write_text(json.dumps({"state": "done", "detail": "", "progress": 1.0}))
    server.fault = lambda path: 503 if "/tasks/" in path and count(server, "tasks") < 3 else ""
    follow(ring, server, lambda: server.stored.task_reports)
    assert [task for task, _ in server.stored.task_reports] == ["7"]


@pytest.mark.parametrize(("interval", "seconds", "reports"), [(10**9, 4001.0, 2), (0, 0.0, 1)])
def test_the_interval_of_the_server_has_limits(
    ring: uplinks.LiveRing,
    server: uplink_server.UplinkServer,
    monkeypatch: pytest.MonkeyPatch,
    interval: int,
    seconds: float,
    reports: int,
) -> None:
    server.interval = interval
    monotonic, ahead = time.monotonic, [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: monotonic() + ahead[0])
    waits: list[int] = []

    def is_over() -> bool:
        waits.append(len(server.stored.reports))
        if waits[-1]:
            ahead[0] = seconds
        return len(waits) > 40

    follow(ring, server, is_over, seconds=1e6)
    assert max(waits) == reports


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """By how much the monotonic clock of the uplink is ahead."""
    monotonic, seconds = time.monotonic, [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: monotonic() + seconds[0])
    return seconds


def test_an_event_that_arrives_during_a_report_does_not_wait_for_an_interval(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer
) -> None:
    server.interval = 3600
    ring.event("a")

    def record(path: str) -> str:
        if path.endswith("report") and len(ring.events) == 1:
            ring.event("b")
        return ""

    server.fault = record
    seen: list[int] = []

    def is_over() -> bool:
        seen.append(len(server.stored.events))
        return seen[-1] == 2 or len(seen) > 60

    follow(ring, server, is_over)
    assert seen[-1] == 2


def test_events_that_follow_each_other_are_reported_together_and_soon(
    ring: uplinks.LiveRing,
    server: uplink_server.UplinkServer,
    monkeypatch: pytest.MonkeyPatch,
    ahead: list[float],
) -> None:
    """One event each second: the first waits for 10 s, however many follow."""
    monkeypatch.setattr(loop, "COALESCE_SECONDS", 10.0)
    server.interval = 3600
    rounds: list[int] = []

    def is_over() -> bool:
        rounds.append(len(server.stored.reports))
        if rounds[-1]:
            ring.event(str(len(rounds)))
            ahead[0] += 1.0
        return len(rounds) > 40

    follow(ring, server, is_over, seconds=1e6)
    assert {len(report.events) for report in server.stored.reports[1:-1]} <= {10, 11}
    assert max(rounds) in (4, 5)


def test_a_part_that_a_host_does_not_have_makes_no_more_reports(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer, ahead: list[float]
) -> None:
    server.interval, server.send = 3600, ["labels", "snapshot"]
    (ring.home / "uplink").mkdir()
    (ring.home / "uplink/labels.json").write_text('{"zone": "a"}')
    rounds: list[int] = []

    def is_over() -> bool:
        rounds.append(len(server.stored.reports))
        ahead[0] += 100.0 if rounds[-1] else 0.0
        return len(rounds) > 30

    follow(ring, server, is_over, seconds=1e6)
    assert max(rounds) == 1
    assert server.stored.labels == {"zone": "a"}


def test_labels_that_are_asked_for_again_are_sent_at_once(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer
) -> None:
    """Not with each report: once at first, and once when the server has lost them."""
    (ring.home / "uplink").mkdir()
    (ring.home / "uplink/labels.json").write_text('{"zone": "a"}')

    def lose(_: str) -> str:
        if len(server.stored.reports) == 3:
            server.send = ["labels"]
        return ""

    def record() -> bool:
        ring.event(str(len(ring.events)))
        return len(server.stored.reports) > 6

    server.fault = lose
    follow(ring, server, record)
    sent = [n for n, each in enumerate(server.stored.reports) if each.labels is not None]
    assert sent == [0, 4]


def test_what_was_lost_before_a_restart_is_reported_once(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer
) -> None:
    (ring.home / "uplink").mkdir()
    state = ring.home / "uplink/state.json"
    state.write_text(json.dumps({"lost_events": 3, "lost_rollups": 2}))
    server.fault = lambda _: 503
    follow(ring, server, lambda: server.requests)
    server.fault = lambda _: ""
    for _ in range(2):
        server.stored.reports.clear()
        follow(ring, server, lambda: server.stored.reports)
    assert server.stored.lost == [uplink.Lost(3, 2)]


def test_after_a_restart_the_spool_goes_on_where_the_server_is(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer
) -> None:
    spool(ring, 3)
    first = (ring.home / "uplink/rollups-0.jsonl").read_bytes().index(b"\n") + 1
    (ring.home / "uplink/state.json").write_text(json.dumps({"spool": [0, first]}))
    follow(ring, server, lambda: server.stored.rollups)
    assert set(server.stored.rollups) == {1, 2}


@pytest.mark.parametrize(
    "state", [{"spool": [0]}, {"spool": {}}, {"spool": ["x", 1]}, {"events": 5}, {"events": {"a": 5}}, []]
)  # fmt: skip
def test_with_a_damaged_state_everything_is_sent_again(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer, state: object
) -> None:
    spool(ring, 2)
    (ring.home / "uplink/state.json").write_text(json.dumps(state))
    name = ring.event("a").id
    follow(ring, server, lambda: server.stored.rollups)
    assert (set(server.stored.events), set(server.stored.rollups)) == ({name}, {0, 1})


def test_a_problem_is_logged_once_and_its_end_if_reports_had_it(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer
) -> None:
    offer(ring, 1000)
    faults = {"report": 3, "blobs": 3}

    def refuse(path: str) -> str | int:
        (route,) = [name for name in faults if name in path] or [""]
        if not faults.get(route):
            return ""
        faults[route] -= 1
        return 503

    server.fault = refuse
    log = follow(ring, server, lambda: server.stored.complete)
    problem = "fault 503: it gave no reason; read the log of the server (trying again)"
    assert log[1:] == [problem, "connected again", problem]


def test_a_task_that_the_server_does_not_know_is_reported_once(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer
) -> None:
    folder = ring.home / "uplink/tasks/7"
    folder.mkdir(parents=True)
    (folder / "task.json").write_text(json.dumps({"id": "7", "expires_us": 1 << 60}))
    (folder / "state.json").write_text(json.dumps({"state": "done", "detail": "", "progress": 1.0}))
    log = follow(ring, server, lambda: ring.event("a") and len(server.stored.reports) > 3)
    assert count(server, "tasks") == 1
    assert log[1:] == ["task 7: no such task"]
    assert (folder / "reported").exists()


def test_old_tasks_are_forgotten_after_a_report(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer
) -> None:
    folder = ring.home / "uplink/tasks/7"
    folder.mkdir(parents=True)
    for name, text in (("task.json", '{"id": "7", "expires_us": 1}'), ("reported", "done  1.0")):
        (folder / name).write_text(text)
    follow(ring, server, lambda: server.stored.reports)
    assert not folder.exists()


def test_a_credential_that_only_the_server_had_replaced_is_kept(
    ring: uplinks.LiveRing, server: uplink_server.UplinkServer
) -> None:
    """The answer of the rotation was lost: the next one is tried immediately, and is the credential from then on."""
    old, fresh = "a" * 43, "b" * 43
    (ring.home / "uplink").mkdir()
    stored = {"credential": old, "next": fresh, "made_us": time.time_ns() // 1000}
    (ring.home / "uplink/credential").write_text(json.dumps(stored))
    server.stored.credentials = {fresh}
    log = follow(ring, server, lambda: server.stored.reports)
    assert log == []
    assert count(server, "report") <= 3
    assert json.loads((ring.home / "uplink/credential").read_text())["credential"] == fresh
