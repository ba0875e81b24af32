"""Record scenes with the real recorder, diagnose their events, and compare each verdict with its scene.

Several runs share a recording: the quiet time between two is the baseline of the second. All use the same core. A
run is diagnosed on its own part of the recording (`cut`): the verdict is that of a recording that began with its
baseline, and earlier runs are not recurrences of its event.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import multiprocessing
import os
import pathlib
import platform
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import TYPE_CHECKING
from unittest import mock

from tests import mechanisms
from tests.mechanisms import Program, Scene, cut, programs, results

from overnight import errors, load
from overnight.app import bundles, diagnose, rehearsal, rehearsal_host
from overnight.model import cgroups, stop_signals
from overnight.model.selection import Selection, Window
from overnight.model.times import SECOND_US
from overnight.queries import consumers
from overnight.rehearsals import cgroups as limits
from overnight.store import segments
from overnight.store.ring import reader as rings
from overnight.undo import journal, operations

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.model.verdict import Verdict
    from overnight.queries import case as cases

CORES = len(os.sched_getaffinity(0))
EVENT = "cpu.core_pinned"
PREFIX = "mechanism."
# Not a tmpfs: its pages cannot be reclaimed, and nothing is written back from it.
FOLDER = pathlib.Path("/var/tmp")
SETTLE_SECONDS = 3.0
EARLY_US = 1_500_000  # the event begins with the reading before the saturated one
PATIENCE = 2.0  # times the duration of the scene, for the event
TOP_FUNCTIONS = 40
MAX_WORKERS = 8  # each diagnosis needs a few hundred MB
# Works and sleeps alternately, on each of the other cores.
LOAD = Program(
    """
import hashlib, os, sys, time
data = os.urandom(1 << 16)
while True:
    end = time.thread_time() + 0.02 * SEED / 100
    while time.thread_time() < end:
        hashlib.md5(data)
        os.stat("/")
    time.sleep(0.02 * (100 - SEED) / 100)
