"""Scenarios with a known cause: the expected chain, and the chains that must not appear."""

from __future__ import annotations

import dataclasses

import findings
import pytest

from overnight.diagnosis import completeness, decision
from overnight.model.verdict import GapKind, VerdictStatus

STARVED = ["cpu.core_saturated", "net.queue_starved", "net.driver_reset"]
LOOP = ["unit.hidden_crash_loop", "memory.zombie_cgroups", "memory.cgroup_walk", *STARVED]
CHAINS = {
    "reference": LOOP,
    "modern": LOOP,
    "rt_hog": ["cpu.rt_hog", *STARVED],
    "softirq_storm": ["net.softirq_storm", *STARVED],
    "reclaim": ["memory.reclaim", *STARVED],
    "lock_convoy": ["kernel.lock_contention", *STARVED],
    "decoy": ["cpu.rt_hog", *STARVED],
    "two_causes": LOOP,
    "unknown": ["cpu.culprit", *STARVED],
}


def decide(detected, recorded=None, event=findings.RESET, **states):
    return decision.decide(event, findings.answers(detected, **states), recorded)


def kinds(verdict):
    return [step.kind for step in verdict.chain.steps] if verdict.chain else []


@pytest.mark.parametrize("name", CHAINS)
def test_each_scenario_has_its_chain(name: str) -> None:
    verdict = decide(findings.SCENARIOS[name]())
    assert verdict.status == "cause-found"
    assert kinds(verdict) == CHAINS[name]
    assert verdict.fix
    assert verdict.next[-2].expect == "confirmed"
    assert verdict.next[-1].expect == "refuted"


@pytest.mark.parametrize("name", ["reference", "modern", "two_causes"])
def test_a_complete_reference_incident_is_sure(name: str) -> None:
    assert decide(findings.SCENARIOS[name]()).score >= 0.8


@pytest.mark.parametrize("name", ["rt_hog", "softirq_storm", "reclaim", "lock_convoy", "decoy"])
def test_other_known_causes_are_surer_than_a_generic_chain(name: str) -> None:
    assert decide(findings.SCENARIOS[name]()).score > 0.65


def test_a_generic_chain_names_only_the_culprit() -> None:
    sure = [dataclasses.replace(finding, confidence=1.0) for finding in findings.unknown()]
    verdict = decide(sure)
    assert 0.5 < verdict.score <= 0.6
    assert "postgres (postgresql.service)" in verdict.summary
    assert "Why postgres did so is not known" in verdict.narrative.root_cause


def test_the_summary_names_process_place_time_cause_and_fix() -> None:
    summary = decide(findings.reference()).summary
    for part in (
        "2026-11-15T03:14:07", "net.driver_reset", "gpu-17", "core 39", "eth0 queue 5", "kubelet",
        "ecs.service", "330 times an hour", "68,440", "mem_cgroup_nr_lru_pages", "Disable and mask",
    ):  # fmt: skip
        assert part in summary


def test_a_container_runtime_is_not_reported_as_crash_looping() -> None:
    assert decide(findings.reference()).narrative.root_cause.startswith(
        "ecs.service is crash-looping 330 times an hour under its own supervisor"
    )
    assert decide(findings.modern()).narrative.root_cause.startswith(
        "A child of containerd.service is crash-looping 880 times an hour below /kubepods"
    )


def test_links_show_their_numbers() -> None:
    verdict = decide(findings.reference())
    first = verdict.chain.links[0]
    assert (
        "magnitude agrees: 330 cgroups created an hour against +327 dying an hour" in first.reasons
    )
    assert any("same core: 39" in reason for reason in verdict.chain.links[2].reasons)


def test_the_second_best_chain_says_why_it_lost() -> None:
    verdict = decide(findings.reference())
    (other,) = verdict.alternatives
    assert other.steps[0].kind == "cpu.culprit"
    assert "names the same process, kubelet, but not the reason" in other.why_not


def test_steps_of_the_best_chain_are_not_alternatives() -> None:
    verdict = decide(findings.modern())
    inside = {step.id for step in verdict.chain.steps}
    assert all(other.steps[0].id not in inside for other in verdict.alternatives)


