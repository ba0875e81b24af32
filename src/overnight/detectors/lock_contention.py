"""kernel.lock_contention: cores spin on a lock; the first function above the lock's own code names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _base, _event_location, _signatures, _stack_usage
from overnight.model.finding import Answer, Evidence, Need, Subject
from overnight.queries import function_usage

if TYPE_CHECKING:
    from overnight.model.event import Value
    from overnight.queries import case as cases
    from overnight.queries import samples

KIND = "kernel.lock_contention"
# Spinning is waste from the first core on; futexes are how threads sleep, and much of that is ordinary.
MIN_CORES = {"spin": 0.5, "futex": 2.0}
# The event's core was in use before, so that less spinning is enough to take what was left of it.
MIN_ON_EVENT_CORE = {**MIN_CORES, "spin": _stack_usage.MIN_CORES}
WAITING = {"spin": "waiting for a lock", "futex": "in futexes, as its threads wait for each other"}
MAX_WAITERS = 24


class LockContention(_base.Detector):
    """Spinning by the caller that takes the lock; futexes by process."""

    name = "lock-contention"
    needs = (Need.PROFILES,)
    clears_by = ((Need.PROFILES,),)
    max_findings = 4

    def examine(self, case: cases.Case) -> Answer:
        stacks = _stack_usage.read_stacks(case)
        drafts, most = [], 0.0
        event_core = _event_location.find_location(case).core
        for role in MIN_CORES:
            # All waiters for one lock together: each one alone may use little.
            locks: dict[str, list[function_usage.Usage]] = {}
            for usage in stacks.top_consumers(
                _mark_callers(role), by_function=True, limit=MAX_WAITERS
            ):
                locks.setdefault(usage.function, []).append(usage)
            for lock, waiters in locks.items():
                used = sum(waiter.cores_used for waiter in waiters)
                most = max(most, used)
                waiters.sort(key=lambda waiter: (waiter.core != event_core, -waiter.cores_used))
                on_event_core = waiters[0].core == event_core
                least = (MIN_ON_EVENT_CORE if on_event_core else MIN_CORES)[role]
                if used >= least and any(
                    _stack_usage.stands_out(waiter, baseline=stacks.before is not None)
                    for waiter in waiters
                ):
                    drafts.append(_draft(stacks, lock, waiters, role))
        if not drafts:
            _stack_usage.require_samples(case)
        # A process that waits for two locks is reported once, with the one that cost more.
        unique: dict[tuple[Subject, int], _base.Draft] = {}
        for draft in sorted(drafts, key=lambda draft: -draft.magnitude["cores_burnt"]):
            unique.setdefault((draft.subject, draft.window.begin_us), draft)
        return self.answer(
            unique.values(),
            clear=f"waiting for locks used at most {most:.2f} cores, or no more than in the baseline;"
            f" {stacks.counts}",
        )


def _draft(
    stacks: _stack_usage.Stacks, lock: str, waiters: list[function_usage.Usage], role: str
) -> _base.Draft:
    leading = waiters[0]  # on the core of the event, if any waiter is there
    function = _waiting_function(leading, role)
    used = sum(waiter.cores_used for waiter in waiters)
    users = ", ".join(f"{waiter.actor.process} {waiter.cores_used:.2f}" for waiter in waiters[:4])
    summary = (
        f"{used:.2f} cores were used {WAITING[role]}, taken in {lock}; cores by process: {users}"
    )
    draft = stacks.draft(KIND, leading, function, 0.85 if role == "spin" else 0.6, summary)
    text = f"{len(waiters)} processes wait for a lock that {lock} takes"
    values: dict[str, Value] = {
        "caller": lock,
        "waiters": len(waiters),
        "cores_burnt": round(used, 3),
    }
    draft.evidence.insert(0, Evidence(text, "profiles", values, leading.window))
    draft.evidence += [stacks.evidence(waiter, function) for waiter in waiters[1:3]]
    draft.magnitude.update(cores_burnt=used, waiters=len(waiters))
    return draft


def _waiting_function(usage: function_usage.Usage, role: str) -> str:
    """Return the waiting function itself, from the most frequent stack."""
    is_waiting = _signatures.matcher(KIND, role)
    names = (function_usage.strip_suffix(name) for name in reversed(usage.path))
    return next((name for name in names if is_waiting(name)), usage.function)


def _mark_callers(role: str) -> function_usage.Marks:
    """Mark samples that wait by the first function above the lock's own code."""
    waits = _signatures.pattern(KIND, role)
    own = _signatures.pattern(KIND, "spin", "futex", "plumbing")

    def marks(part: samples.SegmentSamples) -> samples.Integers:
        nodes = part.innermost(part.node, part.kernel_frames(waits))
        return nodes if role == "futex" else part.innermost(nodes, ~part.kernel_frames(own))

    return marks


DETECTORS = (LockContention(),)
