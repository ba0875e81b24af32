"""Identical training trials, as a hyper-parameter tuner would run them: same seed, data, steps, threads."""

from __future__ import annotations

import importlib.util
import pathlib
import tempfile
import time
from typing import TYPE_CHECKING

from overnight import errors, load
from overnight.load import controller
from overnight.load.workloads import _training

if TYPE_CHECKING:
    from overnight.load import worker
    from overnight.undo import journal

__all__ = ["WORKLOAD"]

DUTY = 0.6
STEPS = 20_000  # some 2 s of CPU
STAGGER = 0.25
BACKENDS, ORCHESTRATORS = ("numpy", "torch", "cuda"), ("own", "ray")
NEEDS = {"torch": "torch", "cuda": "torch", "ray": "ray"}
# One thread each: a second one would run on the same pinned core, and the order of sums would change.
# The last makes sums on a GPU come in the same order each time.
THREADS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")  # fmt: skip
DONE, TRIALS = 0, 1


class Trials:
    """A slot a core, trial after trial; checkpoints are not written."""

    name = "trials"
    about = "identical training trials (numpy; --backend torch or cuda; --orchestrator ray), paced on CPU time"
    takes = ("backend", "duty", "orchestrator", "steps", "trials")

    def metrics(self, options: load.Options) -> tuple[load.Metric, ...]:
        """CPU time is held; how many steps that gives is the processor's matter, and is told."""
        duty = DUTY if options.duty is None else options.duty
        if options.orchestrator == "ray":  # the tuner's own work comes on top
            return (load.Metric("cpu", "cores", "cpu"),)
        return (
            load.Metric("cpu", "cores", "cpu", target=duty * len(options.cores)),
            load.Metric("steps", "/s", str(DONE), gated=False),
        )

    def prepare(self, options: load.Options, book: journal.Journal) -> tuple[load.Job, ...]:
        """One process a core; with Ray one for all of them."""
        told = _told(options)
        name = options.name or "trial"
        if told["orchestrator"] == "ray":
            # Short, for a socket's path has little room; Ray is ended by a signal, and cannot remove it.
            folder = pathlib.Path(tempfile.gettempdir()) / f"{book.run}-ray"
            book.write("folder", folder)
            folder.mkdir(mode=0o700)
            told = {**told, "folder": str(folder)}
            return (load.Job(name, options.cores, told, environment=THREADS, tree=True),)
        total, slots = options.trials, len(options.cores)
        jobs = []
        for n, core in enumerate(options.cores):
            share = None if total is None else total // slots + (n < total % slots)
            if share == 0:
                break
            mine = {**told, "trials": share, "phase": n / slots}
            wait = min(STAGGER * n, 5 * n / slots)
            job = load.Job(f"{name}-{core}", (core,), mine, environment=THREADS, wait=wait)
            jobs.append(job)
        return tuple(jobs)

    def work(self, link: worker.Link) -> None:
        """Until as many as were asked for are done, or for ever."""
        told = link.told
        if told["orchestrator"] == "ray":
            from overnight.load.workloads import _ray

            _ray.run(link)
            return
        _training.train(told["backend"], told["seed"], 20, lambda: None)  # imports, first touches
        pacer = controller.Pacer(told["duty"], phase=told["phase"])
        done = trials = 0

        def after_step() -> None:
            nonlocal done
            done += 1
            link.count(DONE, done)
            pacer.rest()

        link.ready()
        while told["trials"] is None or trials < told["trials"]:
            begin, used = time.monotonic(), time.process_time()
            loss = _training.train(told["backend"], told["seed"], told["steps"], after_step)
            trials += 1
            link.count(TRIALS, trials)
            spent = {"seconds": time.monotonic() - begin, "cpu": time.process_time() - used}
            link.say({"trial": trials, **spent, "loss": loss})


def _told(options: load.Options) -> dict[str, object]:
    backend, orchestrator = options.backend or "numpy", options.orchestrator or "own"
    for option, value, known in (
        ("--backend", backend, BACKENDS),
        ("--orchestrator", orchestrator, ORCHESTRATORS),
    ):
        if value not in known:
            raise errors.UsageError(
                f"{option} {value} is not known",
                why=f"there are {', '.join(known)}",
                todo=f"overnight load trials {option} {known[0]}",
            )
        package = NEEDS.get(value)
        if package and importlib.util.find_spec(package) is None:
            raise errors.MissingToolError(
                f"{package} is not installed",
                why=f"{option} {value} needs it, and it is large, so it comes as an extra",
                todo=f"pip install 'overnight[{package}]'",
            )
    steps = STEPS if options.steps is None else options.steps
    if steps < 1 or (options.trials is not None and options.trials < 1):
        raise errors.UsageError(
            "no trial of no steps",
            why="a trial has at least one step, and at least one trial is run",
            todo="overnight load trials --trials 100 --steps 20000",
        )
    return {
        "backend": backend,
        "orchestrator": orchestrator,
        "seed": options.seed,
        "steps": steps,
        "trials": options.trials,
        "duty": controller.check_duty(DUTY if options.duty is None else options.duty),
    }


WORKLOAD = Trials()
