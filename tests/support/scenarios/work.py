"""Load on the cores of a simulated night: varying background, with episodes on top.

The same load gives both the ticks of /proc/stat and the samples of the profiles, so that the two agree
as they do on a host.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

Frame = tuple[str, str, int]  # name, module, 0 user or 1 kernel
Path = tuple[Frame, ...]
Stacks = tuple[tuple[float, Path], ...]  # weight and path, root first
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FREQUENCY = 97
HZ = 100
SOFTIRQ_FRAMES = ("__do_softirq", "handle_softirqs", "__softirqentry_text_start")
USER, SYSTEM, SOFTIRQ, STOLEN, SILENT = range(5)
MODES = 5
# Time that nothing on the host uses: the hypervisor's, which it reports, or the firmware's. A kernel that
# does not know of it charges it to the process that was running.
TAKEN = {"[stolen]": STOLEN, "[silent]": SILENT, "[charged]": SYSTEM}


@dataclasses.dataclass(frozen=True)
class Task:
    """A thread, as the profiles name it; `rt` is its real-time priority, 0 for none.

    With a `launcher` it represents many short-lived processes; their comm is `thread`.
    """

    process: str
    pid: int
    unit: str = ""
    thread: str = ""
    rt: int = 0
    command: str = ""
    cgroup: str = ""
    launcher: Task | None = None

    @property
    def key(self) -> str:
        """The key of the `processes` signal."""
        return f"{self.pid} {self.process}"


@dataclasses.dataclass(frozen=True)
class Work:
    """The stacks of a task, and how many cores it uses in the background."""

    task: Task
    stacks: Stacks
    cores: float = 0.0

    def modes(self) -> Floats:
        """Return the shares of user, system and softirq time."""
        shares = np.zeros(MODES)
        for weight, path in self.stacks:
            shares[_mode(path)] += weight
        return shares / shares.sum()


def take_away(by: str, running: Task) -> Work:
    """Return work that takes a core away from the host; `by` is a key of `TAKEN`."""
    task = running if by == "[charged]" else Task("swapper", 0)
    return Work(task, ((1.0, ((by.strip("[]"), by, 1),)),))


def _mode(path: Path) -> int:
    if path[-1][1] in TAKEN:
        return TAKEN[path[-1][1]]
    if path[-1][2] == 0:
        return USER
    return SOFTIRQ if any(frame[0] in SOFTIRQ_FRAMES for frame in path) else SYSTEM


@dataclasses.dataclass(frozen=True)
class Episode:
    """A task uses a share of one core from `begin` to `end`, in seconds of the night."""

    work: Work
    core: int
    begin: float
    end: float
    share: float = 1.0


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some minutes of a night: seconds `begin` to `end`, the load of each second, and its samples."""

    begin: int
    end: int
    ticks: Integers  # [second][core][mode], spent in that second
    by_work: Integers  # [second][work][user, system]
    last_core: Integers  # [second][work]
    time: Floats  # of the samples, in seconds of the night, ascending
    core: npt.NDArray[np.int32]
    work: npt.NDArray[np.uint32]
    stack: npt.NDArray[np.uint32]  # among all stacks of all works


