"""memory.cgroup_walk: a process uses a core to visit one memory cgroup after the other.

Reading a cgroup's statistics and reclaiming its memory both visit every memory cgroup below, dying ones
included. The stack tells it apart from useful reclaim: by a function that reads statistics, and by the
share of the reclaim samples that are in the step from one cgroup to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _base, _host_state, _signatures, _stack_usage
from overnight.model.finding import Answer, Evidence, Need, Subject
from overnight.queries import function_usage

if TYPE_CHECKING:
    from overnight.queries import case as cases
    from overnight.queries import samples

KIND = _stack_usage.WALK
MAX_FINDINGS = 4
MAX_WALKERS = 24


class CgroupWalk(_base.BaseDetector):
    """Which process walks, on which core, and how much of it."""

    name = "cgroup-walk"
    needs = (Need.PROFILES, Need.MEMORY_CGROUPS)

    def examine(self, case: cases.Case) -> Answer:
        now, before = _stack_usage.read_stacks(case)
        near = case.event.time_us
        dying = _host_state.read_dying(case)
        walk = function_usage.mark_innermost(_signatures.pattern(KIND, "reader", "walk"))
        shrink = function_usage.mark_innermost(
            _signatures.pattern(KIND, "reader", "walk", "shrink")
        )
        with_shrink = {
            usage.actor: usage
            for usage in function_usage.top_consumers(
                now, before, shrink, near_us=near, limit=MAX_WALKERS
            )
        }
        drafts, most = [], 0.0
        for usage in function_usage.top_consumers(now, before, walk, near_us=near):
            share = _stack_usage.walk_share(now, usage.actor)
            # Where the walk dominates reclaim, the pages scanned on the way count, too.
            is_walk = share is not None and share >= _stack_usage.WALK_SHARE
            whole = with_shrink.get(usage.actor, usage) if is_walk else usage
            most = max(most, whole.cores_used)
            reader = _find_reader(usage)
            if share is not None and not is_walk and not reader:
                continue
            if _stack_usage.stands_out(whole, baseline=before is not None):
                drafts.append(_draft(case, now, whole, usage.function, share, reader, dying))
        if not drafts:
            _stack_usage.require_samples(case)
        drafts.sort(key=lambda draft: -draft.magnitude["cores_burnt"])
        clear = "no function that visits every memory cgroup is on a stack"
        if most:
            clear = (
                f"functions that visit every memory cgroup used at most {most:.2f} cores, or no more than"
                " in the baseline"
            )
        return self.answer(
            drafts[:MAX_FINDINGS],
            clear=f"{clear}; {now.coverage.samples} samples, {now.coverage.lost} lost",
        )


def _draft(
    case: cases.Case,
    now: samples.WindowSamples,
    usage: function_usage.Usage,
    function: str,
    share: float | None,
    reader: str,
    dying: int | None,
) -> _base.Draft:
    draft = _base.Draft(
        KIND,
        Subject.of_actor(case.host, usage.actor, core=usage.core, function=function),
        usage.window,
        (0.95 if reader else 0.9) * _stack_usage.lost_factor(now),
        f"{usage.actor} used {usage.cores_used:.2f} cores on core {usage.core} for"
        f" {usage.window.seconds:.0f} s to visit all memory cgroups, in {function}",
        [_stack_usage.usage_evidence(case, usage, now, function)],
        magnitude=_stack_usage.magnitude(usage),
    )
    if reader:
        text = f"it reads statistics that sum over all memory cgroups ({reader} is on the stack)"
        draft.support(text, "profiles", reader=reader)
    if share is not None:
        text = f"{100 * share:.0f} % of its samples in reclaim are in the step from one memory cgroup to the next"
        values = {"share_of_its_reclaim_samples": round(share, 3)}
        stepping = Evidence(text, "profiles", values, usage.window)
        draft.weigh(stepping, supports=share >= _stack_usage.WALK_SHARE)
    if dying is None:
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
