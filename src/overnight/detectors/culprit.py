"""The process that saturated a core in exactly those seconds, and the queue that it starved.

Without samples it is the process that the flight recorder last saw there, which may have moved meanwhile.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from overnight.detectors import _base, _core_shares, _own_load, _saturation, _starved_queues
from overnight.model import programs, times
from overnight.model.actor import Actor
from overnight.model.finding import Answer, Evidence, Need, Subject
from overnight.model.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from overnight.model.load import Load
    from overnight.queries import case as cases
    from overnight.queries import consumers, flame

KIND = "cpu.culprit"
MAX_CORES = 3
# Without a baseline: a process with less of the core did not keep it from others; two may share it.
MIN_SHARE = 0.25
# Confidence in a process that used as much of the core before, when no other uses more than before.
NOT_MORE = 0.4
# Below this many samples a share is a guess: 20 give +-20 points.
FEW_SAMPLES = 20
# The main path follows a child as long as it has most of its parent's samples.
MAIN_SHARE = 0.5
# Of what a worker of a load used: a process that wants all of a core gets as much of it as each of these.
LOAD_SHARE = 0.5
MAX_PATH = 24
MAX_ANCESTORS = 3
Process = TypeVar("Process")


class Culprit(_base.Detector):
    """Joins each saturated core, the samples of those seconds, and the queues that the core serves."""

    name = "culprit"
    needs = (
        Need.CPU, Need.PROFILES, Need.PROCESSES, Need.NIC_QUEUES, Need.TX_TIMEOUTS, Need.ETHTOOL,
        Need.SOFTNET,
    )  # fmt: skip
    clears_by = (
        (Need.CPU, Need.PROFILES),
        (Need.PROFILES, Need.PROCESSES),
    )

    def examine(self, case: cases.Case) -> Answer:
        found = case.once(find_culprits)
        if not found.is_saturated:
            return self.answer((), clear="no core was saturated")
        recorded = case.recorded(case.window)
        if not found.drafts and not case.has_profile(case.window) and "processes" not in recorded:
            raise _base.MissingError(found.remark, Need.PROFILES, Need.PROCESSES)
        return self.answer(found.drafts, clear=found.remark, remark=found.remark)


@dataclasses.dataclass(frozen=True)
class Found:
    """What saturated which core; `drafts` also has the starved queues."""

    is_saturated: bool
    drafts: tuple[_base.Draft, ...] = ()
    remark: str = ""

    @property
    def culprits(self) -> list[_base.Draft]:
        return [draft for draft in self.drafts if draft.kind == KIND]


def find_culprits(case: cases.Case) -> Found:
    """Find the culprits of each saturated core; other detectors ask what these did."""
    saturation = _saturation.find_saturation(case)
    drafts: list[_base.Draft] = []
    remarks: list[str] = []
    for stretch in saturation.stretches[:MAX_CORES]:
        culprits, remark = _find_culprits(case, stretch)
        for draft in culprits:
            saturation.location.oppose_elsewhere(draft, factor=0.6)
        drafts += culprits
        remarks += [remark] if remark else []
        drafts += _starved_queues.find_starved_queues(case, stretch, saturation.location)
    return Found(bool(saturation.stretches), tuple(drafts), "; ".join(remarks))


def _find_culprits(case: cases.Case, stretch: _saturation.Stretch) -> tuple[list[_base.Draft], str]:
    stretch = stretch.until(case.event)
    if case.has_profile(stretch.window):
        ran, total = _core_shares.read_core(case, stretch.window, stretch.core)
        if total >= FEW_SAMPLES:
            return _from_samples(case, stretch, ran, total)
    return _from_ticks(case, stretch)


def _from_samples(
    case: cases.Case, stretch: _saturation.Stretch, ran: tuple[consumers.Consumer, ...], total: int
) -> tuple[list[_base.Draft], str]:
    baseline = _core_shares.read_baseline(case, stretch.core)
    capacity, _ = case.capacity(stretch.window, Selection(cores=(stretch.core,)))
    large = [consumer for consumer in ran if consumer.samples / total >= MIN_SHARE]
    own = case.once(_own_load.find_actors)
    loads = [consumer for consumer in ran if consumer.actor in own]
    others = (consumer.samples for consumer in ran if consumer.actor not in own)
    excused = loads if _may_be_it(others, (each.samples for each in loads)) else []
    softirq = sum(consumer.softirq for consumer in ran)
    if baseline is None or capacity <= 0:
        blamed = _prefer_others(large, excused)
        drafts = [_sampled_draft(case, stretch, consumer, total) for consumer in blamed]
    else:
        pairs = [
            (consumer, baseline.share(consumer.actor, consumer.samples, capacity))
            for consumer in ran
        ]
        rose = sorted((pair for pair in pairs if pair[1].rose), key=lambda pair: -pair[1].added)
        victims = [
            share.evidence(case, consumer.actor.process, "profiles")
            for consumer, share in pairs
            if share.fell
        ]
        # If softirqs rose that much, they saturated the core; a process that did not change did not.
        is_storm = softirq / capacity - baseline.softirq_share >= _core_shares.MIN_ADDED
        steady = [pair for pair in pairs if pair[0] in large and not pair[1].fell and not is_storm]
        of_loads = [pair for pair in pairs if pair[0] in excused]
        drafts = [
            _sampled_draft(case, stretch, consumer, total, share, baseline.busy)
            for consumer, share in _prefer_others(rose, of_loads)
            or _prefer_others(steady, of_loads)
        ]
        for draft in drafts:
            draft.evidence += victims
        if not drafts and victims:
            return [], (
                f"no process uses more of core {stretch.core} than in the baseline; interrupts and softirqs"
                f" have {100 * softirq / total:.0f} % of its samples; {victims[0].text}"
            )
    is_context = loads and not any(draft.subject.actor in own for draft in drafts)
    for draft in drafts:
        draft.evidence += [_describe_load(own[c.actor], c.actor, c.samples / total) for c in loads]
        if is_context:
            draft.magnitude["load_cores"] = sum(each.samples for each in loads) / total
    if drafts:
        return drafts, ""
    most = f"{ran[0].actor.process} with {100 * ran[0].samples / total:.0f} %" if ran else "none"
    return [], (
        f"no process had {100 * MIN_SHARE:.0f} % of the {total} samples of core {stretch.core}, or more"
        f" than in the baseline; top consumer: {most}; interrupts and softirqs: {100 * softirq / total:.0f} %"
    )


def _may_be_it(others: Iterable[float], loads: Iterable[float]) -> bool:
    """Return whether another process used enough next to workers of a load to have saturated the core."""
    return max(others, default=0.0) >= LOAD_SHARE * max(loads, default=0.0)


def _prefer_others(those: list[Process], own: Collection[Process]) -> list[Process]:
    """Return those that are not workers of a load, unless there are no others."""
    return [each for each in those if each not in own] or those


def _describe_load(load: Load, actor: Actor, share: float) -> Evidence:
    return Evidence(
        f"{actor.process} is a worker of overnight's own load {load.workload} ({load.id}) and had"
        f" {100 * share:.0f} % of the core",
        "loads",
        {"load": load.id, "share_of_core": round(share, 4)},
    )


def _sampled_draft(
    case: cases.Case,
    stretch: _saturation.Stretch,
    consumer: consumers.Consumer,
    total: int,
    compared: _core_shares.Share | None = None,
    busy_before: float = 0.0,
) -> _base.Draft:
    window, actor = stretch.window, consumer.actor
    exactly = f"^{re.escape(actor.process)}$"
    if consumer.launches:
        exactly = programs.family_pattern(actor.process)
    tree = case.flame(window, Selection(cores=(stretch.core,), process=exactly))
    function = max(consumer.functions.items(), key=lambda pair: (pair[1], pair[0]))[0]
    share = consumer.samples / total
    kernel_share = consumer.kernel / consumer.samples
    capacity = tree.coverage.capacity
    # Of the room that the core had in the baseline, how much this process took.
    part = share
    if compared is not None:
        part = min(1.0, compared.added / max(1.0 - busy_before, 0.01))
    is_more = compared is None or compared.rose
    confidence = min(0.95, 0.55 + 0.45 * part) if is_more else NOT_MORE
    draft = _base.Draft(
        KIND,
        Subject.of_actor(case.host, actor, core=stretch.core, function=function),
        window,
        confidence * min(1.0, 0.5 + 0.5 * (total / capacity if capacity else 1.0)),
        f"{actor} had {100 * share:.0f} % of the samples of core {stretch.core} in those"
        f" {stretch.seconds:.0f} s, most of them in {function}",
        magnitude={
            "cores_burnt": consumer.samples / capacity if capacity else share,
            **_core_shares.magnitude(compared),
            "share_of_core_samples": share,
            "samples": consumer.samples,
            "kernel_share": kernel_share,
        },
    )
    filters = ("--core", str(stretch.core), "--process", shlex.quote(exactly))
    draft.support(
        f"{actor} has {consumer.samples} of the {total} samples of core {stretch.core} in those"
        f" {stretch.seconds:.0f} s ({100 * share:.0f} %); {100 * kernel_share:.0f} % of them are in"
        f" the kernel; {tree.coverage.lost} samples were lost",
        "profiles",
        look=_base.command("top processes", window, case.host, *filters),
        samples=consumer.samples,
        samples_of_core=total,
        share_of_core_samples=round(share, 4),
        kernel_share_of_its_samples=round(kernel_share, 4),
        lost_samples=tree.coverage.lost,
        samples_expected_of_core=round(capacity),
    )
    path = main_path(tree)
    draft.support(
        "main call path: " + " > ".join(path),
        "profiles",
        look=_base.command("flame", window, case.host, *filters),
        path=";".join(path),
        function=function,
        function_share_of_its_samples=round(consumer.functions[function] / consumer.samples, 4),
    )
    _add_identity(case, draft, actor)
    if compared is not None:
        draft.weigh(compared.evidence(case, actor.process, "profiles"), supports=compared.rose)
    if consumer.softirq > consumer.samples:
        draft.oppose(
            "interrupts and softirqs have more samples than this process's own work",
            "profiles",
            factor=0.5,
            softirq_samples=consumer.softirq,
            own_samples=consumer.samples,
        )
    return draft


def _add_identity(case: cases.Case, draft: _base.Draft, actor: Actor) -> None:
    """Say which process it is, and who started it, where the recording knows."""
    known = case.processes_of(actor, draft.window)
    if not known:
        return
    first, others = known[0], len(known) - 1
    text = f"{actor} is pid {first.pid}"
    text += f" and {others} more" if others else ""
    text += f", user {first.user}" if first.user else ""
    text += f", started {times.format_instant(first.started_us)}" if first.started_us else ""
    text += f" by {' ← '.join(first.ancestors[:MAX_ANCESTORS])}" if first.ancestors else ""
    text += f": {first.command}" if first.command else ""
    draft.support(
        text,
        "profiles",
        look=_base.command("top processes", draft.window, case.host, "--who"),
        pid=first.pid,
        processes=len(known),
        started_us=first.started_us,
        **{
            name: value
            for name in ("user", "command", "executable", "cgroup", "container", "pod")
            if (value := getattr(first, name))
        },
        ancestors=", ".join(first.ancestors) or None,
    )


def main_path(tree: flame.FlameTree) -> list[str]:
    """Return the call path from the busiest process down, while one child has most of its parent's samples."""
    path: list[str] = []
    at, whole = -1, int(tree.whole[tree.parent < 0].max(initial=0))
    while len(path) < MAX_PATH:
        children = np.flatnonzero(tree.parent == at)
        if not len(children):
            break
        widest = int(children[np.argmax(tree.whole[children])])
        if tree.whole[widest] < MAIN_SHARE * whole:
            break
        path.append(tree.names[tree.frame[widest]])
        at, whole = widest, int(tree.whole[widest])
    return path


