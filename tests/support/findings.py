"""Findings as detectors make them, for nights whose truth is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from overnight.model.event import Event
from overnight.model.finding import Answer, Evidence, Finding, Status, Subject, finding_id
from overnight.model.selection import Coverage, Window

SECOND = 1_000_000
HOUR = 3600 * SECOND
T = 1_794_712_447 * SECOND  # the event, 03:14:07
HOST, CORE = "gpu-17", 39
RESET = Event(
    T, "net.driver_reset", "TX q 5 is paused for too long", HOST, CORE, "critical",
    "net.driver_reset-1", fields={"interface": "eth0", "queue": 5},
)  # fmt: skip


def make_finding(
    kind: str,
    begin: float = -30,
    end: float = 10,
    confidence: float = 0.9,
    magnitude: dict[str, float] | None = None,
    detector: str = "",
    **fields: str | int,
) -> Finding:
    """Times are seconds from the event."""
    subject = Subject(**{"host": HOST, **fields})
    window = Window(T + int(begin * SECOND), T + int(end * SECOND))
    detector = detector or kind
    return Finding(
        finding_id(detector, kind, subject, window.begin_us),
        detector,
        kind,
        subject,
        window,
        confidence,
        f"{kind} of {subject.as_json()}",
        (Evidence(kind, "test", dict(magnitude or {}), window),),
        magnitude or {},
    )


def reset(**subject: str | int) -> Finding:
    fields = {"core": CORE, "interface": "eth0", "queue": 5, **subject}
    return make_finding("net.driver_reset", 0, 0.001, 1.0, detector="event", **fields)


def saturated(core: int | None = CORE, begin: float = -6, end: float = 1, **numbers: float):
    magnitude = {"seconds": 6.0, "busy_percent": 100.0, "kernel_percent": 98.0, "cores_burnt": 1.0}
    return make_finding("cpu.core_saturated", begin, end, 0.95, magnitude | numbers, core=core)


def starved(**subject: str | int) -> Finding:
    fields = {"core": CORE, "interface": "eth0", "queue": 5, **subject}
    return make_finding("net.queue_starved", -6, 1, 0.9, {"seconds": 6.0}, **fields)


def culprit(
    process: str,
    unit: str = "",
    burnt: float = 0.95,
    core: int | None = CORE,
    begin: float = -6,
    **fields: str,
) -> Finding:
    magnitude = {"cores_burnt": burnt, "share_of_core_samples": burnt, "samples": burnt * 580}
    return make_finding(
        "cpu.culprit",
        begin,
        begin + 7,
        0.9,
        magnitude,
        core=core,
        process=process,
        unit=unit,
        **fields,
    )


def zombies(dying: float = 68440, growth: float | None = 327, cgroup: str = "/docker"):
    magnitude = {"tracked": dying + 240, "in_use": 240.0, "dying": dying, "age_hours": 160.0}
    if growth is not None:
        magnitude["growth_per_hour"] = growth
    return make_finding("memory.zombie_cgroups", -6 * 3600, 0, 0.95, magnitude, cgroup=cgroup)


def hidden_loop(unit: str = "ecs.service", births: float | None = 330, cgroup: str = "/docker"):
    magnitude = {} if births is None else {"births_per_hour": births, "deaths_per_hour": births}
    return make_finding(
        "unit.hidden_crash_loop", -6 * 3600, 0, 0.9, magnitude, unit=unit, cgroup=cgroup
    )


def crash_loop(unit: str = "flaky.service", restarts: float = 12):
    return make_finding(
        "unit.crash_loop", -3 * 3600, 0, 0.9, {"restarts_per_hour": restarts}, unit=unit
    )


def walk(process: str, unit: str, function: str, burnt: float = 0.93, core: int = CORE, begin=-6.0):
    return make_finding(
        "memory.cgroup_walk", begin, begin + 7, 0.9, {"cores_burnt": burnt},
        core=core, process=process, unit=unit, function=function,
    )  # fmt: skip


KUBELET = ("kubelet", "kubelet.service")
NUMA = "mem_cgroup_nr_lru_pages"


def reference() -> list[Finding]:
    """Kernel 5.4, cgroup v1: the loop of ecs.service, its zombies, kubelet's walk, the reset."""
    return [
        reset(), saturated(), starved(), culprit(*KUBELET, function=NUMA), walk(*KUBELET, NUMA),
        zombies(), hidden_loop(),
    ]  # fmt: skip


def modern() -> list[Finding]:
    """Newer kernels: a job's own reclaim goes through the zombies below its parent."""
    job = ("python3", "kubepods.slice")
    return [
        reset(), saturated(), starved(), culprit(*job, function="mem_cgroup_iter"),
        walk(*job, "mem_cgroup_iter"), zombies(15000, 900, "/kubepods"),
        make_finding("memory.reclaim", -6, 1, 0.8, {"cores_burnt": 0.9, "pages_per_second": 5e4},
              process=job[0], unit=job[1], cgroup="/kubepods/pod7"),
        hidden_loop("containerd.service", 880, "/kubepods/besteffort"),
    ]  # fmt: skip


