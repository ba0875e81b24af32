"""A stress-ng stressor, pinned and measured like the other workloads."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from overnight import errors, load
from overnight.load import controller

if TYPE_CHECKING:
    from overnight.load import worker
    from overnight.undo import journal


class StressNg:
    """One stress-ng per core, with one instance of the stressor."""

    name = "stress-ng"
    about = "a stress-ng stressor (--stressor cpu, vm, cache …) on each core"
    takes = ("duty", "stressor")

    def metrics(self, options: load.Options) -> tuple[load.Metric, ...]:
        """Measure CPU time of stress-ng and its children; it has a target only with --duty."""
        duty = options.duty if (options.stressor or "cpu") == "cpu" else None
        target = duty * len(options.cores) if duty else None
        return (load.Metric("cpu", "cores", "cpu", target=target),)

    def prepare(self, options: load.Options, journal: journal.Journal) -> tuple[load.Job, ...]:  # noqa: ARG002 - changes nothing
        stressor = options.stressor or "cpu"
        if shutil.which("stress-ng") is None:
            raise errors.MissingToolError(
                "stress-ng is not installed",
                why="this workload runs it",
                todo="sudo apt-get install stress-ng, or use the workload cpu, which needs nothing",
            )
        if stressor not in _known():
            raise errors.UsageError(
                f"stress-ng has no stressor {stressor!r}",
                why="stress-ng --stressors does not list it",
                todo="stress-ng --stressors   lists them",
            )
        words = [f"--{stressor}", "1", "--quiet", "--timeout", "0", "--seed", str(options.seed)]
        if options.duty is not None:
            if stressor != "cpu":
                raise errors.UsageError(
                    f"--duty does not apply to --stressor {stressor}",
                    why="stress-ng limits the load of its cpu stressor only",
                    todo="omit --duty",
                )
            words += ["--cpu-load", f"{100 * controller.check_duty(options.duty):.0f}"]
        name = options.name or "stress-ng"
        return tuple(
            load.Job(f"{name}-{core}", (core,), command=("stress-ng", *words), tree=True)
            for core in options.cores
        )

    def work(self, link: worker.Link) -> None:
        """Never called: the program replaces the worker."""


def _known() -> list[str]:
    command = ["stress-ng", "--stressors"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.split()


WORKLOAD = StressNg()
