"""Record one scene with the real recorder, diagnose its event, and compare the verdict with the scene."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import pathlib
import platform
import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from unittest import mock

from tests.mechanisms import Program, Scene, programs, results

from overnight import errors, load
from overnight.app import bundles, diagnose, rehearsal, rehearsal_host
from overnight.model import cgroups, stop_signals
from overnight.model.selection import Selection, Window
from overnight.queries import consumers
from overnight.rehearsals import cgroups as limits
from overnight.store.ring import reader as rings
from overnight.undo import journal

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.model.verdict import Verdict
    from overnight.queries import case as cases

EVENT = "cpu.core_pinned"
PREFIX = "mechanism."
# Not a tmpfs: its pages cannot be reclaimed, and nothing is written back from it.
FOLDER = pathlib.Path("/var/tmp")
SETTLE_SECONDS = 3.0
EARLY_US = 1_500_000  # the event begins with the reading before the saturated one
PATIENCE = 2.0  # times the duration of the scene, for the event
TOP_FUNCTIONS = 40
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


def play(
    key: results.Key, scene: Scene, options: Options, report: Callable[[str], None]
) -> results.Row:
    """Run one scene, or its look-alike, and undo it; what this host cannot do becomes a row, too."""
    program = scene.lookalike if key.lookalike else scene.program
    host = f"{platform.release()}, {len(os.sched_getaffinity(0))} cores"
    empty = results.Row(**dataclasses.asdict(key), host=host)
    if why := scene.obstacle() or ("" if program else "no program"):
        return dataclasses.replace(empty, why=why)
    assert program is not None
    rehearsal.clean()
    rehearsal_host.check_needs(("root",))
    with (
        stop_signals.interrupt_on_signals(),
        rehearsal_host.alone(),
        journal.Journal(f"mechanism {key.mechanism}") as run_journal,
        mock.patch.dict(os.environ, {journal.MARK: run_journal.run}),
    ):
        try:
            return _Run(key, scene, program, options, run_journal, report).play(empty)
        except (errors.OvernightError, OSError) as error:
            why = (
                f"{error.what}: {error.why}" if isinstance(error, errors.OvernightError) else error
            )
            return dataclasses.replace(empty, why=str(why))


class _Run:
    def __init__(
        self,
        key: results.Key,
        scene: Scene,
        program: Program,
        options: Options,
        run_journal: journal.Journal,
        report: Callable[[str], None],
    ) -> None:
        self._key, self._scene, self._program, self._options = key, scene, program, options
        self._journal, self._report = run_journal, report
        self._chance = random.Random(f"{key.mechanism} {key.lookalike} {key.seed}")
        used = rehearsal_host.measure_busy(1.0)
        allowed = sorted(os.sched_getaffinity(0))
        self._core = options.core
        if self._core is None:
            self._core = min(allowed, key=lambda core: used[core])
        self._others = [core for core in allowed if core != self._core] or allowed
        self._folder = FOLDER / run_journal.run
        self._home = self._folder / "home"

    def play(self, empty: results.Row) -> results.Row:
        self._journal.write("folder", self._folder)
        for folder in ("program", "load", "data", "home"):
            (self._folder / folder).mkdir(parents=True)
        name = programs.draw_name(self._chance, self._program)
        actor = "" if self._key.lookalike else self._scene.actor
        built = programs.build(self._program, self._folder / "program", name, self._key.seed, actor)
        lasting = self._options.lasting
        begun = time.monotonic()
        with contextlib.ExitStack() as stack:
            # The affinity is that of this thread and of what it starts: recorder and load stay off the core.
            stack.enter_context(load.keep_off((self._core,)))
            self._start_load(stack)
            recording = rehearsal_host.Recording(
                self._home,
                self._options.baseline + (1 + PATIENCE) * lasting + 60,
                self._options.recorder,
            )
            stack.callback(recording.stop)
            recording.wait()
            self._report("baseline")
            time.sleep(self._options.baseline)
            busy = rehearsal_host.measure_busy(1.0)[self._core]
            crowd = rehearsal_host.Crowd(self._journal.run)
            self._report("scene")
            with self._started(built) as process:
                began_us = time.time_ns() // 1000
                event = self._wait_for_event(process, began_us)
                ended_us = time.time_ns() // 1000
            time.sleep(SETTLE_SECONDS)
            problems = recording.stop()
            if others := crowd.describe(0.2):
                problems.append(f"other processes: {', '.join(others[:3])}")
        row = dataclasses.replace(
            empty,
            program=name,
            expected=built.actor,
            busy_before=round(busy, 2),
            problems=problems,
            seconds=round(time.monotonic() - begun, 1),
        )
        if event is None:
            return dataclasses.replace(row, why=f"no {EVENT} on core {self._core}")
        self._report("diagnose")
        event = diagnose.choose_event(self._home, event.id)  # it has grown since
        assert event is not None
        verdict, case = diagnose.diagnose_event(self._home, event)
        if self._options.bundles is not None:
            self._options.bundles.mkdir(parents=True, exist_ok=True)
            bundles.create(
                self._home, event, self._options.bundles / f"{self._key.label}.overnight"
            )
        functions = _find_functions(case, Window(began_us, ended_us), event.core) if case else {}
        return compare(row, self._scene, verdict, functions)

    def _start_load(self, stack: contextlib.ExitStack) -> None:
        if not self._key.load:
            return
        name = programs.draw_name(self._chance, LOAD)
        built = programs.build(LOAD, self._folder / "load", name, self._key.load)
        for core in self._others:
            stack.enter_context(_ended(self._start(built, core=core, nice=10)))

    @contextlib.contextmanager
    def _started(self, built: programs.Built) -> Iterator[subprocess.Popen[str]]:
        scene = self._scene
        cgroup = self._create_cgroup(built.name) if scene.has_cgroup else ""
        core = self._others[0] if scene.any_core else self._core
        with _ended(
            self._start(built, core=core, cgroup=cgroup, network=scene.has_network)
        ) as process:
            yield process

    def _start(
        self,
        built: programs.Built,
        *,
        core: int,
        cgroup: str = "",
        network: bool = False,
        nice: int = 0,
    ) -> subprocess.Popen[str]:
        other = self._others[0] if core == self._core else self._core
        return programs.start(
            built,
            (str(self._folder / "data"), str(other), cgroup),
            core=core,
            seconds=self._options.baseline + 10 * self._options.lasting + 60,
            environment=dict(os.environ),
            cgroup=cgroup,
            network=network,
            nice=nice,
        )

    def _create_cgroup(self, name: str) -> str:
        layout = cgroups.read_layout()
        if layout.memory is None:
            raise OSError("no memory cgroups are mounted")
        # Not named after overnight: a cgroup of overnight would be taken for the recorder.
        place = pathlib.Path(layout.memory) / f"{name}-{self._journal.run.rpartition('-')[2]}"
        self._journal.write("cgroup", place)
        place.mkdir()
        scene = self._scene
        limit = scene.lookalike_limit_mib if self._key.lookalike else scene.limit_mib
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
        events = rings.Reader(self._home).events(since_us - EARLY_US, 1 << 62, kinds=[EVENT])
        return [
            event
            for event in events
            if event.time_us >= since_us - EARLY_US
            and (self._scene.any_core or event.core == self._core)
        ]


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    with process:
        try:
            yield process
        finally:
            process.kill()


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
