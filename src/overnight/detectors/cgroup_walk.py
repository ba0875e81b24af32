"""memory.cgroup_walk: a process uses a core to visit one memory cgroup after the other, dying ones included.

Useful reclaim has no function that reads statistics on its stacks, and seldom steps from one cgroup to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _base, _host_state, _signatures, _stack_usage
from overnight.model.finding import Answer, Evidence, Need
from overnight.queries import function_usage

if TYPE_CHECKING:
    from overnight.queries import case as cases

KIND = _stack_usage.WALK
MAX_WALKERS = 24


class CgroupWalk(_base.Detector):
    """Which process walks, on which core, and how much of it."""

    name = "cgroup-walk"
    needs = (Need.PROFILES, Need.MEMORY_CGROUPS)
    clears_by = ((Need.PROFILES,),)
    rank_by = "cores_burnt"
    max_findings = 4

    def examine(self, case: cases.Case) -> Answer:
        stacks = _stack_usage.read_stacks(case)
        walk, shrink = (
            function_usage.mark_innermost(_signatures.pattern(KIND, *roles))
            for roles in (("reader", "walk"), ("reader", "walk", "shrink"))
        )
        with_shrink = {
            usage.actor: usage for usage in stacks.top_consumers(shrink, limit=MAX_WALKERS)
        }
        drafts, most = [], 0.0
        for usage in stacks.top_consumers(walk):
            share = stacks.walk_share(usage.actor)
            # Where the walk dominates reclaim, the pages scanned on the way count, too.
            is_walk = share is not None and share >= _stack_usage.WALK_SHARE
            whole = with_shrink.get(usage.actor, usage) if is_walk else usage
            most = max(most, whole.cores_used)
            reader = _find_reader(usage)
            if share is not None and not is_walk and not reader:
                continue
            if _stack_usage.stands_out(whole, baseline=stacks.before is not None):
                drafts.append(_draft(stacks, whole, usage.function, share, reader))
        if not drafts:
            _stack_usage.require_samples(case)
        clear = "no function that visits every memory cgroup is on a stack"
        if most:
            clear = (
                f"functions that visit every memory cgroup used at most {most:.2f} cores, or no more than"
                " in the baseline"
            )
        return self.answer(drafts, clear=f"{clear}; {stacks.counts}")


def _draft(
    stacks: _stack_usage.Stacks,
    usage: function_usage.Usage,
    function: str,
    share: float | None,
    reader: str,
) -> _base.Draft:
    summary = (
        f"{usage.actor} used {usage.cores_used:.2f} cores on core {usage.core} for"
        f" {usage.window.seconds:.0f} s to visit all memory cgroups, in {function}"
    )
    draft = stacks.draft(KIND, usage, function, 0.95 if reader else 0.9, summary)
    if reader:
        text = f"it reads statistics that sum over all memory cgroups ({reader} is on the stack)"
        draft.support(text, "profiles", reader=reader)
    if share is not None:
        text = f"{100 * share:.0f} % of its samples in reclaim are in the step from one memory cgroup to the next"
        values = {"share_of_its_reclaim_samples": round(share, 3)}
        stepping = Evidence(text, "profiles", values, usage.window)
        draft.weigh(stepping, supports=share >= _stack_usage.WALK_SHARE)
    dying, why = _host_state.read_dying(stacks.case)
    if dying is None:
        draft.support(why, "memory-cgroups")
        draft.confidence *= 0.8
    else:
        draft.magnitude["dying"] = dying
        text = f"{dying:,} memory cgroups were dying (zombies) at that time"
        counted = Evidence(text, "memory-cgroups", {"dying": dying})
        draft.weigh(counted, supports=dying >= _host_state.MANY_DYING, factor=0.45)
    return draft


def _find_reader(usage: function_usage.Usage) -> str:
    """Return the function that reads statistics, where it is on the most frequent stack."""
    is_reader = _signatures.matcher(KIND, "reader")
    names = map(function_usage.strip_suffix, (*usage.marked, *usage.path))
    return next((name for name in names if is_reader(name)), "")


DETECTORS = (CgroupWalk(),)
