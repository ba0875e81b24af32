"""A failed job is diagnosed like any other event: its chain has the root of the incident that it followed."""

from __future__ import annotations

import json
import pathlib

import pytest

import scenarios
from overnight.app import added_events, diagnose, events
from overnight.diagnosis import calibration
from overnight.interfaces import cli
from overnight.model.selection import Window
from overnight.model.times import SECOND_US, format_instant
from overnight.model.verdict import VerdictStatus
from overnight.store.ring import reader as rings
from scenarios import outcomes

SHORT = {"minutes": 16.0, "cores": 8}


def fail_job(
    truth: scenarios.Truth,
    seconds: float,
    kind: str = "job.failed",
    recorded_s: float | None = None,
    **fields: object,
) -> diagnose.Diagnosis:
    """Add a failed job some seconds after the scenario's event, and diagnose it by what was recorded until then."""
    assert truth.event is not None
    after = truth.facts.get("end_us", truth.event.time_us)
    assert isinstance(after, int)
    at = format_instant(after + round(seconds * SECOND_US))
    given = {"kind": kind, "at": at, "host": truth.event.host, "labels": {"job": "t-7"}, **fields}
    (event,) = added_events.add(truth.home, [added_events.make_event(given)]).events
    within = Window(0, after + round(recorded_s * SECOND_US)) if recorded_s else None
    diagnosis = diagnose.diagnose(
        diagnose.Request(truth.home, event_id=event.short_id, within=within)
    )
    added_events.remove(truth.home, [event.id])
    return diagnosis


def read_kinds(diagnosis: diagnose.Diagnosis) -> list[str]:
    """Return the kinds of the chain that is claimed or suspected."""
    chain = diagnosis.verdict.blamed or diagnosis.verdict.chain
    return [step.kind for step in chain.steps] if chain else []


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> scenarios.Truth:
    return scenarios.build("reference", tmp_path_factory.mktemp("reference"), seed=11, **SHORT)


def test_an_outcome_leads_to_the_incident_it_falls_into_whatever_its_kind(
    reference: scenarios.Truth,
) -> None:
    """Forty seconds after a reset, its own incident window does not contain the reset."""
    expected, _ = diagnose.diagnose_event(reference.home, reference.event)
    assert expected.chain is not None
    seen = []
    for kind in ("job.failed", "invoice.late"):
        diagnosis = fail_job(reference, 40, kind)
        verdict = diagnosis.verdict
        assert verdict.status is VerdictStatus.CAUSE_FOUND
        assert read_kinds(diagnosis)[-2:] == ["net.driver_reset", kind]
        assert verdict.chain is not None
        assert verdict.chain.root.subject == expected.chain.root.subject
        assert verdict.confidence < expected.confidence
        assert "loses packets" in verdict.narrative.link
        seen.append((verdict.confidence, verdict.score, verdict.narrative.headline, read_kinds(diagnosis)[:-1]))  # fmt: skip
    assert seen[0] == seen[1]


def test_the_last_serious_event_may_be_the_outcome(reference: scenarios.Truth) -> None:
    """`overnight diagnose` without an event must not lose the incident because somebody added one."""
    assert reference.event is not None
    at = format_instant(reference.event.time_us + 40 * SECOND_US)
    given = {"kind": "job.failed", "at": at, "host": reference.event.host}
    (event,) = added_events.add(reference.home, [added_events.make_event(given)]).events
    verdict = diagnose.diagnose(diagnose.Request(reference.home)).verdict
    added_events.remove(reference.home, [event.id])
    assert verdict.event is not None
    assert verdict.event.kind == "job.failed"
    assert verdict.status is VerdictStatus.CAUSE_FOUND


@pytest.mark.parametrize(
    ("seconds", "fields"),
    [
        pytest.param(75, {}, id="after the incident"),
        pytest.param(-75, {}, id="before the incident"),
        pytest.param(40, {"host": "elsewhere"}, id="on another host"),
        pytest.param(40, {"severity": "info", "kind": "host.labels"}, id="no outcome"),
    ],
)
def test_an_outcome_that_does_not_fall_into_an_incident_accuses_nobody(
    reference: scenarios.Truth, seconds: float, fields: dict[str, object]
) -> None:
    diagnosis = fail_job(reference, seconds, **fields)  # type: ignore[arg-type]
    assert diagnosis.verdict.status is not VerdictStatus.CAUSE_FOUND
    assert (diagnosis.verdict.confidence, read_kinds(diagnosis)) == (0.0, [])


