"""Runs a load: starts its workers, measures every second, judges, writes it down, and ends it.

`run` blocks; `background` does the same beside the caller, as rehearsals need it::

    with ledger.Ledger("a rehearsal") as book, runner.background(plan, book, home=home) as load:
        ...
    load.outcome.verdict.status
"""

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
from typing import TYPE_CHECKING, Any

from overnight import errors, load
from overnight.load import constancy, measurement, processes, workloads
from overnight.sources import cpu
from overnight.store import loads

if TYPE_CHECKING:
    from overnight.undo import journal

__all__ = ["Beside", "Outcome", "Plan", "background", "choose_cores", "run"]

WARM_UP = 5.0
EVERY_SECOND = 600  # so many seconds are judged each second; later every tenth
VERDICT_EVERY = 10

CORES = re.compile(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*")

OnSecond = Callable[[measurement.Second, constancy.Verdict], None]


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which load, for how long; None: until its work is done, or it is stopped."""

    workload: str
    options: load.Options
    seconds: float | None = 600.0
    warm_up: float = WARM_UP
    limits: constancy.Limits = dataclasses.field(default_factory=constancy.Limits)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a load went."""

    id: str
    workload: str
    host: str
    cores: tuple[int, ...]
    began_us: int
    ended_us: int
    ended_by: str  # time, work, stop or death
    trials: int
    loss: float | None  # of every trial, where they were identical
    verdict: constancy.Verdict
    path: pathlib.Path | None

    def as_json(self) -> dict[str, object]:
        """The stable form; docs/schemas/load-1.json describes it."""
        return {
            "schema": "overnight.load/1",
            "id": self.id,
            "workload": self.workload,
            "host": self.host,
            "cores": list(self.cores),
            "began_us": self.began_us,
            "ended_us": self.ended_us,
            "ended_by": self.ended_by,
            "trials": self.trials,
            "loss": self.loss,
            "verdict": self.verdict.as_json(),
            "file": None if self.path is None else str(self.path),
        }


def choose_cores(text: str = "") -> tuple[int, ...]:
    """Cores as the kernel writes them; all but the first that we may use, where nothing is said.

    The first is left for interrupts, the recorder and whoever measures.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if not text:
        return tuple(allowed[1:] or allowed)
    # The kernel's own lists are taken as they come; an open end, as in `2-`, is somebody's slip.
    asked = tuple(sorted(set(cpu.parse_cpu_list(text)))) if CORES.fullmatch(text) else ()
    if not asked or not set(asked) <= set(allowed):
        raise errors.UsageError(
            f"{text!r} are no cores of ours",
            why=f"we may run on {', '.join(map(str, allowed))}",
            todo="write them like --cores 1-3 or 0,2",
        )
    return asked


def check_options(workload: load.Workload, options: load.Options) -> None:
    """That nothing is asked for which the workload does not take; raises UsageError."""
    common = ("cores", "name", "seed")
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        given = value is not None and value is not False  # 0 is given, too
        if given and field.name not in (*common, *workload.takes):
            takes = ", ".join(f"--{name}" for name in workload.takes)
            raise errors.UsageError(
                f"{workload.name} takes no --{field.name}",
                why=f"it takes {takes}",
                todo="leave it out",
            )


def run(
    plan: Plan,
    book: journal.Journal,
    *,
    home: pathlib.Path | None = None,
    host: str = "",
    stop: threading.Event | None = None,
    on_ready: Callable[[], None] = lambda: None,
    on_second: OnSecond = lambda _second, _verdict: None,
) -> Outcome:
    """Until its time is over, its work is done, or `stop` is set. Raises CannotError, UsageError.

    With a `home` it is stored there, and a diagnosis of the same time takes it into account. No process
    is left when it returns; after kill -9 they die with this one.
    """
    workload = workloads.find(plan.workload)
    check_options(workload, plan.options)
    if plan.seconds is not None and plan.seconds <= 0:
        raise errors.UsageError(
            "a load of no time is none",
            why="nothing would be measured",
            todo="write it like --for 10m",
        )
    stop = stop or threading.Event()
    host = host or platform.node() or "host"
    metrics = workload.metrics(plan.options)
    with _aside(plan.options.cores):
        jobs = workload.prepare(plan.options, book)
        running = processes.Workers(_module(workload), jobs, book)
        file = None
        try:
            running.wait_ready(stop)
            began = time.time_ns() // 1000
            meter = measurement.Meter(running, metrics, plan.options.cores)
            if home is not None:
                file = loads.Book(home, host, workload.name, plan.options.cores, began, _said(plan))
            on_ready()
            loop = _Loop(plan, running, meter, metrics, file, on_second)
            ended_by = loop.go(stop)
            verdict = loop.judge()
            ended = time.time_ns() // 1000
            if file is not None:
                file.verdict(ended, verdict.as_json(), ended=True)
        finally:
            running.end()
            if file is not None:
                file.close()
    losses = {one.loss for one in running.trials}
    return Outcome(
        id=file.id if file else "",
        workload=workload.name,
        host=host,
        cores=plan.options.cores,
        began_us=began,
        ended_us=ended,
        ended_by=ended_by,
        trials=len(running.trials),
        loss=losses.pop() if len(losses) == 1 else None,
        verdict=verdict,
        path=file.path if file else None,
    )


class Beside:
    """A load that runs beside the caller; `outcome` is there when the block is left."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.ready = threading.Event()
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.latest: tuple[measurement.Second, constancy.Verdict] | None = None


@contextlib.contextmanager
def background(
    plan: Plan, book: journal.Journal, *, home: pathlib.Path | None = None, host: str = ""
) -> Iterator[Beside]:
    """The load is ready when the block is entered, and ended when it is left."""
    beside = Beside()

    def work() -> None:
        try:
            beside.outcome = run(
                plan, book, home=home, host=host, stop=beside.stop,
                on_ready=beside.ready.set, on_second=lambda *latest: setattr(beside, "latest", latest),
            )  # fmt: skip
        except BaseException as error:  # told to the caller, whatever it is
            beside.error = error
        finally:
            beside.ready.set()

    thread = threading.Thread(target=work, name="load", daemon=True)
    thread.start()
    beside.ready.wait()
    try:
        if beside.error is not None:
            raise beside.error
        yield beside
    finally:
        beside.stop.set()
        thread.join()


class _Loop:
    """The seconds of one run."""

    def __init__(
        self,
        plan: Plan,
        running: processes.Workers,
        meter: measurement.Meter,
        metrics: tuple[load.Metric, ...],
        file: loads.Book | None,
        on_second: OnSecond,
    ) -> None:
        self._plan, self._running, self._meter = plan, running, meter
        self._metrics, self._file, self._on_second = metrics, file, on_second
        self._kept: list[measurement.Second] = []
        self._cold_trials = 0  # of the warm-up
        self._deaths: tuple[str, ...] = ()

    def go(self, stop: threading.Event) -> str:
        begin = due = time.monotonic()
        limit = float("inf") if self._plan.seconds is None else self._plan.seconds
        verdict = self.judge()
        number = 0
        while True:
            # Where a look came late, the next is due a second after it was, not at once.
            due = max(due + 1.0, time.monotonic())
            if stop.wait(max(min(due, begin + limit) - time.monotonic(), 0)):
                return "stop"
            over = time.monotonic() - begin >= limit
            if over and time.monotonic() < due - 0.5:
                return "time"  # less than half a second is no window
            self._running.listen()
            self._deaths = self._running.deaths()
            done = self._running.is_done()
            warm = time.monotonic() - begin > self._plan.warm_up
            if not warm:
                self._cold_trials = len(self._running.trials)
            if done:  # its last second was not a whole one
                return "death" if self._deaths else "work"
            second = self._meter.second(warm=warm)
            if warm:
                self._kept.append(second)
            number += 1
            if len(self._kept) <= EVERY_SECOND or number % VERDICT_EVERY == 0:
                verdict = self.judge()
            self._write(second, verdict, number)
            self._on_second(second, verdict)
            if self._deaths:
                return "death"
            if over:
                return "time"

    def judge(self) -> constancy.Verdict:
        kept = self._kept
        trials = self._running.trials
        # The first trials began in the warm-up, one for each worker.
        warm = trials[max(self._cold_trials, 0) + len(self._running.jobs) :]
        seconds = constancy.Seconds(
            at=[one.at for one in kept],
            series=[
                constancy.Series(
                    one.name, one.unit, [second.values[one.name] for second in kept],
                    gated=one.gated, target=one.target,
                )
                for one in self._metrics
            ],
            sys={core: [one.sys[core] for one in kept] for core in (kept[0].sys if kept else ())
                 if all(core in one.sys for one in kept)},
            steal=[one.steal for one in kept],
            waits=[one.waits for one in kept],
            pressure={name: [one.pressure.get(name, 0.0) for one in kept]
                      for name in (kept[0].pressure if kept else ())},
            trials=[one.seconds for one in warm],
            losses=[one.loss for one in trials],
            deaths=self._deaths,
        )  # fmt: skip
        return constancy.judge(seconds, self._plan.limits)

    def _write(self, second: measurement.Second, verdict: constancy.Verdict, number: int) -> None:
        if self._file is None:
            return
        self._file.second(second.as_json())
        if number % VERDICT_EVERY == 0:
            self._file.verdict(second.us, verdict.as_json())


def _module(workload: load.Workload) -> str:
    return type(workload).__module__.rpartition(".")[2]


def _said(plan: Plan) -> dict[str, Any]:
    asked = {
        name: value
        for name, value in dataclasses.asdict(plan.options).items()
        if value not in (None, "", False) and name != "cores"
    }
    return {**asked, "seconds": plan.seconds, "warm_up": plan.warm_up}


@contextlib.contextmanager
def _aside(cores: tuple[int, ...]) -> Iterator[None]:
    """Our thread on other cores than the load's, where there are any: who measures must not disturb."""
    before = os.sched_getaffinity(0)
    spare = before - set(cores)
    if spare:
        os.sched_setaffinity(0, spare)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
