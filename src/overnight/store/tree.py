"""The stacks of a segment as one tree, its nodes in preorder.

Node i's descendants are the nodes i + 1 … i + size[i] - 1, so queries are slices and running totals. The same
path has the same key (`path_keys`) in every segment of every host, and trees are merged by key.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING

import numpy as np

from overnight.model.flame import FrameKind
from overnight.store import capture

if TYPE_CHECKING:
    import numpy.typing as npt

    U8 = npt.NDArray[np.uint8]
    U32 = npt.NDArray[np.uint32]
    U64 = npt.NDArray[np.uint64]
    Integers = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

try:
    from overnight.store import _tree
except ImportError:  # installed without a C compiler
    HAS_EXTENSION = False
else:
    HAS_EXTENSION = True

MAX_BITMAP = 1 << 27  # possible pairs

# Flags of a node. The low half is about the node's own frame, the high half also about what it calls.
KERNEL, IDLE, SOFTIRQ = 0x01, 0x02, 0x10

# Leaves of an idle core; [unknown] where kernel symbols are hidden. A sample of the idle task in any
# other function is work: an interrupt on top of idle (FlameScope drops those).
IDLE_LEAF = re.compile(
    r"(pv_)?native_safe_halt|acpi_(idle_(do_entry|enter.*)|safe_halt)|default_(enter_)?idle.*|intel_idle.*"
    r"|mwait_idle.*|cpuidle_.*|poll_idle|cpu_(idle|startup_entry|idle_poll)|do_idle|arch_cpu_idle.*"
    r"|psci_enter_idle_state|cpu_do_idle|tdx_(safe_)?halt|__halt|kvm_.*halt|xen_.*block|haltpoll_.*"
    r"|amd_e400_idle|pseries_.*idle.*|snooze_loop|\[unknown\]"
)
SOFTIRQ_FRAME = re.compile(
    r"handle_softirqs|__do_softirq|__softirqentry_text_start|do_softirq.*|run_ksoftirqd"
)


@dataclasses.dataclass(frozen=True)
class Tree:
    """All stacks of a segment; `leaf[i]` is the last node of pair i of process and stack."""

    leaf: U32
    frame: U32
    up: U32  # distance back to the parent; 0: a root
    size: U32  # the node and all its descendants
    flags: U8


def frame_flags(names: list[str], kinds: U8) -> U8:
    """Return the flags of each frame, for samples that end in it or in what it calls."""
    flags = np.zeros(len(names), np.uint8)
    for i in np.flatnonzero(kinds == FrameKind.KERNEL).tolist():
        flags[i] = KERNEL
        if IDLE_LEAF.fullmatch(names[i]):
            flags[i] |= IDLE
        if SOFTIRQ_FRAME.fullmatch(names[i]):
            flags[i] |= SOFTIRQ
    return flags


def outermost(frame: npt.NDArray[np.integer], size: U32) -> Mask:
    """Return which nodes have no ancestor of the same frame: sums over them count recursion once."""
    order = np.argsort(frame, kind="stable").astype(np.int64)
    n = len(frame)
    # Frames do not overlap on this line, so one running maximum serves them all.
    begin = frame[order].astype(np.int64) * n + order
    end = begin + size[order]
    covered = np.zeros(n, bool)
    covered[1:] = begin[1:] < np.maximum.accumulate(end)[:-1]
    mask = np.ones(n, bool)
    mask[order] = ~covered
    return mask


def subtree_sums(own: Integers, size: U32 | Integers) -> Integers:
    """Return the sum of each node's own value and those of its descendants."""
    running = np.concatenate([[0], np.cumsum(own)])
    first = np.arange(len(own))
    sums: Integers = running[first + size] - running[first]
    return sums


def path_keys(key: U64, parent: Integers, size: U32 | Integers) -> U64:
    """Hash the path down to each node: from the keys of its frame and of its parent's path.

    It takes 4 ms for 130,000 nodes; stored, the random bits would be a third of a segment (measured).
    """
    if not len(key):
        return key
    place = np.arange(len(key))
    depth = np.cumsum(1 - np.bincount(place + size, minlength=len(key) + 1)[:-1])
    # A narrow type is sorted ten times as fast.
    order = np.argsort(depth.astype(np.min_scalar_type(depth.max())), kind="stable")
    rank = np.empty_like(order)
    rank[order] = place
    above, keys = rank[parent[order]], key[order]
    ends = np.cumsum(np.bincount(depth)).tolist()
    for begin, end in itertools.pairwise(ends[1:]):  # level by level
        mixed = keys[above[begin:end]] * np.uint64(0x9E3779B97F4A7C15) ^ keys[begin:end]
        mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xD6E8FEB86659FD93)
        keys[begin:end] = mixed ^ mixed >> np.uint64(32)
    return keys[rank]


