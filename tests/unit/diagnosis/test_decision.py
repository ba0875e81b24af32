"""What a verdict may claim: near misses on both sides of each limit."""

from __future__ import annotations

import dataclasses

import findings
import pytest

from overnight.diagnosis import calibration, completeness, decision, knowledge
from overnight.model.finding import Answer, Finding, Status
from overnight.model.verdict import RuledOutReason, Verdict

CLEAR, FOUND, NO_DATA, FAILED = Status.CLEAR, Status.FOUND, Status.NO_DATA, Status.FAILED


@pytest.mark.parametrize(
    ("statuses", "signals", "expected"),
    [
        pytest.param([CLEAR] * 4 + [NO_DATA] * 4, 1.0, "no-cause", id="half of them looked"),
        pytest.param([CLEAR] * 4 + [NO_DATA] * 5, 1.0, "inconclusive", id="fewer than half"),
        pytest.param([CLEAR] * 4 + [FAILED] * 5, 1.0, "inconclusive", id="more than half failed"),
        pytest.param([CLEAR] * 3 + [FOUND] + [NO_DATA] * 4, 1.0, "no-cause", id="one found something"),
        pytest.param([NO_DATA], 1.0, "inconclusive", id="nobody looked"),
        pytest.param([CLEAR] * 8, 0.34, "no-cause", id="a third of the signals"),
        pytest.param([CLEAR] * 8, 0.32, "inconclusive", id="less than a third of the signals"),
    ],
)  # fmt: skip
def test_no_cause_needs_detectors_that_looked_and_evidence(
    statuses: list[Status], signals: float, expected: str
) -> None:
    """The detector of the event itself does not count: it always looks."""
    answers = [
        Answer(f"d{n}", status, (findings.crash_loop(),) if status is FOUND else ())
        for n, status in enumerate(statuses)
    ]
    answers.append(Answer("event", FOUND, (findings.reset(),)))
    recorded = completeness.Recording(signals=signals)
    assert decision.decide(findings.RESET, answers, recorded).status == expected
    # What nobody imported may be the cause.
    imported = dataclasses.replace(recorded, not_imported=("memory cgroups",))
    assert decision.decide(findings.RESET, answers, imported).status == "inconclusive"


def test_a_cause_in_imported_files_is_less_certain() -> None:
    answers = findings.answers(findings.unknown())
    native, imported = (
        decision.decide(
            findings.RESET, answers, completeness.Recording(signals=1.0, not_imported=names)
        )
        for names in ((), ("memory cgroups", "softirqs by kind"))
    )
    assert native.status == imported.status == "cause-found"
    assert imported.score == pytest.approx(native.score * completeness.NOT_IMPORTED_FACTOR)
    assert calibration.CLAIMED <= imported.confidence < native.confidence
    assert (
        "not in the imported files: memory cgroups, softirqs by kind" in imported.narrative.missing
    )


@pytest.mark.parametrize(
    ("confidence", "expected"),
    [
        pytest.param(0.19, None, id="below the least confidence"),
        pytest.param(0.2, ["cpu.core_saturated", "net.queue_starved"], id="the least confidence"),
    ],
)
def test_a_finding_below_the_least_confidence_is_in_no_chain(
    confidence: float, expected: list[str] | None
) -> None:
    unsure = [
        dataclasses.replace(finding, confidence=confidence)
        for finding in (findings.saturated(), findings.starved())
    ]
    verdict = decision.decide(findings.RESET, findings.answers([findings.reset(), *unsure]))
    steps = [step.kind for step in verdict.chain.steps[:-1]] if verdict.chain else None
    assert (verdict.status, steps) == ("inconclusive" if expected else "no-cause", expected)


@pytest.mark.parametrize(
    ("confidence", "reasons"),
    [
        pytest.param(0.29, [], id="not unusual"),
        pytest.param(0.3, [RuledOutReason.NO_EFFECT_FOUND], id="unusual"),
    ],
)
def test_only_an_unusual_finding_is_listed_as_not_linked(
    confidence: float, reasons: list[RuledOutReason]
) -> None:
    aside = dataclasses.replace(findings.zombies(), confidence=confidence)
    verdict = decision.decide(findings.RESET, findings.answers([findings.reset(), aside]))
    assert [candidate.reason for candidate in verdict.ruled_out] == reasons


