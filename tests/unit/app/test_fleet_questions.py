"""Questions about many hosts on a made-up fleet: what a server answers, and what it refuses."""

from __future__ import annotations

import json
import pathlib

import fleets
import jsonschema
import pytest

from overnight import errors
from overnight.app import compare, drift, fleet_questions, questions
from overnight.model import decoding
from overnight.model.finding import Status
from overnight.model.fleet import Fleet
from overnight.model.snapshot import Snapshot

SCHEMAS = pathlib.Path(__file__).parents[3] / "docs/schemas"
KIND = fleets.KIND
FLEET = Fleet(
    tuple(
        fleets.host(
            f"db-{n:02}",
            {"zone": "a" if n < 4 else "b", "image": f"i{n % 3}"},
            days=10,
            uptime_days=n % 5,
            events=(1.0, 5.0) if n < 4 else (),
            taken=Snapshot({"taken_at": "2026-11-15T03:14:07+00:00"}, {"units": {"agent.service": {"state": "enabled"}} if n < 4 else {}}, ()),
        )
        for n in range(16)
    ),
    ("db-99: damaged",),
)  # fmt: skip


def ask(name: str, parameters: dict[str, list[str]], fleet: Fleet = FLEET) -> dict:
    """Return the answer as a client receives it."""
    document = json.loads(json.dumps(fleet_questions.answer(name, parameters, lambda _: fleet)))
    jsonschema.validate(document, json.loads((SCHEMAS / f"{name}-1.json").read_text()))
    return document


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("cohorts", {"kind": [KIND]}),
        ("hazard", {"kind": [KIND]}),
        ("findings", {"kind": [KIND]}),
        ("drift", {"kind": [KIND]}),
        ("drift", {"sick": ["db-00", "db-01"]}),
        ("compare", {"kinds": [KIND], "group": ["zone=a"]}),
    ],
)
def test_the_document_is_decoded_to_the_same_result(name: str, parameters: dict) -> None:
    question = fleet_questions.find_question(name)
    request = question.parse(parameters)
    result = question.answer(FLEET, request)
    decoded = question.decode(ask(name, parameters))
    if name != "findings":
        assert decoded == _rounded(result)
    assert decoded.as_json() == result.as_json()
    sent: dict[str, list[str]] = {}
    for key, text in question.parameters(request):
        sent.setdefault(key, []).append(text)
    assert question.parse(sent) == request


def _rounded(result: object) -> object:
    """Confidences are published with three digits; items of a column by their names, not by their numbers."""
    import dataclasses

    if isinstance(result, fleet_questions.FleetAnswer):
        findings = (
            dataclasses.replace(finding, confidence=round(finding.confidence, 3))
            for finding in result.findings
        )
        return dataclasses.replace(result, findings=tuple(findings))
    if isinstance(result, drift.Drift):
        differences = (
            dataclasses.replace(each, column=dataclasses.replace(each.column, items=()))
            for each in result.comparison.differences
        )
        compared = dataclasses.replace(result.comparison, differences=tuple(differences))
        return dataclasses.replace(result, comparison=compared)
    return result


def test_the_answers_are_those_of_the_detectors() -> None:
    found = ask("cohorts", {"kind": [KIND]})
    assert (found["status"], found["problems"]) == ("found", ["db-99: damaged"])
    assert found["watched"] == {"hosts": 16, "hosts_with_event": 4, "events": 8, "host_days": 160.0}
    assert found["cohorts"][0]["labels"] == [{"name": "zone", "value": "a"}]
    assert (found["cohorts"][0]["hosts_with_event"], found["cohorts"][0]["hosts"]) == (4, 4)
    assert found["findings"][0]["subject"] == {"cohort": "zone a"}
    hazard = ask("hazard", {"kind": [KIND]})
    assert sum(band["events"] for band in hazard["bands"]) == 8
    assert sum(band["host_days"] for band in hazard["bands"]) == pytest.approx(160)
    answers = {
        answer["detector"]: answer for answer in ask("findings", {"kind": [KIND]})["answers"]
    }
    assert answers.keys() == {"fleet.cohort", "fleet.uptime", "fleet.drift"}
    assert answers["fleet.cohort"]["findings"] == found["findings"]
    assert answers["fleet.drift"]["findings"][0]["subject"]["unit"] == "agent.service"


