"""Reclaim in a container, and zombies below its pod, the slice of all pods, or a sibling pod."""

from __future__ import annotations

import pathlib

import pytest

from overnight.app import diagnose
from overnight.diagnosis import conditions, knowledge
from scenarios import catalogue

AROUND = conditions.Surroundings()


@pytest.mark.parametrize(("zombies", "fit"), [("pod", 1.0), ("slice", 1.0), ("sibling", 0.0)])
def test_zombies_are_linked_to_reclaim_inside_their_parent_only(
    tmp_path: pathlib.Path, zombies: str, fit: float
) -> None:
    night = catalogue.build_reclaim_in_a_pod(tmp_path, 3, zombies=zombies, minutes=12.0, cores=8)
    verdict, _ = diagnose.diagnose_event(night.home, night.event)
    found = {finding.kind: finding for answer in verdict.answers for finding in answer.findings}
    cause, effect = found["memory.zombie_cgroups"], found["memory.reclaim"]
    assert effect.subject.unit.startswith("ml/")
    assert effect.subject.cgroup == night.facts["cgroup"]
    judgements = {
        holds: conditions.judge(knowledge.Condition(holds), cause, effect, AROUND).fit
        for holds in ("same_cgroup", "parent_of")
    }
    assert judgements == {"same_cgroup": fit, "parent_of": fit}
