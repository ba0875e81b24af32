"""Stacks by who ran them, on which core, in which second: what signatures of trouble are looked for in."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from overnight.model.selection import Coverage, Selection, Window
from overnight.queries import diff, reader, segment_tables
from overnight.store import parquet, tree

if TYPE_CHECKING:
    from overnight.store import segments

__all__ = [
    "Burner",
    "Integers",
    "Marks",
    "Piece",
    "Stacks",
    "Who",
    "hottest",
    "innermost_marks",
    "plain",
    "read",
    "share",
    "stretch",
]

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
SECOND_US = 1_000_000
HOT = 0.5  # of one core's samples in a second: that second belongs to the stretch
# And so does one that has half of what the fullest has: who burns about half a core is not cut into pieces
# by the seconds that fall just short of it.
OF_FULLEST = 0.5
# A run of seconds that reaches the event is meant before a longer one that does not: that may be an earlier
# event's. One with less than this share of the longest run's samples is only its echo.
REACH_S, AFTER_S = 10, 2
OF_LONGEST = 1 / 3
MOST_PATH = 40

Who = tuple[str, str]  # process, unit


@dataclasses.dataclass(frozen=True)
class Piece:
    """Busy samples of one segment: a row for each second, core, task and stack."""

    names: segment_tables.Names
    second: Integers  # of the epoch
    core: Integers
    who: Integers
    node: Integers
    count: Integers

    def innermost(self, at: Integers, hit: Mask) -> Integers:
        """For each node the nearest one, itself or above, whose frame is marked; -1: none."""
        frame, up = self.names.frame, self.names.up
        # Every marked node has its whole slice below it: most nodes are in none, and need no climbing.
        starts = np.flatnonzero(hit[frame])
        edges = np.zeros(len(frame) + 1, np.int64)
        np.add.at(edges, starts, 1)
        np.add.at(edges, self.names.end[starts], -1)
        under = np.cumsum(edges[:-1]) > 0
        found = np.full(len(at), -1, np.int64)
        going = np.flatnonzero((at >= 0) & under[np.maximum(at, 0)])
        here = at[going]
        while len(going):
            there = hit[frame[here]]
            found[going[there]] = here[there]
            going, here = going[~there], here[~there]
            here = here - up[here]
        return found

    def above(self, at: Integers) -> Integers:
        """The caller of each node; -1 where there is none, or no node was given."""
        step = np.where(at >= 0, self.names.up[np.maximum(at, 0)], 0).astype(np.int64)
        return np.where(step > 0, at - step, -1)

    def path(self, node: int) -> list[str]:
        """The names from the process down to a node."""
        names = []
        while True:
            names.append(str(self.names.frame_name[self.names.frame[node]]))
            step = int(self.names.up[node])
            if not step or len(names) >= MOST_PATH:
                return names[::-1]
            node -= step

    def kernel_frames(self, pattern: str) -> Mask:
        """Which frames are kernel functions whose whole name matches; GCC's suffixes do not count."""
        search = re.compile(rf"(?:{pattern})(?:\.\w+)*").fullmatch
        names, kinds = self.names.frame_name.tolist(), self.names.frame_kind.tolist()
        return np.array(
            [
                kind == 1 and search(name) is not None
                for name, kind in zip(names, kinds, strict=True)
            ],
            bool,
        )


@dataclasses.dataclass(frozen=True)
class Stacks:
    """All busy samples of a window. `one_core` is how many a second one full core makes; 0: not known."""

    window: Window
    coverage: Coverage
    one_core: float
    whos: list[Who]
    pieces: list[Piece]

    @property
    def seconds(self) -> float:
        """How long was recorded."""
        return self.coverage.recorded_seconds

    def cores_of(self, samples: float, seconds: float) -> float:
        """So many samples in so many seconds, as cores."""
        return samples / (self.one_core * seconds) if self.one_core and seconds else 0.0


def read(source: reader.Reader, host: str, window: Window, *, by_second: bool = True) -> Stacks:
    """The busy samples of a host; without `by_second` all stand in second 0 of core 0."""
    chosen = Selection()
    touched = source.touched((host,), window)
    whos: dict[Who, int] = {}
    pieces, found = [], []
    for segment in touched:
        pieces.append(_piece(source, segment, window, whos, by_second))
        found.append((segment, source.meta(segment)))
    samples = sum(int(piece.count.sum()) for piece in pieces)
    coverage = reader.covered((host,), window, found, chosen, samples=samples, idle=0)
    one_core = coverage.capacity / coverage.core_seconds if coverage.core_seconds else 0.0
    return Stacks(window, coverage, one_core, list(whos), pieces)