def is_torn(up: U32, size: U32) -> bool:
    """Return whether this is not a tree in preorder: each slice holds the node and its children's slices."""
    n = len(up)
    if not n:
        return False
    if size.min() == 0 or size.max() > n or up.max() >= n:
        return True
    place = np.arange(n, dtype=np.int32)  # narrow: memory touched is what this costs
    end, above = place + size.view(np.int32), place - up.view(np.int32)
    if above.min() < 0 or end.max() > n:
        return True
    # A root is above itself. This takes a millisecond for 100,000 nodes (measured).
    below = np.bincount(above, size, n)
    return bool((end > end[above]).any() or (below != np.where(up, size - 1, 2 * size - 1)).any())


def pair_up(
    process: U32, task: U32, stack: U32, processes: int, stacks: int
) -> tuple[U32, U32, U32]:
    """Return process and stack of each pair that occurs, in order, and the pair of each row.

    `process` is the process of each task; `task` and `stack` are those of each row.
    """
    if HAS_EXTENSION and processes * stacks <= MAX_BITMAP:
        places, numbers = _tree.pair(
            np.ascontiguousarray(process, "<u4").data,
            np.ascontiguousarray(task, "<u4").data,
            np.ascontiguousarray(stack, "<u4").data,
            processes,
            stacks,
        )
        pairs, pair = np.frombuffer(places, "<u8"), np.frombuffer(numbers, "<u4")
    else:
        both = process.astype(np.uint64)[task] * np.uint64(stacks) + stack
        pairs, pair = np.unique(both, return_inverse=True)
    root, hanging = np.divmod(pairs, np.uint64(max(stacks, 1)))
    return root.astype(np.uint32), hanging.astype(np.uint32), pair.astype(np.uint32, copy=False)


def fold_capture(root: U32, stack: U32, stacks: capture.Stacks, flags: U8) -> Tree:
    """Build the tree of pairs: stack `stack[i]` is below the frame `root[i]` (a process)."""
    arrays = (
        np.ascontiguousarray(root, "<u4").data,
        np.ascontiguousarray(stack, "<u4").data,
        np.ascontiguousarray(stacks.offset[1:], "<u4").data,
        np.ascontiguousarray(stacks.frame, "<u4").data,
        np.ascontiguousarray(flags).data,
    )
    folded = _tree.fold(*arrays) if HAS_EXTENSION else fold_in_python(*arrays)
    types = ("<u4", "<u4", "<u4", "<u4", "<u1")
    return Tree(*(np.frombuffer(column, kind) for column, kind in zip(folded, types, strict=True)))


def fold_in_python(
    root: memoryview,
    stack: memoryview,
    end: memoryview,
    frames: memoryview,
    flags: memoryview,
) -> tuple[bytes, ...]:
    """Do the work of src/native/tree.c on hosts without a C compiler."""
    ends, words = np.frombuffer(end, "<u4").tolist(), np.frombuffer(frames, "<u4").tolist()
    children: list[dict[int, int]] = []
    roots: dict[int, int] = {}
    frame_of: list[int] = []  # of each node, in order of first occurrence

    def step(siblings: dict[int, int], frame: int) -> int:
        if frame not in siblings:
            siblings[frame] = len(frame_of)
            frame_of.append(frame)
            children.append({})
        return siblings[frame]

    leaves = []
    for first, number in zip(
        np.frombuffer(root, "<u4").tolist(), np.frombuffer(stack, "<u4").tolist(), strict=True
    ):
        at = step(roots, first)
        for frame in words[ends[number - 1] if number else 0 : ends[number]]:
            at = step(children[at], frame)
        leaves.append(at)
    place = [0] * len(frame_of)
    ordered: list[int] = []  # frames in preorder
    up: list[int] = []
    flag_ = bytearray()
    pending = [(node, -1) for node in reversed(roots.values())]
    while pending:
        node, parent = pending.pop()
        k = place[node] = len(ordered)
        frame = frame_of[node]
        ordered.append(frame)
        up.append(k - parent if parent >= 0 else 0)
        flag_.append(flags[frame] | (flag_[parent] & 0xF0 if parent >= 0 else 0))
        pending.extend((child, k) for child in reversed(children[node].values()))
    size = [1] * len(ordered)
    for k in range(len(ordered) - 1, -1, -1):
        if up[k]:
            size[k - up[k]] += size[k]
    leaf = [place[node] for node in leaves]
    columns = (np.array(column, "<u4").tobytes() for column in (leaf, ordered, up, size))
    return (*columns, bytes(flag_))
