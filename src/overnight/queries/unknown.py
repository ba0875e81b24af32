"""Which share of the stacks has functions without a name, and why."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from overnight.model import unknown
from overnight.model.flame import UNKNOWN, FrameKind
from overnight.store import tree

if TYPE_CHECKING:
    from overnight.queries import reader

MAX_MODULES = 3


def measure(parts: Iterable[reader.Part]) -> unknown.Unknown:
    """Count the samples with an unknown function anywhere on the stack, all and by reason."""
    samples = of = 0
    by_why: collections.Counter[unknown.Why] = collections.Counter()
    modules: collections.defaultdict[unknown.Why, collections.Counter[str]]
    modules = collections.defaultdict(collections.Counter)
    for part in parts:
        names, own = part.names, part.own
        of += part.samples
        frames = np.flatnonzero(
            (names.frame_name == UNKNOWN) & (names.frame_kind != FrameKind.PROCESS)
        )
        reasons = collections.defaultdict(list)
        for frame, (_, module, kind) in zip(frames.tolist(), names.frames(frames), strict=True):
            stored = names.meta.unknown.get(module)
            guess = unknown.guess(module, kernel=kind == FrameKind.KERNEL)
            why = unknown.read_why(stored) if stored else guess or unknown.Why.NOT_KNOWN
            reasons[why].append((frame, module))
        if not reasons:
            continue
        whole = tree.subtree_sums(own, names.size)
        samples += int(own[names.mark_below(np.flatnonzero(np.isin(names.frame, frames)))].sum())
        for why, listed in reasons.items():
            nodes = np.flatnonzero(np.isin(names.frame, [frame for frame, _ in listed]))
            by_why[why] += int(own[names.mark_below(nodes)].sum())
            weights = np.bincount(names.frame[nodes], whole[nodes], len(names.frame_name))
            for frame, module in listed:
                modules[why][module] += int(weights[frame])
    causes = tuple(
        unknown.Cause(why, n, _largest(modules[why]), unknown.TEXTS[why][1])
        for why, n in by_why.most_common()
        if n
    )
    return unknown.Unknown(samples, of, causes)


def _largest(weights: collections.Counter[str]) -> tuple[str, ...]:
    return tuple(module for module, weight in weights.most_common(MAX_MODULES) if weight)
