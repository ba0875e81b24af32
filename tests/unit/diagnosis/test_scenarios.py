"""Nights whose truth is known: the chain that must come out, and those that must not."""

from __future__ import annotations

import dataclasses

import findings
import pytest

from overnight.diagnosis import completeness, decision
from overnight.model.verdict import GapKind

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


def judged(many, recorded=None, told=findings.RESET, **states):
    return decision.decide(told, findings.answers(many, **states), recorded)


def kinds(said):
    return [step.kind for step in said.chain.steps] if said.chain else []


@pytest.mark.parametrize("name", CHAINS)
def test_the_chain_of_each_night(name: str) -> None:
    said = judged(findings.SCENARIOS[name]())
    assert said.status == "cause-found"
    assert kinds(said) == CHAINS[name]
    assert said.fix
    assert said.next[-2].expect == "confirmed"
    assert said.next[-1].expect == "refuted"


@pytest.mark.parametrize("name", ["reference", "modern", "two_causes"])
def test_a_complete_reference_incident_is_sure(name: str) -> None:
    assert judged(findings.SCENARIOS[name]()).confidence >= 0.8


@pytest.mark.parametrize("name", ["rt_hog", "softirq_storm", "reclaim", "lock_convoy", "decoy"])
def test_other_known_causes_are_surer_than_a_generic_chain(name: str) -> None:
    assert judged(findings.SCENARIOS[name]()).confidence > 0.65


def test_a_generic_chain_says_who_and_never_claims_more_than_that() -> None:
    sure = [dataclasses.replace(one, confidence=1.0) for one in findings.unknown()]
    said = judged(sure)
    assert 0.5 < said.confidence <= 0.6
    assert "postgres (postgresql.service)" in said.summary
    assert "Why postgres did so is not known" in said.narrative.root_cause


def test_the_summary_says_who_where_when_why_and_what_to_do() -> None:
    said = judged(findings.reference()).summary
    for part in (
        "2026-11-15 03:14:07", "net.driver_reset", "gpu-17", "core 39", "eth0 queue 5", "kubelet",
        "ecs.service", "330 times an hour", "68,440", "mem_cgroup_nr_lru_pages", "Disable and mask",
    ):  # fmt: skip
        assert part in said


def test_a_container_runtime_is_not_said_to_crash_loop_itself() -> None:
    assert judged(findings.reference()).narrative.root_cause.startswith(
        "ecs.service is crash-looping 330 times an hour under its own supervisor"
    )
    assert judged(findings.modern()).narrative.root_cause.startswith(
        "A child of containerd.service is crash-looping 880 times an hour below /kubepods"
    )


def test_the_links_carry_their_numbers() -> None:
    said = judged(findings.reference())
    first = said.chain.links[0]
    assert (
        "magnitude agrees: 330 cgroups created an hour against +327 dying an hour" in first.reasons
    )
    assert any("same core: 39" in reason for reason in said.chain.links[2].reasons)


def test_the_runner_up_is_kept_with_why_it_lost() -> None:
    said = judged(findings.reference())
    (other,) = said.alternatives
    assert other.steps[0].kind == "cpu.culprit"
    assert "names the same process, kubelet, but not the reason" in other.why_not


def test_what_is_part_of_the_winner_is_no_alternative() -> None:
    said = judged(findings.modern())
    inside = {step.id for step in said.chain.steps}
    assert all(one.steps[0].id not in inside for one in said.alternatives)


@pytest.mark.parametrize("restarts", [3, 12, 90, 20000])
def test_a_crash_loop_whose_rate_does_not_match_is_a_decoy(restarts: float) -> None:
    """The zombies of the reference, their creator unseen, and a loop that is too slow or too fast."""
    many = [one for one in findings.reference() if one.kind != "unit.hidden_crash_loop"]
    said = judged([*many, findings.crash_loop(restarts=restarts)])
    assert kinds(said)[0] == "memory.zombie_cgroups"
    (out,) = [one for one in said.ruled_out if one.kind == "unit.crash_loop"]
    assert f"{restarts:,} restarts an hour against +327 dying an hour" in out.why


