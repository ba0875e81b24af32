"""`--server` against a real `overnight serve` with the hosts of a made-up fleet."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import pathlib
import secrets
import shutil
from collections.abc import Iterator

import jsonschema
import pytest
import serverprocesses

import scenarios
from overnight.app import bundles, compare, diagnose, drift, fleet_questions, pools
from overnight.fleet import blobs, control
from overnight.interfaces import cli
from overnight.model.control_plane import Role
from overnight.model.fleet import Fleet, Host
from overnight.model.uplink import Observed, Offer, Report
from overnight.queries import fleet as fleets
from scenarios import fleet

SCHEMAS = pathlib.Path(__file__).parents[2] / "docs/schemas"
KIND = "net.driver_reset"
# The night of the scenarios may be in the future, whose events a server would date back.
SHIFT_US = 400 * 86_400_000_000
YEAR_US = 366 * 86_400_000_000
PIECE = 1 << 20


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> scenarios.Truth:
    home = tmp_path_factory.mktemp("night") / "home"
    return scenarios.build("reference", home, seed=11, minutes=16.0, cores=8)


@pytest.fixture(scope="module")
def known(night: scenarios.Truth, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """The fleet that the agents report."""
    home = tmp_path_factory.mktemp("fleet") / "home"
    shutil.copytree(night.home, home)
    fleet.build_fleet(home, 3)
    return Fleet(tuple(map(earlier, fleets.read_fleet(home).hosts)))


def earlier(host: Host) -> Host:
    spells = (
        dataclasses.replace(s, begin_us=s.begin_us - SHIFT_US, end_us=s.end_us - SHIFT_US)
        for s in host.spells
    )
    events = (
        dataclasses.replace(e, time_us=e.time_us - SHIFT_US, until_us=max(0, e.until_us - SHIFT_US))
        for e in host.events
    )
    return dataclasses.replace(host, spells=tuple(spells), events=tuple(events))


@pytest.fixture(scope="module")
def server(
    night: scenarios.Truth, known: Fleet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[serverprocesses.Server]:
    """A server that has every host's report, and the window of one event."""
    home = tmp_path_factory.mktemp("serve") / "home"
    where = pools.Pools(home, "")
    plane = control.ControlPlane(where.plane.context.database, blobs.Blobs(home / "blobs"))
    file = home / "night.overnight"
    bundles.create(night.home, night.event, file)
    data = file.read_bytes()
    offer = Offer(night.event.id, hashlib.sha256(data).hexdigest(), len(data), 1, 2)
    for host in known.hosts:
        expires = plane.context.clock() + YEAR_US
        token = plane.tokens.create(Role.AGENT, name=host.name, expires_us=expires)
        identity = plane.agents.enrol(token.text, secrets.token_urlsafe(32), host.name)
        observed = (
            Observed(spell.boot, spell.begin_us, spell.end_us, round(spell.uptime * 1e6))
            for spell in host.spells
        )
        now = plane.context.clock()
        report = Report(
            now, host.spells[-1].boot, 1_000_000, tuple(observed), host.labels, host.events,
            snapshot=host.snapshot, windows=(offer,) if host.name == night.host else (),
        )  # fmt: skip
        plane.report(identity, report)
        if host.name == night.host:
            for at in range(0, len(data), PIECE):
                plane.put_blob(identity, offer.sha256, at, len(data), data[at : at + PIECE])
    where.plane.context.database.close()
    with serverprocesses.running(home) as running:
        yield running


@pytest.fixture
def show(server, monkeypatch, capsys):
    monkeypatch.setenv("OVERNIGHT_TOKEN", server.create_token("viewer"))

    def run(*words: str, code: int = 0) -> str:
        assert cli.main([*words, "--server", server.url]) == code, capsys.readouterr().err
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return run


def check(text: str) -> dict:
    document = json.loads(text)
    name = document["schema"].removeprefix("overnight.").replace("/", "-")
    jsonschema.validate(document, json.loads((SCHEMAS / f"{name}.json").read_text()))
    return document


def test_fleet_questions_have_the_answers_of_a_data_home(show, known: Fleet) -> None:
    asked = fleet_questions.KindRequest(KIND)
    for words, question, request in (
        (["cohorts"], fleet_questions.COHORTS, asked),
        (["hazard"], fleet_questions.HAZARD, asked),
        (["drift"], drift.QUESTION, drift.Request(kind=KIND)),
        (["compare", "--at", "2025-10-05"], compare.QUESTION, compare.Request((KIND,), "2025-10-05")),
    ):  # fmt: skip
        there = check(show(*words, "--kind", KIND, "-O", "json"))
        local = question.answer(known, request).as_json()  # type: ignore[attr-defined]
        local |= {"differences": local["differences"][:20]} if "differences" in local else {}
        assert there == json.loads(json.dumps(local)), words


def test_hosts_and_events_are_listed(show, known: Fleet, night: scenarios.Truth) -> None:
    hosts = check(show("hosts", "-O", "json"))["hosts"]
    assert [host["name"] for host in hosts] == [host.name for host in known.hosts]
    assert [host["labels"] for host in hosts] == [host.labels for host in known.hosts]
    assert show("hosts").count(" online ") == len(hosts)
    listed = check(show("events", "--kind", KIND, "-O", "json"))["events"]
    stored = [event.id for host in known.hosts for event in host.of_kind(KIND)]
    assert sorted(event["id"] for event in listed) == sorted(stored)
    assert [event["time_us"] for event in listed] == sorted(event["time_us"] for event in listed)
    assert show("events", night.event.short_id).startswith(f"event             {night.event.id}")
    assert "zzzzzz" in show("events", "zzzzzz", code=3)


def test_a_held_window_is_diagnosed_with_the_fleet(show, night: scenarios.Truth) -> None:
    document = check(show("diagnose", night.event.short_id, "-O", "json"))
    alone = diagnose_alone(night)
    assert document["fleet"]["hosts"] == 31
    assert document["verdict"] != alone["verdict"], "the fleet argues"
    statuses = {answer["detector"]: answer["status"] for answer in document["detectors"]}
    assert statuses["fleet.cohort"] == statuses["fleet.uptime"] == "found"
    assert check(show("cpu", night.event.id, "-O", "json"))["event"] == night.event.id


def diagnose_alone(night: scenarios.Truth) -> dict:
    out = io.BytesIO()
    diagnose.diagnose(diagnose.Request(night.home, event_id=night.event.id)).write("json", out)
    return json.loads(out.getvalue())


def test_refusals_of_the_server(show, monkeypatch, known: Fleet, night: scenarios.Truth) -> None:
    other = next(e for h in known.hosts for e in h.events if h.name != night.host)
    refused = show("diagnose", other.id, "--host", other.host, code=3)
    assert "viewer" in refused, "who cannot ask a host for a window"
    assert "no host 'nobody' is recorded" in show("drift", "--sick", "nobody", code=3)
    assert "--kind is missing" in show("cohorts", code=2)
    assert "nobody" in show("cpu", "--host", "nobody", "-b", "1h ago", code=3)
    monkeypatch.setenv("OVERNIGHT_TOKEN", "ovn_1_2")
    assert "refuses the token" in show("hosts", code=3)
