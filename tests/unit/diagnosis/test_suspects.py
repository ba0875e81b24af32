"""Every suspect: cleared, not cleared, no data, and near misses. A change of one leaves the others cleared."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Mapping

import captures
import pytest
import rings

from overnight.diagnosis import suspects
from overnight.model.event import Event
from overnight.model.finding import Finding, Subject
from overnight.model.selection import Window
from overnight.model.suspect import Suspect, SuspectName, SuspectOutcome
from overnight.queries import case as cases

EVENT, END = 230, 245
FIRST, LAST = 205, EVENT  # of a fault
POD, HOG = "/kubepods/pod7f", "4711 hog"
Rows = Mapping[str, tuple[int, ...]]
Fault = Callable[[int], Rows]


def ramp(second: int, rate: float, extra: float = 0.0, *, first: int = FIRST, last: int = LAST) -> int:  # fmt: skip
    """A counter that rises by a rate, and by more during the fault."""
    return round(1000 + rate * second + extra * min(max(second - first, 0), last - first))


def inside(second: int) -> bool:
    return FIRST <= second < LAST


def memory_counters(second: int, **extra: float) -> Rows:
    rates = {"thp_fault_alloc": 2.0, "thp_collapse_alloc": 0.1}
    return {"": tuple(ramp(second, rates.get(n, 0.0), extra.get(n, 0.0)) for n in VMSTAT)}


def waiting(second: int, memory: float = 0.0, io: float = 0.0) -> Rows:
    """Pressure, in percent of the time during the fault."""
    return {
        "memory": (ramp(second, 100, 1e4 * memory), 0),
        "io": (ramp(second, 4000, 1e4 * io), 0),
    }


def ticks(second: int, steal: float = 0.0, busy: float = 0.9, *, peak: float = 0.0) -> Rows:
    """Core 1 is busy during the fault; `peak` is stolen in two seconds only."""
    stolen = ramp(second, 0.1, 100 * steal) + ramp(second, 0, 100 * peak, last=FIRST + 2)
    user = ramp(second, 0, 100 * busy)
    return {
        core: (
            user if core == "1" else 0,
            0,
            0,
            10_000 + 100 * second - user - stolen,
            0,
            0,
            0,
            stolen,
        )
        for core in map(str, range(4))
    }


VMSTAT = ("compact_stall", "compact_migrate_scanned", "thp_fault_alloc", "thp_collapse_alloc", "allocstall", "oom_kill")  # fmt: skip
CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
LINKS = ("carrier_changes", "rx_errors", "tx_errors")
DISK = ("reads", "read_ms", "writes", "write_ms", "weighted_ms")
CLOCKS = ("mhz", "throttles", "package_throttles", "power_limits")
# signal: seconds between readings, columns, a quiet night
NIGHT: dict[str, tuple[int, tuple[str, ...], Fault]] = {
    "vmstat": (1, VMSTAT, memory_counters),
    "pgfault": (10, ("pgfault",), lambda s: {"": (ramp(s, 9000),)}),
    "pressure": (1, ("some", "full"), waiting),
    "cpu": (1, CPU, ticks),
    "processes": (1, ("core",), lambda s: {HOG: (1,), "9 other": (2,)}),
    "affinity": (5, ("allowed", "lowest"), lambda s: {HOG: (4, 0)}),
    "memory": (10, ("total", "available"), lambda s: {"": (64 << 20, 40 << 20)}),
    "clock": (10, ("unsynced",), lambda s: {"": (0,)}),
    "cpu-throttling": (10, ("periods", "throttled"), lambda s: {POD: (10 * s, 0)}),
    "disks": (10, DISK, lambda s: {"vda": (40 * s, 30 * s, 9 * s, 9 * s, 60 * s)}),
    "frequency": (10, CLOCKS, lambda s: {"1": (3000, 7, 7, -1)}),
    "interfaces": (10, LINKS, lambda s: {"eth0": (2, 0, 0), "veth1": (ramp(s, 1), 0, 0)}),
    "ethtool": (10, ("value",), lambda s: {"eth0 bw_in_allowance_exceeded": (7,)}),
    "recorder": (5, ("utime", "stime"), lambda s: {"77 perf": (s, s // 2)}),
}


def moves(moved: Callable[[int], object]) -> Fault:
    """Queue 1 is on core 2 instead of core 1 while it is moved."""
    return lambda s: {"eth0 q0": (0,), "eth0 q1": (2 if moved(s) else 1,)}


@dataclasses.dataclass
class Host:
    """A recording of four minutes; `faults` replace signals of the quiet night."""

    path: pathlib.Path
    faults: Mapping[str, Fault] = dataclasses.field(default_factory=dict)
    absent: tuple[str, ...] = ()
    begin: int = 0
    step: float = 0.0  # of the wall clock, from second FIRST on
    log: tuple[tuple[int, str], ...] = ()
    problems: Mapping[str, str] = dataclasses.field(default_factory=dict)
    core: int = 1
    until: Mapping[str, int] = dataclasses.field(default_factory=dict)  # the last second of signals

    def case(self) -> cases.Case:
        ring = rings.open_writer(self.path)
        for second in range(END):
            now = rings.at(second, step=self.step if second >= FIRST else 0.0)
            for name, (every, columns, quiet) in NIGHT.items():
                signal = "vmstat" if name == "pgfault" else name
                if second % every or signal in self.absent:
                    continue
                if self.begin <= second <= self.until.get(signal, END):
                    rows = self.faults.get(name, quiet)(second)
                    ring.numbers(signal, columns, now, rows)
            if second % 10 == 0:
                self._write_facts(ring, now, second)
            ring.tick(now)
        event = Event(
            rings.us(EVENT + self.step),
            "net.driver_reset",
            host=rings.HOST,
            id="e-1",
            core=self.core,
        )
        for at, kind in self.log:
            ring.event(Event(rings.us(at), kind, host=rings.HOST, id=f"{kind}-{at}"))
        ring.event(event)
        ring.close()
        return cases.Case(self.path, event)

    def _write_facts(self, ring: object, now: object, second: int) -> None:
        queues = {
            key: {"interface": "eth0", "cores": str(core), "core": core}
            for key, (core,) in self.faults.get("nic-queues", moves(lambda _: False))(
                second
            ).items()
        }
        facts = {
            "nic-queues": queues,
            "nic-drivers": {"eth0": {"driver": "ena"}},
            "units": {"irqbalance.service": {"active": "active"}},
            "agent-problems": {name: {"problem": why} for name, why in self.problems.items()},
        }
        for name, rows in facts.items():
            if name not in self.absent:
                ring.facts(name, now, rows)  # type: ignore[attr-defined]

    def check(self) -> dict[SuspectName, Suspect]:
        return {each.name: each for each in suspects.check_suspects(self.case())}


N = SuspectName
CHANGES: dict[str, tuple[SuspectName, dict[str, Fault], str]] = {
    "interrupt moved": (N.INTERRUPTS, {"nic-queues": moves(lambda s: s >= 215)}, "1 interrupts moved to other cores: eth0 q1 from 1 to 2"),
    "compaction stalls": (N.HUGE_PAGES, {"vmstat": lambda s: memory_counters(s, compact_stall=30)}, "compaction stalls/s"),
    "compaction scans": (N.HUGE_PAGES, {"vmstat": lambda s: memory_counters(s, compact_migrate_scanned=1e6)}, "scanned pages/s"),
    "huge page faults": (N.HUGE_PAGES, {"vmstat": lambda s: memory_counters(s, thp_fault_alloc=400)}, "new huge pages/s"),
    "page faults": (N.ALLOCATOR, {"pgfault": lambda s: {"": (ramp(s, 9000, 400_000),)}}, "page faults/s"),
    "bound process": (N.AFFINITY, {"affinity": lambda s: {HOG: (1, 1)} if s > 200 else {}}, "hog may run on 1 of 4 cores, core 1 (not busy in the baseline)"),
    "bound later": (N.AFFINITY, {"affinity": lambda s: {HOG: (2, 0) if s > 200 else (4, 0)}}, "2 of 4 cores (baseline 4)"),
    "throttled": (N.THROTTLING, {"cpu-throttling": lambda s: {POD: (10 * s, ramp(s, 0, 8)), "/always": (10 * s, 9 * s), **{f"/{n}": (10 * s, 0) for n in range(20)}}}, POD),
    "new throttled cgroup": (N.THROTTLING, {"cpu-throttling": lambda s: {POD: (10 * s, ramp(s, 0, 8))} if s > 190 else {}}, POD),
    "stolen": (N.STEAL, {"cpu": lambda s: ticks(s, steal=0.4)}, "of core 1"),
    "stolen for two seconds": (N.STEAL, {"cpu": lambda s: ticks(s, peak=0.9)}, "worst second"),
    "throttled by heat": (N.FREQUENCY, {"frequency": lambda s: {"1": (3000, ramp(s, 0, 2), 7, -1)}}, "by heat or power"),
    "slow clock": (N.FREQUENCY, {"frequency": lambda s: {"1": (1200 if s > 190 else 3000, -1, -1, -1)}}, "1.2 GHz at most (baseline 3.0 GHz)"),
    "memory pressure": (N.MEMORY, {"pressure": lambda s: waiting(s, memory=30)}, "tasks waited for memory"),
    "OOM kill": (N.MEMORY, {"vmstat": lambda s: memory_counters(s, oom_kill=0.04)}, "1 OOM kills"),
    "allocation stalls": (N.MEMORY, {"vmstat": lambda s: memory_counters(s, allocstall=50)}, "stalled allocations/s"),
    "slow disk": (N.DISK, {"disks": lambda s: {"vda": (40 * s, ramp(s, 30, 9000), 9 * s, 9 * s, ramp(s, 60, 100))}}, "vda answered in"),
    "disk queue": (N.DISK, {"disks": lambda s: {"vda": (40 * s, 30 * s, 9 * s, 9 * s, ramp(s, 60, 64_000))}}, "requests in flight"),
    "waiting for disks": (N.DISK, {"pressure": lambda s: waiting(s, io=60)}, "tasks waited for disks"),
    "errors": (N.NETWORK, {"interfaces": lambda s: {"eth0": (2, ramp(s, 0, 90), 0)}}, "errors"),
    "link flap": (N.NETWORK, {"interfaces": lambda s: {"eth0": (4 if s > 205 else 2, 0, 0)}}, "2 link changes"),
    "allowance": (N.NETWORK, {"ethtool": lambda s: {"eth0 bw_in_allowance_exceeded": (ramp(s, 0, 900),)}}, "packets beyond allowances"),
    "recorder": (N.RECORDER, {"recorder": lambda s: {"77 perf": (ramp(s, 1, 40), 0)}}, "of one core"),
}  # fmt: skip


def pack_changes() -> list[dict[str, tuple[SuspectName, dict[str, Fault], str]]]:
    """Group changes of different suspects and signals: a recording takes longer than a check."""
    groups: list[dict[str, tuple[SuspectName, dict[str, Fault], str]]] = []
    for change, (name, faults, words) in CHANGES.items():
        for group in (*groups, groups.append({}) or groups[-1]):
            taken = {signal for _, others, _ in group.values() for signal in others}
            if name not in {other for other, _, _ in group.values()} and not taken & faults.keys():
                group[change] = name, faults, words
                break
    return [group for group in groups if group]


GROUPS = pack_changes()


@pytest.mark.parametrize("group", GROUPS, ids=[", ".join(group) for group in GROUPS])
def test_a_change_at_the_event_is_not_cleared_and_the_rest_is(
    tmp_path: pathlib.Path, group: dict[str, tuple[SuspectName, dict[str, Fault], str]]
) -> None:
    faults = {signal: fault for _, each, _ in group.values() for signal, fault in each.items()}
    checked = Host(tmp_path, faults).check()
    for change, (name, _, words) in group.items():
        assert words in checked[name].text, change
        assert checked[name].text.startswith("changed at the event: ")
    changed = {name for name, each in checked.items() if each.outcome == "not-cleared"}
    assert changed == {name for name, _, _ in group.values()}
    assert {each.outcome for each in checked.values()} <= {"cleared", "not-cleared"}


# The same all night, below the floor, after the event, or elsewhere.
NEAR_MISSES: tuple[dict[str, Fault], ...] = (
    {
        "nic-queues": moves(lambda s: s > EVENT),  # the reset itself assigns new interrupts
        "vmstat": lambda s: memory_counters(s, compact_stall=1.0, thp_fault_alloc=30, allocstall=1.0),
        "pgfault": lambda s: {"": (ramp(s, 9000, 15_000),)},
        "pressure": lambda s: waiting(s, memory=1.0, io=4.0),
        "cpu": lambda s: ticks(s, steal=0.06, busy=0.3),
        "affinity": lambda s: {"12 ksoftirqd/1": (1, 1), "13 kworker/1:2": (1, 1)} if s > 200 else {},
        "processes": lambda s: {"12 ksoftirqd/1": (1,), "13 kworker/1:2": (1,)},
        "cpu-throttling": lambda s: {POD: (10 * s, ramp(s, 0, 0.5))},
        "disks": lambda s: {"vda": (40 * s, ramp(s, 30, 700), 9 * s, 9 * s, ramp(s, 60, 5000))},
        "frequency": lambda s: {"1": (800 if s > 190 else 3000, 7, 7, -1)},  # it is not busy
        "interfaces": lambda s: {"eth0": (4 if s > EVENT else 2, ramp(s, 0, 0.3), 90 * (s > EVENT))},
        "ethtool": lambda s: {"eth0 bw_in_allowance_exceeded": (ramp(s, 0, 3),)},
        "recorder": lambda s: {"77 perf": (ramp(s, 1, 1.5), 0)},
    },
    {
        "nic-queues": moves(lambda s: s // 20 % 2),
        "vmstat": lambda s: {"": (ramp(s, 30), ramp(s, 1e6), ramp(s, 400), 0, ramp(s, 50), 0)},
        "pgfault": lambda s: {"": (ramp(s, 400_000),)},
        "pressure": lambda s: {"memory": (ramp(s, 3e5), 0), "io": (ramp(s, 6e5), 0)},
        "cpu": lambda s: {"1": (60 * s, 0, 0, 0, 0, 0, 0, 40 * s), "2": (0, 0, 0, 100 * s, 0, 0, 0, 0)},
        "affinity": lambda s: {HOG: (1, 1)},
        "cpu-throttling": lambda s: {POD: (10 * s, 8 * s)},
        "disks": lambda s: {"vda": (40 * s, 9000 * s, 9 * s, 9 * s, 64_000 * s)},
        "frequency": lambda s: {"1": (1200, 2 * s, 7, -1)},
        "interfaces": lambda s: {"eth0": (s // 10, 90 * s, 0)},
        "ethtool": lambda s: {"eth0 bw_in_allowance_exceeded": (900 * s,)},
        "recorder": lambda s: {"77 perf": (40 * s, 0)},
    },
    {
        "affinity": lambda s: {"9 other": (1, 2)} if s > 200 else {},  # on another core
        "cpu-throttling": lambda s: {},
        # Busy for 4 s between two readings of the frequency, which show an idle core.
        "cpu": lambda s: {str(core): (ramp(s, 0, 99, first=213, last=217), 0, 0, 10_000 + 100 * s - ramp(s, 0, 99, first=213, last=217), 0, 0, 0, 0) for core in range(4)},
        "frequency": lambda s: {"1": (800 if s > 190 else 3000, 7, 7, -1)},
    },
)  # fmt: skip


@pytest.mark.parametrize("faults", NEAR_MISSES, ids=["small", "all night", "elsewhere"])
def test_near_misses_are_cleared_with_their_numbers(
    tmp_path: pathlib.Path, faults: dict[str, Fault]
) -> None:
    checked = Host(tmp_path, faults).check()
    open_ = {name: each.text for name, each in checked.items() if each.outcome != "cleared"}
    assert open_ == {}
    for suspect in checked.values():
        assert re.search(r"\d", suspect.text), suspect
        assert suspect.values
        assert suspect.look or suspect.name is SuspectName.AFFINITY


def test_the_texts_have_the_numbers_of_the_night(tmp_path: pathlib.Path) -> None:
    """Of many cgroups, disks and links the worst are shown; of readings the lowest, or the last."""
    faults: dict[str, Fault] = {
        "cpu-throttling": lambda s: {f"/{n}": (20 * s, n * s // 10) for n in range(20)},
        "disks": lambda s: {
            f"vd{'abcd'[k - 1]}": (40 * s, 30 * k * s, 10 * s, 20 * k * s, 60 * k * s)
            for k in (1, 2, 4, 3)
        },
        "memory": lambda s: {"": (64 << 20, (8 if FIRST <= s < EVENT else 40) << 20)},
        "clock": lambda s: {"": (int(s > EVENT - 20),)},
        "nic-queues": lambda s: {"eth0 q0": (0,), "eth0 q1": (0,), "eth0 q2": (1,)},
        "interfaces": lambda s: {
            **{f"eth{n}": (2, 0, 0) for n in range(4)},
            "veth1": (s, 9 * s, 0),
        },
        "recorder": lambda s: {"77 perf": (s, s), "? helper": (0, 0)},
    }
    log = ((EVENT - 9, "net.link_down"),)
    checked = Host(tmp_path, faults, absent=("nic-drivers",), log=log).check()
    assert {
        name: checked[name].text
        for name in (N.THROTTLING, N.DISK, N.INTERRUPTS, N.NETWORK, N.RECORDER)
    } == {
        N.THROTTLING: "/19 throttled in 9.5 % of its periods (baseline 9.5 %); cgroups with a CPU quota: 20",
        N.DISK: "tasks waited for disks 0.4 % of the time, vdd answered in 4.0 ms, 0.2 requests in flight,"
        " vdc answered in 3.0 ms, 0.2 requests in flight, vdb answered in 2.0 ms, 0.1 requests in flight,"
        " 0 disk errors logged (baseline the same)",
        N.INTERRUPTS: "0 interrupts moved to other cores (baseline 0); 3 interrupts on 2 cores; irqbalance is running",
        N.NETWORK: "eth0, eth1, eth2: 0 link changes, 0 errors, 0 packets beyond allowances (baseline the same)",
        N.RECORDER: "2.0 % of one core (baseline 2.0 %)",
    }
    assert checked[N.MEMORY].text.endswith("; 8.0 of 64.0 GiB available")
    assert checked[N.CLOCK].text.endswith("; not synchronized")
    assert checked[N.RECORDER].look == "ps -o pid,time,args -p 77"


MISSING = {
    N.HUGE_PAGES: ("vmstat",),
    N.ALLOCATOR: ("vmstat",),
    N.AFFINITY: ("affinity",),
    N.THROTTLING: ("cpu-throttling",),
    N.INTERRUPTS: ("nic-queues",),
    N.STEAL: ("cpu",),
    N.FREQUENCY: ("frequency",),
    N.MEMORY: ("vmstat", "pressure"),
    N.DISK: ("disks", "pressure"),
    N.NETWORK: ("interfaces",),
    N.CLOCK: ("vmstat",),
    N.RECORDER: ("recorder",),
}


def test_a_suspect_without_its_signals_is_not_checked(tmp_path: pathlib.Path) -> None:
    assert MISSING.keys() == set(SuspectName)
    everything = tuple({name for names in MISSING.values() for name in names})
    checked = Host(tmp_path / "none", absent=everything).check()
    assert {each.outcome for each in checked.values()} == {SuspectOutcome.NOT_CHECKED}
    assert all(each.text.startswith("no data: ") for each in checked.values())
    # One of two signals is enough, and says what it leaves open.
    checked = Host(tmp_path / "one", absent=("disks", "ethtool")).check()
    assert {each.outcome for each in checked.values()} == {SuspectOutcome.CLEARED}
    assert "the latency of disks was not recorded" in checked[N.DISK].text
    assert "does not count exceeded allowances" in checked[N.NETWORK].text
    assert "not known without stacks" in checked[N.ALLOCATOR].text


def test_the_recorder_s_reason_is_given(tmp_path: pathlib.Path) -> None:
    why = "the kernel reports neither the frequency nor the throttling of a core"
    host = Host(tmp_path, absent=("frequency",), problems={"frequency": why})
    assert host.check()[N.FREQUENCY].text == f"no data: {why}"
    unknown: dict[str, Fault] = {"frequency": lambda s: {"1": (-1, -1, -1, -1)}}
    checked = Host(tmp_path / "unknown", unknown).check()
    assert checked[N.FREQUENCY].outcome is SuspectOutcome.NOT_CHECKED


def test_without_a_baseline_only_small_numbers_are_cleared(tmp_path: pathlib.Path) -> None:
    """The recording of the signals began 35 s before the event; the ring has facts from before."""
    faults: dict[str, Fault] = {"pgfault": lambda s: {"": (ramp(s, 400_000),)}}
    checked = Host(tmp_path, faults, begin=EVENT - 35).check()
    assert checked[N.ALLOCATOR].outcome is SuspectOutcome.NOT_CHECKED
    assert checked[N.ALLOCATOR].text.startswith("no baseline: ")
    assert checked[N.STEAL].outcome is SuspectOutcome.CLEARED
    assert "baseline unknown" in checked[N.STEAL].text


def test_a_clock_step_and_a_disk_error_are_not_cleared(tmp_path: pathlib.Path) -> None:
    # Forward, back, and so far that the reading before it is not in the incident window.
    for step in (2.0, -2.0, 40.0):
        suspect = Host(tmp_path / f"clock {step}", step=step).check()[N.CLOCK]
        assert (suspect.outcome, suspect.values["largest_clock_step_ms"]) == (
            "not-cleared",
            1000 * abs(step),
        )
    log = ((EVENT - 9, "storage.timeout"),)
    checked = Host(tmp_path / "disk", log=log, step=0.05).check()
    assert checked[N.CLOCK].text.startswith("largest step 50 ms (baseline 0 ms); synchronized")
    assert (checked[N.CLOCK].outcome, checked[N.DISK].outcome) == ("cleared", "not-cleared")
    assert "1 disk errors logged" in checked[N.DISK].text


def test_stacks_show_what_counters_do_not(tmp_path: pathlib.Path) -> None:
    paths = (
        ("entry_SYSCALL_64", "__x64_sys_munmap", "__vm_munmap", "unmap_region"),
        (
            "exc_page_fault",
            "handle_mm_fault",
            "__alloc_pages",
            "try_to_compact_pages",
            "compact_zone",
        ),
    )
    event = Host(tmp_path).case().event
    quiet = (captures.user("main"), captures.kernel("vfs_read"))
    samples = [captures.Sample(rings.us(second) * 1000, quiet, 0, "app") for second in range(FIRST)]
    samples += [
        captures.Sample(rings.us(second) * 1000 + n * 10_000_000, stack, 1, "app")
        for second in range(FIRST, LAST)
        for n in range(50)
        for stack in ((captures.user("main"), *map(captures.kernel, paths[n % 2])),)
    ]
    recording = captures.build(
        samples, host=rings.HOST, begin=rings.us(0) * 1000, end=rings.us(END) * 1000, cores=(0, 1)
    )
    captures.store(tmp_path, recording)
    case = cases.Case(tmp_path, event)
    checked = {each.name: each for each in suspects.check_suspects(case)}
    changed = {name for name, suspect in checked.items() if suspect.outcome == "not-cleared"}
    assert changed == {N.ALLOCATOR, N.HUGE_PAGES}
    for name in changed:
        assert "0.16 cores in" in checked[name].text
        assert "(baseline 0.00, at most 0.00)" in checked[name].text


def test_stacks_without_a_baseline_clear_and_accuse_nobody(tmp_path: pathlib.Path) -> None:
    event = Host(tmp_path).case().event
    path = ("exc_page_fault", "handle_mm_fault", "__alloc_pages", "try_to_compact_pages")
    stack = (captures.user("main"), *map(captures.kernel, path))
    begin = rings.us(FIRST - 4) * 1000
    samples = [captures.Sample(begin + n * 10_000_000, stack, 1, "app") for n in range(2500)]
    end = rings.us(END) * 1000
    recording = captures.build(samples, host=rings.HOST, begin=begin, end=end, cores=(0, 1))
    captures.store(tmp_path, recording)
    checked = suspects.check_suspects(cases.Case(tmp_path, event))
    suspect = {each.name: each for each in checked}[N.HUGE_PAGES]
    assert suspect.outcome is SuspectOutcome.NOT_CHECKED
    assert suspect.text.startswith("no baseline: ")
    assert "cores in their functions (baseline 0.0, 0.0, 2.1, unknown)" in suspect.text


def test_an_event_without_a_core_uses_the_saturated_one(tmp_path: pathlib.Path) -> None:
    case = Host(tmp_path, core=-1).case()
    window = Window(rings.us(FIRST), rings.us(LAST))
    saturated = Finding("x", "core-saturation", "cpu.core_saturated", Subject(core=3), window, 0.9, "", ())  # fmt: skip
    steal = {each.name: each for each in suspects.check_suspects(case, [saturated])}[N.STEAL]
    assert "of core 3" in steal.text

    # Of several, that of the most confident finding; other detectors name no core, the event's own does first.
    def named(core: int, confidence: float, detector: str = "core-saturation") -> Finding:
        subject = Subject(core=core)
        return dataclasses.replace(
            saturated, subject=subject, confidence=confidence, detector=detector
        )

    found = [named(2, 0.5), named(3, 0.8), named(0, 0.7), named(1, 0.99, "culprit")]
    for more, core in (([], 3), ([named(1, 0.1, "event")], 1)):
        checked = {each.name: each for each in suspects.check_suspects(case, [*found, *more])}
        assert f"of core {core}" in checked[N.STEAL].text
    # Without one, the core with most of it is reported.
    assert "of core 0" in {e.name: e for e in suspects.check_suspects(case)}[N.STEAL].text


@pytest.mark.parametrize(
    ("counter", "words"),
    [
        ("bw_in_allowance_exceeded", "packets beyond allowances"),
        ("missing_tx_cmpl", "the driver does not count exceeded allowances"),
    ],
)
def test_allowances_count_only_where_the_driver_counts_them(
    tmp_path: pathlib.Path, counter: str, words: str
) -> None:
    text = Host(tmp_path, {"ethtool": lambda _: {f"eth0 {counter}": (7,)}}).check()[N.NETWORK].text
    every = ("packets beyond allowances", "the driver does not count exceeded allowances")
    assert [each for each in every if each in text] == [words]


def test_page_faults_that_are_stale_clear_no_allocator(tmp_path: pathlib.Path) -> None:
    for age, outcome in ((2, "cleared"), (4, "not-checked")):
        host = Host(tmp_path / str(age), until={"vmstat": EVENT - age})
        assert host.check()[N.ALLOCATOR].outcome == outcome


@pytest.mark.parametrize(("end", "outcome"), [(EVENT, "cleared"), (EVENT - 12, "not-checked")])
def test_stacks_that_end_before_the_event_clear_nobody(
    tmp_path: pathlib.Path, end: int, outcome: str
) -> None:
    event = Host(tmp_path).case().event
    quiet = (captures.user("main"), captures.kernel("vfs_read"))
    samples = [
        captures.Sample(rings.us(second) * 1000 + n * 10_000_000, stack, core, name, pid=n, tid=n)
        for second in range(end)
        for core, name, stack, n in ((0, "app", quiet, 1), (1, "swapper", captures.IDLE, 0))
    ]
    recording = captures.build(
        samples, host=rings.HOST, begin=rings.us(0) * 1000, end=rings.us(end) * 1000, cores=(0, 1)
    )
    captures.store(tmp_path, recording)
    checked = suspects.check_suspects(cases.Case(tmp_path, event))
    assert {each.name: each for each in checked}[N.HUGE_PAGES].outcome == outcome


# Of each suspect, the signals that clear it, and the age at which their readings no longer do.
STALE: dict[str, tuple[SuspectName, float]] = {
    "vmstat": (N.HUGE_PAGES, 3), "affinity": (N.AFFINITY, 7.5), "processes": (N.AFFINITY, 3),
    "cpu-throttling": (N.THROTTLING, 15), "cpu": (N.STEAL, 3), "frequency": (N.FREQUENCY, 15),
    "pressure": (N.MEMORY, 3), "disks": (N.DISK, 15), "interfaces": (N.NETWORK, 15), "ethtool": (N.NETWORK, 15),
    "recorder": (N.RECORDER, 7.5),
}  # fmt: skip


def test_every_suspect_has_a_signal_with_a_limit() -> None:
    always = {N.ALLOCATOR, N.CLOCK, N.INTERRUPTS}  # vmstat, and the recorder itself
    assert {name for name, _ in STALE.values()} | always == set(SuspectName)
    signals = {signal for check in suspects.CHECKS for signal in check.signals}
    assert signals - {"profiles", "events", "nic-queues"} == set(STALE)


@pytest.mark.parametrize("signal", STALE)
def test_a_stale_reading_clears_nobody(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, signal: str
) -> None:
    """The last reading is as old as an interval, and older than the limit; test_freshness has the limits."""
    name, limit = STALE[signal]
    _, columns, quiet = NIGHT[signal]
    for age, outcome in ((int(limit / 1.5), "cleared"), (int(limit) + 1, "not-checked")):
        # A reading every second, so that the last one is of that age.
        monkeypatch.setitem(NIGHT, signal, (1, columns, quiet))
        host = Host(tmp_path / str(age), until={signal: EVENT - age})
        suspect = host.check()[name]
        assert suspect.outcome == outcome, suspect
        assert suspect.text.startswith("no data: ") == (outcome == "not-checked")


def test_a_disk_is_not_cleared_where_the_kernel_log_cannot_be_read(tmp_path: pathlib.Path) -> None:
    checked = Host(tmp_path, problems={"kernel-log": "permission denied"}).check()
    assert checked[N.DISK].text == "no data: kernel-log: permission denied"
    assert checked[N.MEMORY].outcome is SuspectOutcome.CLEARED


def test_interrupts_are_not_cleared_where_the_recorder_did_not_run(tmp_path: pathlib.Path) -> None:
    """Only changes of facts are stored: that none is stored shows nothing then."""
    everything = dict.fromkeys(NIGHT, EVENT - 16)
    checked = Host(tmp_path, until=everything).check()
    assert {each.outcome for each in checked.values()} == {SuspectOutcome.NOT_CHECKED}


@pytest.mark.parametrize(
    ("name", "faults", "words"),
    [
        (N.NETWORK, {"interfaces": lambda s: {"eth0": (4 if s > 225 else 2, 0, 0)}}, "eth0: 2 link changes"),
        (N.NETWORK, {"interfaces": lambda s: {"eth0": (2, 11 * (s > 225), 0)}}, "11 errors"),
        (N.INTERRUPTS, {"nic-queues": moves(lambda s: s >= 230)}, "eth0 q1 from 1 to 2"),
    ],
)  # fmt: skip
def test_a_change_between_the_readings_around_the_event_is_not_cleared(
    tmp_path: pathlib.Path, name: SuspectName, faults: dict[str, Fault], words: str
) -> None:
    """It may have led to the event, or the event to it."""
    suspect = Host(tmp_path, faults).check()[name]
    assert suspect.outcome is SuspectOutcome.NOT_CHECKED
    assert words in suspect.text
    assert "shortly before or after the event" in suspect.text