def test_a_loop_that_matches_in_part_is_an_alternative_with_what_speaks_against_it() -> None:
    said = judged([*findings.reference(), findings.hidden_loop("cron.service", 3000, "/cron")])
    assert said.chain.steps[0].subject.unit == "ecs.service"
    lost = next(one for one in said.alternatives if one.steps[0].subject.unit == "cron.service")
    assert "agrees only in part: 3,000 cgroups created an hour" in lost.why_not
    assert "different cgroup: /cron, not /docker" in lost.why_not


def test_two_loops_that_match_alike_leave_a_doubt() -> None:
    alone = judged(findings.reference())
    said = judged([*findings.reference(), findings.hidden_loop("twin.service", 329)])
    assert said.confidence < 0.8 * alone.confidence
    assert said.gaps[0].kind is GapKind.RIVAL


def test_a_crash_loop_without_a_link_to_the_core_is_ruled_out() -> None:
    said = judged([*findings.unknown(), findings.crash_loop()])
    assert kinds(said) == CHAINS["unknown"]
    (out,) = said.ruled_out
    assert "different unit: flaky.service, not postgresql.service" in out.why


def test_zombies_that_nobody_walks_over_explain_nothing() -> None:
    said = judged([*findings.rt_hog(), findings.zombies(), findings.hidden_loop()])
    assert kinds(said) == CHAINS["rt_hog"]
    assert {one.kind for one in said.ruled_out} >= {"memory.zombie_cgroups"}


def test_a_walk_on_another_core_does_not_fill_this_one() -> None:
    aside = findings.walk(*findings.KUBELET, findings.NUMA, core=12)
    said = judged([*findings.unknown(), aside, findings.zombies(), findings.hidden_loop()])
    assert kinds(said) == CHAINS["unknown"]


def test_who_was_not_on_the_core_did_not_fill_it() -> None:
    """Reclaim knows no core: who reclaims must be who ran there."""
    other = [one for one in findings.reclaim() if one.kind == "memory.reclaim"]
    said = judged([*findings.unknown(), *other])
    assert kinds(said) == CHAINS["unknown"]
    assert any("saturated by postgres, not by loader" in one.why for one in said.ruled_out)


def test_each_event_of_a_two_cause_night_has_its_own_chain() -> None:
    earlier = dataclasses.replace(
        findings.RESET, time_us=findings.T - 3600 * findings.SECOND, core=12, id="earlier",
        fields={"interface": "eth0", "queue": 2},
    )  # fmt: skip
    many = [one for one in findings.two_causes() if one.detector != "event"]
    said = judged(many, told=earlier)
    assert kinds(said) == ["cpu.rt_hog", "cpu.core_saturated", "net.driver_reset"]
    assert {step.subject.core for step in said.chain.steps} == {12}


def test_a_quiet_night_has_no_cause_and_says_so() -> None:
    said = judged([findings.reset()])
    assert (said.status, said.chain, said.alternatives, said.fix) == ("no-cause", None, (), ())
    assert said.narrative.headline == "No cause found"
    assert "nothing in it leads to this event" in said.summary


def test_no_event_is_no_cause() -> None:
    said = judged([], told=None)
    assert said.status == "no-cause"
    assert said.summary.startswith("No cause found: no event was recorded")


def test_findings_without_a_tie_to_the_event_are_no_cause() -> None:
    said = judged([findings.reset(), findings.crash_loop(), findings.zombies()])
    assert (said.status, said.chain) == ("no-cause", None)
    assert {one.kind for one in said.ruled_out} == {"unit.crash_loop", "memory.zombie_cgroups"}


def test_nobody_looked_is_inconclusive() -> None:
    assert judged([findings.reset()], no_data=findings.DETECTORS).status == "inconclusive"


def test_nothing_found_in_half_of_the_evidence_is_inconclusive() -> None:
    recorded = completeness.Recording(stacks=findings.covered(0.1), signals=0.5)
    said = judged([findings.reset()], recorded)
    assert said.status == "inconclusive"
    assert any(step.command == "overnight record --for 12h" for step in said.next)


def test_nothing_found_where_only_the_baseline_is_missing_is_no_cause() -> None:
    """An event in the first minute of a recording has nothing to be compared with."""
    recorded = completeness.Recording(
        findings.covered(0.8), findings.covered(0.0), findings.covered(0.3), signals=0.8
    )
    assert judged([findings.reset()], recorded).status == "no-cause"


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
    said = judged(findings.reference(), recorded)
    assert said.status == "cause-found"
    assert 0.35 <= said.confidence <= 0.7
    assert said.gaps