@pytest.mark.parametrize("restarts", [3, 12, 90, 20000])
def test_a_crash_loop_whose_rate_does_not_match_is_a_decoy(restarts: float) -> None:
    """The reference zombies without their creator, and a loop that is too slow or too fast."""
    detected = [
        finding for finding in findings.reference() if finding.kind != "unit.hidden_crash_loop"
    ]
    verdict = decide([*detected, findings.crash_loop(restarts=restarts)])
    assert kinds(verdict)[0] == "memory.zombie_cgroups"
    (out,) = [candidate for candidate in verdict.ruled_out if candidate.kind == "unit.crash_loop"]
    assert f"{restarts:,} restarts an hour against +327 dying an hour" in out.why


def test_a_loop_that_matches_in_part_is_an_alternative_with_its_contradictions() -> None:
    verdict = decide([*findings.reference(), findings.hidden_loop("cron.service", 3000, "/cron")])
    assert verdict.chain.steps[0].subject.unit == "ecs.service"
    lost = next(
        other for other in verdict.alternatives if other.steps[0].subject.unit == "cron.service"
    )
    assert "agrees only in part: 3,000 cgroups created an hour" in lost.why_not
    assert "different cgroup: /cron, not /docker" in lost.why_not


@pytest.mark.parametrize(
    ("unit", "culprit"), [("/docker", "something below /docker"), ("ecs.service", "ecs.service")]
)
def test_a_cgroup_that_others_share_is_not_the_culprit(unit: str, culprit: str) -> None:
    detected = [each for each in findings.reference() if each.kind != LOOP[0]]
    verdict = decide([*detected, findings.hidden_loop(unit)])
    assert verdict.narrative.headline == f"Cause found: {culprit} leaks memory cgroups"


def test_what_may_be_behind_the_root_and_was_not_recorded_is_missing() -> None:
    """No score is lowered: a recording may be older than a detector."""
    walk = [each for each in findings.reference() if each.kind not in LOOP[:2]]
    whole, silent = decide(walk), decide(walk, no_data=["zombies", "rt-hog"])
    assert silent.chain.steps[0].kind == "memory.cgroup_walk"
    assert silent.score == whole.score
    assert whole.narrative.missing == "nothing"
    assert "evidence of dying (zombie) memory cgroups behind it (" in silent.narrative.missing
    assert "real-time" not in silent.narrative.missing


def test_two_loops_that_match_equally_lower_confidence() -> None:
    alone = decide(findings.reference())
    verdict = decide([*findings.reference(), findings.hidden_loop("twin.service", 329)])
    assert verdict.score < 0.8 * alone.score
    assert verdict.gaps[0].kind is GapKind.RIVAL
    # Neither is masked before it is known which of them leaks.
    assert verdict.status is VerdictStatus.INCONCLUSIVE
    assert verdict.confidence <= 0.5
    assert verdict.fix == ()
    assert all(unit in verdict.narrative.root_cause for unit in ("ecs.service", "twin.service"))
    assert "Nothing shows which of the two it is" in verdict.narrative.root_cause


@pytest.mark.parametrize(
    ("cgroup", "sureness", "container"),
    [
        pytest.param("/cron", 1.0, "", id="elsewhere"),
        pytest.param("/docker", 0.5, "", id="in a shared slice"),
        pytest.param("/docker", 0.75, "docker:?", id="maybe the same container"),
    ],
)
def test_a_loop_that_is_less_likely_takes_no_confidence(
    cgroup: str, sureness: float, container: str
) -> None:
    other = findings.hidden_loop("" if container else "cron.service", 329, cgroup)
    subject = dataclasses.replace(other.subject, container=container)
    other = dataclasses.replace(other, confidence=sureness * other.confidence, subject=subject)
    verdict = decide([*findings.reference(), other])
    assert verdict.chain.steps[0].subject.unit == "ecs.service"
    assert verdict.status is VerdictStatus.CAUSE_FOUND


def test_two_processes_that_share_a_core_saturate_it_together() -> None:
    first, second = (findings.culprit(name, f"{name}.service", 0.5) for name in ("etl", "index"))
    rest = [each for each in findings.unknown() if each.kind != "cpu.culprit"]
    alone, both = decide([*rest, first]), decide([*rest, first, second])
    assert "Nothing shows which of the two" not in both.narrative.root_cause
    assert both.confidence > 0.5 * alone.confidence


def test_a_crash_loop_without_a_link_to_the_core_is_ruled_out() -> None:
    verdict = decide([*findings.unknown(), findings.crash_loop()])
    assert kinds(verdict) == CHAINS["unknown"]
    (out,) = verdict.ruled_out
    assert "different unit: flaky.service, not postgresql.service" in out.why


