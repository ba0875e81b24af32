"""A fleet of 12 scenario hosts and this one: real uplinks, a real server, questions as a user asks them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import images
import jsonschema
import pytest
import serverprocesses
import uplinks

import scenarios
from overnight.agent import task_config
from overnight.app import agent_inventory, audit
from overnight.interfaces import cli
from overnight.model.event import Event
from overnight.store import added_events
from overnight.store.ring import layout, reader
from scenarios import fleet

pytestmark = [pytest.mark.needs_root, pytest.mark.timeout(240)]
SCHEMAS = pathlib.Path(__file__).parents[2] / "docs/schemas"
KIND = "net.driver_reset"
HOUR_US, DAY_US = 3_600_000_000, 86_400_000_000
EVER = 1 << 62
THIS = platform.node()
AT_ONCE = 3  # uplinks


@dataclasses.dataclass(frozen=True)
class Fleet:
    server: serverprocesses.Server
    truth: scenarios.Truth
    homes: dict[str, pathlib.Path]  # of all hosts, this one included


def wait_until(done: Callable[[], object], seconds: float = 100) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.1)


def ring_events(home: pathlib.Path, host: str) -> list[Event]:
    return reader.Reader(home).events(0, EVER, (host,))


def describe(home: pathlib.Path, host: str) -> None:
    """Write what the agent's inventory writes for the uplink, of a host that cannot be asked any more."""
    folder, source = home / "uplink", reader.Reader(home)
    folder.mkdir(exist_ok=True)
    labels = agent_inventory.read_labels(source, host, task_config.TaskConfig())
    (folder / "labels.json").write_text(json.dumps(labels))
    spells = agent_inventory.read_spells(source, host)
    (folder / "history.json").write_text(json.dumps({"spells": spells}))
    [snapshot] = (home / "snapshots").rglob("*.json")
    (folder / "snapshot.json").write_bytes(snapshot.read_bytes())


def make_window(home: pathlib.Path, host: str, event: str) -> None:
    """Make a bundle as the agent does."""
    module = [sys.executable, "-m", "overnight.app.window_bundle"]
    subprocess.run([*module, str(home), host, event, "--event", event], check=True)


def report(server: serverprocesses.Server, home: pathlib.Path, host: str, token: str) -> None:
    """Run the uplink of a host until the server has all that it recorded."""
    folder = home / "uplink"
    recorded = layout.host_folder(home, host)
    boot = ring_events(home, host)[-1].boot if ring_events(home, host) else "0" * 32
    given = {"ring": str(recorded), "host": host, "boot": boot, "token": token}
    with uplinks.running(home, server.url, **given) as process:

        def is_done() -> bool:
            if process.child.poll() is not None:
                return True
            with contextlib.suppress(OSError, ValueError):
                state = json.loads((folder / "state.json").read_text())
                return bool(state["snapshot"]) and not [*(folder / "windows").glob("*.json")]
            return False

        wait_until(is_done)
        code = process.stop()
    assert (code, (folder / "history.json").exists()) == (0, False), process.log


