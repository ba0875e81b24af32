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
    metas = source.metas(coverage.hosts, coverage.window).values()
    sampled = [meta.frequency for meta in metas if coverage.event in meta.events]
    return Folded(
        title=title,
        host=", ".join(coverage.hosts),
        begin_ns=coverage.window.begin_us * 1000,
        end_ns=coverage.window.end_us * 1000,
        frequency=sampled[0] if sampled else 0,
        cores=cores,
        event=coverage.event,
        frames=tuple(
            Frame(name, module, FrameKind.KERNEL if kind == FrameKind.KERNEL else FrameKind.USER)
            for name, module, kind in zip(tree.names, tree.modules, tree.kinds, strict=True)
        ),
        nodes=tuple(map(Node, tree.frame.tolist(), tree.parent.tolist(), tree.own.tolist())),
        lost=coverage.lost,
        notes=coverage.notes,
    )
