"""Run a load: start its workers, measure every second, judge, store, and end it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import platform
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import TYPE_CHECKING, Any

from overnight import errors, load, sources
from overnight.load import constancy, measurement, processes, workloads
from overnight.model import times
from overnight.store import loads

if TYPE_CHECKING:
    from overnight.undo import journal

WARM_UP = 5.0
EVERY_SECOND = 600  # up to this length the load is judged every second; later every tenth
VERDICT_EVERY = 10

CORES = re.compile(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*")

OnSecond = Callable[[measurement.Second, constancy.Verdict], None]


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which load, and for how long; `seconds` None: until its work is done or it is stopped."""

    workload: str
    options: load.Options
    seconds: float | None = 600.0
    warm_up: float = WARM_UP
    notes: tuple[str, ...] = ()  # shown with the figures


@dataclasses.dataclass(frozen=True)
class Outcome:
    id: str
    workload: str
    host: str
    cores: tuple[int, ...]
    began_us: int
    ended_us: int
    ended_by: str  # time, work, stop or death
    trials: int
    loss: float | None  # of every trial; None where they differ
    verdict: constancy.Verdict
    path: pathlib.Path | None
    hosts: tuple[Outcome, ...] = ()  # of a load over several

    def as_json(self) -> dict[str, object]:
        """Schema docs/schemas/load-1.json."""
        values = vars(self).copy()
        del values["path"]
        return {
            "schema": "overnight.load/1",
            **values,
            "cores": list(self.cores),
            "verdict": self.verdict.as_json(),
            "file": None if self.path is None else str(self.path),
            "hosts": [each.as_json() for each in self.hosts],
        }


def choose_cores(text: str = "") -> tuple[int, ...]:
    """Parse a kernel CPU list; by default all allowed cores but the first, left to interrupts and the recorder."""
    allowed = sorted(os.sched_getaffinity(0))
    if not text:
        return tuple(allowed[1:] or allowed)
    # The kernel's parser accepts an open end, as in `2-`; here that is a typing error.
    chosen = tuple(sorted(set(sources.parse_cpu_list(text)))) if CORES.fullmatch(text) else ()
    if not chosen or not set(chosen) <= set(allowed):
        raise errors.UsageError(
            f"--cores {text!r} does not name cores available to this process",
            why=f"available cores: {', '.join(map(str, allowed))}",
            todo="write them like --cores 1-3 or 0,2",
        )
    return chosen


def check_options(workload: load.Workload, options: load.Options) -> None:
    """Raise UsageError for an option that the workload does not take."""
    common = ("cores", "name", "seed")
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        given = value is not None and value is not False  # 0 counts as given
        if given and field.name not in (*common, *workload.takes):
            takes = ", ".join(f"--{name}" for name in workload.takes)
            raise errors.UsageError(
                f"workload {workload.name} does not take --{field.name}",
                why=f"it takes {takes}",
                todo=f"omit --{field.name}",
            )


def check_seconds(seconds: float | None) -> None:
    if seconds is not None and seconds <= 0:
        raise errors.UsageError(
            f"--for must be greater than 0 (got {seconds:g}s)",
            why="nothing would be measured",
            todo="write it like --for 10m",
        )


def run(
    plan: Plan,
    journal: journal.Journal,
    *,
    home: pathlib.Path | None = None,
    host: str = "",
    stop: threading.Event | None = None,
    on_ready: Callable[[], None] = lambda: None,
    on_second: OnSecond = lambda _second, _verdict: None,
) -> Outcome:
    """Run until the time is over, the work is done, or `stop` is set. Raises CannotError, UsageError.

    With a `home` it is stored there, and a diagnosis of the same time uses it. No process is left when this
    returns; after kill -9 the workers die with this process.
    """
    workload = workloads.find(plan.workload)
    check_options(workload, plan.options)
    check_seconds(plan.seconds)
    stop = stop or threading.Event()
    host = host or platform.node() or "host"
    metrics = workload.metrics(plan.options)
    # This thread keeps off the load's cores: measuring must not disturb it.
    with load.keep_off(plan.options.cores), contextlib.ExitStack() as stack:
        jobs = workload.prepare(plan.options, journal)
        module = type(workload).__module__.rpartition(".")[2]
        running = processes.Workers(module, jobs, journal)
        cores = tuple(sorted({core for job in jobs for core in job.cores}))  # of those asked for
        stack.callback(running.end)
        file = None
        running.wait_ready(stop)
        began = times.now_us()
        meter = measurement.Meter(running, metrics, cores)
        if home is not None:
            pids = [pid for _, pid in running.all_pids()]
            file = loads.LoadWriter(home, host, workload.name, cores, began, as_options(plan), pids)
            stack.callback(file.close)
        on_ready()
        loop = _Loop(plan, running, meter, metrics, file, on_second)
        ended_by = loop.go(stop)
        verdict = loop.judge()
        ended = times.now_us()
        if file is not None:
            file.verdict(ended, verdict.as_json(), ended=True)
    losses = {trial.loss for trial in running.trials}
    return Outcome(
        id=file.id if file else "",
        workload=workload.name,
        host=host,
        cores=cores,
        began_us=began,
        ended_us=ended,
        ended_by=ended_by,
        trials=len(running.trials),
        loss=losses.pop() if len(losses) == 1 else None,
        verdict=verdict,
        path=file.path if file else None,
    )


