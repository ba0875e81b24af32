"""Pods: programs of one name, and reclaim in a pod whose cgroup has zombies below it."""

from __future__ import annotations

import pathlib
import shlex
import tempfile
import uuid

from overnight.model import programs
from overnight.sources.processes import membership
from scenarios import host_setup, incidents, nights, stacks, work

PYTHON = "/usr/bin/python3.11"
COMM = "python3"
WORKERS = 16
JOBS = 2  # pods of workers
EVAL = ("_PyEval_EvalFrameDefault", "_PyFunction_Vectorcall")


class _Kubelet:
    """Starts programs in pods, whose names follow from their cgroups, as on a host."""

    def __init__(self, setup: host_setup.HostSetup, root: pathlib.Path) -> None:
        self._setup, self._root = setup, root
        self._logs = root / membership.PODS
        self._logs.mkdir(parents=True)

    def create_pod(self, namespace: str, name: str) -> str:
        """Return the cgroup of the pod's container."""
        chance = self._setup.chance
        uid = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        (self._logs / f"{namespace}_{name}_{uid}").mkdir()
        return f"/kubepods/burstable/pod{uid}/{chance.getrandbits(256):064x}"

    def start(self, cgroup: str, *arguments: str) -> work.Task:
        command = [COMM, *arguments]
        return work.Task(
            programs.identify(COMM, PYTHON, command).name,
            self._setup.pid(),
            membership.owner_of(cgroup, self._root),
            thread=COMM,
            command=shlex.join(command),
            cgroup=cgroup,
        )


def one_name(setup: host_setup.HostSetup, moments: list[float]) -> incidents.Incident:
    """Sixteen workers use half of every core; a collector of the same name fills one at times."""
    with tempfile.TemporaryDirectory() as folder:
        kubelet = _Kubelet(setup, pathlib.Path(folder))
        jobs = [kubelet.create_pod("ml", f"{setup.word()}-{number}") for number in range(JOBS)]
        workers = [
            kubelet.start(jobs[n * JOBS // WORKERS], "/opt/train.py", "--rank", str(n))
            for n in range(WORKERS)
        ]
        agent = kubelet.create_pod("monitoring", f"node-agent-{setup.word()}")
        collector = kubelet.start(agent, "-u", "/opt/collect_metrics.py", "--every", "15s")
    # The work of a second is shared by the workers of a core.
    share = min(1.0, setup.host.cores / WORKERS)
    train = stacks.program(PYTHON, (*EVAL, "gemm_kernel"), 0.1)
    for number, task in enumerate(workers):
        core, used = number % setup.host.cores, share * setup.chance.uniform(0.5, 0.6)
        setup.episodes.append(
            work.Episode(work.Work(task, train), core, 0.0, float(setup.seconds), used)
        )
    setup.background.append(work.Work(collector, stacks.program(PYTHON, EVAL, 0.4), 0.01))
    incident = incidents.starve_queue(
        setup,
        work.Work(collector, stacks.smaps(PYTHON, EVAL)),
        moments,
        ("mechanism.smaps-reading", {"process": collector.process, "unit": collector.unit}),
    )
    incident.facts["workers"] = sorted({(task.process, task.unit) for task in workers})
    incident.facts["cgroup"] = collector.cgroup
    return incident


def reclaim_in_a_pod(
    setup: host_setup.HostSetup, moments: list[float], *, zombies: str
) -> incidents.Incident:
    """Let a program reclaim memory at the limit of its container.

    The zombies are below its `pod`, below the `slice` of all pods, or below a `sibling` pod.
    """
    with tempfile.TemporaryDirectory() as folder:
        kubelet = _Kubelet(setup, pathlib.Path(folder))
        own, other = (kubelet.create_pod("ml", f"{setup.word()}-{n}") for n in range(2))
        task = kubelet.start(own, "/opt/build_index.py")
    places = {"pod": own, "slice": own.rpartition("/")[0], "sibling": other}
    births = nights.Births(places[zombies].rpartition("/")[0], 20.0, 2.0)
    setup.background.append(work.Work(task, stacks.program(PYTHON, EVAL, 0.2), 0.1))
    culprit = work.Work(task, stacks.limit_reclaim(PYTHON, EVAL))
    incident = incidents.starve_queue(
        setup, culprit, moments, ("memory.reclaim", {"process": task.process})
    )
    starve = incident.put

    def put(night: nights.Night) -> None:
        starve(night)
        incidents.leak(setup, night, births, us=0.4)
        night.rates["pressure", "memory", "some"] += [(when - 5.5, when, 4e5) for when in moments]

    incident.put = put
    incident.facts["cgroup"] = own
    return incident