def test_all_findings_that_are_not_linked_are_named() -> None:
    kinds = (
        "cpu.rt_hog",
        "memory.cgroup_walk",
        "memory.zombie_cgroups",
        "net.softirq_storm",
        "unit.crash_loop",
    )
    aside = [findings.make_finding(kind, core=3, process="app") for kind in kinds]
    verdict = decision.decide(findings.RESET, findings.answers([findings.reset(), *aside]))
    names = ", ".join(map(knowledge.known().name, kinds))
    assert verdict.narrative.cleared.endswith(f"Also found, not linked to this event: {names}.")


@pytest.mark.parametrize(
    ("confidence", "status"),
    [
        pytest.param(0.24, "cause-found", id="sure enough"),
        pytest.param(0.23, "inconclusive", id="a suspicion"),
    ],
)
def test_a_chain_below_the_claimed_confidence_is_a_suspicion(
    confidence: float, status: str
) -> None:
    """The generic chain of `unknown` explains 0.6; its culprit is the weakest step."""
    detected = [
        dataclasses.replace(finding, confidence=confidence)
        if finding.kind == "cpu.culprit"
        else finding
        for finding in findings.unknown()
    ]
    verdict = decision.decide(findings.RESET, findings.answers(detected))
    assert verdict.status == status
    assert (verdict.confidence >= calibration.CLAIMED) == (status == "cause-found")
    assert verdict.confidence == calibration.known().probability(verdict.score)
    headline = verdict.narrative.headline.partition(":")[0]
    assert headline == ("Cause found" if status == "cause-found" else "Suspected")
    roots = [chain.root.kind for chain in (verdict.chain, *verdict.alternatives) if chain]
    assert roots == ["cpu.culprit"] if status == "cause-found" else roots[1] == "cpu.culprit"


@pytest.mark.parametrize(
    ("kind", "status", "headline"),
    [
        ("io.wait", "inconclusive", "Inconclusive: tasks waited for I/O, cause not known"),
        ("storage.fault", "cause-found", "Cause found: storage failed or did not respond"),
    ],
)
@pytest.mark.parametrize("event", ["pressure.io", "task.hung", "task.blocked"])
def test_waiting_for_io_is_not_a_storage_fault(
    event: str, kind: str, status: str, headline: str
) -> None:
    waited = findings.make_finding(kind, -5, 5, 0.5, {"io_wait_percent": 90.0})
    waiting = dataclasses.replace(findings.RESET, kind=event, core=-1, fields={})
    verdict = decision.decide(waiting, findings.answers([waited]))
    assert (verdict.status, verdict.narrative.headline) == (status, headline)
    if kind == "io.wait":
        assert verdict.score < 0.3  # what it would explain at most
        assert "no disk reported an error" in verdict.narrative.effect
        assert [step.command for step in verdict.next if "iostat" in step.command]


def test_nobody_is_blamed_for_an_effect() -> None:
    """A saturated core without a culprit is not a suspected cause, even if its links agree well."""
    seen = [findings.reset(), findings.saturated(), findings.starved()]
    verdict = decision.decide(findings.RESET, findings.answers(seen))
    assert (verdict.status, verdict.confidence, verdict.blamed) == ("inconclusive", 0.0, None)
    assert verdict.score > 0.2
    assert verdict.narrative.headline.endswith("cause not known")
    culprit = findings.culprit("postgres", "postgresql.service")
    suspected = decision.decide(
        findings.RESET,
        findings.answers([*seen, dataclasses.replace(culprit, confidence=0.2)]),
    )
    assert suspected.blamed is suspected.alternatives[0]
    assert suspected.blamed.root.subject.process == "postgres"
    claimed = decision.decide(findings.RESET, findings.answers([*seen, culprit]))
    assert claimed.blamed is claimed.chain