def test_a_window_cuts_time_and_events() -> None:
    window = {"kind": [KIND], "begin": ["1970-01-03"], "end": ["1970-01-08"]}
    found = ask("cohorts", window)
    assert found["watched"] == {"hosts": 16, "hosts_with_event": 4, "events": 4, "host_days": 80.0}
    with pytest.raises(errors.CannotError, match="nothing was recorded between"):
        ask("hazard", {"kind": [KIND], "begin": ["2026-01-01"], "end": ["2026-01-02"]})


def test_no_event_and_no_host() -> None:
    for name in ("cohorts", "hazard"):
        found = ask(name, {"kind": ["job.failed"]})
        assert (found["status"], found["findings"]) == ("clear", [])
        assert "no job.failed" in found["why"]
        with pytest.raises(errors.CannotError, match="no hosts are recorded") as raised:
            ask(name, {"kind": [KIND]}, Fleet(()))
        # The server of a fleet gives the same advice as a data home.
        assert "`overnight agent --server URL` on each host" in raised.value.todo
    with pytest.raises(errors.CannotError, match="none of 0 hosts has a snapshot"):
        ask("drift", {}, Fleet(()))
    unlabelled = Fleet(tuple(fleets.host(f"h{n}") for n in range(4)))
    assert ask("cohorts", {"kind": [KIND]}, unlabelled)["status"] == "no-data"


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("weather", {}, "there is no question 'weather'"),
        ("cohorts", {"colour": ["red"]}, "has no parameter 'colour'"),
        ("cohorts", {"kind": ["a", "b"]}, "kind is given 2 times"),
        ("cohorts", {}, "--kind is missing"),
        ("hazard", {"kind": [KIND], "begin": ["soon"]}, "'soon' is not a time"),
        ("compare", {}, "give --at"),
        ("drift", {"kind": ["a"], "unit": ["b"]}, "mutually exclusive"),
    ],
)
def test_invalid_questions_are_usage_errors(name: str, parameters: dict, message: str) -> None:
    with pytest.raises(errors.UsageError, match=message):
        fleet_questions.answer(name, parameters, lambda _: FLEET)


def test_a_question_reads_only_what_it_needs() -> None:
    request = fleet_questions.KindRequest(KIND)
    assert fleet_questions.COHORTS.needs(request) == questions.Wanted([KIND])
    assert fleet_questions.HAZARD.needs(request) == questions.Wanted([KIND])
    assert fleet_questions.FINDINGS.needs(request) == questions.Wanted([KIND], snapshots=True)
    assert drift.QUESTION.needs(drift.Request()) == questions.Wanted(None, snapshots=True)
    assert compare.QUESTION.needs(compare.Request()) == questions.Wanted()


@pytest.mark.parametrize("name", ["cohorts", "hazard", "findings", "drift"])
def test_documents_of_another_form_are_refused(name: str) -> None:
    question, document = fleet_questions.find_question(name), ask(name, {"kind": [KIND]})
    with pytest.raises(decoding.ShapeError, match="schema is not"):
        question.decode(document | {"schema": "overnight.other/2"})
    for key in document.keys() - {"schema", "groups", "never_active", "unrecorded", "columns"}:
        if key == "problems" and name == "drift":
            continue
        for change in (document | {key: {"x": 1}}, {k: v for k, v in document.items() if k != key}):
            try:
                question.decode(change)
            except decoding.ShapeError:
                continue
            assert key in {"sick", "healthy", "draws", "status"}, key


def test_a_detector_that_fails_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("overnight.detectors.fleet.cohort.CohortSkew.ask", fail)
    answers = fleet_questions.run_detectors(FLEET, fleet_questions.KindRequest(KIND)).answers
    statuses = {answer.detector: answer.status for answer in answers}
    assert statuses["fleet.cohort"] is Status.FAILED
    assert statuses["fleet.drift"] is Status.FOUND
