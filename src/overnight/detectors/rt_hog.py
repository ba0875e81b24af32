"""A real-time process or thread on the core that starved: nothing of ordinary priority runs beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _core_shares as shares
from overnight.detectors import _event_location as place
from overnight.detectors import _saturation as saturation
from overnight.detectors import core_saturation
from overnight.model.finding import Answer, Evidence, Finding, Status, Subject, finding_id
from overnight.model.selection import Selection

if TYPE_CHECKING:
    from overnight.queries import case as cases

__all__ = ["DETECTORS", "KIND", "RealTimeHog"]

KIND = "cpu.rt_hog"
REAL_TIME = {1: "FIFO", 2: "round robin", 6: "deadline"}
# Of the core, while it was full. The kernel itself leaves others 5 % (sched_rt_runtime_us).
LEAST_CORES = 0.5
MOST_CORES = 3
SIGNALS = ("processes", "rt-threads")


class RealTimeHog:
    """Policy and time of the processes that were last seen on the saturated core."""

    name = "rt-hog"
    needs = ("cpu", "processes", "rt-threads", "profiles")

    def look(self, case: cases.Case) -> Answer:
        """Real-time processes that used half of the core or more."""
        told, near = saturation.near_event(case)
        if told is None:
            return Answer(
                self.name, Status.NO_DATA, why="the seconds of the cores were not recorded"
            )
        where = place.event_place(case)
        known, before = saturation.baseline_stretches(case)
        chosen, _ = core_saturation.select(near, where.core, known, before, case.window.seconds)
        if not chosen:
            return Answer(self.name, Status.CLEAR, why="no core was at its limit")
        findings: list[Finding] = []
        told_of: set[str] = set()
        for stretch in chosen[:MOST_CORES]:
            for signal in SIGNALS:
                policies = _policies(case, stretch, signal)
                if policies:
                    told_of.add(signal)
                findings += _hogs(case, stretch, where, signal, policies)
        if findings:
            return Answer(self.name, Status.FOUND, tuple(findings))
        if not told_of:
            return Answer(
                self.name,
                Status.NO_DATA,
                why="the scheduling policy of processes was not recorded (signal processes) in those seconds",
            )
        threads = "rt-threads" in case.ring.signals(
            case.host, case.window.begin_us, case.window.end_us
        )
        return Answer(
            self.name,
            Status.CLEAR,
            why="no real-time process or thread used half of the core"
            if threads
            else "no process whose first thread is real-time used half of the core; policies of other threads are not"
            " recorded",
        )


def _hogs(
    case: cases.Case,
    stretch: saturation.Stretch,
    where: place.Place,
    signal: str,
    policies: dict[str, tuple[int, int]],
) -> list[Finding]:
    if not any(policy in REAL_TIME for policy, _ in policies.values()):
        return []
    used, _ = shares.seen_on(case, stretch.core, stretch.window, signal)
    standing = shares.by_ticks(case, stretch.core, used, stretch.seconds, signal)
    found = []
    for key, (user, system) in used.items():
        policy, priority = policies.get(key, (0, 0))
        burnt = (user + system) / shares.TICKS / stretch.seconds
        if policy in REAL_TIME and burnt >= LEAST_CORES:
            usual = standing.get(key)
            found.append(_finding(case, stretch, where, key, policy, priority, burnt, usual))
    return found


def _policies(
    case: cases.Case, stretch: saturation.Stretch, signal: str
) -> dict[str, tuple[int, int]]:
    """Policy and real-time priority of each process or thread that was seen in those seconds."""
    found: dict[str, tuple[int, int]] = {}
    for frame in case.ring.numbers(
        case.host,
        signal,
        stretch.begin_us,
        stretch.end_us + 1,
        None,
        ("policy", "rt_priority"),
    ):
        if not {"policy", "rt_priority"} <= set(frame.columns):
            continue  # recorded by a version that did not keep them
        for key in frame.keys:
            policy, priority = (frame.series(key, name)[1] for name in ("policy", "rt_priority"))
            if len(policy):
                found[key] = (policy[-1], priority[-1])
    return found


def _names(case: cases.Case, stretch: saturation.Stretch, key: str) -> tuple[str, str]:
    """The process, and its thread where the key is of one: `4711/4713 poller`."""
    number, _, name = key.partition(" ")
    pid, _, thread = number.partition("/")
    if not thread:
        return name or key, ""
    for frame in case.ring.numbers(
        case.host, "processes", stretch.begin_us, stretch.end_us + 1, None, ("core",)
    ):
        for other in frame.keys:
            if other.startswith(f"{pid} "):
                return shares.name_of(other), name
    return name, name


def _finding(
    case: cases.Case,
    stretch: saturation.Stretch,
    where: place.Place,
    key: str,
    policy: int,
    priority: int,
    burnt: float,
    told: shares.Share | None,
) -> Finding:
    process, thread = _names(case, stretch, key)
    signal = "rt-threads" if thread else "processes"
    evidence = [
        Evidence(
            f"{'thread' if thread else 'process'} {key} has the policy {REAL_TIME[policy]}, priority {priority}, was last seen on core {stretch.core}"
            f" and used {burnt:.2f} of a core in those {stretch.seconds:.0f} s",
            signal,
            {"policy": policy, "rt_priority": priority, "cores_burnt": round(burnt, 3)},
            stretch.window,
        )
    ]
    confidence, unit = 0.75, ""
    against = []
    if case.has_profile(stretch.window):
        ran, idle = case.ran((stretch.window,), Selection(cores=(stretch.core,)))
        total = sum(one.samples + one.softirq for one in ran) + idle
        mine = [one for one in ran if one.process == process]
        samples = sum(one.samples for one in mine)
        unit = mine[0].unit if mine else ""
        said = Evidence(
            f"{samples} of the {total} samples of core {stretch.core} are its",
            "profiles",
            {"samples": samples, "samples_of_core": total},
            stretch.window,
        )
        if total and samples >= LEAST_CORES * total:
            confidence = 0.95
            evidence.append(said)
        elif total:
            confidence = 0.3
            against.append(said)
    if told is not None:
        usual = Evidence(
            f"{thread or process} has {told.as_text(case.usual)}",
            signal,
            {**told.as_values()},
            case.baseline,
        )
        if told.rose:
            evidence.append(usual)
        else:  # it held the core before, too, and nothing happened then
            confidence *= 0.4
            against.append(usual)
    if where.core >= 0 and where.core != stretch.core:
        confidence *= 0.5
        against.append(
            Evidence(
                f"the event is of core {where.core}, this is core {stretch.core}",
                where.how or "events",
            )
        )
    subject = Subject(host=case.host, core=stretch.core, process=process, unit=unit)
    return Finding(
        id=finding_id("rt-hog", KIND, subject, stretch.begin_us),
        detector="rt-hog",
        kind=KIND,
        subject=subject,
        window=stretch.window,
        confidence=confidence,
        summary=(
            f"{f'{thread}, a real-time thread of {process}' if thread else f'{process}, a real-time process'}"
            f" ({REAL_TIME[policy]}, priority {priority}), held core {stretch.core} for"
            f" {stretch.seconds:.0f} s"
        ),
        evidence=tuple(evidence),
        magnitude={
            "cores_burnt": round(burnt, 4),
            **shares.magnitude(told),
            "rt_priority": float(priority),
        },
        against=tuple(against),
    )


DETECTORS = (RealTimeHog(),)