def _from_ticks(case: cases.Case, stretch: _saturation.Stretch) -> tuple[list[_base.Draft], str]:
    ticks, _ = _core_shares.read_ticks(case, stretch.core, stretch.window)
    if not ticks:
        return [], (
            f"the processes of core {stretch.core} were not recorded: there are no samples, and no process"
            " was seen there"
        )
    shares = _core_shares.compare_ticks(case, stretch.core, ticks, stretch.seconds)
    rose = [key for key in ticks if key in shares and shares[key].rose]
    rose.sort(key=lambda key: -shares[key].added)
    steady = [
        key
        for key, each in ticks.items()
        if each.cores(stretch.seconds) >= MIN_SHARE and not (key in shares and shares[key].fell)
    ]
    victims = [
        share.evidence(case, _core_shares.process_name(key), "processes")
        for key, share in shares.items()
        if share.fell
    ]
    own = case.once(_own_load.find_actors)
    names = {key: Actor(_core_shares.process_name(key)) for key in ticks}
    used = {key: each.cores(stretch.seconds) for key, each in ticks.items()}
    loads = [key for key in ticks if names[key] in own]
    others = (used[key] for key in ticks if key not in loads)
    excused = loads if _may_be_it(others, (used[key] for key in loads)) else []
    blamed = _prefer_others(rose, excused) or _prefer_others(steady, excused)
    drafts = [_ticked_draft(case, stretch, key, ticks[key], shares.get(key)) for key in blamed]
    victims += [_describe_load(own[names[key]], names[key], used[key]) for key in loads]
    for draft in drafts:
        draft.evidence += victims
        if loads and not any(key in blamed for key in loads):
            draft.magnitude["load_cores"] = sum(used[key] for key in loads)
    if drafts:
        return drafts, (
            f"core {stretch.core} was not sampled in these seconds: the processes signal was used instead"
        )
    why = f"no process last seen on core {stretch.core} used a quarter of it, or more than in the baseline"
    return [], "; ".join([why, *(victim.text for victim in victims[:1])])


