"""A real-time process or thread on the saturated core: nothing of ordinary priority runs beside it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from overnight.detectors import _base, _core_shares, _event_location, _saturation
from overnight.model.finding import Answer, Evidence, Need, Subject

if TYPE_CHECKING:
    from overnight.queries import case as cases

KIND = "cpu.rt_hog"
REAL_TIME = {1: "FIFO", 2: "round robin", 6: "deadline"}
# Of the core, while it was saturated. The kernel itself leaves others 5 % (sched_rt_runtime_us).
MIN_CORES = 0.5
MAX_CORES = 3
SIGNALS = ("processes", "rt-threads")


@dataclasses.dataclass(frozen=True)
class _Hog:
    key: str  # of the signal: `4711 postgres`, `4711/4713 poller`
    signal: str
    policy: int
    priority: int
    cores: float
    share: _core_shares.Share | None  # against the baseline


class RealTimeHog(_base.Detector):
    """Real-time processes that were last seen on the saturated core and used half of it or more."""

    name = "rt-hog"
    needs = (Need.CPU, Need.PROFILES, Need.PROCESSES, Need.RT_THREADS)
    clears_by = ((Need.CPU, Need.PROFILES),)

    def examine(self, case: cases.Case) -> Answer:
        saturation = _saturation.find_saturation(case)
        if not saturation.stretches:
            return self.answer((), clear="no core was saturated")
        drafts: list[_base.Draft] = []
        has_policies = False
        for stretch in (each.until(case.event) for each in saturation.stretches[:MAX_CORES]):
            for signal in SIGNALS:
                policies = _read_policies(case, stretch, signal)
                has_policies = has_policies or bool(policies)
                drafts += [
                    _draft(case, stretch, saturation.location, hog)
                    for hog in _find_hogs(case, stretch, signal, policies)
                ]
        if not drafts and not has_policies:
            raise _base.MissingError(
                "scheduling policies of processes (signal processes) were not recorded in those seconds",
                Need.PROCESSES,
            )
        if not drafts:
            _base.require_fresh(case, Need.PROCESSES)
        clear = "no real-time process or thread used half of the core"
        recorded = case.recorded(case.window)
        if "rt-threads" not in recorded:
            clear = (
                "no process whose first thread is real-time used half of the core; policies of other"
                " threads are not recorded"
            )
        return self.answer(drafts, clear=clear)


def _find_hogs(
    case: cases.Case,
    stretch: _saturation.Stretch,
    signal: str,
    policies: dict[str, tuple[int, int]],
) -> list[_Hog]:
    if not any(policy in REAL_TIME for policy, _ in policies.values()):
        return []
    ticks, _ = _core_shares.read_ticks(case, stretch.core, stretch.window, signal)
    shares = _core_shares.compare_ticks(case, stretch.core, ticks, stretch.seconds, signal)
    hogs = []
    for key, used in ticks.items():
        policy, priority = policies.get(key, (0, 0))
        cores = used.cores(stretch.seconds)
        if policy in REAL_TIME and cores >= MIN_CORES:
            hogs.append(_Hog(key, signal, policy, priority, cores, shares.get(key)))
    return hogs


def _read_policies(
    case: cases.Case, stretch: _saturation.Stretch, signal: str
) -> dict[str, tuple[int, int]]:
    """Read policy and real-time priority of each process or thread in those seconds."""
    columns = ("policy", "rt_priority")
    policies: dict[str, tuple[int, int]] = {}
    begin, end = stretch.window.begin_us, stretch.window.end_us + 1
    for frame in case.ring.numbers(case.host, signal, begin, end, None, columns):
        if not set(columns) <= set(frame.columns):
            continue  # recorded by a version that did not keep them
        for key in frame.keys:
            policy, priority = (frame.series(key, name)[1] for name in columns)
            if len(policy):
                policies[key] = (policy[-1], priority[-1])
    return policies


def _read_names(case: cases.Case, stretch: _saturation.Stretch, key: str) -> tuple[str, str]:
    """Return the process, and its thread where the key names one: `4711/4713 poller`."""
    number, _, name = key.partition(" ")
    pid, _, thread = number.partition("/")
    if not thread:
        return name or key, ""
    begin, end = stretch.window.begin_us, stretch.window.end_us + 1
    for frame in case.ring.numbers(case.host, "processes", begin, end, None, ("core",)):
        for other in frame.keys:
            if other.startswith(f"{pid} "):
                return _core_shares.process_name(other), name
    return name, name


def _draft(
    case: cases.Case, stretch: _saturation.Stretch, location: _event_location.Location, hog: _Hog
) -> _base.Draft:
    process, thread = _read_names(case, stretch, hog.key)
    policy = f"{REAL_TIME[hog.policy]}, priority {hog.priority}"
    name = f"{thread}, a real-time thread of {process}" if thread else f"{process}, a real-time process"  # fmt: skip
    draft = _base.Draft(
        KIND,
        Subject(host=case.host, core=stretch.core, process=process),
        stretch.window,
        0.75,
        f"{name} ({policy}), held core {stretch.core} for {stretch.seconds:.0f} s",
        magnitude={
            "cores_burnt": hog.cores,
            **_core_shares.magnitude(hog.share),
            "rt_priority": hog.priority,
        },
    )
    draft.support(
        f"{'thread' if thread else 'process'} {hog.key} ({policy}) was last seen on core"
        f" {stretch.core} and used {hog.cores:.2f} cores in those {stretch.seconds:.0f} s",
        hog.signal,
        policy=hog.policy,
        rt_priority=hog.priority,
        cores_burnt=round(hog.cores, 3),
    )
    if case.has_profile(stretch.window):
        consumers, total = _core_shares.read_core(case, stretch.window, stretch.core)
        own = [consumer for consumer in consumers if consumer.actor.process == process]
        samples = sum(consumer.samples for consumer in own)
        if own:
            draft.subject = dataclasses.replace(draft.subject, unit=own[0].actor.unit)
        if total:
            is_most = samples >= MIN_CORES * total
            draft.confidence = 0.95 if is_most else 0.3
            text = f"{process} has {samples} of the {total} samples of core {stretch.core}"
            values = {"samples": samples, "samples_of_core": total}
            draft.weigh(Evidence(text, "profiles", values, stretch.window), supports=is_most)
    if hog.share is not None:
        # Without a rise it held the core in the baseline, too, and nothing happened then.
        compared = hog.share.evidence(case, thread or process, hog.signal)
        draft.weigh(compared, supports=hog.share.rose, factor=0.4)
    location.oppose_elsewhere(draft, factor=0.5)
    return draft


DETECTORS = (RealTimeHog(),)
