"""Time from intent to ready of pool members that are machines, one by one and several at once.

Compared with a member that is a process, through the same control plane in the same run.
"""

from __future__ import annotations

import pathlib
import statistics
import tempfile
import threading
import time

import benchmarks

ROUNDS, TOGETHER = 5, 8


def measure() -> list[benchmarks.Result]:
    with tempfile.TemporaryDirectory() as folder:
        alone = [_warm_up(pathlib.Path(folder, str(n)), "nspawn", 1)[0] for n in range(ROUNDS)]
        crowd = _warm_up(pathlib.Path(folder, "crowd"), "nspawn", TOGETHER)
        process = [_warm_up(pathlib.Path(folder, f"p{n}"), "process", 1)[0] for n in range(ROUNDS)]
    single, worst, light = statistics.median(alone), max(alone), statistics.median(process)
    return [
        benchmarks.Result(
            "an nspawn member is ready", single, "s", "<= 10 s", worst <= 10, "process member", light
        ),
        benchmarks.Result(
            f"the last of {TOGETHER} nspawn members is ready", crowd[-1], "s", "<= 10 s",
            crowd[-1] <= 10,
        ),
    ]  # fmt: skip


def _warm_up(home: pathlib.Path, provider: str, count: int) -> list[float]:
    """Return the seconds from the first intent until each member was ready."""
    from overnight.app import pool_serving, pools

    home_pools = pools.Pools(home)
    plane = home_pools.plane
    stop = threading.Event()
    reaper = threading.Thread(
        target=pool_serving.serve, args=(home_pools, stop), kwargs={"interval": 1.0}
    )
    plane.create(name="p", template="plain", target_size=count, provider=provider)
    reaper.start()
    try:
        while plane.show("p").counts.ready < count:
            time.sleep(0.02)
        members = plane.show("p").members
    finally:
        plane.drain("p")
        while plane.show("p").members:
            time.sleep(0.02)
        stop.set()
        reaper.join()
    first = min(member.warming_started_us for member in members)
    return sorted(((member.ready_us or 0) - first) / 1e6 for member in members)
