"""A failed job is diagnosed like any other event: its chain has the root of the incident that it followed."""

from __future__ import annotations

import json
import pathlib

import pytest

import scenarios
from overnight.app import added_events, diagnose, events
from overnight.interfaces import cli
from overnight.model.times import SECOND_US, format_instant
from overnight.store.ring import reader as rings

SHORT = {"minutes": 16.0, "cores": 8}


def fail_job(truth: scenarios.Truth, seconds: float) -> diagnose.Diagnosis:
    """Add a failed job some seconds after the scenario's event, and diagnose it."""
    assert truth.event is not None
    at = format_instant(truth.event.time_us + round(seconds * SECOND_US))
    given = {"kind": "job.failed", "at": at, "host": truth.event.host, "labels": {"job": "t-7"}}
    (event,) = added_events.add(truth.home, [added_events.make_event(given)]).events
    return diagnose.diagnose(diagnose.Request(truth.home, event_id=event.short_id))


@pytest.mark.parametrize("name", ["reference", "reclaim"])
def test_the_root_is_that_of_the_incident(tmp_path: pathlib.Path, name: str) -> None:
    truth = scenarios.build(name, tmp_path, seed=11, **SHORT)
    expected, _ = diagnose.diagnose_event(truth.home, truth.event)
    diagnosis = fail_job(truth, 4)
    verdict = diagnosis.verdict
    assert verdict.event is not None
    assert verdict.event.kind == "job.failed"
    assert expected.chain is not None
    assert verdict.chain is not None
    assert verdict.chain.root.kind == expected.chain.root.kind
    assert verdict.chain.root.subject == expected.chain.root.subject
    assert verdict.confidence < expected.confidence
    assert verdict.event in diagnosis.material.events, "it is on the timeline"


def test_without_an_incident_nobody_is_accused(tmp_path: pathlib.Path) -> None:
    truth = scenarios.build("reference", tmp_path, seed=11, **SHORT)
    assert fail_job(truth, -200).verdict.chain is None


def test_an_incident_that_no_rule_saw_has_the_same_root(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = scenarios.build("reference", tmp_path, seed=11, **SHORT)
    assert truth.event is not None
    expected, _ = diagnose.diagnose_event(truth.home, truth.event)
    assert expected.chain is not None
    for path in truth.home.glob("signals/*/events-*.jsonl"):
        path.unlink()
    ring = rings.Reader(truth.home)
    at = format_instant(truth.event.time_us)
    given = ["--at", at, "--host", truth.event.host, "--core", str(truth.event.core)]
    command = ["--home", str(truth.home), "diagnose", "-O", "json"]
    for words, stored in (((), 0), (("--save", "--text", "requests hang"), 1)):
        assert cli.main([*command, *given, *words]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["event"]["kind"] == diagnose.REPORTED
        assert document["verdict"]["chain"][0]["kind"] == expected.chain.root.kind
        assert len(ring.events(0, events.EVER)) == stored
    refused = (
        ["--core", "3"],
        [*given, "--event", "8f0c"],
        ["--at", "tomorrow-ish"],
        [*given, "--kind", "Not a kind"],
    )
    for wrong in refused:
        assert cli.main([*command, *wrong]) == 2, wrong