""",
    "python",
)


@dataclasses.dataclass(frozen=True)
class Options:
    baseline: float = 30.0
    lasting: float = 20.0
    recorder: str = "auto"
    core: int | None = None
    bundles: pathlib.Path | None = None
    until: float | None = None  # monotonic clock: no run begins that would end later
    commit: str = ""

    @property
    def shortest(self) -> float:
        return self.baseline + self.lasting + SETTLE_SECONDS

    def has_time(self) -> bool:
        """Return whether one more run would end in time."""
        return self.until is None or time.monotonic() + self.shortest < self.until


@dataclasses.dataclass(frozen=True)
class Recorded:
    """One run in a recording with its event. `visible`: what its diagnosis may see of the recording."""

    row: results.Row
    event: Event
    visible: Window
    active: Window  # while its program ran


def play(
    keys: Sequence[results.Key],
    scenes: Mapping[str, Scene],
    options: Options,
    report: Callable[[str], None],
) -> Iterator[results.Row]:
    """Run scenes and look-alikes in one recording, diagnose each on its own, and undo them.

    All have the same load. What this host cannot do becomes a row, too. A run has no row if it would end
    too late.
    """
    possible = []
    for key in keys:
        scene = scenes[key.mechanism]
        program = scene.lookalike if key.lookalike else scene.program
        why = scene.obstacle() or ("" if program else "no program")
        if why:
            yield dataclasses.replace(_empty(key, options), why=why)
        elif program is not None:
            possible.append((key, scene, program))
    if not possible or not options.has_time():
        return
    rehearsal.clean()
    rehearsal_host.check_needs(("root",))
    with (
        stop_signals.interrupt_on_signals(),
        rehearsal_host.alone(),
        journal.Journal("mechanisms") as run_journal,
        mock.patch.dict(os.environ, {journal.MARK: run_journal.run}),
    ):
        session = _Session(possible[0][0].load, options, run_journal, report)
        rows, recorded = session.record(possible)
        yield from rows
        report(f"diagnose {len(recorded)}")
        yield from _judge_all(session.home, recorded, options.bundles)


def _empty(key: results.Key, options: Options) -> results.Row:
    host = f"{platform.release()}, {CORES} cores"
    fields = dataclasses.asdict(key)
    return results.Row(**fields, host=host, cores=CORES, commit=options.commit)


class _Session:
    """Runs that share core, load and recorder."""

    def __init__(
        self,
        load_percent: int,
        options: Options,
        run_journal: journal.Journal,
        report: Callable[[str], None],
    ) -> None:
        self._load, self._options = load_percent, options
        self._journal, self._report = run_journal, report
        used = rehearsal_host.measure_busy(1.0)
        allowed = sorted(os.sched_getaffinity(0))
        least = min(allowed, key=lambda core: used[core])
        self._core = least if options.core is None else options.core
        self._others = [core for core in allowed if core != self._core] or allowed
        self._folder = FOLDER / run_journal.run
        self.home = self._folder / "home"
        self._quiet_us = 0  # since when the last run has left no trace

    def record(
        self, runs: Sequence[tuple[results.Key, Scene, Program]]
    ) -> tuple[list[results.Row], list[Recorded]]:
        """Return the rows of runs without an event, and the runs to diagnose."""
        self._journal.write("folder", self._folder)
        self.home.mkdir(parents=True)
        rows, built = [], []
        recorded: list[Recorded] = []
        # Before the recording: the compiler is not part of a baseline.
        for key, scene, program in runs:
            try:
                built.append((key, scene, self._build(key, scene, program)))
            except errors.CannotError as error:
                why = f"{error.what}: {error.why}"
                rows.append(dataclasses.replace(_empty(key, self._options), why=why))
        patience = PATIENCE * self._options.lasting + 30
        longest = 60 + len(built) * (self._options.shortest + patience)
        with contextlib.ExitStack() as stack:
            # The affinity is that of this thread and of what it starts: recorder and load stay off the core.
            stack.enter_context(load.keep_off((self._core,)))
            self._start_load(stack, longest)
            recording = rehearsal_host.Recording(self.home, longest, self._options.recorder)
            stack.callback(recording.stop)
            recording.wait()
            for run in built:
                if not self._options.has_time():
                    break
                result = self._run(*run)
                if isinstance(result, Recorded):
                    recorded.append(result)
                else:
                    rows.append(result)
            time.sleep(SETTLE_SECONDS)
            problems = recording.stop()
        for finished in (*rows, *(run.row for run in recorded)):
            finished.problems.extend(problems)
        return rows, recorded

    def _build(self, key: results.Key, scene: Scene, program: Program) -> programs.Built:
        chance = random.Random(f"{key.mechanism} {key.lookalike} {key.seed}")
        folder = self._folder / key.label
        folder.mkdir()
        name, actor = programs.draw_name(chance, program), "" if key.lookalike else scene.actor
        return programs.build(program, folder, name, key.seed, actor)

    def _run(self, key: results.Key, scene: Scene, built: programs.Built) -> Recorded | results.Row:
        """Let a quiet time pass, which is the baseline, run the program, and remove all it made."""
        self._report(f"{key.label}: baseline")
        begun = time.monotonic()
        time.sleep(max(0.0, self._options.baseline - 1.0))
        busy = rehearsal_host.measure_busy(1.0)[self._core]
        crowd = rehearsal_host.Crowd(self._journal.run)
        event, cgroup = None, ""
        data = self._folder / f"{key.label}-data"
        began_us = time.time_ns() // 1000
        self._report(f"{key.label}: scene")
        try:
            data.mkdir()
            cgroup = self._create_cgroup(key, scene, built.name) if scene.has_cgroup else ""
            process = self._start(built, data, self._core, cgroup=cgroup, network=scene.has_network)
            with _ended(process):
                event = self._wait_for_event(process, began_us)
            why = "" if event else f"no {EVENT} on core {self._core}"
        except OSError as error:
            why = str(error)
        ended_us = time.time_ns() // 1000
        others = crowd.describe(0.2)
        # The next baseline begins without the files, their page cache, and the cgroup of this run.
        with contextlib.suppress(OSError):
            if cgroup:
                operations.UNDO["cgroup"](cgroup)
            operations.UNDO["folder"](str(data))
        since_us, self._quiet_us = self._quiet_us, time.time_ns() // 1000
        row = dataclasses.replace(
            _empty(key, self._options),
            why=why,
            program=built.name,
            expected=built.actor,
            busy_before=round(busy, 2),
            problems=[f"other processes: {', '.join(others[:3])}"] if others else [],
            seconds=round(time.monotonic() - begun, 1),
        )
        if event is None:
            return row
        visible = Window(since_us, ended_us + round(SETTLE_SECONDS * SECOND_US))
        return Recorded(row, event, visible, Window(began_us, ended_us))

    def _start_load(self, stack: contextlib.ExitStack, seconds: float) -> None:
        if not self._load:
            return
        folder = self._folder / "load"
        folder.mkdir()
        name = programs.draw_name(random.Random(f"load {self._load}"), LOAD)
        built = programs.build(LOAD, folder, name, self._load)
        for core in self._others:
            process = self._start(built, folder, core, seconds=seconds, nice=10)
            stack.enter_context(_ended(process))

    def _start(
        self,
        built: programs.Built,
        data: pathlib.Path,
        core: int,
        *,
        seconds: float | None = None,
        cgroup: str = "",
        network: bool = False,
        nice: int = 0,
    ) -> subprocess.Popen[str]:
        other = self._others[0] if core == self._core else self._core
        return programs.start(
            built,
            (str(data), str(other), cgroup),
            core=core,
            seconds=seconds or 10 * self._options.lasting + 60,
            environment=dict(os.environ),
            cgroup=cgroup,
            network=network,
            nice=nice,
        )

    def _create_cgroup(self, key: results.Key, scene: Scene, name: str) -> str:
        layout = cgroups.read_layout()
        if layout.memory is None:
            raise OSError("no memory cgroups are mounted")
        # Not named after overnight: a cgroup of overnight would be taken for the recorder.
        place = pathlib.Path(layout.memory) / f"{name}-{self._journal.run.rpartition('-')[2]}"
        self._journal.write("cgroup", place)
        place.mkdir()
        limit = scene.lookalike_limit_mib if key.lookalike else scene.limit_mib
        if limit:
            (place / limits.LIMIT[layout.memory_version]).write_text(str(limit << 20))
        return str(place)

    def _wait_for_event(self, process: subprocess.Popen[str], since_us: int) -> Event | None:
        """Return the event of the scene's core once the scene has lasted; None where there is none."""
        begin, found = time.monotonic(), None
        while (past := time.monotonic() - begin) < self._options.lasting * (
            1 if found else PATIENCE
        ):
            if process.poll() is not None:
                assert process.stderr is not None
                last = (process.stderr.read().strip().splitlines() or [""])[-1]
                raise OSError(f"the program ended after {past:.0f} s: {last[:200]}")
            time.sleep(0.25)
            found = next(iter(self._events(since_us)), None)
        return found

    def _events(self, since_us: int) -> list[Event]:
        """Return the events that began with the scene; a core that was busy before has another cause."""
        since_us -= EARLY_US
        events = rings.Reader(self.home).events(since_us, 1 << 62, kinds=[EVENT])
        return [event for event in events if event.time_us >= since_us and event.core == self._core]


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its children, too


