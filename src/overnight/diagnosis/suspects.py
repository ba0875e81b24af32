"""Suspects of every incident, each cleared by a number or not: "Checked and not the cause".

A suspect is not cleared if one of its numbers is above its floor and above every stretch of the baseline that is as
long as the incident window (`queries.levels`). It is never blamed: detectors and links do that. A floor is where
the suspect begins to matter: about one percent of a core, or of the time.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from overnight import errors
from overnight.detectors import mechanism_table, recorder
from overnight.diagnosis import core_suspects, measures
from overnight.model.suspect import Suspect, SuspectName, SuspectOutcome
from overnight.queries import freshness, levels

if TYPE_CHECKING:
    from overnight.model.finding import Finding
    from overnight.queries import case as cases

TICKS = 100  # of a core's second
# A direct compaction takes milliseconds; clearing a huge page 0.2 ms; scanning a page 0.1 us; a page fault 0.5 us.
COMPACTION_STALLS, HUGE_PAGES, SCANNED_PAGES, PAGE_FAULTS = 1.0, 50.0, 100_000.0, 20_000.0
# Of the time: three seconds at the watch's 15 and 50 % are this much of the incident window.
WAITED_FOR = {"memory": 1.0, "io": 4.0}
ALLOCATION_STALLS = 1.0  # each waits for reclaim, for milliseconds
LATENCY_MS, IN_FLIGHT = 20.0, 8.0  # an SSD answers within 1 ms, a disk or network volume within 20
NETWORK_ERRORS, ALLOWANCE = 10.0, 100.0  # a burst of fewer is retransmitted; as in the watch
STEP_MS = 100.0  # slewing moves a clock by 0.5 ms a second
MAX_DISKS = MAX_LINKS = 3
VIRTUAL = re.compile(r"lo|(?:veth|docker|br-|cali|cni|flannel|virbr|tap|tun|lxc|dummy).*")
# Of mechanisms.toml.
HUGE_PAGE_MECHANISMS = ("compaction", "huge-pages")
ALLOCATOR_MECHANISMS = ("mmap-churn", "page-faults")
# A page fault that waits for memory is not churn.
NO_CHURN = ("shrinkers", "page-cache-reclaim", "direct-reclaim", *HUGE_PAGE_MECHANISMS)


def check_suspects(case: cases.Case, findings: Sequence[Finding] = ()) -> tuple[Suspect, ...]:
    """Check every suspect around an event, whatever the verdict on it."""
    evidence = measures.Evidence(case, _find_core(case, findings))
    return tuple(_check(evidence, check) for check in CHECKS)


def _find_core(case: cases.Case, findings: Sequence[Finding]) -> int | None:
    """Return the event's core, else the first that was saturated."""
    by_rank = sorted(findings, key=lambda each: (each.detector != "event", -each.confidence))
    cores = (each.subject.core for each in by_rank if each.detector in ("event", "core-saturation"))
    return next((core for core in cores if core is not None), case.event.known_core)


def _check_huge_pages(evidence: measures.Evidence) -> measures.Result:
    stalls, scanned, allocated = (
        evidence.level("vmstat", *columns)
        for columns in (
            ("compact_stall",),
            ("compact_migrate_scanned",),
            ("thp_fault_alloc", "thp_collapse_alloc"),
        )
    )
    if stalls is None or scanned is None or allocated is None:
        raise evidence.missing("vmstat")
    return measures.judge(
        [
            measures.Measure(
                "compaction_stalls_per_second",
                stalls, COMPACTION_STALLS, tail=" compaction stalls/s",
            ),
            measures.Measure(
                "compaction_scanned_pages_per_second",
                scanned, SCANNED_PAGES, tail=" scanned pages/s",
            ),
            measures.Measure(
                "huge_pages_allocated_per_second",
                allocated, HUGE_PAGES, tail=" new huge pages/s",
            ),
            *evidence.stacks("cores_in_huge_pages", _functions(HUGE_PAGE_MECHANISMS), " cores in their functions"),
        ]
    )  # fmt: skip


def _functions(names: Sequence[str]) -> str:
    patterns = {each.name: each.functions for each in mechanism_table.mechanisms()}
    return "|".join(f"(?:{patterns[name]})" for name in names)


def _check_allocator(evidence: measures.Evidence) -> measures.Result:
    faults = evidence.level("vmstat", "pgfault")
    numbers = evidence.stacks(
        "cores_in_memory_mapping",
        _functions(ALLOCATOR_MECHANISMS),
        " cores in page faults, mmap and munmap",
        without=_functions(NO_CHURN),
    )
    remark = "" if numbers else "mmap and munmap are not known without stacks"
    if faults is not None:
        tail = " page faults/s"
        numbers.insert(
            0, measures.Measure("page_faults_per_second", faults, PAGE_FAULTS, tail=tail)
        )
    if not numbers:
        raise evidence.missing("vmstat")
    return measures.judge(numbers, remark)


