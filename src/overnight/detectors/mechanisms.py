"""mechanism.NAME: what the process that saturated a core was doing there.

Each of its samples belongs to the first entry of mechanisms.toml that fits its stack. Counters of the
kernel must agree with the entry where they were recorded.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import shlex
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import _base, culprit, mechanism_table
from overnight.model.finding import Answer, Evidence, Need
from overnight.model.flame import Frame
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.model.selection import Window
    from overnight.queries import case as cases
    from overnight.queries import samples

MAX_FINDINGS = 3  # of one process
MIN_SAMPLES = 15  # with the mechanism: fewer are a guess
FEW_SAMPLES, FEW_FACTOR = 50, 0.85
CONTRADICTED = 0.4
# Each further mechanism of a process: the first is what it does, the others accompany it.
NEXT = 0.75
PATH_LENGTH = 8

Stack = tuple[Frame, ...]


@dataclasses.dataclass
class _Fit:
    """A mechanism with the samples that belong to it."""

    mechanism: mechanism_table.Mechanism
    samples: int = 0
    share: float = 0.0  # of the process's own samples
    functions: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    hottest: tuple[int, Stack] = (0, ())  # samples and stack
    evidence: list[Evidence] = dataclasses.field(default_factory=list)
    against: list[Evidence] = dataclasses.field(default_factory=list)

    @property
    def rank(self) -> float:
        doubt = CONTRADICTED if self.against else 1.0
        return self.share * self.mechanism.specific * doubt


class Mechanisms(_base.Detector):
    """What each culprit did on its core, by its stacks and the kernel's counters."""

    name = "mechanisms"
    needs = (Need.CPU, Need.PROFILES, Need.VMSTAT, Need.SOFTIRQS, Need.CGROUP_BIRTHS)
    clears_by = ((Need.CPU, Need.PROFILES),)

    def examine(self, case: cases.Case) -> Answer:
        culprits = case.once(culprit.find_culprits).culprits
        if not culprits:
            return self.answer((), clear="no process saturated a core")
        sampled = [draft for draft in culprits if draft.magnitude["samples"]]
        if not sampled:
            raise _base.MissingError("the culprit's seconds were not sampled", Need.PROFILES)
        drafts: list[_base.Draft] = []
        unknown: list[str] = []
        for blamed in sampled:
            stacks = read_stacks(case, blamed)
            own = _examine_culprit(case, blamed, stacks)
            drafts += own
            if not own:
                path, _ = max(stacks, key=lambda pair: pair[1], default=((), 0))
                unknown.append(
                    f"unknown mechanism of {blamed.subject.actor} on core {blamed.subject.core}; top call path: "
                    + format_path(path)
                )
        text = "; ".join(unknown)
        return self.answer(drafts, clear=text, remark=text)


def read_stacks(case: cases.Case, blamed: _base.Draft) -> list[tuple[Stack, int]]:
    """Return the stacks of a culprit on its core with their samples, without softirqs that interrupted it."""
    now = case.stacks(case.window)
    stacks: list[tuple[Stack, int]] = []
    actor, window = blamed.subject.actor, blamed.window
    if actor not in now.processes:
        return stacks
    process = now.processes.index(actor)
    first, last = window.begin_us // SECOND_US, (window.end_us - 1) // SECOND_US
    for part in now.segments:
        rows = np.flatnonzero(
            (part.process == process)
            & (part.core == blamed.subject.core)
            & (part.second >= first)
            & (part.second <= last)
            & ~part.interruptions()
        )
        nodes, index = np.unique(part.node[rows], return_inverse=True)
        counts = np.bincount(index, part.count[rows], len(nodes)).astype(np.int64)
        frames: dict[int, Frame] = {}
        for node, count in zip(nodes.tolist(), counts.tolist(), strict=True):
            stacks.append((_read_stack(part, node, frames), count))
    return stacks


def _read_stack(part: samples.SegmentSamples, node: int, frames: dict[int, Frame]) -> Stack:
    """Return the functions from the outermost down to a node; `frames` keeps those of the segment."""
    tables, stack = part.tables, []
    while step := int(tables.up[node]):
        row = int(tables.frame[node])
        if row not in frames:
            (frames[row],) = (Frame(*fields) for fields in tables.frames(slice(row, row + 1)))
        stack.append(frames[row])
        node -= step
    return tuple(stack[::-1])