def _piece(
    source: reader.Reader,
    segment: segments.Segment,
    window: Window,
    whos: dict[Who, int],
    by_second: bool,
) -> Piece:
    names = source.names(segment)
    where = reader.conditions(window, Selection())
    second = f"time_us // {SECOND_US} AS second, cpu" if by_second else "0 AS second, 0 AS cpu"
    rows = source.rows(
        segment,
        f"{second}, task, node, sum(count)::BIGINT AS n",
        f"{where} GROUP BY ALL",
    )
    busy = (names.flags[rows["node"]] & tree.IDLE) == 0
    rows = {name: column[busy] for name, column in rows.items()}
    tasks = parquet.read(segment.path / "tasks.parquet", ("process", "thread", "unit", "pid"))
    number = np.array(
        [
            whos.setdefault((process or thread or f"pid {pid}", unit), len(whos))
            for process, thread, unit, pid in zip(
                tasks["process"].tolist(),
                tasks["thread"].tolist(),
                tasks["unit"].tolist(),
                tasks["pid"].tolist(),
                strict=True,
            )
        ],
        np.int64,
    )
    return Piece(
        names,
        rows["second"].astype(np.int64),
        rows["cpu"].astype(np.int64),
        number[rows["task"].astype(np.int64)],
        rows["node"].astype(np.int64),
        rows["n"].astype(np.int64),
    )


@dataclasses.dataclass(frozen=True)
class Burner:
    """Who spent how much in marked functions, in the stretch in which it was most.

    `lift` compares with the baseline: the ratio of rates, and its lower bound (95 %). Both are infinite where
    the baseline has none, and 0 where there is no baseline.
    """

    who: Who
    label: str  # the marked function that most samples have
    marked: dict[str, int]  # all of them
    core: int  # where most of it ran
    core_share: float  # of its samples in the stretch, those on that core
    window: Window
    samples: int
    cores_burnt: float
    share_of_core_samples: float  # of all that the core could make in the stretch
    baseline_cores: float
    lift: float
    lift_low: float
    functions: dict[str, int]  # in which the samples ended
    path: list[str]  # the stack that was met most


Marks = Callable[[Piece], Integers]


def hottest(
    now: Stacks,
    before: Stacks | None,
    marks: Marks,
    *,
    near_us: int | None = None,
    by_function: bool = False,
    most: int = 8,
) -> list[Burner]:
    """The largest users of what `marks` names: for each row of a piece a node, -1 for none.

    Users are told apart by process and unit, and `by_function` by the marked node's function. Who burnt
    more than once is told with the time that reaches `near_us`. The most burnt first.
    """
    users = _users(now, marks, by_function)
    base: dict[_User, int] = {}
    if before is not None and users:
        base = {user: _samples(own) for user, own in _users(before, marks, by_function).items()}
    largest = sorted(users, key=lambda user: (-_samples(users[user]), user))[:most]
    near = None if near_us is None else near_us // SECOND_US
    made = [_burner(now, before, users[user], user, base.get(user, 0), near) for user in largest]
    return sorted(made, key=lambda one: -one.cores_burnt)


_User = tuple[Who, str]
_Rows = list[tuple[Piece, Integers, Integers]]  # rows of a piece, and the marked node of each


def _samples(own: _Rows) -> int:
    return sum(int(piece.count[rows].sum()) for piece, rows, _ in own)


def _users(stacks: Stacks, marks: Marks, by_function: bool) -> dict[_User, _Rows]:
    """The rows of each user, piece by piece."""
    found: dict[_User, _Rows] = {}
    for piece in stacks.pieces:
        nodes = marks(piece)
        rows = np.flatnonzero(nodes >= 0)
        frames = len(piece.names.frame_name)
        both = piece.who[rows] * frames
        if by_function:
            both = both + piece.names.frame[nodes[rows]].astype(np.int64)
        for one in np.unique(both).tolist():
            who, number = divmod(one, frames)
            label = plain(str(piece.names.frame_name[number])) if by_function else ""
            mine = rows[both == one]
            found.setdefault((stacks.whos[who], label), []).append((piece, mine, nodes[mine]))
    return found


