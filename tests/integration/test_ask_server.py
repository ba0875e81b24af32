"""`--server` against a real `overnight serve` with the hosts of a made-up fleet."""

from __future__ import annotations

import io
import json
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import jsonschema
import pytest
import reportedfleet
import serverprocesses

import scenarios
from overnight.app import compare, diagnose, drift, fleet_questions
from overnight.interfaces import cli

if TYPE_CHECKING:
    from overnight.model.fleet import Fleet

SCHEMAS = pathlib.Path(__file__).parents[2] / "docs/schemas"
KIND = "net.driver_reset"


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> scenarios.Truth:
    home = tmp_path_factory.mktemp("night") / "home"
    return scenarios.build("reference", home, seed=11, minutes=16.0, cores=8)


@pytest.fixture(scope="module")
def known(night: scenarios.Truth, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """The fleet that the agents report."""
    return reportedfleet.make(night, tmp_path_factory.mktemp("fleet") / "home")


@pytest.fixture(scope="module")
def server(
    night: scenarios.Truth, known: Fleet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[serverprocesses.Server]:
    """A server that has every host's report, and the window of one event."""
    home = tmp_path_factory.mktemp("serve") / "home"
    reportedfleet.fill(home, night, known)
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
    asked, at = fleet_questions.KindRequest(KIND), reportedfleet.find_middle(known)
    for words, question, request in (
        (["cohorts"], fleet_questions.COHORTS, asked),
        (["hazard"], fleet_questions.HAZARD, asked),
        (["drift"], drift.QUESTION, drift.Request(kind=KIND)),
        (["compare", "--at", at], compare.QUESTION, compare.Request((KIND,), at)),
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