@contextlib.contextmanager
def agent(server: serverprocesses.Server, folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Run the whole agent on this host; yield its data home."""
    home, token = folder / THIS, folder / "token"
    token.write_text(server.create_token("agent"))
    words = ["--home", str(home), "agent", "--server", server.url, "--signals-only", "--token-file", str(token)]  # fmt: skip
    command = [sys.executable, "-m", "overnight", *words]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            yield home
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(100)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        assert code == 0


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A server that has heard of all hosts, as it is after a night."""
    folder = tmp_path_factory.mktemp("fleet")
    with serverprocesses.running(folder / "server") as server, agent(server, folder) as this_home:
        # Not the night of other scenarios: a server dates events of the future back.
        truth = fleet.build_sick_zone(folder, 2, time.time_ns() // 1000 - DAY_US)
        homes = {name: folder / name for name in truth.facts["ids"]}
        make_window(truth.home, truth.host, truth.event.id)
        tokens = [server.create_token("agent") for _ in homes]
        for name, home in homes.items():
            describe(home, name)
        images.deep_learning(folder / "image")
        agent_inventory.write_audit(truth.home, folder / "image")
        with futures.ThreadPoolExecutor(AT_ONCE) as pool:
            done = [pool.submit(report, server, home, name, token) for (name, home), token in zip(homes.items(), tokens, strict=True)]  # fmt: skip
            for each in done:
                each.result()
        wait_until((this_home / "uplink/audit.json").exists)
        # The event makes the agent report at once, also what the inventory has found.
        now_us = time.time_ns() // 1000
        added_events.add(this_home, [Event(now_us, "job.failed", "a job", THIS, id="job.failed-1", source="operator", severity="info")])  # fmt: skip
        state = this_home / "uplink/state.json"
        wait_until(lambda: json.loads(state.read_text())["audit"])
        yield Fleet(server, truth, {**homes, THIS: this_home})


@pytest.fixture
def show(known: Fleet, monkeypatch, capsys) -> Callable[..., Any]:
    """Run a command of a viewer against the server; return its JSON document, or its text."""
    monkeypatch.setenv("OVERNIGHT_TOKEN", known.server.create_token("viewer"))
    monkeypatch.setenv("OVERNIGHT_SERVER", known.server.url)

    def run(*words: str, text: bool = False, code: int = 0) -> Any:
        more = () if text else ("-O", "json")
        assert cli.main([*words, *more]) == code, capsys.readouterr().err
        printed = capsys.readouterr().out
        if text:
            return printed
        document = json.loads(printed)
        name = document["schema"].removeprefix("overnight.").replace("/", "-")
        jsonschema.validate(document, json.loads((SCHEMAS / f"{name}.json").read_text()))
        return document

    return run


def test_all_hosts_are_listed_with_their_labels(show, known: Fleet) -> None:
    hosts = {host["name"]: host for host in show("hosts")["hosts"]}
    assert hosts.keys() == known.homes.keys()
    assert len(hosts) == 13
    zone, odd = known.truth.facts["zone"], known.truth.facts["odd"]
    assert {name for name, host in hosts.items() if host["labels"].get("zone") == zone} == {*known.truth.facts["sick"]}  # fmt: skip
    assert hosts[THIS]["labels"]["kernel"] == platform.release()
    images = Counter(host["labels"].get("image") for host in hosts.values())
    assert images[hosts[odd]["labels"]["image"]] == 1


def test_every_event_is_there_once(show, known: Fleet) -> None:
    # This host goes on: what it recorded meanwhile may be on its way.
    wait_until(lambda: {event.id for event in ring_events(known.homes[THIS], THIS)} <= {event["id"] for event in show("events", "--host", THIS)["events"]})  # fmt: skip
    listed = show("events")["events"]
    assert "job.failed-1" in {event["id"] for event in listed if event["host"] == THIS}
    assert max(Counter((event["host"], event["id"]) for event in listed).values()) == 1
    for name, ids in known.truth.facts["ids"].items():
        assert sorted(event["id"] for event in listed if event["host"] == name) == sorted(ids), name
    by_id = {event["id"]: event for event in listed}
    for name in known.truth.facts["sick"]:
        for event in ring_events(known.homes[name], name):
            assert json.loads(json.dumps(event.as_json())).items() <= by_id[event.id].items()


def test_the_questions_name_cohort_uptime_and_unit(show, known: Fleet) -> None:
    facts = known.truth.facts
    cohorts = show("cohorts", "--kind", KIND)
    assert cohorts["status"] == "found"
    assert [finding["subject"] for finding in cohorts["findings"]] == [{"cohort": f"zone {facts['zone']}"}]  # fmt: skip
    [hazard] = show("hazard", "--kind", KIND)["findings"]
    magnitude = hazard["magnitude"]
    assert magnitude["onset_hours_low"] < 24 * facts["onset_days"] < magnitude["onset_hours_high"]
    assert magnitude["accumulates"] == 1.0
    drift = show("drift", "--kind", KIND)
    assert (drift["status"], sorted(drift["sick"])) == ("found", sorted(facts["sick"]))
    assert sorted(drift["healthy"]) == sorted({*known.homes} - {*facts["sick"]})
    runs = {"part": "running", "key": facts["unit"], "property": "active", "value": "active"}
    stands = [difference["items"] for difference in drift["differences"] if difference["stands"]]
    assert any(runs.items() <= item.items() for items in stands for item in items)
    assert facts["unit"] in show("drift", "--kind", KIND, text=True)


def test_before_and_after_are_compared(show, known: Fleet) -> None:
    facts = known.truth.facts
    count = sum(map(len, facts["ids"].values()))
    [row] = show("compare", "--kind", KIND, "--group", f"zone={facts['zone']}")["rows"]
    assert (row["outcome"], row["before"]["events"], row["after"]["events"]) == ("rose", 0, count)
    at_us = known.truth.event.time_us // 60_000_000 * 60_000_000
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(at_us / 1e6))
    [row] = show("compare", "--kind", KIND, "--at", at)["rows"]
    events = [event for name in facts["sick"] for event in ring_events(known.homes[name], name)]
    before = sum(event.time_us < at_us for event in events)
    assert (row["before"]["events"], row["after"]["events"]) == (before, count - before)


def test_the_uploaded_window_of_a_sick_host_is_diagnosed(show, known: Fleet) -> None:
    document = show("diagnose", known.truth.event.short_id)
    assert document["event"]["id"] == known.truth.event.id
    assert document["fleet"]["hosts"] == 13
    statuses = {answer["detector"]: answer["status"] for answer in document["detectors"]}
    assert statuses["fleet.cohort"] == statuses["fleet.uptime"] == statuses["fleet.drift"] == "found"  # fmt: skip


def test_the_units_of_each_host_are_audited_as_on_the_host(show, known: Fleet, capsys) -> None:
    sick = show("audit", "--host", known.truth.host, code=1)
    assert (sick["host"], sick["units"], sick["bad"]) == (known.truth.host, 3, True)
    assert sick["findings"][0]["id"] == "foreign-orchestrator"
    text = show("audit", "--host", known.truth.host, text=True, code=1)
    assert f"on {known.truth.host}\nexamined 20" in text
    # The agent of this host examined it, at low priority, and as it is.
    local = audit.examine().as_json()
    there = show("audit", "--host", THIS, code=int(bool(local["bad"])))
    for name in ("live", "root", "units", "enabled", "unmaskable"):
        assert json.loads(json.dumps(local[name])) == there[name], name
    assert 0 < time.time_ns() // 1000 - there["examined_us"] < HOUR_US
    other = next(name for name in known.homes if name not in (known.truth.host, THIS))
    assert cli.main(["audit", "--host", other]) == 3
    assert f"host {other} has not reported an audit" in capsys.readouterr().err


@pytest.mark.long
def test_a_window_of_this_host_is_fetched_by_a_task(show, known: Fleet, monkeypatch) -> None:
    monkeypatch.setenv("OVERNIGHT_TOKEN", known.server.create_token("operator"))
    begin, end = (time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - ago)) for ago in (8, 2))  # fmt: skip
    document = show("cpu", "--host", THIS, "-b", begin, "-e", end)
    assert len(document["cores"]) == os.cpu_count()