def test_a_reset_of_another_interface_is_no_link(reference: scenarios.Truth) -> None:
    diagnosis = fail_job(reference, 40, labels={"interface": "eth9"})
    assert "net.driver_reset" not in read_kinds(diagnosis)
    assert 0 < diagnosis.verdict.confidence < calibration.CLAIMED
    assert "Only the time" in diagnosis.verdict.narrative.link


VICTIM = {"process": "train", "unit": "train.service"}


@pytest.fixture(scope="module", params=[True, False], ids=["its core", "an idle core"])
def night(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[scenarios.Truth, bool]:
    home = tmp_path_factory.mktemp("outcome")
    return outcomes.build(home, 5, shares_core=request.param, cores=16, minutes=14.0), request.param


@pytest.mark.parametrize("name", ["process", "unit", "pid", "cgroup"])
@pytest.mark.parametrize("seconds", [1, 35])
def test_an_application_on_the_saturated_core_is_its_victim_and_one_elsewhere_is_not(
    night: tuple[scenarios.Truth, bool], name: str, seconds: float
) -> None:
    truth, shares_core = night
    victim = truth.facts["victim"]
    fields = {"labels": {name: str(getattr(victim, name))}} if name in ("pid", "cgroup") else {name: VICTIM[name]}  # fmt: skip
    diagnosis = fail_job(truth, seconds, **fields)
    verdict = diagnosis.verdict
    if shares_core:
        assert verdict.status is VerdictStatus.CAUSE_FOUND
        assert verdict.blamed is not None
        assert verdict.blamed.root.subject.process == truth.facts["process"]
        assert f"of core {truth.facts['core']}" in verdict.narrative.link
        assert "it had to wait" in verdict.narrative.link
    else:
        assert (verdict.status, verdict.confidence) == (VerdictStatus.NO_CAUSE, 0.0)
        why = " ".join(each.why for each in verdict.ruled_out)
        assert f"did not run on core {truth.facts['core']}" in why


@pytest.mark.parametrize(
    ("share", "roams", "status", "words"),
    [
        pytest.param(0.01, False, VerdictStatus.CAUSE_FOUND, "(100 % of its CPU time).", id="a small one, only there"),
        pytest.param(0.1, True, VerdictStatus.INCONCLUSIVE, "Only the time", id="on every core for a while"),
        pytest.param(0.4, True, VerdictStatus.CAUSE_FOUND, "it had to wait", id="on every core, and lost this one"),
    ],
)  # fmt: skip
def test_a_core_is_shared_by_what_has_most_of_its_time_there_or_lost_time(
    tmp_path: pathlib.Path, share: float, roams: bool, status: VerdictStatus, words: str
) -> None:
    """How much of the core it used shows neither: a heartbeat needs 1 % of its only core."""
    truth = outcomes.build(tmp_path, 5, shares_core=True, share=share, roams=roams, cores=16, minutes=14.0)  # fmt: skip
    verdict = fail_job(truth, 5, process="train").verdict
    assert verdict.status is status
    assert words in verdict.narrative.link
    assert f"of core {truth.facts['core']}" in verdict.narrative.link


def test_a_pid_is_one_worker_and_not_its_sibling_on_the_saturated_core(
    tmp_path: pathlib.Path,
) -> None:
    truth = outcomes.build(tmp_path, 5, shares_core=False, sibling=True, cores=16, minutes=14.0)
    victim = truth.facts["victim"]
    alone = fail_job(truth, 5, labels={"pid": str(victim.pid)}).verdict
    assert (alone.status, alone.confidence) == (VerdictStatus.NO_CAUSE, 0.0)
    assert any(f"did not run on core {truth.facts['core']}" in each.why for each in alone.ruled_out)
    assert fail_job(truth, 5, process=victim.process).verdict.status is VerdictStatus.CAUSE_FOUND


@pytest.mark.parametrize("kind", ["job.failed", "invoice.late", "incident.reported"])
@pytest.mark.parametrize("seconds", [1, 35])
def test_a_coincidence_in_time_is_only_suspected(
    night: tuple[scenarios.Truth, bool], kind: str, seconds: float
) -> None:
    truth, _ = night
    verdict = fail_job(truth, seconds, kind).verdict
    assert verdict.status is VerdictStatus.INCONCLUSIVE
    assert 0 < verdict.confidence < calibration.CLAIMED
    assert verdict.blamed is not None
    assert verdict.blamed.root.subject.process == truth.facts["process"]
    assert "Only the time" in verdict.narrative.link
    assert "core, cgroup, unit, process" in verdict.narrative.link


@pytest.mark.parametrize(
    ("core", "status"),
    [("core", VerdictStatus.CAUSE_FOUND), ("other_core", VerdictStatus.NO_CAUSE)],
)
def test_the_core_of_an_outcome_links_it(
    night: tuple[scenarios.Truth, bool], core: str, status: VerdictStatus
) -> None:
    truth, _ = night
    assert fail_job(truth, 35, core=truth.facts[core]).verdict.status is status


def test_a_core_that_the_application_did_not_use_is_no_link(
    night: tuple[scenarios.Truth, bool],
) -> None:
    """The core may be the one of the alert."""
    truth, shares_core = night
    verdict = fail_job(truth, 5, process="train", core=truth.facts["core"]).verdict
    assert verdict.status is (
        VerdictStatus.CAUSE_FOUND if shares_core else VerdictStatus.INCONCLUSIVE
    )


@pytest.mark.parametrize(("name", "value"), [("pid", "999999"), ("disk", "nvme7n1")])
def test_what_an_outcome_names_is_said_where_nothing_connects_it(
    night: tuple[scenarios.Truth, bool], name: str, value: str
) -> None:
    verdict = fail_job(night[0], 5, labels={name: value}).verdict
    assert verdict.status is VerdictStatus.INCONCLUSIVE
    assert f"no evidence connects {name} {value} with it" in verdict.narrative.link


def test_without_a_recording_of_its_time_an_outcome_is_not_known_to_have_no_cause(
    night: tuple[scenarios.Truth, bool],
) -> None:
    """The recording ended with the incident, which was on another core."""
    truth, _ = night
    statuses = [
        fail_job(truth, 35, recorded_s=until, core=truth.facts["other_core"]).verdict.status
        for until in (60, 3)
    ]
    assert statuses == [VerdictStatus.NO_CAUSE, VerdictStatus.INCONCLUSIVE]


def test_of_two_incidents_both_are_named_and_the_shared_core_decides(
    tmp_path: pathlib.Path,
) -> None:
    truth = outcomes.build(tmp_path, 5, shares_core=True, second=True, cores=16, minutes=14.0)
    both = {truth.facts["process"], truth.facts["second"]}
    verdict = fail_job(truth, 20).verdict
    assert verdict.status is VerdictStatus.INCONCLUSIVE
    assert {chain.root.subject.process for chain in verdict.alternatives} >= both
    assert all(
        str(name) in f"{verdict.narrative.headline} {verdict.narrative.link}" for name in both
    )
    linked = fail_job(truth, 20, process="train").verdict
    assert linked.status is VerdictStatus.CAUSE_FOUND
    assert linked.blamed is not None
    assert linked.blamed.root.subject.process == truth.facts["process"]


@pytest.mark.parametrize(("name", "linked"), [("reference", True), ("reclaim", False)])
def test_the_root_is_that_of_the_incident(tmp_path: pathlib.Path, name: str, linked: bool) -> None:
    """A reset concerns all that communicates; a saturated core only what needs it, and this job names no core."""
    truth = scenarios.build(name, tmp_path, seed=11, **SHORT)
    expected, _ = diagnose.diagnose_event(truth.home, truth.event)
    diagnosis = fail_job(truth, 4)
    verdict = diagnosis.verdict
    assert verdict.event is not None
    assert verdict.event.kind == "job.failed"
    assert expected.chain is not None
    assert verdict.blamed is not None
    assert (verdict.status is VerdictStatus.CAUSE_FOUND) is linked
    assert verdict.blamed.root.kind == expected.chain.root.kind
    assert verdict.blamed.root.subject == expected.chain.root.subject
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
