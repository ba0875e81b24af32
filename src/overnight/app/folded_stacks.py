"""A flame tree as the neutral value that the writers of formats take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.model.flame import Folded, Frame, FrameKind, Node

if TYPE_CHECKING:
    from overnight.queries import flame, reader


def fold(
    source: reader.Reader, tree: flame.FlameTree, title: str, cores: tuple[int, ...] = ()
) -> Folded:
    """Add what the writers show beside the stacks."""
    coverage = tree.coverage
    touched = source.touched(coverage.hosts, coverage.window)
    meta = source.meta(touched[0]) if touched else None
    return Folded(
        title=title,
        host=", ".join(coverage.hosts),
        begin_ns=coverage.window.begin_us * 1000,
        end_ns=coverage.window.end_us * 1000,
        frequency=meta.frequency if meta else 0,
        cores=cores,
        event=meta.events[0] if meta and meta.events else "",
        frames=tuple(
            Frame(name, module, FrameKind.KERNEL if kind == FrameKind.KERNEL else FrameKind.USER)
            for name, module, kind in zip(tree.names, tree.modules, tree.kinds, strict=True)
        ),
        nodes=tuple(map(Node, tree.frame.tolist(), tree.parent.tolist(), tree.own.tolist())),
        lost=coverage.lost,
        notes=coverage.notes,
    )
