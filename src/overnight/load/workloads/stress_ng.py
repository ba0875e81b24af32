"""A stressor of stress-ng, pinned and measured as the others are."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from overnight import errors, load
from overnight.load import controller

if TYPE_CHECKING:
    from overnight.load import worker
    from overnight.undo import journal

__all__ = ["WORKLOAD"]

STRESSOR = re.compile("[a-z][a-z0-9-]{0,40}")


class StressNg:
    """One stress-ng a core, with one instance of the stressor."""

    name = "stress-ng"
    about = "a stressor of stress-ng (--stressor cpu, vm, cache …) on each core"
    takes = ("duty", "stressor")

    def metrics(self, options: load.Options) -> tuple[load.Metric, ...]:
        """CPU time of it and its children; how much it will be is stress-ng's own matter."""
        asked = options.duty if (options.stressor or "cpu") == "cpu" else None
        target = asked * len(options.cores) if asked else None
        return (load.Metric("cpu", "cores", "cpu", target=target),)

    def prepare(self, options: load.Options, book: journal.Journal) -> tuple[load.Job, ...]:  # noqa: ARG002 - changes nothing
        """Where it is installed."""
        stressor = options.stressor or "cpu"
        if not STRESSOR.fullmatch(stressor):
            raise errors.UsageError(
                f"{stressor!r} is no stressor",
                why="stressors are named by small letters, digits and -",
                todo="stress-ng --stressors   lists them",
            )
        if shutil.which("stress-ng") is None:
            raise errors.MissingToolError(
                "stress-ng is not installed",
                why="this workload is a wrapper around it",
                todo="sudo apt-get install stress-ng, or take the workload cpu, which needs nothing",
            )
        if stressor not in _known():
            raise errors.UsageError(
                f"stress-ng has no stressor {stressor!r}",
                why="its list does not name it",
                todo="stress-ng --stressors   lists them",
            )
        words = [f"--{stressor}", "1", "--quiet", "--timeout", "0", "--seed", str(options.seed)]
        if options.duty is not None:
            if stressor != "cpu":
                raise errors.UsageError(
                    "--duty is for the stressor cpu alone",
                    why="stress-ng slices no other",
                    todo="leave --duty out",
                )
            words += ["--cpu-load", f"{100 * controller.check_duty(options.duty):.0f}"]
        name = options.name or "stress-ng"
        return tuple(
            load.Job(f"{name}-{core}", (core,), command=("stress-ng", *words), tree=True)
            for core in options.cores
        )

    def work(self, link: worker.Link) -> None:
        """Never: the program runs in the worker's place."""


def _known() -> list[str]:
    asked = ["stress-ng", "--stressors"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.split()


WORKLOAD = StressNg()