def _judge_all(
    home: pathlib.Path, recorded: Sequence[Recorded], folder: pathlib.Path | None
) -> Iterator[results.Row]:
    """Diagnose all runs, on a large host several at a time: nothing records any more."""
    workers = min(len(recorded), CORES // 2, MAX_WORKERS)
    if workers < 2:
        yield from (judge(home, run, folder) for run in recorded)
        return
    with futures.ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        tasks = [pool.submit(judge, home, run, folder) for run in recorded]
        yield from (task.result() for task in futures.as_completed(tasks))


def judge(home: pathlib.Path, run: Recorded, folder: pathlib.Path | None) -> results.Row:
    """Diagnose one run on its part of the recording."""
    visible = cut.align(segments.Catalogue(home), run.visible)
    with cut.cut_evidence(visible):
        event = diagnose.choose_event(home, run.event.id)  # it has grown since
        assert event is not None
        verdict, case = diagnose.diagnose_event(home, event)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            bundles.create(home, event, folder / f"{run.row.key.label}.overnight")
        functions = _find_functions(case, run.active, event.core) if case else {}
    return compare(run.row, mechanisms.discover()[run.row.mechanism], verdict, functions)


def _find_functions(case: cases.Case, window: Window, core: int) -> dict[str, float]:
    """Return the functions on the core's stacks, with their share of its samples."""
    on_core = Selection(cores=(core,))
    tally = consumers.count_functions(case.profiles, case.host, (window,), on_core)
    shares: collections.Counter[str] = collections.Counter()
    for item, (samples,) in zip(tally.items, tally.counts.tolist(), strict=True):
        if item.function:
            shares[item.function] += samples
    whole = max(1, int(tally.samples[0]))
    return {name: round(samples / whole, 3) for name, samples in shares.most_common(TOP_FUNCTIONS)}


def compare(
    row: results.Row, scene: Scene, verdict: Verdict, functions: dict[str, float]
) -> results.Row:
    """Fill in what the verdict states about actor and mechanism, and whether it is right."""
    chain = verdict.blamed or verdict.chain
    steps = chain.steps[:-1] if chain else ()  # the last step is the event
    actors = list(dict.fromkeys(step.subject.process for step in steps if step.subject.process))
    kinds = [step.kind for step in steps]
    stated = [kind for kind in kinds if kind.startswith(PREFIX) or kind in scene.kinds]
    is_stated = any(kind == f"{PREFIX}{scene.name}" or kind in scene.kinds for kind in stated)
    return dataclasses.replace(
        row,
        event=True,
        actor=actors[0] if actors else "",
        # One wrong name beside the right one is wrong, too.
        actor_right=all(re.fullmatch(row.expected, actor) for actor in actors)
        and bool(actors or re.fullmatch(row.expected, "")),
        mechanism_found=stated[0].removeprefix(PREFIX) if stated else "",
        mechanism_right=is_stated != row.lookalike,
        chain=kinds,
        status=str(verdict.status),
        score=round(verdict.score, 3),
        confidence=round(verdict.confidence, 3),
        headline=verdict.narrative.headline,
        gaps={str(gap.kind): gap.factor for gap in verdict.gaps},
        functions=functions,
    )
