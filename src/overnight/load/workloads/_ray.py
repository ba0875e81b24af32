"""Trials run by Ray Tune: one driver, and Ray's own processes on the same cores."""

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


def run(link: worker.Link) -> None:
    """Run the requested trials in one Tune run; all of Ray inherits the driver's cores."""
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray import tune

    class Reporter(tune.Callback):  # type: ignore[misc]  # Ray is not installed where this is checked
        done = 0

        def on_trial_complete(
            self,
            iteration: int,  # noqa: ARG002 - Ray's signature
            trials: list[Any],  # noqa: ARG002 - Ray passes it
            trial: Any,
            **info: Any,  # noqa: ARG002 - Ray passes it
        ) -> None:
            result = trial.last_result
            self.done += 1
            # Not through the link: Tune pickles its callbacks, and shared memory cannot be pickled.
            line = {"trial": self.done, "seconds": result["seconds"], "loss": result["loss"]}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

    settings = link.settings
    slots = len(os.sched_getaffinity(0))
    folder = settings["folder"]
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
        param_space=dict(settings),
        tune_config=tune.TuneConfig(
            num_samples=settings["trials"] or -1, max_concurrent_trials=slots
        ),
        run_config=tune.RunConfig(
            storage_path=str(pathlib.Path(folder) / "results"), verbose=0, callbacks=[Reporter()]
        ),
    ).fit()
    if results.errors:
        raise OSError(f"a trial failed: {results.errors[0]}")
    ray.shutdown()


def _trial(settings: dict[str, Any]) -> None:
    from ray import tune

    pacer = controller.Pacer(settings["duty"])
    begin = time.monotonic()
    loss = _training.train(settings["backend"], settings["seed"], settings["steps"], pacer.rest)
    tune.report({"loss": loss, "seconds": time.monotonic() - begin})
