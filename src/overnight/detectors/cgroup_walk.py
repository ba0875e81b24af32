"""memory.cgroup_walk: a core is burnt going from one memory cgroup to the next.

Reading a cgroup's statistics and reclaiming its memory both visit every memory cgroup below, dead ones
included. That is told apart from reclaim that works by the stack: by who reads statistics, and by how many
of the samples in reclaim are in the step from one cgroup to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _base, _signatures
from overnight.model.finding import Answer, Evidence, Finding, Need, Subject
from overnight.queries import function_usage, samples

if TYPE_CHECKING:
    from overnight.model.actor import Actor
    from overnight.queries import case as cases

__all__ = ["DETECTORS", "CgroupWalk"]

KIND = "memory.cgroup_walk"
# Of the samples in reclaim, those in the step to the next cgroup. With 240 cgroups in use it stays
# below one in twenty; 15,000 dead ones made it the first function (measured, 6.18).
WALK_SHARE = 0.15
MANY_DYING = 1_000  # as the watch that warns of them
MOST = 4


class CgroupWalk(_base.BaseDetector):
    """Who walks, on which core, how much of it."""

    name = "cgroup-walk"
    needs = (Need.PROFILES, Need.MEMORY_CGROUPS)

    def examine(self, case: cases.Case) -> Answer:
        """Signature functions on stacks of the hot stretch, against the baseline."""
        now, before = _base.stacks(case)
        near = case.event.time_us
        walk = _signatures.pattern(KIND, "reader", "walk")
        dying = _base.dying_now(case)
        found, seen = [], 0.0
        shrinking = _signatures.pattern(KIND, "reader", "walk", "shrink")
        wider = {
            one.actor: one
            for one in function_usage.top_consumers(
                now, before, function_usage.mark_innermost(shrinking), near_us=near, limit=24
            )
        }
        for one in function_usage.top_consumers(
            now, before, function_usage.mark_innermost(walk), near_us=near
        ):
            share = self._walk_share(now, one.actor)
            # The walk is what this reclaim is about: the pages it looks at on its way count, too.
            walking = share is not None and share >= WALK_SHARE
            whole = wider.get(one.actor, one) if walking else one
            seen = max(seen, whole.cores_used)
            reads = _reads(one)
            if share is not None and share < WALK_SHARE and not reads:
                continue
            if _base.stands_out(whole, baseline=before is not None):
                found.append(self._finding(case, now, one, whole, share, reads, dying))
        if not found:
            _base.require_stacks(case)
        found.sort(key=lambda made: -made.magnitude["cores_burnt"])
        why = (
            f"functions that visit every memory cgroup burnt {seen:.2f} cores at most, or no more than before"
            if seen
            else "no function that visits every memory cgroup is on a stack"
        )
        clear = f"{why}; {now.coverage.samples} samples, {now.coverage.lost} lost"
        return self.answer(found[:MOST], clear=clear)

    @staticmethod
    def _walk_share(now: samples.WindowSamples, who: Actor) -> float | None:
        """Of its samples in reclaim, those in the step; None where it did not reclaim."""
        step = _signatures.pattern(KIND, "walk")
        both, all_ = function_usage.nested_share(
            now, step, _signatures.pattern(KIND, "shrink"), (who,)
        )
        return both / all_ if all_ >= _base.LEAST_SAMPLES else None

    def _finding(
        self,
        case: cases.Case,
        now: samples.WindowSamples,
        one: function_usage.Usage,
        whole: function_usage.Usage,
        share: float | None,
        reads: str,
        dying: int | None,
    ) -> Finding:
        process, unit = whole.actor
        subject = Subject(
            host=case.host, core=whole.core, unit=unit, process=process, function=one.function
        )
        evidence = [_base.burn_evidence(case, whole, now, one.function)]
        against: list[Evidence] = []
        confidence = 0.9
        if reads:
            text = f"it reads statistics that sum over all memory cgroups ({reads} is on the stack)"
            evidence.append(Evidence(text, "profiles", {"reader": reads}, whole.window))
            confidence = 0.95
        if share is not None:
            text = f"{share:.0%} of its samples in reclaim are in the step from one memory cgroup to the next"
            made = Evidence(
                text, "profiles", {"share_of_its_reclaim_samples": round(share, 3)}, whole.window
            )
            (evidence if share >= WALK_SHARE else against).append(made)
        if dying is None:
            confidence *= 0.8
        else:
            told = Evidence(
                f"{dying} memory cgroups were dying then", "memory-cgroups", {"dying": dying}
            )
            if dying >= MANY_DYING:
                evidence.append(told)
            else:
                against.append(told)
                confidence *= 0.45
        magnitude = _base.burn_magnitude(whole)
        if dying is not None:
            magnitude["dying"] = float(dying)
        of_unit = f" ({unit})" if unit else ""
        return _base.make(
            self.name,
            KIND,
            subject,
            whole.window,
            confidence * _base.lost_factor(now),
            f"{process}{of_unit} burnt {whole.cores_used:.2f} cores on core {whole.core} for"
            f" {whole.window.seconds:.0f} s visiting memory cgroups one by one, in {one.function}",
            evidence,
            magnitude,
            against,
        )


def _reads(one: function_usage.Usage) -> str:
    """The function that reads statistics, where it is on the stack met most."""
    search = _signatures.matcher(KIND, "reader")
    names = [*one.marked, *one.path]
    return next(
        (
            function_usage.strip_suffix(name)
            for name in names
            if search(function_usage.strip_suffix(name))
        ),
        "",
    )


DETECTORS = (CgroupWalk(),)