def test_zombies_without_a_walk_explain_nothing() -> None:
    verdict = decide([*findings.rt_hog(), findings.zombies(), findings.hidden_loop()])
    assert kinds(verdict) == CHAINS["rt_hog"]
    assert {candidate.kind for candidate in verdict.ruled_out} >= {"memory.zombie_cgroups"}


def test_a_walk_on_another_core_does_not_saturate_this_core() -> None:
    aside = findings.walk(*findings.KUBELET, findings.NUMA, core=12)
    verdict = decide([*findings.unknown(), aside, findings.zombies(), findings.hidden_loop()])
    assert kinds(verdict) == CHAINS["unknown"]


def test_a_process_that_did_not_run_on_the_core_did_not_saturate_it() -> None:
    """Reclaim findings have no core: the process that reclaims must have run on the core."""
    other = [finding for finding in findings.reclaim() if finding.kind == "memory.reclaim"]
    verdict = decide([*findings.unknown(), *other])
    assert kinds(verdict) == CHAINS["unknown"]
    assert any(
        "saturated by postgres, not by loader" in candidate.why for candidate in verdict.ruled_out
    )


def test_each_event_of_two_causes_has_its_own_chain() -> None:
    earlier = dataclasses.replace(
        findings.RESET, time_us=findings.T - 3600 * findings.SECOND, core=12, id="earlier",
        fields={"interface": "eth0", "queue": 2},
    )  # fmt: skip
    detected = [finding for finding in findings.two_causes() if finding.detector != "event"]
    verdict = decide(detected, event=earlier)
    assert kinds(verdict) == ["cpu.rt_hog", "cpu.core_saturated", "net.driver_reset"]
    assert {step.subject.core for step in verdict.chain.steps} == {12}


def test_an_event_without_other_findings_has_no_cause() -> None:
    verdict = decide([findings.reset()])
    assert (verdict.status, verdict.chain, verdict.alternatives, verdict.fix) == (
        "no-cause",
        None,
        (),
        (),
    )
    assert verdict.narrative.headline == "No cause found"
    assert "nothing in it leads to this event" in verdict.summary


def test_without_an_event_there_is_no_cause() -> None:
    verdict = decide([], event=None)
    assert verdict.status == "no-cause"
    assert verdict.summary.startswith("No cause found: no event of severity warning or critical")


def test_findings_without_a_link_to_the_event_are_not_a_cause() -> None:
    verdict = decide([findings.reset(), findings.crash_loop(), findings.zombies()])
    assert (verdict.status, verdict.chain) == ("no-cause", None)
    assert {candidate.kind for candidate in verdict.ruled_out} == {
        "unit.crash_loop",
        "memory.zombie_cgroups",
    }


def test_detectors_without_data_are_inconclusive() -> None:
    assert decide([findings.reset()], no_data=findings.DETECTORS).status == "inconclusive"


def test_no_findings_in_half_of_the_evidence_is_inconclusive() -> None:
    recorded = completeness.Recording(stacks=findings.covered(0.1), signals=0.5)
    verdict = decide([findings.reset()], recorded)
    assert verdict.status == "inconclusive"
    assert any(step.command == "overnight record --for 12h" for step in verdict.next)


def test_no_findings_with_only_the_baseline_missing_is_no_cause() -> None:
    """An event in the first minute of a recording has nothing to be compared with."""
    recorded = completeness.Recording(
        findings.covered(0.8), findings.covered(0.0), findings.covered(0.3), signals=0.8
    )
    assert decide([findings.reset()], recorded).status == "no-cause"


HALVES = [
    completeness.Recording(stacks=findings.covered(0.5)),
    completeness.Recording(baseline=findings.covered(0.5), night=findings.covered(0.5)),
    completeness.Recording(
        stacks=findings.covered(0.5), baseline=findings.covered(0.5), night=findings.covered(0.5)
    ),
    completeness.Recording(stacks=findings.covered(1.0, lost=0.5)),
    completeness.Recording(signals=0.5),
]


@pytest.mark.parametrize("recorded", HALVES, ids=range(len(HALVES)))
def test_half_of_the_evidence_is_half_as_sure(recorded: completeness.Recording) -> None:
    verdict = decide(findings.reference(), recorded)
    assert verdict.status == "cause-found"
    assert 0.35 <= verdict.score <= 0.7
    assert verdict.gaps


