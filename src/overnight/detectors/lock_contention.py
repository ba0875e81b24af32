"""kernel.lock_contention: cores are burnt while they wait for a lock.

Which lock it is, the stack does not say; who asks for it does: the first function above the lock's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _base, _event_location, _signatures
from overnight.model.finding import Answer, Evidence, Finding, Need, Subject
from overnight.queries import function_usage, samples

if TYPE_CHECKING:
    from overnight.queries import case as cases

__all__ = ["DETECTORS", "LockContention"]

KIND = "kernel.lock_contention"
# Spinning is waste from the first core on; futexes are how threads sleep, and much of it is daily business.
LEAST_CORES = {"spin": 0.5, "futex": 2.0}
# Who needs the core of the event loses by less: it was in use before, and spinning took what was left.
LEAST_ON_EVENT_CORE = {**LEAST_CORES, "spin": _base.LEAST_CORES}
MOST = 4


class LockContention(_base.BaseDetector):
    """Which lock, asked for by whom, and how many cores waited for it."""

    name = "lock-contention"
    needs = (Need.PROFILES,)

    def examine(self, case: cases.Case) -> Answer:
        """Spinning by caller; futexes by process."""
        now, before = _base.stacks(case)
        found = []
        most = 0.0
        own = _event_location.find_location(case).core
        for role in LEAST_CORES:
            # The callers of one lock are told together first: each waiter alone may burn little.
            for lock, burners in self._by_lock(now, before, role, case.event.time_us).items():
                whole = sum(one.cores_used for one in burners)
                most = max(most, whole)
                burners.sort(key=lambda one: (one.core != own, -one.cores_used))
                there = burners[0].core == own
                least = (LEAST_ON_EVENT_CORE if there else LEAST_CORES)[role]
                if whole >= least and any(
                    _base.stands_out(one, baseline=before is not None) for one in burners
                ):
                    found.append(self._finding(case, now, lock, burners, role))
        if not found:
            _base.require_stacks(case)
        found.sort(key=lambda made: -made.magnitude["cores_burnt"])
        # One who waits for two locks is told with the one that cost more.
        found = list({one.id: one for one in reversed(found)}.values())[::-1]
        clear = (
            f"waiting for locks burnt {most:.2f} cores at most, or no more than before;"
            f" {now.coverage.samples} samples, {now.coverage.lost} lost"
        )
        return self.answer(found[:MOST], clear=clear)

    @staticmethod
    def _by_lock(
        now: samples.WindowSamples, before: samples.WindowSamples | None, role: str, near_us: int
    ) -> dict[str, list[function_usage.Usage]]:
        locks: dict[str, list[function_usage.Usage]] = {}
        for one in function_usage.top_consumers(
            now, before, _callers(role), near_us=near_us, by_function=True, limit=24
        ):
            locks.setdefault(one.function, []).append(one)
        return locks

    def _finding(
        self,
        case: cases.Case,
        now: samples.WindowSamples,
        lock: str,
        burners: list[function_usage.Usage],
        role: str,
    ) -> Finding:
        leading = burners[0]  # on the core of the event, where somebody waits there
        process, unit = leading.actor
        waits_in = _waits_in(leading, role)
        whole = sum(one.cores_used for one in burners)
        magnitude = _base.burn_magnitude(leading)
        magnitude.update(cores_burnt=whole, waiters=float(len(burners)))
        others = [f"{one.actor.process} {one.cores_used:.2f}" for one in burners[1:4]]
        also = f"; also {', '.join(others)} cores" if others else ""
        waits = (
            "waiting for a lock"
            if role == "spin"
            else "in futexes, its threads wait for each other"
        )
        return _base.make(
            self.name,
            KIND,
            Subject(
                host=case.host, core=leading.core, unit=unit, process=process, function=waits_in
            ),
            leading.window,
            (0.85 if role == "spin" else 0.6) * _base.lost_factor(now),
            f"{whole:.2f} cores were burnt {waits}, asked for by {lock}: {process}"
            f" {leading.cores_used:.2f}{also}",
            [
                Evidence(
                    f"the lock is one that {lock} takes; {len(burners)} wait for it",
                    "profiles",
                    {"caller": lock, "waiters": len(burners), "cores_burnt": round(whole, 3)},
                    leading.window,
                ),
                *(_base.burn_evidence(case, one, now, waits_in) for one in burners[:3]),
            ],
            magnitude,
        )


def _waits_in(one: function_usage.Usage, role: str) -> str:
    """The waiting function itself, of the stack met most."""
    waits = _signatures.matcher(KIND, role)
    names = [function_usage.strip_suffix(name) for name in reversed(one.path)]
    return next((name for name in names if waits(name)), one.function)


def _callers(role: str) -> function_usage.Marks:
    """Marks samples that wait: the first function above the lock's own code."""
    waits = _signatures.pattern(KIND, role)
    own = _signatures.pattern(KIND, "spin", "futex", "plumbing")

    def marks(piece: samples.SegmentSamples) -> samples.Integers:
        at = piece.innermost(piece.node, piece.kernel_frames(waits))
        if role == "futex":
            return at
        return piece.innermost(at, ~piece.kernel_frames(own))

    return marks


DETECTORS = (LockContention(),)
