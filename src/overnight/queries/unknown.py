"""Which share of the stacks has functions without a name, and why."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from overnight.model import unknown
from overnight.model.flame import UNKNOWN, FrameKind
from overnight.store import tree

if TYPE_CHECKING:
    from overnight.queries import reader

MAX_MODULES = 3


def measure(parts: Sequence[reader.Part]) -> unknown.Unknown:
    """Count the samples with an unknown function anywhere on the stack, all and by reason."""
    by_why: collections.Counter[unknown.Why | None] = collections.Counter()  # None: any
    modules: dict[unknown.Why | None, collections.Counter[str]] = {}
    for part in parts:
        names, own = part.names, part.own
        is_unknown = (names.frame_name == UNKNOWN) & (names.frame_kind != FrameKind.PROCESS)
        frames: dict[unknown.Why | None, dict[int, str]] = {}
        listed = np.flatnonzero(is_unknown)
        for frame, (_, module, kind) in zip(listed.tolist(), names.frames(listed), strict=True):
            why = unknown.find_why(
                module,
                kernel=kind == FrameKind.KERNEL,
                stored=names.meta.unknown.get(module),
                otherwise=unknown.Why.NOT_KNOWN,
            )
            for group in (why, None):
                frames.setdefault(group, {})[frame] = module
        whole = tree.subtree_sums(own, names.size) if frames else own
        for group, of_group in frames.items():
            marked = np.zeros(len(names.frame_name), bool)
            marked[list(of_group)] = True
            nodes = np.flatnonzero(marked[names.frame])
            by_why[group] += int(own[names.mark_below(nodes)].sum())
            weight = np.bincount(names.frame[nodes], whole[nodes], len(names.frame_name))
            counts = modules.setdefault(group, collections.Counter())
            counts.update({module: int(weight[frame]) for frame, module in of_group.items()})
    causes = tuple(
        unknown.Cause(why, n, tuple(m for m, w in modules[why].most_common(MAX_MODULES) if w), unknown.TEXTS[why][1])
        for why, n in by_why.most_common()
        if why and n
    )  # fmt: skip
    return unknown.Unknown(by_why[None], sum(part.samples for part in parts), causes)