def test_without_stacks_only_the_core_is_known() -> None:
    """The culprit is unknown: the chain names no process, and the next step asks for stacks."""
    detected = [findings.reset(), findings.saturated(), findings.starved(), findings.zombies()]
    recorded = completeness.Recording(stacks=findings.covered(0.0))
    verdict = decide(detected, recorded, no_data=("culprit",))
    assert verdict.status == "inconclusive"
    assert kinds(verdict) == STARVED
    assert verdict.fix == ()
    assert verdict.next[0].what.startswith("Record stacks around the event")


def test_an_event_on_an_unknown_core_gets_no_generic_cause() -> None:
    """Every busy host has a saturated core: the same time alone is not a link."""
    nowhere = dataclasses.replace(findings.RESET, core=-1, fields={})
    detected = [findings.saturated(), findings.culprit("postgres", "postgresql.service")]
    verdict = decide(detected, event=nowhere)
    assert verdict.status == "inconclusive"
    assert verdict.alternatives[0].steps[0].kind == "cpu.culprit"
    assert "a suspicion only" in verdict.alternatives[0].why_not
    assert any("core" in step.what for step in verdict.next)


def test_the_recorded_event_is_used_when_its_detector_failed() -> None:
    detected = [finding for finding in findings.reference() if finding.detector != "event"]
    verdict = decide(detected, failed=("event",))
    assert kinds(verdict) == LOOP
    assert verdict.chain.steps[-1].subject.queue == 5
    assert any(
        gap.kind is GapKind.DETECTOR_FAILED and gap.detector == "event" for gap in verdict.gaps
    )


def test_a_lift_over_recurrences_supports_the_culprit_and_its_absence_does_not() -> None:
    def lift(low: float) -> object:
        magnitude = {
            "lift": 9.0,
            "low": low,
            "q_value": 0.01,
            "recurrences": 6.0,
            "cores_more": 0.9,
        }
        return findings.make_finding(
            "stack.lift",
            magnitude=magnitude,
            process="postgres",
            unit="postgresql.service",
            function="crc32c",
        )

    def strength(*more: object) -> float:
        return decide([*findings.unknown(), *more]).chain.links[0].strength

    assert strength(lift(1.8)) >= strength() > strength(lift(-0.2))
    reasons = decide([*findings.unknown(), lift(1.8)]).chain.links[0].reasons
    assert "recurrence: it also ran 9 times as much before 6 recurrences" in reasons


def test_a_missing_magnitude_lowers_the_strength_and_is_reported() -> None:
    whole = decide(findings.reference())
    detected = [findings.without(finding, "births_per_hour") for finding in findings.reference()]
    verdict = decide(detected)
    assert kinds(verdict)[0] in ("unit.hidden_crash_loop", "memory.zombie_cgroups")
    assert verdict.score < whole.score
    links = [
        *verdict.chain.links,
        *(link for other in verdict.alternatives for link in other.links),
    ]
    assert any("not checked: births per hour was not measured" in link.against for link in links)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("cpu.soft_lockup", "kernel.lock_contention"),
        ("rcu.stall", "cpu.rt_hog"),
        ("cpu.core_pinned", "memory.cgroup_walk"),
    ],
)
def test_events_of_other_kinds(kind: str, cause: str) -> None:
    subject = {"process": "app", "unit": "app.service", "core": 39}
    event = dataclasses.replace(findings.RESET, kind=kind, process="app", fields={})
    detected = [findings.make_finding(cause, -20, 1, 0.9, {"cores_burnt": 0.97}, **subject)]
    if kind == "cpu.core_pinned":
        detected.append(findings.saturated())
    verdict = decide(detected, event=event)
    assert (verdict.status, kinds(verdict)[0], kinds(verdict)[-1]) == ("cause-found", cause, kind)


def test_zombie_growth_as_the_event_leads_to_the_crash_loop() -> None:
    event = dataclasses.replace(findings.RESET, kind="memory.zombie_growth", core=-1, fields={})
    verdict = decide(
        [findings.zombies(), findings.hidden_loop(), findings.crash_loop()], event=event
    )
    assert kinds(verdict) == [
        "unit.hidden_crash_loop",
        "memory.zombie_cgroups",
        "memory.zombie_growth",
    ]


def test_json_contains_the_chain_and_the_ruled_out_causes() -> None:
    import json

    document = json.loads(json.dumps(decide(findings.decoy()).as_json()))
    assert document["verdict"]["chain"][0]["kind"] == "cpu.rt_hog"
    assert {candidate["kind"] for candidate in document["ruled_out"]} == {
        "memory.zombie_cgroups",
        "unit.crash_loop",
    }