def _check_memory(evidence: measures.Evidence) -> measures.Result:
    case = evidence.case
    numbers = _measure_pressure(evidence, "memory", "memory")
    stalls = evidence.level("vmstat", "allocstall")
    kills = evidence.rise("vmstat", "oom_kill")
    if stalls is not None and kills is not None:
        tail = " stalled allocations/s"
        numbers += [
            measures.Measure("allocation_stalls_per_second", stalls, ALLOCATION_STALLS, tail=tail),
            measures.Measure("oom_kills", kills, measures.ONE, tail=" OOM kills", digits=0),
        ]
    if not numbers:
        raise evidence.missing("pressure", "vmstat")
    total, available = (
        evidence.gauge("memory", column, case.window) for column in ("total", "available")
    )
    remark = ""
    if total and available:
        remark = f"{min(available) / 2**20:,.1f} of {total[0] / 2**20:,.1f} GiB available"
    return measures.judge(numbers, remark)


def _measure_pressure(
    evidence: measures.Evidence, resource: str, words: str
) -> list[measures.Measure]:
    level = evidence.level("pressure", "some", keys=(resource,))
    if level is None:
        return []
    percent = level.scaled(1e-4)  # of microseconds a second
    name, lead = f"waited_for_{resource}_percent_of_time", f"tasks waited for {words} "
    return [measures.Measure(name, percent, WAITED_FOR[resource], lead, " of the time", " %")]


def _check_disk(evidence: measures.Evidence) -> measures.Result:
    case = evidence.case
    numbers = _measure_pressure(evidence, "io", "disks")
    rates = case.rates("disks", case.window, columns=("weighted_ms",))
    waited = np.nansum(rates.values.get("weighted_ms", np.zeros((1, 0))), axis=0)
    if not numbers and not len(waited):
        raise evidence.missing("disks", "pressure")
    for place in np.argsort(-waited, kind="stable")[:MAX_DISKS].tolist():
        disk = rates.keys[place]
        latency = evidence.level(
            "disks", "read_ms", "write_ms", per=("reads", "writes"), keys=(disk,)
        )
        queue = evidence.level("disks", "weighted_ms", keys=(disk,))
        if latency and queue:
            tail = " requests in flight"
            queued = queue.scaled(1e-3)
            numbers += [
                measures.Measure(
                    f"{disk}_ms_per_request",
                    latency,
                    LATENCY_MS,
                    f"{disk} answered in ",
                    unit=" ms",
                ),
                measures.Measure(f"{disk}_requests_in_flight", queued, IN_FLIGHT, tail=tail),
            ]
    now, before = (len(case.events(window, "storage.")) for window in (case.window, case.baseline))
    errors_logged = levels.Level(now, before, before)
    numbers.append(
        measures.Measure(
            "disk_errors", errors_logged, measures.ONE, tail=" disk errors logged", digits=0
        )
    )
    return measures.judge(numbers, "" if len(waited) else "the latency of disks was not recorded")


def _check_network(evidence: measures.Evidence) -> measures.Result:
    drivers, cutoff = evidence.facts("nic-drivers"), evidence.cutoff_us
    names = evidence.keys("interfaces", "carrier_changes")
    hardware = [name for name in names if name in drivers]
    links = hardware or [name for name in names if not VIRTUAL.fullmatch(name)]
    counters = evidence.keys("ethtool", "value")
    allowances = [key for key in counters if key.endswith("_allowance_exceeded")]
    numbers = _measure_links(evidence, links, cutoff)
    if not links or not numbers:
        raise evidence.missing("interfaces")
    name, tail = "packets_beyond_allowances_before_the_event", " packets beyond allowances"
    exceeded = evidence.rise("ethtool", "value", keys=allowances, end_us=cutoff)
    remark = "the driver does not count exceeded allowances"
    if allowances and exceeded is not None:
        remark = ""
        numbers.append(measures.Measure(name, exceeded, ALLOWANCE, tail=tail, digits=0))
    result = measures.judge(numbers, remark)
    if result.outcome is SuspectOutcome.CLEARED:
        # The next reading is from after the event, which may have changed them itself.
        until_us = cutoff + freshness.interval_us("interfaces")
        measures.require_order(_measure_links(evidence, links, until_us))
    return result


