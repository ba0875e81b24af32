"""memory.reclaim: tasks free memory before they may go on, or kswapd keeps a core busy with it.

vmstat counts pages that were scanned because the host is full. Reclaim of one cgroup at its limit is in none
of vmstat's counters (shrink_inactive_list counts only what is no cgroup's): stacks alone show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import _base, _signatures
from overnight.model.finding import Answer, Evidence, Finding, Need, Subject
from overnight.model.selection import Window
from overnight.queries import function_usage, samples, signals

if TYPE_CHECKING:
    from overnight.queries import case as cases

__all__ = ["DETECTORS", "Reclaim"]

KIND = "memory.reclaim"
WALK = "memory.cgroup_walk"
COLUMNS = ("pgscan_direct", "pgscan_kswapd", "allocstall")
WAYS = {
    "limit": "at the memory limit of its cgroup",
    "direct": "because the host had no free memory",
    "background": "in the background, for the host had little free memory",
    "work": "at whose bidding the stack does not say",
}
# Scanned by tasks themselves: 4 MB a second is nothing; a host in trouble scans hundreds of thousands.
PAGES_A_SECOND = 10_000.0
PAGES_FACTOR = 5.0  # against the mean of the baseline
SECONDS_IN_A_ROW = 2
WALK_SHARE = 0.15  # see cgroup_walk
MANY_DYING = 1_000
PRESSURE = 15.0  # percent of the time that some task waited for memory, as the watch has it
MOST = 4


class _Scanned:
    """Pages scanned each second around the event, and how that compares with before."""

    def __init__(self, case: cases.Case) -> None:
        self.rates = signals.counter_rate(
            case.ring, case.host, "vmstat", case.window, columns=COLUMNS
        )
        before = signals.counter_rate(
            case.ring, case.host, "vmstat", case.baseline, columns=COLUMNS
        )
        self.known = len(self.rates.keys) > 0 and len(self.rates.end_us) > 0
        self.baseline = _mean(before, "pgscan_direct") + _mean(before, "pgscan_kswapd")
        self.baseline_direct = _mean(before, "pgscan_direct")

    def within(self, window: Window) -> float:
        """Pages a second in a stretch, direct and background."""
        if not self.known:
            return 0.0
        inside = (self.rates.end_us > window.begin_us) & (self.rates.begin_us < window.end_us)
        total = _column(self.rates, "pgscan_direct") + _column(self.rates, "pgscan_kswapd")
        return float(total[inside].mean()) if inside.any() else 0.0

    def burst(self) -> tuple[Window, float, float] | None:
        """The longest run of seconds in which tasks scanned a lot: pages and stalls a second."""
        if not self.known:
            return None
        direct = _column(self.rates, "pgscan_direct")
        least = max(PAGES_A_SECOND, PAGES_FACTOR * self.baseline_direct)
        runs: list[list[int]] = [[]]
        for n, rate in enumerate(direct.tolist()):
            if rate >= least:
                runs[-1].append(n)
            elif runs[-1]:
                runs.append([])
        best = max(runs, key=len)
        if len(best) < SECONDS_IN_A_ROW:
            return None
        window = Window(int(self.rates.begin_us[best[0]]), int(self.rates.end_us[best[-1]]))
        stalls = _column(self.rates, "allocstall")
        return window, float(direct[best].mean()), float(stalls[best].mean())


def _column(rates: signals.Rates, name: str) -> signals.Floats:
    found = rates.values.get(name)
    if found is None or not found.size:
        return np.zeros(len(rates.end_us))
    return np.nan_to_num(found[:, 0])


def _mean(rates: signals.Rates, name: str) -> float:
    column = _column(rates, name)
    return float(column.mean()) if len(column) else 0.0


class Reclaim(_base.BaseDetector):
    """Who reclaims, why, how many pages, how many cores."""

    name = "reclaim"
    needs = (Need.PROFILES, Need.VMSTAT, Need.PRESSURE, Need.MEMORY_CGROUPS)

    def examine(self, case: cases.Case) -> Answer:
        """Stacks first; where there are none, or they show nobody, the counters."""
        scanned = _Scanned(case)
        stacks = None
        if case.has_profile(case.window):
            stacks = _base.stacks(case)
        elif not scanned.known:
            raise _base.MissingError(
                "neither stacks nor vmstat were recorded around the event",
                Need.PROFILES,
                Need.VMSTAT,
            )
        found: list[Finding] = []
        if stacks is not None:
            now, before = stacks
            marks = _signatures.pattern(KIND, "limit", "direct", "background", "work")
            found = [
                self._finding(case, now, one, scanned)
                for one in function_usage.top_consumers(
                    now, before, _outermost(marks), near_us=case.event.time_us
                )
                if _base.stands_out(one, baseline=before is not None)
            ]
        burst = scanned.burst()
        if not found and burst is not None:
            found.append(self._counted(case, burst, scanned))
        if not found and stacks is not None:
            _base.require_stacks(case)
        least = (
            ""
            if stacks
            else "; no stacks were sampled, so reclaim at a cgroup's limit would not show"
        )
        clear = (
            f"no task burnt {_base.LEAST_CORES} cores in reclaim, and fewer than"
            f" {PAGES_A_SECOND:.0f} pages a second were scanned by tasks{least}"
        )
        return self.answer(found[:MOST], clear=clear)

    def _finding(
        self,
        case: cases.Case,
        now: samples.WindowSamples,
        one: function_usage.Usage,
        scanned: _Scanned,
    ) -> Finding:
        process, unit = one.actor
        way = _way(one)
        pages = scanned.within(one.window)
        evidence = [_base.burn_evidence(case, one, now, one.function)]
        against = []
        # kswapd at work is every full host's daily business; a task that must reclaim itself waits.
        confidence = 0.55 if way == "background" else 0.85
        if pages > scanned.baseline and pages >= PAGES_A_SECOND:
            evidence.append(_pages(case, one.window, pages, scanned.baseline))
            confidence += 0.1
        elif way == "limit":
            evidence.append(
                Evidence(
                    "vmstat does not count reclaim at the limit of a cgroup: the host itself had memory",
                    "vmstat",
                    {"pages_a_second_of_the_host": round(pages, 1)},
                    one.window,
                )
            )
        elif scanned.known:
            against.append(_pages(case, one.window, pages, scanned.baseline))
            confidence -= 0.15
        waited = _pressure(case, one.window)
        if waited is not None:
            made = Evidence(
                f"tasks waited for memory {waited:.0f} % of the time",
                "pressure",
                {"some_percent_of_time": round(waited, 1)},
                one.window,
            )
            (evidence if waited >= PRESSURE else against).append(made)
        step = _signatures.pattern(WALK, "walk")
        both, all_ = function_usage.nested_share(
            now, step, _signatures.pattern(WALK, "shrink"), (one.actor,)
        )
        dying = _base.dying_now(case)
        if all_ and both / all_ >= WALK_SHARE:
            text = f"{both / all_:.0%} of its samples in reclaim only step from one memory cgroup to the next"
            values: dict[str, float | int] = {"share_of_its_reclaim_samples": round(both / all_, 3)}
            if dying is not None:
                values["dying"] = dying
            against.append(Evidence(text, "profiles", values, one.window))
            confidence *= 0.6 if dying is None or dying >= MANY_DYING else 0.9
        of_unit = f" ({unit})" if unit else ""
        return _base.make(
            self.name,
            KIND,
            Subject(
                host=case.host, core=one.core, unit=unit, process=process, function=one.function,
                cgroup=unit if unit.startswith("/") else "",
            ),
            one.window,
            confidence * _base.lost_factor(now),
            f"{process}{of_unit} burnt {one.cores_used:.2f} cores for {one.window.seconds:.0f} s"
            f" freeing memory {WAYS[way]}",
            evidence,
            {**_base.burn_magnitude(one), "pages_per_second": pages},
            against,
        )  # fmt: skip

    def _counted(
        self, case: cases.Case, burst: tuple[Window, float, float], scanned: _Scanned
    ) -> Finding:
        window, pages, stalls = burst
        return _base.make(
            self.name,
            KIND,
            Subject(host=case.host),
            window,
            0.7 if stalls else 0.5,
            f"tasks had to free memory themselves: {pages:.0f} pages a second were scanned for"
            f" {window.seconds:.0f} s; who, no stack says",
            [_pages(case, window, pages, scanned.baseline)],
            {"pages_per_second": pages, "allocations_stalled_per_second": stalls},
        )


def _outermost(pattern: str) -> function_usage.Marks:
    """Why there is reclaim is said by its entry; only what has none is marked by the work itself."""
    entries = _signatures.pattern(KIND, "limit", "direct", "background")

    def marks(piece: samples.SegmentSamples) -> samples.Integers:
        entry = piece.innermost(piece.node, piece.kernel_frames(entries))
        work = piece.innermost(piece.node, piece.kernel_frames(pattern))
        return np.where(entry >= 0, entry, work)

    return marks


def _way(one: function_usage.Usage) -> str:
    for role in ("limit", "direct", "background"):
        if _signatures.matcher(KIND, role)(one.function):
            return role
    return "work"


def _pages(case: cases.Case, window: Window, pages: float, baseline: float) -> Evidence:
    return Evidence(
        f"{pages:.0f} pages a second were scanned, against {baseline:.0f} in the {case.usual}",
        "vmstat",
        {"pages_per_second": round(pages, 1), "baseline_pages_per_second": round(baseline, 1)},
        window,
        _base.command("events", case.window, case.host),
    )


def _pressure(case: cases.Case, window: Window) -> float | None:
    """Percent of the time in which some task waited for memory, in the worst second."""
    rates = signals.counter_rate(
        case.ring, case.host, "pressure", window, keys=("memory",), columns=("some",)
    )
    column = _column(rates, "some")
    return float(column.max()) / 1e4 if rates.keys and len(column) else None


DETECTORS = (Reclaim(),)
