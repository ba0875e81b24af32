"""load.own: no other program saturated the core, overnight's own load did."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from overnight.detectors import _base, _own_load, culprit
from overnight.model.finding import Answer, Need, Status
from overnight.model.load import VICTIM

if TYPE_CHECKING:
    from overnight.model.load import Load
    from overnight.queries import case as cases

KIND = "load.own"


class OwnLoad(_base.Detector):
    """Found where the culprits of a core are workers of a load, which are culprits only if nothing else can be."""

    name = "own-load"
    needs = (Need.CPU, Need.PROFILES, Need.PROCESSES)
    clears_by = ((Need.CPU,), (Need.PROFILES,))

    def examine(self, case: cases.Case) -> Answer:
        own = case.once(_own_load.find_actors)
        drafts = [
            dataclasses.replace(
                blamed,
                kind=KIND,
                summary=f"{blamed.subject.process} is {_describe(own[blamed.subject.actor])},"
                f" and no other process can have saturated core {blamed.subject.core}",
            )
            for blamed in case.once(culprit.find_culprits).culprits
            if blamed.subject.actor in own
        ]
        return self.answer(drafts, clear="no worker of a load of overnight saturated a core alone")


def _describe(load: Load) -> str:
    if load.workload == VICTIM:
        return "the victim of a rehearsal"
    return f"a worker of overnight's own load {load.workload}"


def set_apart(case: cases.Case, answer: Answer) -> Answer:
    """Leave out what other detectors say of workers of a load, where a culprit of the core is known."""
    if answer.detector in (OwnLoad.name, culprit.Culprit.name) or not answer.findings:
        return answer
    own = case.once(_own_load.find_actors)
    others = tuple(each for each in answer.findings if each.subject.actor not in own)
    with contextlib.suppress(_base.MissingError):
        if len(others) < len(answer.findings) and case.once(culprit.find_culprits).culprits:
            why = "it was found for workers of overnight's own load alone"
            alone = Answer(answer.detector, Status.CLEAR, why=why)
            return dataclasses.replace(answer, findings=others) if others else alone
    return answer


DETECTORS = (OwnLoad(),)
