"""Trials run by Ray Tune over the hosts of a cluster: one Tune trial per host, for as long as the load lasts.

A Tune trial per training would not be constant: of 35 s on a quiet core, 99 % of the variance of the CPU time came
from the process that Ray ends and starts between two trials (1.2 s without training, 0.9 s of CPU time for imports),
and 1 % from Ray's daemons and Tune's driver.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from overnight.model import process_identity, times

if TYPE_CHECKING:
    from overnight.load import worker

# A report waits for Tune's driver; the load goes on meanwhile, but is not measured.
REPORT_EVERY = 5
NODE = "node:"  # a resource that every host has once
SHARE = 0.6  # of it: two trials cannot have one host, another job's small share may
STORE_BYTES = 80 << 20  # Ray's least; trials share nothing

_waiting: set[str] = set()  # hosts whose trial has not reported yet
_links: list[worker.Link] = []


@dataclasses.dataclass(frozen=True)
class Host:
    """A node of the cluster."""

    id: str
    name: str
    resources: dict[str, float]  # that a trial takes


def choose_hosts(nodes: Sequence[Mapping[str, Any]], wanted: Sequence[str]) -> tuple[Host, ...]:
    """Return the hosts that can run a trial, by name; of `wanted` (names or addresses) all. Raises OSError.

    A trial takes all CPUs of its host from Ray, so that Ray runs nothing else there.
    """
    alive = [node for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    known = [str(node["NodeManagerHostname"]) for node in alive]
    hosts, missing = [], set(wanted)
    for node, name in zip(alive, known, strict=True):
        names = {name, str(node["NodeManagerAddress"])}
        if wanted and not names & set(wanted):
            continue
        missing -= names
        at = next(key for key in node["Resources"] if key.startswith(NODE) and "__" not in key)
        resources = {"CPU": node["Resources"]["CPU"], at: SHARE}
        # Nodes of one machine have one name.
        unique = name if known.count(name) == 1 else f"{name}-{node['NodeID'][:8]}"
        hosts.append(Host(str(node["NodeID"]), unique, resources))
    if missing or not hosts:
        what = ", ".join(sorted(missing)) or "a host with CPUs"
        raise OSError(f"the Ray cluster does not have {what}; it has {', '.join(known) or 'none'}")
    return tuple(sorted(hosts, key=lambda host: host.name))


def run(link: worker.Link) -> None:
    """Run as Tune's driver: start a trial on each host, and pass on what they report."""
    # Loggers write files for every report, and the heartbeat to Ray's makers leaves the host.
    os.environ |= {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    settings = link.settings
    if not settings["address"]:
        # Its ports are open to others of this host; Ray would write a token of its own into the home folder.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    import ray
    from ray import tune

    quiet = {"log_to_driver": False, "configure_logging": False}
    if settings["address"]:
        _check_address(settings["address"])
        ray.init(address=settings["address"], **quiet)
    else:
        ray.init(
            num_cpus=1,
            include_dashboard=False,
            object_store_memory=STORE_BYTES,
            _temp_dir=settings["folder"],
            **quiet,
        )
    hosts = choose_hosts(ray.nodes(), settings["hosts"])
    _waiting.update(host.id for host in hosts)
    _links.append(link)

    class Reporter(tune.Callback):  # type: ignore[misc]  # Ray is not installed where this is checked
        def on_trial_result(self, *, result: dict[str, Any], **_: Any) -> None:
            pass_on(result)  # by name: Tune pickles this class, and shared memory cannot be pickled

    order = {**settings, "names": {host.id: host.name for host in hosts}}
    results = tune.Tuner(
        tune.with_resources(_trial, _resources),
        param_space={**order, "resources": tune.grid_search([host.resources for host in hosts])},
        run_config=tune.RunConfig(
            storage_path=str(pathlib.Path(settings["folder"]) / "results"),
            verbose=0,
            callbacks=[Reporter()],
        ),
    ).fit()
    if results.errors:
        raise OSError(f"a trial failed: {results.errors[0]}")
    ray.shutdown()


def _check_address(address: str) -> None:
    """Raise OSError if nothing listens there: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        try:
            socket.create_connection((host.strip("[]"), int(port)), 5).close()
        except OSError as error:
            raise OSError(f"no Ray cluster answers at {address}: {error}") from None


def pass_on(result: Mapping[str, Any]) -> None:
    """Send a host's report to the parent; the load is ready when every host has sent one."""
    (link,) = _links
    if "host" not in result:  # Tune repeats the last result when a trial is complete
        return
    names = ("host", "began_us", "cores", "seconds", "verdict", "trials", "loss", "ended_by")
    link.report({name: result[name] for name in names})
    _waiting.discard(result["node"])
    if not _waiting:
        link.ready()


def _resources(config: Mapping[str, Any]) -> Any:
    from ray import tune

    return tune.PlacementGroupFactory([config["resources"]])


def _trial(config: Mapping[str, Any]) -> None:
    """Run the load on this host, measured and judged as without Ray, until its time is over."""
    import ray
    from ray import tune

    from overnight import load
    from overnight.load import constancy, measurement, runner
    from overnight.undo import journal

    node = ray.get_runtime_context().get_node_id()
    host = config["names"][node]
    fields = ("seed", "duty", "trials", "steps", "backend")
    cores = tuple(config["cores"]) or runner.choose_cores(config["cores_text"])
    options = load.Options(cores, config["name"], **{name: config[name] for name in fields})
    plan = runner.Plan("trials", options, config["seconds"], config["warm_up"])
    began, began_at, ray_began = times.now_us(), time.monotonic(), read_ray_seconds()
    batch: list[dict[str, object]] = []
    count = 0

    def report(
        verdict: constancy.Verdict, trials: int, loss: float | None = None, ended_by: str = ""
    ) -> None:
        ray_now = read_ray_seconds()
        spent = sum(total - ray_began.get(pid, 0.0) for pid, total in ray_now.items())
        share = spent / (time.monotonic() - began_at)
        figures = (*verdict.figures, f"Ray itself used {share:.3f} cores of this host")
        verdict = dataclasses.replace(verdict, figures=figures)
        line = {"node": node, "host": host, "began_us": began, "cores": list(cores)}
        line |= {"seconds": list(batch), "verdict": verdict.as_json()}
        tune.report({**line, "trials": trials, "loss": loss, "ended_by": ended_by})
        batch.clear()

    def on_second(second: measurement.Second, verdict: constancy.Verdict) -> None:
        nonlocal count
        batch.append(second.as_json())
        if count % REPORT_EVERY == 0:
            report(verdict, second.trials)
        count += 1

    with journal.Journal("load trials by Ray") as changes:
        outcome = runner.run(plan, changes, host=host, on_second=on_second)
    report(outcome.verdict, outcome.trials, outcome.loss, outcome.ended_by)


def read_ray_seconds() -> dict[int, float]:
    """Return the CPU seconds so far of Ray's processes on this host: daemons, idle workers, this trial's own."""
    used = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes()
            if words.startswith(b"ray::") or b"/ray/" in words:
                used[int(folder.name)] = process_identity.read_cpu_seconds(int(folder.name))
    return used
