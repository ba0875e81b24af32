"""Folded stacks from a list of stacks, root first, with their counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from overnight.model.flame import Folded, Frame, Node

Stack = tuple[tuple[Frame, ...], int]


def fold(stacks: Iterable[Stack], **fields: Any) -> Folded:
    """Fold stacks in this order; stacks without frames are left out."""
    frames: dict[Frame, int] = {}
    node_of: dict[tuple[int, Frame], int] = {}
    nodes: list[Node] = []
    for path, count in stacks:
        at = -1
        for frame in path:
            if (at, frame) not in node_of:
                nodes.append(Node(frames.setdefault(frame, len(frames)), at, 0))
                node_of[at, frame] = len(nodes) - 1
            at = node_of[at, frame]
        if path:
            nodes[at] = nodes[at]._replace(own=nodes[at].own + count)
    defaults = {
        "title": "t", "host": "h", "begin_ns": 1, "end_ns": 2, "frequency": 0, "cores": (), "event": "",
    }  # fmt: skip
    return Folded(**{**defaults, **fields}, frames=tuple(frames), nodes=tuple(nodes))


def unfold(folded: Folded) -> list[Stack]:
    return [
        (tuple(folded.frames[frame] for frame in path), count) for path, count in folded.stacks()
    ]