@pytest.mark.parametrize(
    ("statuses", "merged"),
    [
        (("clear", "clear"), 0),
        (("clear", "no-data"), 1),
        (("clear", "failed"), 1),
        (("no-data", "clear"), 0),
        (("no-data", "failed"), 1),
        (("clear", "no-data", "clear"), 1),
        (("clear", "no-data", "found"), 2),
        (("found", "no-data"), 0),
    ],
)
def test_what_was_not_looked_at_around_one_of_several_events_is_not_clear(
    statuses: tuple[str, ...], merged: int
) -> None:
    """Of an outcome and its incidents, each with its own window."""
    answers = [
        Answer("stalls", Status(status), (findings.starved(),) * (status == "found"), why=str(n))
        for n, status in enumerate(statuses)
    ]
    assert decision.merge_answers([[answer] for answer in answers]) == (answers[merged],)


def test_answers_about_two_events_are_one_of_each_detector() -> None:
    """What both see is one finding; the main event's come first."""
    first, second = findings.crash_loop("a.service"), findings.crash_loop("b.service")
    later = findings.make_finding("unit.crash_loop", 20, 30, unit="a.service")  # over in between
    again = dataclasses.replace(first, window=second.window, id="another window")
    (merged,) = decision.merge_answers(
        [
            [Answer("loops", FOUND, (first,))],
            [Answer("loops", FOUND, (again, second, later), why="more")],
        ]
    )
    assert merged == Answer("loops", FOUND, (first, second, later))


@pytest.mark.parametrize("status", [CLEAR, NO_DATA])
def test_what_only_one_event_shows_is_found(status: Status) -> None:
    found, other = (
        Answer("d", FOUND, (findings.crash_loop(),), why="a"),
        Answer("d", status, why="b"),
    )
    for cases in ([[found], [other]], [[other], [found]]):
        assert decision.merge_answers(cases) == (found,)
    both = decision.merge_answers([[found, Answer("e", CLEAR)], [other, Answer("f", CLEAR)]])
    assert [answer.detector for answer in both] == ["d", "e", "f"]


JOB = dataclasses.replace(findings.RESET, kind="job.failed", id="job.failed-1", fields={}, core=-1)


def fail(*detected: Finding, **subject: str | int) -> Verdict:
    job = findings.make_finding("job.failed", 5, 6, 1.0, detector="event", **subject)
    event = dataclasses.replace(JOB, time_us=job.window.begin_us)
    return decision.decide(event, findings.answers([job, *detected]))


def test_the_cause_of_an_outcome_is_less_certain_than_that_of_its_incident() -> None:
    expected = decision.decide(findings.RESET, findings.answers(findings.reference()))
    verdict = fail(*findings.reference())
    assert expected.chain is not None
    assert verdict.chain is not None
    kinds = [step.kind for step in verdict.chain.steps]
    assert kinds == [*(step.kind for step in expected.chain.steps), "job.failed"]
    link = verdict.chain.links[-1]
    assert link.strength < verdict.chain.links[0].strength
    probability = calibration.known().probability(verdict.score)
    assert verdict.confidence == pytest.approx(probability * link.strength)
    assert "loses packets" in verdict.narrative.link
    assert not expected.narrative.link


def test_of_two_incidents_that_are_linked_as_well_each_is_half_as_likely() -> None:
    def incident(core: int, process: str) -> list[Finding]:
        return [
            findings.make_finding("app.core", magnitude={"own_share": 0.5}, core=core),
            findings.saturated(core=core),
            findings.culprit(process, core=core),
        ]

    one = fail(*incident(1, "a"))
    two = fail(*incident(1, "a"), *incident(2, "b"))
    same = fail(*incident(1, "a"), *incident(2, "a"))
    assert one.confidence == same.confidence > 0
    assert two.blamed is not None
    probability = calibration.known().probability(two.score) * two.blamed.links[-1].strength
    assert two.confidence == pytest.approx(probability * decision.EITHER)
    assert "Another incident is linked as well" in two.narrative.link
    assert "Another incident" not in one.narrative.link + same.narrative.link
    # The second one only coincides in time: where the application ran is not known, or not on its core.
    assert "Another incident" not in fail(*incident(1, "a"), *incident(2, "b")[1:]).narrative.link
    apart = dataclasses.replace(incident(2, "b")[0], magnitude={"own_share": 0.0})
    assert fail(*incident(1, "a"), apart, *incident(2, "b")[1:]).confidence == one.confidence