def _measure_links(
    evidence: measures.Evidence, links: Sequence[str], end_us: int
) -> list[measures.Measure]:
    changes = evidence.rise("interfaces", "carrier_changes", keys=links, end_us=end_us)
    failed = evidence.rise("interfaces", "rx_errors", "tx_errors", keys=links, end_us=end_us)
    if changes is None or failed is None:
        return []
    lead = f"{', '.join(links[:MAX_LINKS])}: "
    return [
        measures.Measure(
            "link_changes_before_the_event", changes, measures.ONE, lead, " link changes", digits=0
        ),
        measures.Measure(
            "errors_before_the_event", failed, NETWORK_ERRORS, tail=" errors", digits=0
        ),
    ]


def _check_clock(evidence: measures.Evidence) -> measures.Result:
    case = evidence.case
    steps = case.once(freshness.read_clock)
    now, before = (
        max((each.moved_us / 1000 for each in steps if each.touches(window)), default=None)
        for window in (case.window, case.baseline)
    )
    if now is None:
        raise evidence.missing("vmstat")
    level = levels.Level(now, before, before)
    measure = measures.Measure(
        "largest_clock_step_ms", level, STEP_MS, "largest step ", unit=" ms", digits=0
    )
    unsynced = evidence.gauge("clock", "unsynced", case.window)
    remark = f"{'not ' if unsynced[-1] else ''}synchronized" if unsynced else ""
    return measures.judge([measure], remark)


def _check_recorder(evidence: measures.Evidence) -> measures.Result:
    level = evidence.level("recorder", "utime", "stime")
    pids = [key.partition(" ")[0] for key in evidence.keys("recorder", "utime")]
    if level is None or not pids:
        raise evidence.missing("recorder")
    look = f"ps -o pid,time,args -p {','.join(filter(str.isdecimal, pids))}"
    percent, floor = level.scaled(100 / TICKS), 100 * recorder.LIMIT
    return measures.judge(
        [measures.Measure("percent_of_one_core", percent, floor, tail=" of one core", unit=" %")],
        look=look,
    )


@dataclasses.dataclass(frozen=True)
class _Check:
    name: SuspectName
    title: str
    signals: tuple[str, ...]
    look: str
    run: Callable[[measures.Evidence], measures.Result]


CHECKS = (
    _Check(SuspectName.HUGE_PAGES, "huge pages", ("vmstat", "profiles"),
           "grep -E '^(thp|compact)_' /proc/vmstat", _check_huge_pages),
    _Check(SuspectName.ALLOCATOR, "allocator churn", ("vmstat", "profiles"),
           "grep pgfault /proc/vmstat", _check_allocator),
    _Check(SuspectName.AFFINITY, "CPU affinity", ("affinity", "processes"), "", core_suspects.check_affinity),
    _Check(SuspectName.THROTTLING, "CPU quota", ("cpu-throttling",),
           "grep -rs '^nr_throttled' /sys/fs/cgroup --include=cpu.stat", core_suspects.check_throttling),
    _Check(SuspectName.INTERRUPTS, "interrupt placement", ("nic-queues",),
           "grep -s . /proc/irq/*/effective_affinity_list", core_suspects.check_interrupts),
    _Check(SuspectName.STEAL, "hypervisor steal", ("cpu",), "mpstat -P ALL 1 5", core_suspects.check_steal),
    _Check(SuspectName.FREQUENCY, "frequency", ("frequency",),
           "grep -s . /sys/devices/system/cpu/cpu*/thermal_throttle/*_count", core_suspects.check_frequency),
    _Check(SuspectName.MEMORY, "memory pressure", ("pressure", "vmstat"),
           "cat /proc/pressure/memory /proc/meminfo", _check_memory),
    _Check(SuspectName.DISK, "disk", ("pressure", "disks", "events"), "iostat -x 1 5", _check_disk),
    _Check(SuspectName.NETWORK, "network", ("interfaces", "ethtool"), "ip -s -s link", _check_network),
    _Check(SuspectName.CLOCK, "clock", ("vmstat",), "timedatectl", _check_clock),
    _Check(SuspectName.RECORDER, "recorder", ("recorder",), "", _check_recorder),
)  # fmt: skip


def _check(evidence: measures.Evidence, check: _Check) -> Suspect:
    try:
        result = check.run(evidence)
        if result.outcome is SuspectOutcome.CLEARED:
            evidence.require_fresh(check.signals)
    except measures.NoDataError as error:
        result = measures.Result(SuspectOutcome.NOT_CHECKED, f"no data: {error}")
    except errors.OvernightError as error:  # evidence that cannot be read
        result = measures.Result(SuspectOutcome.NOT_CHECKED, f"no data: {error.what}: {error.why}")
    look = result.look or check.look
    return Suspect(check.name, check.title, result.outcome, result.text, result.values, look)