@dataclasses.dataclass
class Load:
    """The whole night's work on `cores` cores."""

    seconds: int
    cores: int
    background: Sequence[Work]
    episodes: Sequence[Episode]
    seed: int
    busiest: float = 0.75  # of a core, by the background alone
    keep_samples: bool = True

    def __post_init__(self) -> None:
        self.works: list[Work] = list(
            dict.fromkeys([*self.background, *(episode.work for episode in self.episodes)])
        )
        self._modes = np.array([work.modes() for work in self.works])
        counts = [len(work.stacks) for work in self.works]
        self.first_stack = np.cumsum([0, *counts])
        self._owed = np.zeros((self.cores, MODES))
        self._owed_work = np.zeros((len(self.works), 2))
        chance = np.random.default_rng((self.seed, 1))
        self._periods = chance.uniform(300, 2400, len(self.works))
        self._phases = chance.uniform(0, 6.28, len(self.works))
        # Some cores get more of every task's work than others.
        self._weight_of_core = chance.uniform(0.6, 1.4, self.cores)

    def chunks(self, length: int = 600) -> Iterator[Chunk]:
        """Yield the parts of the night in order."""
        for begin in range(0, self.seconds, length):
            yield self._chunk(begin, min(begin + length, self.seconds))

    def _background(self, begin: int, end: int, chance: np.random.Generator) -> Floats:
        """[second][core][work], of one core each."""
        count = end - begin
        load = np.zeros((count, self.cores, len(self.works)))
        when = np.arange(begin, end)[:, None]
        for n, work in enumerate(self.background):
            mean = work.cores / self.cores
            wave = 1 + 0.3 * np.sin(when * (6.28 / self._periods[n]) + self._phases[n])
            noise = chance.gamma(2.0, 0.5, (count, self.cores))
            load[:, :, n] = mean * wave * noise * self._weight_of_core
        total = load.sum(axis=2, keepdims=True)
        return load * np.minimum(1.0, self.busiest / np.maximum(total, 1e-9))

    def _chunk(self, begin: int, end: int) -> Chunk:
        chance = np.random.default_rng((self.seed, 2, begin))
        quiet = self._background(begin, end, chance)
        episodes = [
            episode for episode in self.episodes if episode.begin < end and episode.end > begin
        ]
        load = quiet.copy()
        for episode in episodes:
            n = self.works.index(episode.work)
            for second in range(
                max(begin, int(episode.begin)), min(end, int(np.ceil(episode.end)))
            ):
                covered = min(episode.end, second + 1) - max(episode.begin, second)
                taken = covered * episode.share
                load[second - begin, episode.core] *= 1 - taken
                load[second - begin, episode.core, n] += taken
        ticks = self._ticks(load)
        by_work = self._ticks_by_work(load)
        last = load.argmax(axis=1)
        if not self.keep_samples:
            none = np.zeros(0)
            empty = none.astype(np.uint32)
            return Chunk(
                begin, end, ticks, by_work, last, none, none.astype(np.int32), empty, empty
            )
        time, core, work = self._samples(begin, end, quiet, episodes, chance)
        stack = np.zeros(len(work), np.uint32)
        for n, part in enumerate(self.works):
            rows = np.flatnonzero(work == n)
            weights = np.array([weight for weight, _ in part.stacks])
            chosen = chance.choice(len(weights), len(rows), p=weights / weights.sum())
            stack[rows] = self.first_stack[n] + chosen
        return Chunk(begin, end, ticks, by_work, last, time, core, work, stack)

    def _ticks(self, load: Floats) -> Integers:
        spent = load @ self._modes * HZ
        # A tick that is not whole yet is counted later, as the kernel does.
        grown = np.cumsum(spent, axis=0) + self._owed
        whole = np.floor(grown)
        before = np.concatenate([np.zeros_like(whole[:1]), whole[:-1]])
        self._owed = grown[-1] - whole[-1]
        return (whole - before).astype(np.int64)

    def _ticks_by_work(self, load: Floats) -> Integers:
        used = load.sum(axis=1) * HZ
        # Softirq time on top of a process is charged to no process, except to ksoftirqd.
        spent = np.stack([used * self._modes[:, USER], used * self._modes[:, SYSTEM]], axis=2)
        for n, work in enumerate(self.works):
            if work.task.process.startswith("ksoftirqd/"):
                spent[:, n, 1] += used[:, n] * self._modes[n, SOFTIRQ]
        grown = np.cumsum(spent, axis=0) + self._owed_work
        whole = np.floor(grown)
        before = np.concatenate([np.zeros_like(whole[:1]), whole[:-1]])
        self._owed_work = grown[-1] - whole[-1]
        return (whole - before).astype(np.int64)

    def _samples(
        self,
        begin: int,
        end: int,
        quiet: Floats,
        episodes: list[Episode],
        chance: np.random.Generator,
    ) -> tuple[Floats, npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
        count = (end - begin) * FREQUENCY
        total = quiet.sum(axis=2)
        draw = chance.random((count, self.cores), dtype=np.float32)
        second = np.arange(count) // FREQUENCY
        row, core = np.nonzero(draw < total[second])
        cumulated = np.cumsum(quiet, axis=2)[second[row], core]
        work = (draw[row, core][:, None] >= cumulated).sum(axis=1)
        work = np.minimum(work, len(self.works) - 1).astype(np.uint32)
        # Each core's timer has its own phase.
        phase = chance.random(self.cores) / FREQUENCY
        time = begin + row / FREQUENCY + phase[core]
        # The task that holds a core takes it from all others, also from an earlier holder.
        holder = np.full((count, self.cores), -1, np.int16)
        for episode in episodes:
            grid = begin + np.arange(count) / FREQUENCY + phase[episode.core]
            inside = (grid >= episode.begin) & (grid < episode.end)
            taken = inside & (chance.random(count) < episode.share)
            holder[taken, episode.core] = self.works.index(episode.work)
        kept = holder[row, core] < 0
        held, held_core = np.nonzero(holder >= 0)
        times = np.concatenate([time[kept], begin + held / FREQUENCY + phase[held_core]])
        cores = np.concatenate([core[kept], held_core])
        works = np.concatenate([work[kept], holder[held, held_core]])
        order = np.argsort(times, kind="stable")
        # The timer of a core that was taken away does not fire.
        fires = np.array([work.stacks[0][1][-1][1] not in TAKEN for work in self.works])
        order = order[fires[works[order]]]
        return times[order], cores[order].astype(np.int32), works[order].astype(np.uint32)
