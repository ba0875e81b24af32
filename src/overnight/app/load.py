"""Use cases of `overnight load`: run one load to its verdict, and list the loads that ran."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from overnight import errors
from overnight import load as workload_api
from overnight.app import home as homes
from overnight.load import workloads
from overnight.model import cpu
from overnight.store import loads
from overnight.undo import journal

if TYPE_CHECKING:
    from overnight.load import constancy, measurement, runner
    from overnight.model.load import Load

    Check: TypeAlias = constancy.Check
    Outcome: TypeAlias = runner.Outcome
    Second: TypeAlias = measurement.Second


Options: TypeAlias = workload_api.Options


@dataclasses.dataclass(frozen=True)
class Request:
    workload: str
    options: Options = Options()  # noqa: RUF009 - frozen
    cores: str = ""  # CPU list; empty: all allowed cores but the first
    home: pathlib.Path | None = None  # where the figures are stored
    seconds: float | None = 600.0  # None: until the trials are done, or it is stopped
    warm_up: float = 5.0
    profile: pathlib.Path | None = None  # document of `overnight cpu` that workload replay follows


@dataclasses.dataclass(frozen=True)
class Progress:
    """The latest second, the verdict so far, and the workload's figures, each with name and unit."""

    second: Second
    verdict: constancy.Verdict
    figures: list[str]
    host: str = ""  # of a load over several


@dataclasses.dataclass(frozen=True)
class Listing:
    workloads: dict[str, str]  # name: what it does
    loads: tuple[Load, ...]

    def as_json(self) -> dict[str, object]:
        return {
            "schema": "overnight.loads/1",
            "workloads": [{"name": name, "about": about} for name, about in self.workloads.items()],
            "loads": [past.as_json() for past in self.loads],
        }


def list_loads(home: pathlib.Path) -> Listing:
    known = {workload.name: workload.about for workload in workloads.discover().values()}
    return Listing(known, loads.read_loads(home))


def run(
    request: Request, stop: threading.Event, on_second: Callable[[Progress], None] = lambda _: None
) -> Outcome:
    """Run a load until its end or until `stop` is set; undo first what a killed run left."""
    from overnight.load import cluster, runner  # numpy: listing loads does without it

    plan = _make_plan(request)
    metrics = workloads.find(request.workload).metrics(plan.options)
    if request.home is not None:
        homes.need_writable(request.home)
    _, problems = journal.clean()
    if problems:
        raise errors.CannotError(
            f"cannot undo what an earlier run left: {problems[0]}",
            why="that run was killed, and its changes cannot be removed",
            todo="remove them by hand, then retry",
        )
    with journal.Journal(f"load {request.workload}") as run_journal:

        def show(host: str, second: Second, verdict: constancy.Verdict) -> None:
            on_second(Progress(second, verdict, format_figures(metrics, second), host))

        if plan.options.orchestrator == "ray":
            outcome = cluster.run(
                plan, run_journal, cores=request.cores, home=request.home, stop=stop, on_second=show
            )
        else:
            outcome = runner.run(
                plan,
                run_journal,
                home=request.home,
                stop=stop,
                on_second=functools.partial(show, ""),
            )
    if run_journal.problems:
        raise errors.CannotError(
            f"the load ended, but not everything was undone: {run_journal.problems[0]}",
            why=f"the undo journal {run_journal.path} still lists it",
            todo="`overnight rehearse --clean` retries, and so does the next run",
        )
    return outcome


def _make_plan(request: Request) -> runner.Plan:
    """Choose the cores; a replay takes those of its profile where they exist, and lasts as long."""
    from overnight.load import profile, runner

    options, cores, seconds = request.options, request.cores, request.seconds
    notes: tuple[str, ...] = ()
    if request.profile is not None:
        recorded = profile.read_profile(request.profile)
        if not cores and set(recorded.shares) <= os.sched_getaffinity(0):
            cores = cpu.format_cores(recorded.shares)
        chosen = runner.choose_cores(cores)
        mapping = profile.map_cores(tuple(recorded.shares), chosen)[1]
        notes = (f"profile of {recorded.describe()}", *([mapping] if mapping else []))
        if seconds is not None and seconds > recorded.seconds:
            notes += (f"the profile begins again every {recorded.seconds} s",)
        options = dataclasses.replace(options, profile=recorded)
        seconds = float(recorded.seconds) if seconds is None else seconds
    elif options.orchestrator == "ray" and options.address:
        chosen = ()  # each host chooses its own
    else:
        chosen = runner.choose_cores(cores)
    options = dataclasses.replace(options, cores=chosen)
    return runner.Plan(request.workload, options, seconds, request.warm_up, notes)


def format_figures(metrics: tuple[workload_api.Metric, ...], second: Second) -> list[str]:
    from overnight.load import constancy

    units = {metric.name: metric.unit for metric in metrics}
    return [
        f"{name} {constancy.format_figure(value, units[name])}"
        for name, value in second.values.items()
    ]


def parse_share(option: str, text: str) -> float:
    """Parse a share, as a number or in percent.

    >>> parse_share("--duty", "60%"), parse_share("--duty", "0.6")
    (0.6, 0.6)
    """
    words = text.strip()
    try:
        return float(words.removesuffix("%")) / (100 if words.endswith("%") else 1)
    except ValueError:
        raise errors.UsageError(
            f"{option} {text!r} is not a share",
            why="a share is a number from 0 to 1, or a percentage",
            todo=f"write it like {option} 60% or {option} 0.6",
        ) from None
