"""Properties for any findings: known links only, no cycles, independent of their order."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random

import findings
import hypothesis
import pytest
from hypothesis import strategies as st

from overnight.diagnosis import chain, decision, knowledge
from overnight.model.finding import Answer, Finding, Status, Subject
from overnight.model.selection import Window

KINDS = sorted(knowledge.known().kinds)
MAGNITUDES = sorted(
    {
        name
        for rule in knowledge.known().rules
        for condition in rule.conditions
        for name in (*condition.cause, *condition.effect)
    }
)
SUBJECTS = {
    "host": [findings.HOST, findings.HOST, findings.HOST, "other", ""],
    "core": [39, 39, 12, -1],
    "unit": ["a.service", "b.service", ""],
    "process": ["kubelet", "python3", "", "a'; rm -rf /\n"],
    "function": ["f", "g", ""],
    "cgroup": ["/docker", "/docker/x", "/", "", "/other", "/../.."],
    "interface": ["eth0", "eth1", ""],
    "queue": [5, 2, -1],
}
NUMBERS = [0.0, 1.0, 6.0, 300.0, 70000.0, -3.0, 0.4, 1e300, math.inf, math.nan]


def any_subject(chance: random.Random) -> dict[str, str | int]:
    names = chance.sample(sorted(SUBJECTS), chance.randrange(len(SUBJECTS) + 1))
    return {name: chance.choice(SUBJECTS[name]) for name in names}


def any_finding(chance: random.Random) -> Finding:
    begin = chance.choice([-7200, -3600, -60, -30, -7, -6, -1, 0, 2, 30])
    names = chance.sample(MAGNITUDES, chance.randrange(5))
    return findings.make_finding(
        chance.choice(KINDS),
        begin,
        begin + chance.choice([1, 7, 40, 7300]),
        chance.choice([0.0, 0.1, 0.5, 0.9, 1.0]),
        {name: chance.choice(NUMBERS) for name in names},
        chance.choice(["", "", "another"]),
        **any_subject(chance),
    )


def changed_night(seed: int) -> list[Finding]:
    """Return a scenario with findings moved, resized, removed, weakened, added or reported twice."""
    chance = random.Random(seed)
    changed = [any_finding(chance) for _ in range(chance.randrange(10))]
    for true in findings.SCENARIOS[chance.choice(sorted(findings.SCENARIOS))]():
        finding = true
        match chance.randrange(8):
            case 0:
                continue
            case 1 | 5:
                finding = _move(finding, chance.choice([-3600, -30, -3, 3, 30]))
            case 2:
                size = {name: chance.choice(NUMBERS) for name in finding.magnitude}
                finding = dataclasses.replace(finding, magnitude=size)
            case 3:
                subject = {**dataclasses.asdict(finding.subject), **any_subject(chance)}
                finding = dataclasses.replace(finding, subject=Subject(**subject))
            case 4:
                finding = dataclasses.replace(
                    finding, confidence=chance.choice([0.0, 0.3, 0.6, 1.0])
                )
            case 6:
                changed.append(dataclasses.replace(finding, confidence=0.5))
        changed.append(finding)
    return changed


# Built from one number: drawing every part separately costs more than the verdicts.
nights = st.integers(0, 2**32).map(changed_night)
scenario = st.sampled_from(sorted(findings.SCENARIOS)).map(lambda name: findings.SCENARIOS[name]())
quick = hypothesis.settings(max_examples=40)


def decide(detected):
    return decision.decide(findings.RESET, findings.answers(detected))


def all_chains(detected):
    """Return the chains of the verdict, and those that lost."""
    return chain.build(detected, decision.find_end(findings.RESET, detected)).chains


def rule_of(link, by_id, event):
    cause, effect = by_id[link.cause], by_id[link.effect]
    return [
        rule
        for rule in knowledge.known().rules
        if rule.cause == cause.kind
        and rule.reaches(effect.kind, event=effect is event)
        and link.reasons[0] == rule.why
    ]


@quick
@hypothesis.given(nights)
def test_every_chain_is_unbroken_and_has_only_known_links(detected) -> None:
    for path in all_chains(detected):
        event = path.steps[-1]
        assert event.kind == "net.driver_reset"
        assert len(path.links) == len(path.steps) - 1 > 0
        by_id = {step.id: step for step in path.steps}
        for link, (cause, effect) in zip(
            path.links, zip(path.steps, path.steps[1:], strict=False), strict=True
        ):
            assert (link.cause, link.effect) == (cause.id, effect.id)
            assert 0 < link.strength <= 1
            assert link.reasons
            assert rule_of(link, by_id, event)
        assert 0 <= path.score <= 1


def test_no_chain_has_a_cycle() -> None:
    """With rules in a circle, and two findings of each kind: no finding and no kind occurs twice."""
    known = knowledge.known()
    always = (knowledge.Condition("same_host"),)
    circle = ("memory.oom", "unit.crash_loop", "memory.zombie_cgroups", "memory.reclaim")
    rules = [
        knowledge.Rule(cause, (effect, "net.driver_reset"), "a circle", always, 0.9)
        for cause, effect in zip(circle, circle[1:] + circle[:1], strict=True)
    ]
    detected = [findings.make_finding(kind, unit=unit) for kind in circle for unit in ("a", "b")]
    found = chain.build(
        detected, findings.reset(), dataclasses.replace(known, rules=tuple(rules))
    ).chains
    assert max(len(path.steps) for path in found) == len(circle) + 1
    for path in found:
        kinds = [step.kind for step in path.steps]
        assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("name", sorted(findings.SCENARIOS))
def test_a_cause_is_never_later_than_its_rule_allows_and_never_after_the_event(name) -> None:
    """Each finding of the scenario is moved on its own."""
    detected = findings.SCENARIOS[name]()
    for place, seconds in itertools.product(range(len(detected)), (-30, -14, -5, 5, 20)):
        moved = [
            _move(finding, seconds) if number == place else finding
            for number, finding in enumerate(detected)
        ]
        for path in all_chains(moved):
            by_id = {step.id: step for step in path.steps}
            event = path.steps[-1]
            for link in path.links:
                slack = max(
                    condition.slack_seconds
                    for rule in rule_of(link, by_id, event)
                    for condition in rule.conditions
                    if condition.holds == "time_order"
                )
                late = by_id[link.cause].window.begin_us - by_id[link.effect].window.begin_us
                assert late <= slack * 1e6
            limit = event.window.begin_us + chain.SLACK_US
            assert all(step.window.begin_us <= limit for step in path.steps)


def _move(finding: Finding, seconds: float) -> Finding:
    by = int(seconds * findings.SECOND)
    window = Window(finding.window.begin_us + by, finding.window.end_us + by)
    return dataclasses.replace(finding, window=window)


@quick
@hypothesis.given(nights, st.randoms(use_true_random=False))
def test_the_order_of_findings_does_not_matter(detected, chance) -> None:
    answers = [Answer(finding.detector, Status.FOUND, (finding,)) for finding in detected]
    first = decision.decide(findings.RESET, answers)
    chance.shuffle(answers)
    assert repr(decision.decide(findings.RESET, answers).as_json()) == repr(first.as_json())


@quick
@hypothesis.given(scenario, st.integers(0, 20), st.floats(0.2, 1.0))
def test_a_surer_finding_never_makes_its_chain_less_sure(detected, place, confidence) -> None:
    before = decide(detected)
    hypothesis.assume(before.chain)
    step = before.chain.steps[place % (len(before.chain.steps) - 1)]
    surer = [
        dataclasses.replace(finding, confidence=max(finding.confidence, confidence))
        if finding.id == step.id
        else finding
        for finding in detected
    ]
    assert decide(surer).chain.score >= before.chain.score - 1e-9


def test_a_missing_measurement_never_raises_the_true_chains_score() -> None:
    lowered = 0
    for name, make in findings.SCENARIOS.items():
        detected = make()
        before = decide(detected).chain
        steps = before.steps if before else ()
        for measurement in sorted({name for step in steps for name in step.magnitude}):
            less = [findings.without(finding, measurement) for finding in detected]
            after = chain.build(less, decision.find_end(findings.RESET, less))
            same = [path.score for path in after.chains if _ids(path) == _ids(before)]
            assert all(score <= before.score + 1e-9 for score in same), (name, measurement)
            lowered += not any(score > before.score - 1e-9 for score in same)
    assert lowered >= 20


def _ids(path) -> list[str]:
    return [step.id for step in path.steps]


SIZES = {
    kind: sorted(
        {name for rule in knowledge.known().rules if rule.cause == kind for condition in rule.conditions for name in condition.cause}
        | {name for rule in knowledge.known().rules if kind in rule.effects for condition in rule.conditions for name in condition.effect}
    )
    for kind in KINDS
}  # fmt: skip


def unrelated(chance: random.Random, near: bool) -> list[Finding]:
    """Return findings of random kinds with random subjects, times and sizes."""
    drawn = []
    for _ in range(chance.randrange(3, 25)):
        kind = chance.choice(KINDS)
        begin = chance.uniform(-30, 5) if near else chance.uniform(-12 * 3600, 60)
        lasts = chance.choice([1, 5, 30, 600])
        size = {name: 10 ** chance.uniform(-2, 4) for name in SIZES[kind]}
        subject = {
            "core": chance.randrange(96),
            "unit": f"u{chance.randrange(40)}.service",
            "process": f"p{chance.randrange(60)}",
            "cgroup": f"/c{chance.randrange(40)}",
        }
        if kind == "net.queue_starved":
            subject |= {"interface": "eth0", "queue": chance.randrange(32)}
        drawn.append(
            findings.make_finding(
                kind, begin, begin + lasts, chance.uniform(0.5, 1), size, **subject
            )
        )
    return drawn


@pytest.mark.parametrize("near", [True, False], ids=["around the event", "over the night"])
def test_unrelated_findings_make_at_most_one_false_cause_in_200_runs(near: bool) -> None:
    chance = random.Random(20261115)
    false = 0
    for _ in range(200):
        verdict = decide([findings.reset(), *unrelated(chance, near)])
        false += verdict.status == "cause-found"
    assert false <= 1


def test_many_findings_of_one_kind_do_not_multiply_alternatives() -> None:
    detected = findings.reference()
    for n in range(60):
        detected.append(findings.hidden_loop(f"u{n}.service", 300 + n))
        detected.append(findings.walk(f"p{n}", f"p{n}.service", "mem_cgroup_iter"))
        detected.append(findings.culprit(f"p{n}", burnt=0.9 - n / 100))
    verdict = decide(detected)
    assert verdict.chain is not None
    assert len(verdict.alternatives) <= decision.MAX_ALTERNATIVES


def test_time_order_uses_the_events_own_window() -> None:
    """A detector's wide window around the event does not move the event before its cause."""
    wide = dataclasses.replace(
        findings.reset(),
        window=Window(findings.T - 30 * findings.SECOND, findings.T + findings.SECOND),
    )
    verdict = decide([wide, *findings.reference()[1:]])
    assert verdict.chain.steps[-1].window.begin_us == findings.T
    assert verdict.score > 0.8