def _ticked_draft(
    case: cases.Case,
    stretch: _saturation.Stretch,
    key: str,
    ticks: _core_shares.Ticks,
    share: _core_shares.Share | None,
) -> _base.Draft:
    used = ticks.cores(stretch.seconds)
    process = _core_shares.process_name(key)
    draft = _base.Draft(
        KIND,
        Subject(host=case.host, core=stretch.core, process=process),
        stretch.window,
        0.5 * min(1.0, used),
        f"{process} was last seen on core {stretch.core} and used {used:.2f} cores in those"
        f" {stretch.seconds:.0f} s, which were not sampled",
        magnitude={
            "cores_burnt": used,
            **_core_shares.magnitude(share),
            "kernel_share": ticks.kernel / max(1.0, ticks.total),
            "samples": 0.0,
        },
    )
    draft.support(
        f"process {key} was seen on core {stretch.core} in these seconds and used"
        f" {ticks.total:.0f} ticks, {ticks.kernel:.0f} of them in the kernel",
        "processes",
        user_ticks=round(ticks.user),
        kernel_ticks=round(ticks.kernel),
    )
    text = (
        "these seconds were not sampled: function and unit are not known, and the process may have used"
        " other cores as well"
    )
    draft.against.append(Evidence(text, "processes"))
    if share is not None:
        compared = share.evidence(case, process, "processes")
        draft.weigh(compared, supports=share.rose, factor=NOT_MORE)
    return draft


DETECTORS = (Culprit(),)
