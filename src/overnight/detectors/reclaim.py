"""memory.reclaim: tasks must free memory before they can go on, or kswapd keeps a core busy with it.

vmstat does not count the reclaim of one cgroup at its limit (shrink_inactive_list): only stacks show that.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import _base, _host_state, _saturation, _signatures, _stack_usage
from overnight.model.finding import Answer, Evidence, Need, Subject
from overnight.model.selection import Window

if TYPE_CHECKING:
    from overnight.queries import case as cases
    from overnight.queries import function_usage, samples, signals

KIND = "memory.reclaim"
COLUMNS = ("pgscan_direct", "pgscan_kswapd", "allocstall")
REASONS = {
    "limit": "because its cgroup was at its memory limit",
    "direct": "because the host had no free memory",
    "background": "in the background, because the host had little free memory",
    "work": "for a reason that the stack does not show",
}
# Scanned by tasks themselves: 4 MB a second is nothing; a host in trouble scans hundreds of thousands.
PAGES_A_SECOND = 10_000.0
PAGES_FACTOR = 5.0  # against the mean of the baseline
SECONDS_IN_A_ROW = 2
PRESSURE = 15.0  # percent of the time in which some task waited for memory, as in the watch


class _Scanned:
    """Pages scanned each second around the event, and in the baseline."""

    def __init__(self, case: cases.Case) -> None:
        self.rates = case.rates("vmstat", case.window, columns=COLUMNS)
        before = case.rates("vmstat", case.baseline, columns=COLUMNS)
        self.is_known = len(self.rates.keys) > 0 and len(self.rates.end_us) > 0
        self.direct_baseline = _mean(before, "pgscan_direct")
        self.baseline = self.direct_baseline + _mean(before, "pgscan_kswapd")

    def within(self, window: Window) -> float:
        """Return the pages a second in a window, direct and background."""
        if not self.is_known:
            return 0.0
        inside = (self.rates.end_us > window.begin_us) & (self.rates.begin_us < window.end_us)
        direct, background, _ = map(self.rates.of_first_key, COLUMNS)
        return float((direct + background)[inside].mean()) if inside.any() else 0.0


def _mean(rates: signals.Rates, name: str) -> float:
    column = rates.of_first_key(name)
    return float(column.mean()) if len(column) else 0.0


class Reclaim(_base.Detector):
    """Stacks first; where there are none, or they show nothing, the counters."""

    name = "reclaim"
    needs = (Need.PROFILES, Need.VMSTAT, Need.PRESSURE, Need.MEMORY_CGROUPS)
    clears_by = ((Need.PROFILES, Need.VMSTAT),)
    max_findings = 4

    def examine(self, case: cases.Case) -> Answer:
        scanned = _Scanned(case)
        is_sampled = case.has_profile(case.window)
        if not is_sampled and not scanned.is_known:
            text = "neither stacks nor vmstat were recorded around the event"
            raise _base.MissingError(text, Need.PROFILES, Need.VMSTAT)
        drafts: list[_base.Draft] = []
        if is_sampled:
            stacks = _stack_usage.read_stacks(case)
            drafts = [
                _draft(stacks, usage, scanned)
                for usage in stacks.top_consumers(_mark_reclaim)
                if _stack_usage.stands_out(usage, baseline=stacks.before is not None)
            ]
        if not drafts and scanned.is_known:
            drafts = _draft_burst(case, scanned)
        if not drafts and is_sampled:
            _stack_usage.require_samples(case)
            _base.require_imported(case, Need.VMSTAT, "vmstat")
        clear = (
            f"no process used {_stack_usage.MIN_CORES} cores in reclaim, and tasks scanned fewer than"
            f" {PAGES_A_SECOND:,.0f} pages a second"
        )
        if not is_sampled:
            clear += "; without stacks, reclaim at a cgroup's limit cannot be seen"
        return self.answer(drafts, clear=clear)


def _draft(
    stacks: _stack_usage.Stacks, usage: function_usage.Usage, scanned: _Scanned
) -> _base.Draft:
    case, role = stacks.case, _entry_role(usage)
    pages = scanned.within(usage.window)
    # kswapd is ordinary on every host with full memory; a task that must reclaim itself waits.
    confidence = 0.55 if role == "background" else 0.85
    if pages > scanned.baseline and pages >= PAGES_A_SECOND:
        change = 0.1
    else:
        change = -0.15 if scanned.is_known and role != "limit" else 0.0
    summary = (
        f"{usage.actor} used {usage.cores_used:.2f} cores for {usage.window.seconds:.0f} s to free memory"
        f" {REASONS[role]}"
    )
    draft = stacks.draft(KIND, usage, usage.function, confidence + change, summary)
    draft.magnitude["pages_per_second"] = pages
    # The unit of a process in a pod is the pod's name; that of another container is its cgroup.
    busiest = next(iter(case.processes_of(usage.actor, usage.window)), None)
    cgroup = busiest.cgroup if busiest and busiest.pod else usage.actor.unit
    if cgroup.startswith("/"):
        draft.subject = dataclasses.replace(draft.subject, cgroup=cgroup)
    if change:
        counted = _pages_evidence(case, usage.window, pages, scanned.baseline)
        draft.weigh(counted, supports=change > 0)
    elif role == "limit":
        text = "the host itself had free memory: vmstat does not count reclaim at the limit of a cgroup"
        draft.support(text, "vmstat", pages_a_second_of_the_host=round(pages, 1))
    waited = _read_pressure(case, usage.window)
    if waited is not None:
        text = f"tasks waited for memory {waited:.0f} % of the time"
        values = {"some_percent_of_time": round(waited, 1)}
        waiting = Evidence(text, "pressure", values, usage.window)
        draft.weigh(waiting, supports=waited >= PRESSURE)
    walk = stacks.walk_share(usage.actor, min_samples=1)
    if walk is not None and walk >= _stack_usage.WALK_SHARE:
        dying, _ = _host_state.read_dying(case)
        draft.oppose(
            f"{100 * walk:.0f} % of its samples in reclaim only step from one memory cgroup to the next",
            "profiles",
            factor=0.6 if dying is None or dying >= _host_state.MANY_DYING else 0.9,
            share_of_its_reclaim_samples=round(walk, 3),
            dying=dying,
        )
    return draft


def _draft_burst(case: cases.Case, scanned: _Scanned) -> list[_base.Draft]:
    """Find the longest run of seconds in which tasks scanned many pages."""
    direct = scanned.rates.of_first_key("pgscan_direct")
    run = _saturation.longest_run(
        direct >= max(PAGES_A_SECOND, PAGES_FACTOR * scanned.direct_baseline)
    )
    if len(run) < SECONDS_IN_A_ROW:
        return []
    window = Window(int(scanned.rates.begin_us[run[0]]), int(scanned.rates.end_us[run[-1]]))
    pages = float(direct[run].mean())
    stalls = float(scanned.rates.of_first_key("allocstall")[run].mean())
    return [
        _base.Draft(
            KIND,
            Subject(host=case.host),
            window,
            0.7 if stalls else 0.5,
            f"tasks had to free memory themselves and scanned {pages:,.0f} pages a second for"
            f" {window.seconds:.0f} s; no stack shows which tasks",
            [_pages_evidence(case, window, pages, scanned.baseline)],
            magnitude={"pages_per_second": pages, "allocations_stalled_per_second": stalls},
        )
    ]


def _mark_reclaim(part: samples.SegmentSamples) -> samples.Integers:
    """Mark samples by the entry into reclaim, which shows its reason, else by the work itself."""
    entries = part.kernel_frames(_signatures.pattern(KIND, "limit", "direct", "background"))
    work = part.kernel_frames(_signatures.pattern(KIND, "work"))
    entry = part.innermost(part.node, entries)
    return np.where(entry >= 0, entry, part.innermost(part.node, entries | work))


def _entry_role(usage: function_usage.Usage) -> str:
    for role in ("limit", "direct", "background"):
        if _signatures.matcher(KIND, role)(usage.function):
            return role
    return "work"


def _pages_evidence(case: cases.Case, window: Window, pages: float, baseline: float) -> Evidence:
    return Evidence(
        f"{pages:,.0f} pages a second were scanned; {baseline:,.0f} in the baseline ({case.baseline_text})",
        "vmstat",
        {"pages_per_second": round(pages, 1), "baseline_pages_per_second": round(baseline, 1)},
        window,
        _base.command("events", case.window, case.host),
    )


def _read_pressure(case: cases.Case, window: Window) -> float | None:
    """Read the percent of the time in which some task waited for memory, in the worst second."""
    rates = case.rates("pressure", window, keys=("memory",), columns=("some",))
    column = rates.of_first_key("some")
    return float(column.max()) / 1e4 if rates.keys and len(column) else None


DETECTORS = (Reclaim(),)
