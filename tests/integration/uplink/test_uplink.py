"""The real uplink process against a server with faults; what the server has is compared with what was recorded."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import random
import ssl
import subprocess
import sys
import threading
import time

import certificates
import faults
import pytest
import uplink_server
import uplinks
from uplink_server import CUT, LOST

from overnight.agent.uplink import rollup_spool
from overnight.model import uplink
from overnight.store.ring import layout


@pytest.fixture
def ring(tmp_path: pathlib.Path) -> uplinks.LiveRing:
    return uplinks.LiveRing(tmp_path / "home")


def assert_all_arrived(ring: uplinks.LiveRing, server: uplink_server.UplinkServer) -> None:
    """No event is lost, none is changed, and none is there twice: the server keeps them by id."""
    assert server.stored.events == ring.events


def observed_seconds(server: uplink_server.UplinkServer) -> float:
    """Merge spells as the server does, by boot; return how long the host was observed."""
    spells = sorted({(s.begin_us, s.end_us) for r in server.stored.reports for s in r.spells})
    total, until = 0, 0
    for begin, end in spells:
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total / 1e6


def test_events_rollups_and_time_arrive(ring: uplinks.LiveRing) -> None:
    ring.seconds(65)
    ring.event("a")
    with uplink_server.running() as server, uplinks.running(ring.home, server.url) as process:
        server.wait_for(lambda s: s.events)
        ring.event("b", core=3, fields={"queue": 4})
        server.wait_for(lambda s: len(s.events) == 2)
        for _ in range(70):
            ring.second()
        server.wait_for(lambda s: len(s.rollups) >= 4)
        assert process.stop() == 0
    assert_all_arrived(ring, server)
    assert server.stored.hosts == [uplinks.HOST]
    assert observed_seconds(server) == 134
    first = server.stored.rollups[min(server.stored.rollups)]
    assert first.cores == (0, 1, 2, 3)
    assert first.max == (3, 3, 3, 3)
    assert (ring.home / "uplink/credential").stat().st_mode & 0o777 == 0o600
    assert "Retry" not in process.log


def test_the_token_is_removed_after_its_use_and_no_secret_is_logged(
    ring: uplinks.LiveRing, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "token"
    file.write_text(uplink_server.TOKEN)
    with uplink_server.running() as server:
        with uplinks.running(ring.home, server.url, token_file=str(file)) as process:
            server.wait_for(lambda s: s.reports)
            command = pathlib.Path(f"/proc/{process.child.pid}/cmdline").read_bytes()
            process.stop()
        with uplinks.running(ring.home, server.url, token="") as again:  # it has a credential
            count = len(server.stored.reports)
            server.wait_for(lambda s: len(s.reports) > count)
            server.fault = lambda _: 500
            again.stop()
    assert not file.exists()
    secrets = [uplink_server.TOKEN, *server.stored.credentials]
    for text in (process.log, again.log, command.decode()):
        assert not any(secret in text for secret in secrets)


# The uplink waits after a 429 or a 500 as after a 503.
LONG_FAULTS = [pytest.param(status, marks=pytest.mark.long) for status in (429, 500)]


@pytest.mark.parametrize("fault", [CUT, LOST, 503, *LONG_FAULTS])
def test_faults_lose_and_double_nothing(ring: uplinks.LiveRing, fault: str | int) -> None:
    chance = random.Random(str(fault))
    with uplink_server.running() as server:
        server.retry_after = "0"
        server.fault = lambda _: fault if chance.random() < 0.4 else ""
        with uplinks.running(ring.home, server.url) as process:
            for n in range(40):
                ring.event(str(n))
                ring.seconds(5)
                time.sleep(0.05)
            server.wait_for(lambda s: len(s.events) == 40)
            server.fault = lambda _: ""
            process.stop()
        with uplinks.running(ring.home, server.url) as process:
            server.wait_for(lambda s: observed_seconds(server) == 199)
            process.stop()
    assert_all_arrived(ring, server)


ROUTES = ("enrol", "report", "rotate", "tasks", "blobs")


@pytest.mark.parametrize("route", ROUTES)
def test_a_429_of_any_route_delays_and_loses_nothing(ring: uplinks.LiveRing, route: str) -> None:
    """The server refuses the first request of one route; all that was due arrives later."""
    folder = ring.home / "uplink"
    data = os.urandom(100_000)
    digest = hashlib.sha256(data).hexdigest()
    (folder / "windows").mkdir(parents=True)
    (folder / "windows/e-1.overnight").write_bytes(data)
    offer = {"event": "e-1", "sha256": digest, "bytes": len(data), "begin_us": 1, "end_us": 2}
    (folder / "windows/e-1.json").write_text(json.dumps(offer))
    # A task that has just ended, and whose end the server does not know.
    (folder / "tasks/7").mkdir(parents=True)
    expires_us = time.time_ns() // 1000 + 10**9
    (folder / "tasks/7/task.json").write_text(json.dumps({"id": "7", "expires_us": expires_us}))
    state = {"state": "done", "detail": "", "progress": 1.0, "result": {"n": 1}}
    (folder / "tasks/7/state.json").write_text(json.dumps(state))
    event = ring.event("a")
    refused: list[str] = []

    def refuse(path: str) -> str | int:
        if f"/agents/{route}" not in path or refused:
            return ""
        refused.append(path)
        return 429

    with uplink_server.running() as server:
        server.tasks = [
            uplink.Task("7", uplink.TaskKind.UPLOAD_WINDOW, {"event": "e-1"}, expires_us)
        ]
        server.retry_after, server.fault = "0", refuse
        with uplinks.running(ring.home, server.url) as process:
            server.wait_for(lambda s: s.credentials)
            if route == "rotate":
                process.kill()
                (credential,) = server.stored.credentials
                old = {"credential": credential, "made_us": 0}
                (folder / "credential").write_text(json.dumps(old))
        with uplinks.running(ring.home, server.url) as process:
            server.wait_for(lambda s: s.events and s.task_reports and digest in s.complete)
            server.wait_for(lambda _: refused)
            if route == "rotate":
                server.wait_for(lambda s: credential not in s.credentials)
            process.stop()
    assert set(server.stored.events) == {event.id}
    assert [(name, report.state) for name, report in server.stored.task_reports] == [("7", "done")]
    assert bytes(server.stored.blobs[digest]) == data
    assert not server.stored.lost


@pytest.mark.parametrize("kills", [5, pytest.param(12, marks=pytest.mark.long)])
def test_kill_9_at_random_points(ring: uplinks.LiveRing, kills: int) -> None:
    chance = random.Random(16)
    done = threading.Event()

    def record() -> None:
        n = 0
        while not done.is_set():
            for _ in range(chance.randrange(3)):
                ring.event(str(n))
                n += 1
            ring.seconds(4)
            time.sleep(0.02)  # a block in three seconds

    recorder = threading.Thread(target=record)
    recorder.start()
    with uplink_server.running() as server:
        points = random.Random(17)
        server.fault = lambda _: points.choice(("", "", "", LOST, CUT))
        for n in range(kills):
            with uplinks.running(ring.home, server.url) as process:
                if n < 2:
                    server.wait_for(lambda s: s.reports)
                time.sleep(points.uniform(0.1, 1.2))
                process.kill()
        done.set()
        recorder.join()
        server.fault = lambda _: ""
        with uplinks.running(ring.home, server.url) as process:
            server.wait_for(lambda s: len(s.events) == len(ring.events))
            count = len(server.stored.reports)
            server.wait_for(lambda s: len(s.reports) > count + 2)
            process.stop()
    assert_all_arrived(ring, server)
    assert len(ring.events) > 20
    spans = sorted((r.begin_us, r.begin_us + r.seconds * 10**6) for r in server.stored.rollups.values())  # fmt: skip
    assert all(end <= begin + 10**6 for (_, end), (begin, _) in itertools.pairwise(spans))


@pytest.mark.parametrize("seconds", [1200, pytest.param(3000, marks=pytest.mark.long)])
def test_a_server_that_is_away_for_long_gets_everything_later(
    ring: uplinks.LiveRing, seconds: int
) -> None:
    with uplink_server.running() as server:
        port = server.port
        with uplinks.running(ring.home, server.url) as process:
            server.wait_for(lambda s: s.reports)
            process.stop()
        before = server.stored
    with uplinks.running(ring.home, server.url) as process:
        for n in range(700):  # more than a report holds
            ring.event(str(n))
        ring.followed_seconds(seconds)
        time.sleep(1.5)
        assert process.child.poll() is None
        process.kill()
    with uplink_server.running(port=port) as server:
        server.stored.credentials = before.credentials
        with uplinks.running(ring.home, server.url) as process:
            server.wait_for(lambda s: len(s.events) == 700)
            server.wait_for(lambda s: len(s.rollups) >= seconds // 30 - 1)
            process.stop()
    assert_all_arrived(ring, server)
    assert observed_seconds(server) == seconds - 1
    assert not server.stored.lost
    assert max(len(report.events) for report in server.stored.reports) <= 500


def test_above_its_budget_the_spool_drops_rollups_never_events(ring: uplinks.LiveRing) -> None:
    (ring.home / "uplink").mkdir()
    rollups = 8_000
    earlier = rollup_spool.RollupSpool(ring.home / "uplink", 1 << 30)
    rollup = {"seconds": 30, **{name: [0] for name in ("cores", "mean", "max", "kernel_max", "worst_ms")}}  # fmt: skip
    for n in range(rollups):  # 1.3 MB
        spell = {"boot": "ab", "begin_us": n, "end_us": n + 1, "uptime_us": n}
        earlier.add(json.dumps({"spells": [spell], "rollup": {"begin_us": n, **rollup}}).encode())
    with uplink_server.running() as server:
        server.fault = lambda path: 503 if path.endswith("report") else ""
        server.retry_after = "0"
        with uplinks.running(ring.home, server.url, spool_bytes=1 << 19) as process:
            for n in range(20):
                ring.event(str(n))
            ring.seconds(70)
            deadline = time.monotonic() + 60
            while (ring.home / "uplink/rollups-0.jsonl").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            server.fault = lambda _: ""
            server.wait_for(lambda s: len(s.events) == 20)
            server.wait_for(lambda s: rollups - 1 in s.rollups)
            process.stop()
    assert_all_arrived(ring, server)
    lost = sum(each.rollups for each in server.stored.lost)
    assert lost == rollups - sum(begin < rollups for begin in server.stored.rollups)
    assert 0 < lost < rollups
    assert sum(each.events for each in server.stored.lost) == 0


def test_refused_events_do_not_hold_up_others(ring: uplinks.LiveRing) -> None:
    names = [ring.event(str(n)).id for n in range(60)]
    bad = {names[0], names[37]}
    (ring.home / "uplink").mkdir()
    history = ring.home / "uplink/history.json"
    spell = {"boot": "ab", "begin_us": 5, "end_us": 9, "uptime_us": 1}
    history.write_text(json.dumps({"spells": [spell]}))
    with uplink_server.running() as server:
        server.refuses = lambda report: any(event.id in bad for event in report.events)
        with uplinks.running(ring.home, server.url) as process:
            server.wait_for(lambda s: len(s.events) == 58)
            server.wait_for(lambda s: len(s.lost) == 2)
            server.wait_for(
                lambda s: any(spell.boot == "ab" for r in s.reports for spell in r.spells)
            )
            process.stop()
        assert not history.exists()
    assert set(server.stored.events) == set(names) - bad
    assert server.stored.lost == [uplink.Lost(events=1)] * 2
    # What came in the same report as the refused event is sent again without it.
    assert {spell for report in server.stored.reports for spell in report.spells} >= {
        uplink.Observed("ab", 5, 9, 1)
    }
    assert "it is refused" in process.log


def test_a_server_that_refuses_every_report_makes_nothing_drop(ring: uplinks.LiveRing) -> None:
    for n in range(5):
        ring.event(str(n))
    with uplink_server.running() as server:
        server.refuses = lambda _: True
        with uplinks.running(ring.home, server.url) as process:
            deadline = time.monotonic() + 60
            while len(server.requests) < 6 and time.monotonic() < deadline:
                time.sleep(0.05)
            server.refuses = lambda _: False
            server.wait_for(lambda s: len(s.events) == 5)
            process.stop()
    assert_all_arrived(ring, server)
    assert not server.stored.lost


def test_retry_after_is_honoured(ring: uplinks.LiveRing) -> None:
    with uplink_server.running() as server:
        server.retry_after = "3"
        server.fault = lambda path: 429 if path.endswith("report") else ""
        moments: list[float] = []
        with uplinks.running(ring.home, server.url) as process:
            while len(moments) < 2:
                with server.changed:
                    count = sum(request.endswith("report") for request in server.requests)
                if count > len(moments):
                    moments.append(time.monotonic())
                time.sleep(0.02)
            process.stop()
    assert moments[1] - moments[0] >= 2.9  # not sooner; a loaded machine may be later


def test_a_revoked_credential_is_replaced_with_a_new_token(ring: uplinks.LiveRing) -> None:
    with uplink_server.running() as server:
        with uplinks.running(ring.home, server.url) as process:
            server.wait_for(lambda s: s.reports)
            process.stop()
        server.stored.credentials.clear()
        server.stored.tokens.clear()  # the same text as another token
        ring.event("a")
        with uplinks.running(ring.home, server.url, token="") as process:
            server.wait_for(lambda _: len(server.requests) > 3)
            process.stop()
        assert "unknown credential" in process.log
        with uplinks.running(ring.home, server.url) as process:
            server.wait_for(lambda s: s.events)
            process.stop()
    assert len(server.stored.hosts) == 2


def test_labels_and_snapshot_are_sent_when_they_change_or_are_asked_for(
    ring: uplinks.LiveRing,
) -> None:
    folder = ring.home / "uplink"
    folder.mkdir()
    (folder / "labels.json").write_text('{"zone": "a"}')
    parts = {"os": {f"key-{n}": os.urandom(30).hex() for n in range(20_000)}}
    document = {"schema": "overnight.snapshot/1", "header": {}, "parts": parts, "gaps": []}
    (folder / "snapshot.json").write_text(json.dumps(document))
    (folder / "history.json").write_text('{"spells": [{"boot": "ab", "begin_us": 5, "end_us": 9, "uptime_us": 1}]}')  # fmt: skip
    with uplink_server.running() as server, uplinks.running(ring.home, server.url) as process:
        server.wait_for(lambda s: len(s.reports) >= 3)
        assert server.stored.labels == {"zone": "a"}
        assert [len(snapshot.parts["os"]) for snapshot in server.stored.snapshots] == [20_000]
        assert [s for r in server.stored.reports for s in r.spells] == [uplink.Observed("ab", 5, 9, 1)]  # fmt: skip
        (folder / "labels.json").write_text('{"zone": "b"}')
        server.wait_for(lambda s: s.labels == {"zone": "b"})
        assert sum(report.labels is not None for report in server.stored.reports) == 2
        server.send = ["snapshot", "something new"]
        server.wait_for(lambda s: len(s.snapshots) == 2)
        process.stop()
    assert not (folder / "history.json").exists()


def test_windows_are_offered_uploaded_and_removed(ring: uplinks.LiveRing) -> None:
    folder = ring.home / "uplink" / "windows"
    with uplink_server.running() as server, uplinks.running(ring.home, server.url, upload_rate=1e8) as process:  # fmt: skip
        event = ring.event("a", severity="warning")
        server.wait_for(lambda s: s.events)
        assert (folder / f"{event.id}.request").exists()
        data = os.urandom(5_000_000)
        digest = hashlib.sha256(data).hexdigest()
        (folder / f"{event.id}.request").unlink()
        (folder / f"{event.id}.overnight").write_bytes(data)
        offer = {"event": event.id, "sha256": digest, "bytes": len(data), "begin_us": 1, "end_us": 2}  # fmt: skip
        points = iter(("", LOST, "", CUT, "", "", 503))
        server.fault = lambda path: next(points, "") if "blobs" in path else ""
        (folder / f"{event.id}.json").write_text(json.dumps(offer))
        server.wait_for(lambda s: s.complete == {digest}, 100)
        ring.event("b")
        server.wait_for(lambda s: len(s.events) == 2)
        server.fault = lambda _: ""
        deadline = time.monotonic() + 60
        while (folder / f"{event.id}.overnight").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.stop()
    assert bytes(server.stored.blobs[digest]) == data
    assert [path.name for path in folder.iterdir()] == [f"{event.id}.done"]


def test_the_wall_clock_may_be_set(ring: uplinks.LiveRing) -> None:
    with uplink_server.running() as server, uplinks.running(ring.home, server.url) as process:
        for step in (0, 3600, -7200, 86400):
            ring.wall_ns += step * 10**9
            ring.seconds(61)
            ring.event(str(step))
            server.wait_for(lambda s: len(s.events) == len(ring.events))
        process.stop()
    assert_all_arrived(ring, server)
    assert observed_seconds(server) == 4 * 60


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.mark.needs_root
@faults.on_small_disk
def test_a_full_disk_stops_nothing(disk: pathlib.Path) -> None:
    ring = uplinks.LiveRing(disk)
    with uplink_server.running() as server, uplinks.running(disk, server.url) as process:
        ring.seconds(40)
        ring.event("before")
        server.wait_for(lambda s: len(s.events) == 1)
        with faults.full_disk(disk):
            count = len(server.stored.reports)
            ring.event("meanwhile")  # waits in the recorder's memory
            server.wait_for(lambda s: len(s.reports) > count + 2)
        ring.seconds(40)
        ring.event("after")
        server.wait_for(lambda s: len(s.events) == 3)
        process.kill()
        with uplinks.running(disk, server.url) as again:
            server.wait_for(lambda s: len(s.reports) > count + 4)
            again.stop()
    assert_all_arrived(ring, server)


def test_tls(ring: uplinks.LiveRing, tmp_path: pathlib.Path) -> None:
    file = certificates.make(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    ring.event("a")
    with uplink_server.running(context) as server:
        with uplinks.running(ring.home, server.url) as process:
            time.sleep(1)
            process.kill()
        assert "is not trusted" in process.log
        with uplinks.running(ring.home, server.url, ca=str(file)) as process:
            server.wait_for(lambda s: s.events)
            process.stop()


def test_the_uplink_imports_little() -> None:
    """Each of these takes one to five of its 20 MB."""
    program = "import sys, overnight.agent.uplink.__main__; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {"dataclasses", "inspect", "http.client", "email", "subprocess", "argparse", "ssl", "tempfile", "numpy", "hashlib", "decimal", "logging", "asyncio"}  # fmt: skip
    assert not heavy & set(done.stdout.split())


def test_a_report_of_an_idle_host_is_small(tmp_path: pathlib.Path) -> None:
    """96 cores at 30 s: headers and body are less than 6,000 bytes, 200 a second."""
    ring = uplinks.LiveRing(tmp_path, cores=96)
    for _ in range(300):
        ring.second({core: (random.randrange(9), 0, random.randrange(5), 90, 0, 0, 0, 0, 0, 0) for core in range(96)})  # fmt: skip
    with uplink_server.running() as server:
        server.interval = 30
        with uplinks.running(tmp_path, server.url) as process:
            server.wait_for(lambda s: len(s.rollups) >= 9)
            process.stop()
    stored = server.stored
    body, head = stored.body_bytes[1], max(map(len, stored.headers)) + 200
    reply = 400
    count = len(stored.reports[0].rollups)
    assert body / count + head + reply < 200 * 30


def test_other_rings_in_the_home_are_not_reported(ring: uplinks.LiveRing) -> None:
    other = layout.host_folder(ring.home, "other")
    other.mkdir(parents=True)
    event = dataclasses.replace(ring.event("a"), id="test.event-other", host="other")
    (other / "events-202611.jsonl").write_text(json.dumps(event.as_json()) + "\n")
    with uplink_server.running() as server, uplinks.running(ring.home, server.url) as process:
        server.wait_for(lambda s: len(s.reports) > 1)
        process.stop()
    assert_all_arrived(ring, server)