def test_without_stacks_only_the_core_is_known() -> None:
    """Nobody can say who: the chain blames nobody, and what is needed is said."""
    many = [findings.reset(), findings.saturated(), findings.starved(), findings.zombies()]
    recorded = completeness.Recording(stacks=findings.covered(0.0))
    said = judged(many, recorded, no_data=("culprit",))
    assert said.status == "inconclusive"
    assert kinds(said) == STARVED
    assert said.fix == ()
    assert said.next[0].what.startswith("Record stacks around the event")


def test_an_event_whose_core_is_not_known_gets_no_generic_cause() -> None:
    """Some core is full on every busy host: time alone is no tie."""
    nowhere = dataclasses.replace(findings.RESET, core=-1, fields={})
    many = [findings.saturated(), findings.culprit("postgres", "postgresql.service")]
    said = judged(many, told=nowhere)
    assert said.status == "inconclusive"
    assert said.alternatives[0].steps[0].kind == "cpu.culprit"
    assert "a suspicion only" in said.alternatives[0].why_not
    assert any("core" in step.what for step in said.next)


def test_the_event_is_made_from_what_was_told_where_its_detector_failed() -> None:
    many = [one for one in findings.reference() if one.detector != "event"]
    said = judged(many, failed=("event",))
    assert kinds(said) == LOOP
    assert said.chain.steps[-1].subject.queue == 5
    assert any(gap.kind is GapKind.DETECTOR_FAILED and gap.detector == "event" for gap in said.gaps)


def test_a_lift_over_recurrences_speaks_for_the_culprit_and_its_absence_against() -> None:
    def lift(low: float) -> object:
        told = {"lift": 9.0, "low": low, "q_value": 0.01, "recurrences": 6.0, "cores_more": 0.9}
        return findings.make_finding(
            "stack.lift", magnitude=told, process="postgres", function="crc32c"
        )

    def strength(*more: object) -> float:
        return judged([*findings.unknown(), *more]).chain.links[0].strength

    assert strength(lift(1.8)) >= strength() > strength(lift(-0.2))
    reasons = judged([*findings.unknown(), lift(1.8)]).chain.links[0].reasons
    assert "recurrence: it also ran 9 times as much before 6 recurrences" in reasons


def test_a_missing_magnitude_lowers_the_strength_and_is_said() -> None:
    whole = judged(findings.reference())
    many = [findings.without(one, "births_per_hour") for one in findings.reference()]
    said = judged(many)
    assert kinds(said)[0] in ("unit.hidden_crash_loop", "memory.zombie_cgroups")
    assert said.confidence < whole.confidence
    shown = [*said.chain.links, *(link for one in said.alternatives for link in one.links)]
    assert any("not checked: births per hour was not measured" in link.against for link in shown)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("cpu.soft_lockup", "kernel.lock_contention"),
        ("rcu.stall", "cpu.rt_hog"),
        ("cpu.core_pinned", "memory.cgroup_walk"),
    ],
)
def test_events_of_other_kinds(kind: str, cause: str) -> None:
    who = {"process": "app", "unit": "app.service", "core": 39}
    told = dataclasses.replace(findings.RESET, kind=kind, process="app", fields={})
    many = [findings.make_finding(cause, -20, 1, 0.9, {"cores_burnt": 0.97}, **who)]
    if kind == "cpu.core_pinned":
        many.append(findings.saturated())
    said = judged(many, told=told)
    assert (said.status, kinds(said)[0], kinds(said)[-1]) == ("cause-found", cause, kind)


def test_zombies_as_the_event_lead_to_the_loop_that_makes_them() -> None:
    told = dataclasses.replace(findings.RESET, kind="memory.zombie_growth", core=-1, fields={})
    said = judged([findings.zombies(), findings.hidden_loop(), findings.crash_loop()], told=told)
    assert kinds(said) == [
        "unit.hidden_crash_loop",
        "memory.zombie_cgroups",
        "memory.zombie_growth",
    ]


def test_json_has_all_of_it() -> None:
    import json

    told = json.loads(json.dumps(judged(findings.decoy()).as_json()))
    assert told["verdict"]["chain"][0]["kind"] == "cpu.rt_hog"
    assert {one["kind"] for one in told["ruled_out"]} == {
        "memory.zombie_cgroups",
        "unit.crash_loop",
    }
