"""Identical training trials, as a hyper-parameter tuner runs them: same seed, data, steps, threads."""

from __future__ import annotations

import importlib.util
import os
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

DUTY = 0.6
STEPS, GPU_STEPS = 20_000, 1_000  # about 2 s of CPU, or of a GPU
STAGGER = 0.25
BACKENDS, ORCHESTRATORS = ("numpy", "torch", "cuda"), ("own", "ray")
NEEDS = {"torch": "torch", "cuda": "torch", "ray": "ray"}
# One thread each: a second one would run on the same pinned core, and the order of sums would change.
# The cuBLAS setting fixes the order of sums on a GPU.
THREADS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")  # fmt: skip
DONE, TRIALS, GPU = 0, 1, 2


class Trials:
    """One slot per core, trial after trial, without checkpoints."""

    name = "trials"
    about = "identical training trials (numpy; --backend torch or cuda; --orchestrator ray), paced on CPU time"
    takes = ("address", "backend", "duty", "hosts", "orchestrator", "steps", "trials")

    def metrics(self, options: load.Options) -> tuple[load.Metric, ...]:
        """CPU time, or GPU time, is held constant; the step rate depends on the processor and has no limit."""
        duty = DUTY if options.duty is None else options.duty
        steps = load.Metric("steps", "/s", str(DONE), gated=False)
        if options.backend == "cuda":
            return (
                load.Metric("gpu", "GPUs", str(GPU), target=duty),
                load.Metric("cpu", "cores", "cpu"),
                steps,
            )
        return (load.Metric("cpu", "cores", "cpu", target=duty * len(options.cores)), steps)

    def prepare(self, options: load.Options, journal: journal.Journal) -> tuple[load.Job, ...]:
        """One process per core; one for a GPU, and one that drives Ray."""
        settings = _settings(options)
        name = options.name or "trial"
        if settings["orchestrator"] == "ray":
            # Short, because a socket path is limited; a signal ends Ray, so it cannot remove the folder itself.
            folder = pathlib.Path(tempfile.gettempdir()) / f"{journal.run}-ray"
            journal.write("folder", folder)
            folder.mkdir(mode=0o700)
            allowed = os.sched_getaffinity(0)
            others = tuple(sorted(allowed - set(options.cores) or allowed))
            settings |= {
                "folder": str(folder),
                "name": options.name,
                "address": options.address or "",
                "hosts": list(options.hosts or ()),
                "cores": [] if options.address else list(options.cores),
            }
            return (load.Job("ray-driver", others, settings, environment=THREADS, tree=True),)
        if settings["backend"] == "cuda":
            # On one core the CPU time varies less (CV 0.4 %) than on four (1.2 %): CUDA's own threads add to it.
            settings |= {"phase": 0.0}
            return (load.Job(name, options.cores[:1], settings, environment=THREADS),)
        total, slots = options.trials, len(options.cores)
        jobs = []
        for n, core in enumerate(options.cores):
            share = None if total is None else total // slots + (n < total % slots)
            if share == 0:
                break
            slot_settings = {**settings, "trials": share, "phase": n / slots}
            wait = min(STAGGER * n, 5 * n / slots)
            job = load.Job(f"{name}-{core}", (core,), slot_settings, environment=THREADS, wait=wait)
            jobs.append(job)
        return tuple(jobs)

    def work(self, link: worker.Link) -> None:
        settings = link.settings
        if settings["orchestrator"] == "ray":
            from overnight.load.workloads import _ray

            _ray.run(link)
            return
        backend, seed = settings["backend"], settings["seed"]
        _training.train(backend, seed, 20, lambda _: None)  # imports, page faults
        done = trials = 0
        gpu_seconds = 0.0
        clock = (lambda: gpu_seconds) if backend == "cuda" else time.process_time
        pacer = controller.Pacer(settings["duty"], phase=settings["phase"], used=clock)

        def after_step(on_gpu: float) -> None:
            nonlocal done, gpu_seconds
            done += 1
            gpu_seconds += on_gpu
            link.count(DONE, done)
            link.count(GPU, gpu_seconds)
            pacer.rest()

        link.ready()
        while settings["trials"] is None or trials < settings["trials"]:
            begin, used = time.monotonic(), time.process_time()
            loss = _training.train(backend, seed, settings["steps"], after_step)
            trials += 1
            link.count(TRIALS, trials)
            spent = {"seconds": time.monotonic() - begin, "cpu": time.process_time() - used}
            link.report({"trial": trials, **spent, "loss": loss})


def _settings(options: load.Options) -> dict[str, object]:
    backend, orchestrator = options.backend or "numpy", options.orchestrator or "own"
    for option, value, known in (
        ("--backend", backend, BACKENDS),
        ("--orchestrator", orchestrator, ORCHESTRATORS),
    ):
        if value not in known:
            raise errors.UsageError(
                f"{option} {value!r} is not supported",
                why=f"supported: {', '.join(known)}",
                todo=f"overnight load trials {option} {known[0]}",
            )
        package = NEEDS.get(value)
        if package and importlib.util.find_spec(package) is None:
            raise errors.MissingToolError(
                f"{package} is not installed",
                why=f"{option} {value} needs it; it is an optional extra because of its size",
                todo=f"pip install 'overnight[{package}]'",
            )
    if orchestrator != "ray" and (options.address or options.hosts):
        raise errors.UsageError(
            "--address and --hosts need --orchestrator ray",
            why="they choose a Ray cluster and its hosts",
            todo="overnight load trials --orchestrator ray --address HOST:6379",
        )
    if options.hosts and not options.address:
        raise errors.UsageError(
            "--hosts needs --address",
            why="without an existing Ray cluster the trial runs on this host",
            todo="overnight load trials --orchestrator ray --address HOST:6379",
        )
    usual = GPU_STEPS if backend == "cuda" else STEPS
    steps = usual if options.steps is None else options.steps
    for option, number in (("--steps", steps), ("--trials", options.trials)):
        if number is not None and number < 1:
            raise errors.UsageError(
                f"{option} must be at least 1 (got {number})",
                why="nothing would be run",
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