def _burner(
    now: Stacks, before: Stacks | None, own: _Rows, user: _User, base: int, near: int | None
) -> Burner:
    by_second: collections.Counter[int] = collections.Counter()
    for piece, rows, _ in own:
        for second, n in zip(piece.second[rows].tolist(), piece.count[rows].tolist(), strict=True):
            by_second[second] += n
    begin, end = stretch(by_second, HOT * now.one_core, near)
    cores: collections.Counter[int] = collections.Counter()
    functions: collections.Counter[str] = collections.Counter()
    paths: collections.Counter[tuple[str, ...]] = collections.Counter()
    marked: collections.Counter[str] = collections.Counter()
    for piece, rows, nodes in own:
        kept = (piece.second[rows] >= begin) & (piece.second[rows] < end)
        inside = rows[kept]
        for i, node in zip(inside.tolist(), nodes[kept].tolist(), strict=True):
            n = int(piece.count[i])
            cores[int(piece.core[i])] += n
            marked[plain(str(piece.names.frame_name[piece.names.frame[node]]))] += n
        for node in np.unique(piece.node[inside]).tolist():
            n = int(piece.count[inside][piece.node[inside] == node].sum())
            path = piece.path(node)
            functions[path[-1]] += n
            paths[tuple(path)] += n
    samples = sum(cores.values())
    core, on_core = cores.most_common(1)[0]
    window = Window(
        max(begin * SECOND_US, now.window.begin_us), min(end * SECOND_US, now.window.end_us)
    )
    lift, low = _lift(sum(by_second.values()), now, base, before)
    full = now.one_core * window.seconds
    return Burner(
        who=user[0],
        label=marked.most_common(1)[0][0],
        marked=dict(marked.most_common(8)),
        core=core,
        core_share=on_core / samples,
        window=window,
        samples=samples,
        cores_burnt=now.cores_of(samples, window.seconds),
        share_of_core_samples=min(1.0, on_core / full) if full else 0.0,
        baseline_cores=before.cores_of(base, before.seconds) if before else 0.0,
        lift=lift,
        lift_low=low,
        functions=dict(functions.most_common(8)),
        path=list(paths.most_common(1)[0][0]),
    )


def stretch(by_second: dict[int, int], hot: float, near: int | None = None) -> tuple[int, int]:
    """The run of seconds that holds most samples: full ones, one pause of a second allowed; else all.

    Of several the one that is nearest to the second `near`, where one reaches it.
    """
    most = max(by_second.values())
    least = min(hot, OF_FULLEST * most) if most >= hot else hot
    full = sorted(second for second, n in by_second.items() if n >= least)
    runs: list[list[int]] = []
    for second in full:
        if runs and second - runs[-1][-1] <= 2:
            runs[-1].append(second)
        else:
            runs.append([second])
    if not runs or hot <= 0:
        return min(by_second), max(by_second) + 1
    held = [sum(by_second[second] for second in run) for run in runs]
    best = runs[held.index(max(held))]
    if near is not None:
        reaching = [
            (max(near - run[-1], 0), -samples, run)
            for run, samples in zip(runs, held, strict=True)
            if run[0] <= near + AFTER_S and near - run[-1] <= REACH_S
            if samples >= OF_LONGEST * max(held)
        ]
        best = min(reaching)[2] if reaching else best
    return best[0], best[-1] + 1


def _lift(samples: int, now: Stacks, base: int, before: Stacks | None) -> tuple[float, float]:
    """The ratio of both rates over the whole windows, and its lower bound."""
    if before is None or not before.seconds or not now.seconds:
        return 0.0, 0.0
    low, _ = diff.poisson_bounds(samples)
    _, high = diff.poisson_bounds(base)
    length = before.seconds / now.seconds
    ratio = samples / base * length if base else float("inf")
    return ratio, low / high * length


def innermost_marks(pattern: str) -> Marks:
    """Marks samples with a kernel function on their stack that matches: the innermost such."""
    return lambda piece: piece.innermost(piece.node, piece.kernel_frames(pattern))


def plain(name: str) -> str:
    """Without the suffix that GCC gives clones of a function: `.isra.0`."""
    return name.partition(".")[0] or name


def share(stacks: Stacks, inner: str, within: str, whos: Iterable[Who] = ()) -> tuple[int, int]:
    """Samples with a function of `inner` on the stack, of those with one of `within`."""
    wanted = set(whos)
    both = all_ = 0
    for piece in stacks.pieces:
        outer = piece.innermost(piece.node, piece.kernel_frames(within)) >= 0
        if wanted:
            chosen = np.array([who in wanted for who in stacks.whos], bool)
            outer &= chosen[piece.who]
        nested = piece.innermost(piece.node, piece.kernel_frames(inner)) >= 0
        all_ += int(piece.count[outer].sum())
        both += int(piece.count[outer & nested].sum())
    return both, all_
