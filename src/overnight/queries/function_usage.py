"""Top consumers of marked functions: which process spends how much in them, on which core, when."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable

import numpy as np

from overnight.model.actor import Actor
from overnight.model.selection import Window
from overnight.model.times import SECOND_US
from overnight.queries import diff, samples

BUSY_SHARE = 0.5  # of one core's samples in a second: that second belongs to the run
# A second with half as many samples as the busiest one belongs to the run, too: a process that uses about
# half a core is not split at the seconds that fall just short of it.
OF_BUSIEST = 0.5
# A run of seconds that reaches the event is preferred to a longer one that does not: that may belong to an
# earlier event. A run with less than this share of the longest one's samples is only its echo.
REACH_S, AFTER_S = 10, 2
OF_LONGEST = 1 / 3
MAX_FUNCTIONS = 8


@dataclasses.dataclass(frozen=True)
class Usage:
    """What one process spent in marked functions, in the run of seconds with most of it.

    `lift` compares with the baseline: the ratio of rates, and its lower bound (95 %). Both are infinite
    where the baseline has no such sample, and 0 where there is no baseline.
    """

    actor: Actor
    function: str  # the marked function with most samples
    marked: dict[str, int]  # samples by marked function
    core: int  # where most of it ran
    core_share: float  # of its samples in the window, those on that core
    window: Window
    samples: int
    cores_used: float
    share_of_core_samples: float  # of all samples that the core can have in the window
    baseline_cores: float
    lift: float
    lift_low: float
    functions: dict[str, int]  # in which the samples ended
    path: list[str]  # the most frequent stack


# For each row of a segment the marked node of its stack; -1: none.
Marks = Callable[[samples.SegmentSamples], samples.Integers]


def top_consumers(
    now: samples.WindowSamples,
    before: samples.WindowSamples | None,
    marks: Marks,
    *,
    near_us: int | None = None,
    by_function: bool = False,
    limit: int = 8,
) -> list[Usage]:
    """Return the processes that use most of what `marks` selects, the largest first.

    `by_function` also splits them by the marked node's function. Of several runs of busy seconds, a
    consumer is reported with the one that reaches `near_us`.
    """
    users = _group_rows(now, marks, by_function)
    baseline: dict[_User, int] = {}
    if before is not None and users:
        baseline = {
            user: _sum(rows) for user, rows in _group_rows(before, marks, by_function).items()
        }
    largest = sorted(users, key=lambda user: (-_sum(users[user]), user))[:limit]
    near_s = None if near_us is None else near_us // SECOND_US
    usages = [
        _measure(now, before, users[user], user, baseline.get(user, 0), near_s) for user in largest
    ]
    return sorted(usages, key=lambda usage: -usage.cores_used)


_User = tuple[Actor, str]
# Rows of a segment, and the marked node of each.
_Rows = list[tuple[samples.SegmentSamples, samples.Integers, samples.Integers]]


def _sum(rows: _Rows) -> int:
    return sum(int(part.count[index].sum()) for part, index, _ in rows)


def _group_rows(now: samples.WindowSamples, marks: Marks, by_function: bool) -> dict[_User, _Rows]:
    users: dict[_User, _Rows] = {}
    for part in now.segments:
        nodes = marks(part)
        rows = np.flatnonzero(nodes >= 0)
        frames = len(part.tables.frame_name)
        keys = part.process[rows] * frames
        if by_function:
            keys = keys + part.tables.frame[nodes[rows]].astype(np.int64)
        for key in np.unique(keys).tolist():
            process, frame = divmod(key, frames)
            name = strip_suffix(str(part.tables.frame_name[frame])) if by_function else ""
            own = rows[keys == key]
            users.setdefault((now.processes[process], name), []).append((part, own, nodes[own]))
    return users


def _measure(
    now: samples.WindowSamples,
    before: samples.WindowSamples | None,
    rows: _Rows,
    user: _User,
    baseline: int,
    near_s: int | None,
) -> Usage:
    by_second: collections.Counter[int] = collections.Counter()
    for part, index, _ in rows:
        for second, n in zip(part.second[index].tolist(), part.count[index].tolist(), strict=True):
            by_second[second] += n
    begin, end = busiest_run(by_second, BUSY_SHARE * now.core_rate, near_s)
    cores: collections.Counter[int] = collections.Counter()
    functions: collections.Counter[str] = collections.Counter()
    paths: collections.Counter[tuple[str, ...]] = collections.Counter()
    marked: collections.Counter[str] = collections.Counter()
    for part, index, nodes in rows:
        kept = (part.second[index] >= begin) & (part.second[index] < end)
        inside = index[kept]
        for row, node in zip(inside.tolist(), nodes[kept].tolist(), strict=True):
            n = int(part.count[row])
            cores[int(part.core[row])] += n
            marked[strip_suffix(str(part.tables.frame_name[part.tables.frame[node]]))] += n
        for node in np.unique(part.node[inside]).tolist():
            n = int(part.count[inside][part.node[inside] == node].sum())
            path = part.path(node)
            functions[path[-1]] += n
            paths[tuple(path)] += n
    total = sum(cores.values())
    core, on_core = cores.most_common(1)[0]
    window = Window(
        max(begin * SECOND_US, now.window.begin_us), min(end * SECOND_US, now.window.end_us)
    )
    lift, low = _lift(sum(by_second.values()), now, baseline, before)
    possible = now.core_rate * window.seconds
    return Usage(
        actor=user[0],
        function=marked.most_common(1)[0][0],
        marked=dict(marked.most_common(MAX_FUNCTIONS)),
        core=core,
        core_share=on_core / total,
        window=window,
        samples=total,
        cores_used=now.cores(total, window.seconds),
        share_of_core_samples=min(1.0, on_core / possible) if possible else 0.0,
        baseline_cores=before.cores(baseline, before.seconds) if before else 0.0,
        lift=lift,
        lift_low=low,
        functions=dict(functions.most_common(MAX_FUNCTIONS)),
        path=list(paths.most_common(1)[0][0]),
    )


def busiest_run(
    by_second: dict[int, int], busy: float, near_s: int | None = None
) -> tuple[int, int]:
    """Return begin and end of the run of seconds that holds most samples.

    A second is busy from `busy` samples on; a pause of one second does not end a run. Without a busy second
    it is the whole span. Of several runs, the nearest one that reaches `near_s` is taken.
    """
    most = max(by_second.values())
    least = min(busy, OF_BUSIEST * most) if most >= busy else busy
    runs: list[list[int]] = []
    for second in sorted(second for second, n in by_second.items() if n >= least):
        if runs and second - runs[-1][-1] <= 2:
            runs[-1].append(second)
        else:
            runs.append([second])
    if not runs or busy <= 0:
        return min(by_second), max(by_second) + 1
    sizes = [sum(by_second[second] for second in run) for run in runs]
    best = runs[sizes.index(max(sizes))]
    if near_s is not None:
        reaching = [
            (max(near_s - run[-1], 0), -size, run)
            for run, size in zip(runs, sizes, strict=True)
            if run[0] <= near_s + AFTER_S and near_s - run[-1] <= REACH_S
            if size >= OF_LONGEST * max(sizes)
        ]
        best = min(reaching)[2] if reaching else best
    return best[0], best[-1] + 1


def _lift(
    count: int, now: samples.WindowSamples, baseline: int, before: samples.WindowSamples | None
) -> tuple[float, float]:
    """Return the ratio of both rates over the whole windows, and its lower bound."""
    if before is None or not before.seconds or not now.seconds:
        return 0.0, 0.0
    low, _ = diff.poisson_bounds(count)
    _, high = diff.poisson_bounds(baseline)
    length = before.seconds / now.seconds
    ratio = count / baseline * length if baseline else float("inf")
    return ratio, low / high * length


def mark_innermost(pattern: str) -> Marks:
    """Mark samples by the innermost kernel function on their stack that matches."""
    return lambda part: part.innermost(part.node, part.kernel_frames(pattern))


def strip_suffix(name: str) -> str:
    """Remove the suffix that GCC gives clones of a function: `.isra.0`."""
    return name.partition(".")[0] or name


def nested_share(
    now: samples.WindowSamples, inner: str, within: str, processes: Iterable[Actor] = ()
) -> tuple[int, int]:
    """Count samples with a function of `inner` on the stack, of those with one of `within`."""
    wanted = set(processes)
    both = outside = 0
    for part in now.segments:
        outer = part.innermost(part.node, part.kernel_frames(within)) >= 0
        if wanted:
            outer &= np.array([process in wanted for process in now.processes], bool)[part.process]
        nested = part.innermost(part.node, part.kernel_frames(inner)) >= 0
        outside += int(part.count[outer].sum())
        both += int(part.count[outer & nested].sum())
    return both, outside
