"""The trials, run by Ray Tune: one driver, and Ray's own processes on the same cores."""

from __future__ import annotations

import os
import pathlib
import tempfile
import time
from typing import TYPE_CHECKING, Any

from overnight.load import controller
from overnight.load.workloads import _training

if TYPE_CHECKING:
    from overnight.load import worker

__all__ = ["run"]


def run(link: worker.Link) -> None:
    """Tune's runs of one trial a core, again and again; all of Ray inherits the driver's cores."""
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray import tune

    told = link.told
    slots = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="overnight-ray-") as folder:
        ray.init(
            num_cpus=slots,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            # A socket's path has little room: Ray's own folder is short.
            _temp_dir=folder,
        )
        link.ready()
        done = 0
        while not told["trials"] or done < told["trials"]:
            left = told["trials"] - done if told["trials"] else slots
            many = min(slots, left)
            results = tune.Tuner(
                tune.with_resources(_trial, {"cpu": 1}),
                param_space={"told": dict(told)},
                tune_config=tune.TuneConfig(num_samples=many, max_concurrent_trials=slots),
                run_config=tune.RunConfig(
                    storage_path=str(pathlib.Path(folder) / "results"), verbose=0
                ),
            ).fit()
            for result in results:
                if result.error:
                    raise OSError(f"a trial failed: {result.error}")
                said = result.metrics or {}
                link.say({"trial": done, "seconds": said["seconds"], "loss": said["loss"]})
                done += 1
            link.count(1, done)
        ray.shutdown()


def _trial(settings: dict[str, Any]) -> None:
    from ray import tune

    told = settings["told"]
    pacer = controller.Pacer(told["duty"])
    begin = time.monotonic()
    loss = _training.train(told["backend"], told["seed"], told["steps"], pacer.rest)
    tune.report({"loss": loss, "seconds": time.monotonic() - begin})
