"""Detectors of state on whole made-up nights: what is true is found, what is not is not.

Nights are made once for all tests, outside of the time that a unit test has.
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
DETECTORS = {one.name: one for module in MODULES for one in module.DETECTORS}
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
    made: dict[str, scenarios.Truth] = {}

    def build(name: str, seed: int, **more: object) -> scenarios.Truth:
        key = f"{name} {seed} {sorted(more.items())}"
        if key not in made:
            made[key] = scenarios.build(name, tmp_path_factory.mktemp("night"), seed, **more)
        return made[key]

    return build


@pytest.fixture(params=NIGHTS, ids=lambda one: f"{one[0]}-{one[1]}", scope="session")
def truth(request: pytest.FixtureRequest, build: Build) -> scenarios.Truth:
    name, seed, more = request.param
    return build(name, seed, **more)


def _look(told: scenarios.Truth) -> dict[str, Answer]:
    assert told.event is not None
    one = case.Case(told.home, told.event)
    return {name: detector.look(one) for name, detector in DETECTORS.items()}


def _findings(answers: dict[str, Answer]) -> list[Finding]:
    return [one for answer in answers.values() for one in answer.findings]


def _is_about(one: Finding, parts: dict[str, object]) -> bool:
    subject = one.subject.as_json()
    return all(
        subject.get(name) in right if isinstance(right, frozenset) else subject.get(name) == right
        for name, right in parts.items()
    )


def test_what_is_true_is_found_and_nothing_else(truth: scenarios.Truth) -> None:
    answers = _look(truth)
    assert {name for name, one in answers.items() if one.status == Status.FAILED} == set()
    found = _findings(answers)
    for kind, parts in truth.chain:
        if kind in KINDS:
            mine = [one for one in found if one.kind == kind]
            assert any(_is_about(one, dict(parts)) for one in mine), (kind, parts, mine)
    # A loop that does no harm is a finding, and two causes of one night are both there.
    allowed = LOOPS if truth.name in ("decoy", "two-cause") else set()
    if truth.name == "two-cause":
        allowed |= {"memory.zombie_cgroups"}
    assert [one.kind for one in found if one.kind in truth.absent - allowed] == []


def test_findings_can_be_written_down_and_say_what_they_rest_on(truth: scenarios.Truth) -> None:
    found = _findings(_look(truth))
    assert len({one.id for one in found}) == len(found)
    for one in found:
        json.dumps(one.as_json(), allow_nan=False)
        assert one.evidence, one.kind
        assert 0 < one.confidence <= 1
        assert one.subject.host == truth.host
        assert one.window.begin_us < truth.event.time_us + 60_000_000  # type: ignore[union-attr]
        for evidence in one.evidence:
            if evidence.source == "profiles" and "path" in evidence.values:
                assert "lost_samples_in_the_window" in evidence.values
                assert evidence.look.startswith("overnight flame -b ")


def test_the_leak_is_measured_and_its_maker_named(build: Build) -> None:
    told = build("reference", 1, cores=8)
    (one,) = _look(told)["zombies"].findings
    # Nearly every birth leaves a zombie in that story.
    births = float(str(told.facts["births_per_hour"]))
    assert one.magnitude["growth_per_hour"] == pytest.approx(births, rel=0.2)
    assert one.magnitude["growth_low"] <= one.magnitude["growth_per_hour"]
    makers = [e.values for e in one.evidence if "creator" in e.values]
    assert makers[0]["creator"] == told.facts["loop"]
    assert makers[0]["fits"] is True
    assert one.magnitude["creator_deaths_per_zombie"] == pytest.approx(1, abs=0.35)


def test_restarts_that_systemd_counts_make_zombies_too(build: Build) -> None:
    told = build("modern", 1, **SHORT)
    (one,) = _look(told)["zombies"].findings
    assert next(e.values["creator"] for e in one.evidence if "creator" in e.values) == told.facts["loop"]  # fmt: skip


def test_reclaim_that_walks_is_told_apart_from_reclaim_that_works(build: Build) -> None:
    walks, works = _look(build("modern", 1, **SHORT)), _look(build("reclaim", 1, **SHORT))
    (walk,) = walks["cgroup-walk"].findings
    assert walk.confidence > walks["reclaim"].findings[0].confidence
    assert works["cgroup-walk"].status == Status.CLEAR
    assert works["reclaim"].findings[0].confidence > 0.8


def test_reclaim_of_the_whole_host_shows_in_its_counters(build: Build) -> None:
    found = _look(build("reclaim", 2, **SHORT, host_wide=True))["reclaim"].findings
    assert found[0].magnitude["pages_per_second"] > reclaim.PAGES_A_SECOND
    assert any(one.source == "vmstat" for one in found[0].evidence)


def test_without_the_stacks_nobody_says_that_no_one_walked(no_stacks: scenarios.Truth) -> None:
    answers = _look(no_stacks)
    assert answers["cgroup-walk"].status == Status.NO_DATA
    assert answers["lock-contention"].status == Status.NO_DATA
    assert answers["zombies"].status == Status.FOUND


@pytest.fixture(
    params=[
        *(("random", seed, SHORT) for seed in range(4)),
        *(("quiet", seed, {**SHORT, "unsynced": True}) for seed in range(2)),
    ],
    ids=lambda one: f"{one[0]}-{one[1]}",
)
def nothing(request: pytest.FixtureRequest, build: Build) -> scenarios.Truth:
    name, seed, more = request.param
    return build(name, seed, **more)


def test_nothing_is_found_on_random_and_on_quiet_nights(nothing: scenarios.Truth) -> None:
    assert _findings(_look(nothing)) == []


@pytest.fixture(scope="session")
def no_stacks(build: Build) -> scenarios.Truth:
    return build("half-missing", 3, keep_event=False, **SHORT)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nothing_is_found_on_many_random_nights(build: Build) -> None:
    found = {seed: _findings(_look(build("random", seed, **SHORT))) for seed in range(100, 160)}
    assert {seed: one for seed, one in found.items() if one} == {}
