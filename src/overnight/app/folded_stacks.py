"""A flame tree as the neutral value that the writers of formats take."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from overnight.model.flame import Folded, Frame, Node, Sample

if TYPE_CHECKING:
    from overnight.queries import flame, labels, reader


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
        frames=_frames(tree.names, tree.modules, tree.kinds),
        nodes=tuple(map(Node, tree.frame.tolist(), tree.parent.tolist(), tree.own.tolist())),
        lost=coverage.lost,
        notes=(*coverage.remarks(), *coverage.notes),
        empty=coverage.empty,
        unknown=coverage.unknown,
    )


def add_labels(folded: Folded, labelled: labels.Labelled | None) -> Folded:
    """Replace the nodes by samples of each thread on each core."""
    if labelled is None:
        why = (
            "threads and cores are added up: the window has too many samples; export a shorter one"
        )
        samples = (
            Sample(path, (("process", folded.frames[path[0]].name),), n)
            for path, n in folded.stacks()
        )
        return dataclasses.replace(folded, samples=tuple(samples), notes=(*folded.notes, why))
    frames = _frames(labelled.names, labelled.modules, labelled.kinds)
    return dataclasses.replace(folded, frames=frames, nodes=(), samples=labelled.samples)


def _frames(names: list[str], modules: list[str], kinds: list[int]) -> tuple[Frame, ...]:
    return tuple(map(Frame, names, modules, kinds))
