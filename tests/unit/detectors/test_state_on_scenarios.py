"""State detectors on generated scenarios: true causes are found and others are not.

Scenarios are built once for all tests, outside the time limit of a unit test.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import scenarios
from overnight.detectors import (
    cgroup_walk,
    crash_loops,
    kernel_limits,
    lock_contention,
    lockups,
    oom,
    reclaim,
    storage_faults,
    zombie_cgroups,
)
from overnight.model.finding import Answer, Finding, Status
from overnight.queries import case

Build = Callable[..., scenarios.Truth]
MODULES = (
    cgroup_walk,
    crash_loops,
    kernel_limits,
    lock_contention,
    lockups,
    oom,
    reclaim,
    storage_faults,
    zombie_cgroups,
)
DETECTORS = {detector.name: detector for module in MODULES for detector in module.DETECTORS}
KINDS = {
    "memory.zombie_cgroups", "unit.crash_loop", "unit.hidden_crash_loop", "memory.cgroup_walk",
    "memory.reclaim", "kernel.lock_contention", "memory.oom", "cpu.stall", "storage.fault",
    "limit.near",
}  # fmt: skip
LOOPS = {"unit.crash_loop", "unit.hidden_crash_loop"}
SHORT = {"minutes": 16.0, "cores": 8}
NIGHTS = (
    ("reference", 1, {"cores": 8}),
    ("modern", 1, SHORT),
    ("reclaim", 1, SHORT),
    ("reclaim", 2, {**SHORT, "host_wide": True}),
    ("lock-convoy", 1, SHORT),
    ("decoy", 1, {**SHORT, "hidden": True, "cause": "reclaim"}),
    ("decoy", 2, {**SHORT, "hidden": False, "cause": "rt-hog"}),
    ("softirq-storm", 1, SHORT),
    ("two-cause", 1, SHORT),
    ("half-missing", 1, SHORT),
)


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    built: dict[str, scenarios.Truth] = {}

    def build(name: str, seed: int, **more: object) -> scenarios.Truth:
        key = f"{name} {seed} {sorted(more.items())}"
        if key not in built:
            built[key] = scenarios.build(name, tmp_path_factory.mktemp("night"), seed, **more)
        return built[key]

    return build


@pytest.fixture(params=NIGHTS, ids=lambda night: f"{night[0]}-{night[1]}", scope="session")
def truth(request: pytest.FixtureRequest, build: Build) -> scenarios.Truth:
    name, seed, more = request.param
    return build(name, seed, **more)


def _run_detectors(truth: scenarios.Truth) -> dict[str, Answer]:
    assert truth.event is not None
    opened = case.Case(truth.home, truth.event)
    return {name: detector.look(opened) for name, detector in DETECTORS.items()}


def _findings(answers: dict[str, Answer]) -> list[Finding]:
    return [finding for answer in answers.values() for finding in answer.findings]


def _is_about(finding: Finding, parts: dict[str, object]) -> bool:
    subject = finding.subject.as_json()
    return all(
        subject.get(name) in right if isinstance(right, frozenset) else subject.get(name) == right
        for name, right in parts.items()
    )


def test_true_causes_are_found_and_nothing_else(truth: scenarios.Truth) -> None:
    answers = _run_detectors(truth)
    assert {name for name, answer in answers.items() if answer.status == Status.FAILED} == set()
    findings = _findings(answers)
    for kind, parts in truth.chain:
        if kind in KINDS:
            of_kind = [finding for finding in findings if finding.kind == kind]
            assert any(_is_about(finding, dict(parts)) for finding in of_kind), (
                kind,
                parts,
                of_kind,
            )
    # A harmless loop is a finding, and a scenario with two causes has both.
    allowed = LOOPS if truth.name in ("decoy", "two-cause") else set()
    if truth.name == "two-cause":
        allowed |= {"memory.zombie_cgroups"}
    assert [finding.kind for finding in findings if finding.kind in truth.absent - allowed] == []


def test_findings_are_valid_json_with_evidence(truth: scenarios.Truth) -> None:
    findings = _findings(_run_detectors(truth))
    assert len({finding.id for finding in findings}) == len(findings)
    for finding in findings:
        json.dumps(finding.as_json(), allow_nan=False)
        assert finding.evidence, finding.kind
        assert 0 < finding.confidence <= 1
        assert finding.subject.host == truth.host
        assert finding.window.begin_us < truth.event.time_us + 60_000_000  # type: ignore[union-attr]
        for evidence in finding.evidence:
            if evidence.source == "profiles" and "path" in evidence.values:
                assert "lost_samples_in_the_window" in evidence.values
                assert evidence.look.startswith("overnight flame -b ")


def test_the_leak_is_measured_and_its_creator_named(build: Build) -> None:
    truth = build("reference", 1, cores=8)
    (finding,) = _run_detectors(truth)["zombies"].findings
    # Nearly every birth leaves a zombie in this scenario.
    births = float(str(truth.facts["births_per_hour"]))
    assert finding.magnitude["growth_per_hour"] == pytest.approx(births, rel=0.2)
    assert finding.magnitude["growth_low"] <= finding.magnitude["growth_per_hour"]
    creators = [e.values for e in finding.evidence if "creator" in e.values]
    assert creators[0]["creator"] == truth.facts["loop"]
    assert creators[0]["fits"] is True
    assert finding.magnitude["creator_deaths_per_zombie"] == pytest.approx(1, abs=0.35)


def test_restarts_that_systemd_counts_make_zombies_too(build: Build) -> None:
    truth = build("modern", 1, **SHORT)
    (finding,) = _run_detectors(truth)["zombies"].findings
    assert next(e.values["creator"] for e in finding.evidence if "creator" in e.values) == truth.facts["loop"]  # fmt: skip


def test_reclaim_that_walks_is_distinguished_from_reclaim_that_frees_memory(build: Build) -> None:
    walking, freeing = (
        _run_detectors(build("modern", 1, **SHORT)),
        _run_detectors(build("reclaim", 1, **SHORT)),
    )
    (walk,) = walking["cgroup-walk"].findings
    assert walk.confidence > walking["reclaim"].findings[0].confidence
    assert freeing["cgroup-walk"].status == Status.CLEAR
    assert freeing["reclaim"].findings[0].confidence > 0.8


def test_reclaim_of_the_whole_host_shows_in_its_counters(build: Build) -> None:
    findings = _run_detectors(build("reclaim", 2, **SHORT, host_wide=True))["reclaim"].findings
    assert findings[0].magnitude["pages_per_second"] > reclaim.PAGES_A_SECOND
    assert any(entry.source == "vmstat" for entry in findings[0].evidence)


def test_without_stacks_the_walk_detector_has_no_data(no_stacks: scenarios.Truth) -> None:
    answers = _run_detectors(no_stacks)
    assert answers["cgroup-walk"].status == Status.NO_DATA
    assert answers["lock-contention"].status == Status.NO_DATA
    assert answers["zombies"].status == Status.FOUND


@pytest.fixture(
    params=[
        *(("random", seed, SHORT) for seed in range(4)),
        *(("quiet", seed, {**SHORT, "unsynced": True}) for seed in range(2)),
    ],
    ids=lambda night: f"{night[0]}-{night[1]}",
)
def without_cause(request: pytest.FixtureRequest, build: Build) -> scenarios.Truth:
    name, seed, more = request.param
    return build(name, seed, **more)


def test_random_and_quiet_scenarios_have_no_findings(without_cause: scenarios.Truth) -> None:
    assert _findings(_run_detectors(without_cause)) == []


@pytest.fixture(scope="session")
def no_stacks(build: Build) -> scenarios.Truth:
    return build("half-missing", 3, keep_event=False, **SHORT)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_many_random_scenarios_have_no_findings(build: Build) -> None:
    nights = {
        seed: _findings(_run_detectors(build("random", seed, **SHORT))) for seed in range(100, 160)
    }
    assert {seed: findings for seed, findings in nights.items() if findings} == {}