def rt_hog() -> list[Finding]:
    subject = {"process": "audiod", "unit": "audiod.service"}
    magnitude = {"cores_burnt": 0.99, "rt_priority": 80.0}
    return [
        reset(), saturated(kernel_percent=3), starved(), culprit("audiod", "audiod.service", 0.99),
        make_finding("cpu.rt_hog", -6, 1, 0.95, magnitude, core=CORE, **subject),
    ]  # fmt: skip


def softirq_storm() -> list[Finding]:
    return [
        reset(), saturated(), starved(), culprit("ksoftirqd/39", burnt=0.9),
        make_finding("net.softirq_storm", -7, 1, 0.9, {"softirq_percent": 96.0, "packets_per_second": 9e5}, core=CORE),
    ]  # fmt: skip


def reclaim() -> list[Finding]:
    subject = {
        "process": "loader",
        "unit": "batch.service",
        "cgroup": "/system.slice/batch.service",
    }
    magnitude = {"cores_burnt": 0.97, "pages_per_second": 2e5}
    return [
        reset(), saturated(), starved(), culprit("loader", "batch.service"),
        make_finding("memory.reclaim", -8, 1, 0.9, magnitude, **subject),
    ]  # fmt: skip


def lock_convoy() -> list[Finding]:
    subject = {
        "process": "java",
        "unit": "app.service",
        "function": "native_queued_spin_lock_slowpath",
    }
    return [
        reset(), saturated(), starved(), culprit("java", "app.service"),
        make_finding("kernel.lock_contention", -8, 1, 0.9, {"cores_burnt": 2.4}, **subject),
    ]  # fmt: skip


def decoy() -> list[Finding]:
    """A real-time hog is the cause; a crash loop and some zombies are harmless."""
    return [*rt_hog(), crash_loop(), zombies(2600, 300, "/system.slice")]


def two_causes() -> list[Finding]:
    """The reference incident, and a hog on another core an hour before; both have findings."""
    hog = make_finding(
        "cpu.rt_hog", -3606, -3599, 0.95, {"cores_burnt": 0.99}, core=12, process="audiod", unit="audiod.service"
    )  # fmt: skip
    earlier = saturated(12, -3606, -3599)
    return [*reference(), hog, earlier, culprit("audiod", "audiod.service", 0.99, 12, -3606)]


def unknown() -> list[Finding]:
    return [
        reset(),
        saturated(),
        starved(),
        culprit("postgres", "postgresql.service", function="crc32c"),
    ]


SCENARIOS = {
    "reference": reference, "modern": modern, "rt_hog": rt_hog, "softirq_storm": softirq_storm,
    "reclaim": reclaim, "lock_convoy": lock_convoy, "decoy": decoy, "two_causes": two_causes,
    "unknown": unknown,
}  # fmt: skip

DETECTORS = ("cores", "culprit", "zombies", "crashloops", "reclaim", "locks", "oom", "storage")


def answers(
    findings: Iterable[Finding],
    no_data: Iterable[str] = (),
    failed: Iterable[str] = (),
) -> tuple[Answer, ...]:
    """Return answers as detectors give them: one per finding's detector, the others clear."""
    by: dict[str, list[Finding]] = {}
    for finding in findings:
        by.setdefault(finding.detector, []).append(finding)
    answers = [Answer(name, Status.FOUND, tuple(group)) for name, group in by.items()]
    answers += [
        Answer(name, Status.CLEAR, why="nothing unusual")
        for name in DETECTORS
        if name not in (*no_data, *failed)
    ]
    answers += [Answer(name, Status.NO_DATA, why="no stacks") for name in no_data]
    answers += [Answer(name, Status.FAILED, why="it broke") for name in failed]
    return tuple(answers)


def covered(share: float = 1.0, lost: float = 0.0, seconds: float = 40) -> Coverage:
    """Return the coverage of a window with these shares recorded and lost."""
    samples = int(97 * 96 * seconds * share)
    lost_samples = int(samples * lost)
    return Coverage(
        (HOST,), Window(T, T + int(seconds * SECOND)), seconds * share,
        96 * seconds * share, float(samples), samples - lost_samples, 0, lost_samples, 1,
        () if share == 1 else ((T, T + SECOND, "no segment"),),
    )  # fmt: skip


def without(finding: Finding, *names: str) -> Finding:
    """Return the finding without some of its magnitudes."""
    magnitude = {name: value for name, value in finding.magnitude.items() if name not in names}
    return dataclasses.replace(finding, magnitude=magnitude)
