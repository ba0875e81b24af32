"""What `overnight audit` knows about the units that may be behind a crash loop, as evidence of a diagnosis.

An agent of one orchestrator next to the running agent of another, such as ecs.service next to kubelet.service, does
not belong on the host. Of several units that act whenever a container is born, that one is the supervisor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from overnight.app.audit import knowledge
from overnight.detectors import crash_loops
from overnight.model.finding import Evidence

if TYPE_CHECKING:
    from overnight.model.finding import Answer, Finding
    from overnight.queries import case as cases


def add_evidence(case: cases.Case, answers: Iterable[Answer]) -> tuple[Answer, ...]:
    """Return the answers; a loop whose unit does not belong on this host has that as evidence, and its name."""
    units = case.facts("units") or {}
    return tuple(
        dataclasses.replace(answer, findings=tuple(_judge(each, units) for each in answer.findings))
        if any(finding.kind == crash_loops.UNCOUNTED for finding in answer.findings)
        else answer
        for answer in answers
    )


def _judge(finding: Finding, units: Mapping[str, Mapping[str, object]]) -> Finding:
    coinciding = (each for each in finding.evidence if each.source == "cgroup-supervisors")
    acted = [str(each.values.get("unit", "")) for each in coinciding]
    named = finding.subject.unit
    found = {
        unit: text for unit in ([named] if named else acted) if (text := _foreign(unit, units))
    }
    if len(found) != 1:
        return finding
    ((unit, text),) = found.items()
    evidence = Evidence(text, "units", {"unit": unit}, look="overnight audit")
    confidence = min(0.9, finding.confidence / crash_loops.UNKNOWN_UNIT)
    return dataclasses.replace(
        finding,
        subject=dataclasses.replace(finding.subject, unit=unit),
        confidence=finding.confidence if named else confidence,
        evidence=(*finding.evidence, evidence),
    )


def _foreign(unit: str, units: Mapping[str, Mapping[str, object]]) -> str:
    """Return why a unit does not belong on a host that runs these; "" if it may."""
    owner = _owner_of(unit)
    for name, fact in sorted(units.items()) if owner else ():
        other = _owner_of(name) if fact.get("active") == "active" else None
        # A vendor may enable an agent that nobody asked for, so it does not prove whose host it is.
        if owner and other and other.unit_weight > owner.unit_weight:
            return f"{unit} is an agent of {owner.title}, and {name} of {other.title} runs this host: {owner.does}"
    return ""


def _owner_of(unit: str) -> knowledge.Owner | None:
    return next((owner for owner in knowledge.known().orchestrators if owner.owns(unit)), None)