def _examine_culprit(
    case: cases.Case, blamed: _base.Draft, stacks: list[tuple[Stack, int]]
) -> list[_base.Draft]:
    """Return its mechanisms, the most specific first."""
    total = sum(count for _, count in stacks)
    fits: dict[str, _Fit] = {}
    for stack, count in stacks:
        if found := mechanism_table.classify(stack):
            mechanism, at = found
            fit = fits.setdefault(mechanism.name, _Fit(mechanism))
            fit.samples += count
            fit.hottest = max(fit.hottest, (count, stack), key=lambda pair: pair[0])
            if function := mechanism.name_function(stack, at):
                fit.functions[function] += count
    chosen = []
    for fit in fits.values():
        fit.share = fit.samples / total
        if fit.share >= fit.mechanism.share and fit.samples >= MIN_SAMPLES:
            _compare_counters(case, blamed, fit)
            chosen.append(fit)
    chosen.sort(key=lambda fit: (-fit.rank, fit.mechanism.name))
    return [
        _draft(case, blamed, fit, total, NEXT**place)
        for place, fit in enumerate(chosen[:MAX_FINDINGS])
    ]


def _draft(
    case: cases.Case, blamed: _base.Draft, fit: _Fit, total: int, factor: float
) -> _base.Draft:
    mechanism, subject = fit.mechanism, blamed.subject
    function = fit.functions.most_common(1)[0][0] if fit.functions else ""
    path = fit.hottest[1]
    confidence = 0.72 + 0.2 * fit.share + (0.05 if fit.evidence else 0.0)
    if fit.samples < FEW_SAMPLES:
        factor *= FEW_FACTOR
    if fit.against:
        factor *= CONTRADICTED
    draft = _base.Draft(
        mechanism.kind,
        dataclasses.replace(subject, function=function),
        blamed.window,
        confidence * factor,
        f"{100 * fit.share:.0f} % of the samples of {subject.actor} on core {subject.core}:"
        f" {mechanism.title}",
        magnitude={
            "cores_burnt": fit.share * blamed.magnitude["cores_burnt"],
            "mechanism_share": fit.share,
            "samples": fit.samples,
        },
    )
    draft.support(
        f"{fit.samples} of its {total} samples ({100 * fit.share:.0f} %), by function:"
        f" {_list_functions(fit)}. Stack: {format_path(path)}",
        "profiles",
        look=_base.command(
            "flame", blamed.window, case.host, "--core", str(subject.core),
            "--process", shlex.quote(f"^{re.escape(subject.process)}$"),
        ),
        samples=fit.samples,
        samples_of_it=total,
        share_of_its_samples=round(fit.share, 4),
        path=format_path(path),
    )  # fmt: skip
    draft.evidence += fit.evidence
    draft.against += fit.against
    return draft


def _list_functions(fit: _Fit) -> str:
    common = fit.functions.most_common(3)
    return ", ".join(f"{name} {100 * n / fit.samples:.0f} %" for name, n in common) or "none named"


def format_path(stack: Stack) -> str:
    """Return the innermost functions of a stack.

    >>> format_path((Frame("main"), Frame("read")))
    'main > read'
    """
    return " > ".join(frame.name for frame in stack[-PATH_LENGTH:])


def _compare_counters(case: cases.Case, blamed: _base.Draft, fit: _Fit) -> None:
    core = str(blamed.subject.core)
    for counter in fit.mechanism.counters:
        keys = (core,) if counter.own_core else None
        rate = _read_rate(case, counter, blamed.window, keys)
        if rate is None:
            continue
        names = " + ".join(counter.columns)
        agrees = rate >= counter.least
        text = f"{names}: {rate:,.0f} a second, at least {counter.least:,.0f} expected"
        values = {"per_second": round(rate, 1), "expected_per_second": counter.least}
        evidence = Evidence(text, counter.signal, values, blamed.window)
        (fit.evidence if agrees else fit.against).append(evidence)


def _read_rate(
    case: cases.Case,
    counter: mechanism_table.Counter,
    window: Window,
    keys: tuple[str, ...] | None,
) -> float | None:
    """Return the mean rate over all keys; None where no column was recorded in the window."""
    rates = case.rates(counter.signal, window, keys=keys, columns=counter.columns)
    total, is_known = 0.0, False
    for column in counter.columns:
        values = rates.values.get(column)
        if values is None or not values.size or not np.isfinite(values).any():
            continue
        is_known = True
        seconds = (np.isfinite(values) * rates.seconds[:, None]).max(axis=1).sum()
        total += float(np.nansum(values * rates.seconds[:, None])) / float(seconds)
    return total if is_known else None


DETECTORS = (Mechanisms(),)
