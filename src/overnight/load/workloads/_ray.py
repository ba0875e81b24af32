"""The trials, run by Ray Tune: one driver, and Ray's own processes on the same cores."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time
from typing import TYPE_CHECKING, Any

from overnight.load import controller
from overnight.load.workloads import _training

if TYPE_CHECKING:
    from overnight.load import worker

__all__ = ["run"]


def run(link: worker.Link) -> None:
    """One run of Tune with as many trials as are asked for; all of Ray inherits the driver's cores."""
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray import tune

    class Tell(tune.Callback):  # type: ignore[misc]  # Ray is not installed where this is checked
        """Each trial's result, when it is done."""

        done = 0

        def on_trial_complete(
            self,
            iteration: int,  # noqa: ARG002 - Ray's own form
            trials: list[Any],  # noqa: ARG002
            trial: Any,
            **info: Any,  # noqa: ARG002
        ) -> None:
            said = trial.last_result
            self.done += 1
            # Not through the link: Tune pickles its callbacks, and shared memory cannot be.
            line = {"trial": self.done, "seconds": said["seconds"], "loss": said["loss"]}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

    told = link.told
    slots = len(os.sched_getaffinity(0))
    folder = told["folder"]
    ray.init(
        num_cpus=slots,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        _temp_dir=folder,
    )
    link.ready()
    results = tune.Tuner(
        tune.with_resources(_trial, {"cpu": 1}),
        param_space={"told": dict(told)},
        tune_config=tune.TuneConfig(num_samples=told["trials"] or -1, max_concurrent_trials=slots),
        run_config=tune.RunConfig(
            storage_path=str(pathlib.Path(folder) / "results"), verbose=0, callbacks=[Tell()]
        ),
    ).fit()
    if results.errors:
        raise OSError(f"a trial failed: {results.errors[0]}")
    ray.shutdown()


def _trial(settings: dict[str, Any]) -> None:
    from ray import tune

    told = settings["told"]
    pacer = controller.Pacer(told["duty"])
    begin = time.monotonic()
    loss = _training.train(told["backend"], told["seed"], told["steps"], pacer.rest)
    tune.report({"loss": loss, "seconds": time.monotonic() - begin})
