"""A flame tree as the neutral value that the writers of formats take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from overnight.model.flame import KERNEL, USER, Folded, FoldedStack, Frame

if TYPE_CHECKING:
    from overnight.queries import flame

__all__ = ["fold"]


def fold(tree: flame.FlameTree, title: str, *, event: str = "", frequency: int = 0) -> Folded:
    """Every stack that samples ended in, root first. The process is its first frame."""
    frames = [
        Frame(name, module, KERNEL if kind == KERNEL else USER)
        for name, module, kind in zip(tree.names, tree.modules, tree.kinds, strict=True)
    ]
    paths: list[tuple[Frame, ...]] = []
    for parent, frame in zip(tree.parent.tolist(), tree.frame.tolist(), strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), frames[frame]))
    window = tree.coverage.window
    return Folded(
        title=title,
        host=", ".join(tree.coverage.hosts),
        begin_ns=window.begin_us * 1000,
        end_ns=window.end_us * 1000,
        frequency=frequency,
        cores=(),
        event=event,
        stacks=tuple(
            FoldedStack(paths[i], int(tree.own[i])) for i in np.flatnonzero(tree.own).tolist()
        ),
        lost=tree.coverage.lost,
        notes=tree.coverage.notes,
    )