@dataclasses.dataclass
class BackgroundLoad:
    """A load in a thread; `outcome` is set when the block is left."""

    latest: tuple[measurement.Second, constancy.Verdict] | None = None
    outcome: Outcome | None = None


@contextlib.contextmanager
def background(
    plan: Plan, journal: journal.Journal, *, home: pathlib.Path | None = None, host: str = ""
) -> Iterator[BackgroundLoad]:
    """Run a load while the block runs: ready when it is entered, ended when it is left."""
    running = BackgroundLoad()
    stop, ready = threading.Event(), threading.Event()
    with futures.ThreadPoolExecutor(1, "load") as threads:
        future = threads.submit(
            run, plan, journal, home=home, host=host, stop=stop, on_ready=ready.set,
            on_second=lambda *latest: setattr(running, "latest", latest),
        )  # fmt: skip
        future.add_done_callback(lambda _: ready.set())
        try:
            ready.wait()
            if future.done():
                future.result()
            yield running
        finally:
            stop.set()
    running.outcome = future.result()


@dataclasses.dataclass
class _Loop:
    _plan: Plan
    _running: processes.Workers
    _meter: measurement.Meter
    _metrics: tuple[load.Metric, ...]
    _file: loads.LoadWriter | None
    _on_second: OnSecond
    _kept: list[measurement.Second] = dataclasses.field(default_factory=list)
    _cold_trials: int = 0  # completed in the warm-up
    _deaths: tuple[str, ...] = ()

    def go(self, stop: threading.Event) -> str:
        begin = due = time.monotonic()
        limit = float("inf") if self._plan.seconds is None else self._plan.seconds
        verdict = self.judge()
        number = 0
        while True:
            # After a late measurement the next is due a second later, not at once.
            due = max(due + 1.0, time.monotonic())
            if stop.wait(max(min(due, begin + limit) - time.monotonic(), 0)):
                return "stop"
            over = time.monotonic() - begin >= limit
            if over and time.monotonic() < due - 0.5:
                return "time"  # less than half a second is too short to measure
            self._running.read_reports()
            self._deaths = self._running.deaths()
            done = self._running.is_done()
            warm = time.monotonic() - begin > self._plan.warm_up
            if not warm:
                self._cold_trials = len(self._running.trials)
            if done:  # its last second is incomplete
                return "death" if self._deaths else "work"
            second = self._meter.second(warm=warm)
            if warm:
                self._kept.append(second)
            number += 1
            if len(self._kept) <= EVERY_SECOND or number % VERDICT_EVERY == 0:
                verdict = self.judge()
            if self._file is not None:
                self._file.second(second.as_json())
                self._file.add_workers(pid for _, pid in self._running.all_pids())
                if number % VERDICT_EVERY == 0:
                    self._file.verdict(second.us, verdict.as_json())
            self._on_second(second, verdict)
            if self._deaths:
                return "death"
            if over:
                return "time"

    def judge(self) -> constancy.Verdict:
        trials = self._running.trials
        # One trial per worker began in the warm-up.
        warm = trials[self._cold_trials + len(self._running.jobs) :]
        verdict = constancy.judge(
            self._kept,
            self._metrics,
            trials=[trial.seconds for trial in warm],
            losses=[trial.loss for trial in trials],
            deaths=self._deaths,
        )
        figures = (*verdict.figures, *self._plan.notes)
        return dataclasses.replace(verdict, figures=figures)


def as_options(plan: Plan) -> dict[str, Any]:
    """Return the options that were given, as they are stored."""
    given = {
        name: value
        for name, value in vars(plan.options).items()
        if value not in (None, "", False) and name not in ("cores", "profile")
    }
    if plan.options.profile is not None:
        given["profile"] = plan.options.profile.describe()
    return {**given, "seconds": plan.seconds, "warm_up": plan.warm_up}
