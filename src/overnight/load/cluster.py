"""Run a load over the hosts of a Ray cluster; each host is measured, judged and stored separately."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import platform
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from overnight.load import constancy, measurement, processes, runner, workloads
from overnight.model import times
from overnight.model.load import Constancy
from overnight.store import loads

if TYPE_CHECKING:
    from overnight.undo import journal

POLL = 0.2
BUSY = "a trial takes all CPUs of its host, and other jobs of the Ray cluster hold some, or the hosts are busy"
GRACE = 60.0  # for the trials to start and end, beyond the time of the load
# The load is as good as its worst host.
ORDER = (Constancy.NOT_CONSTANT, Constancy.UNKNOWN, Constancy.CONSTANT)

OnSecond = Callable[[str, measurement.Second, constancy.Verdict], None]


def run(
    plan: runner.Plan,
    journal: journal.Journal,
    *,
    cores: str = "",
    home: pathlib.Path | None = None,
    stop: threading.Event | None = None,
    on_second: OnSecond = lambda _host, _second, _verdict: None,
) -> runner.Outcome:
    """Run until the time is over on all hosts, their work is done, or `stop` is set. Raises CannotError, UsageError.

    `cores` is a CPU list for each host; empty: all but the first. With a `home` there is one stored load per host.
    """
    workload = workloads.find(plan.workload)
    runner.check_options(workload, plan.options)
    runner.check_seconds(plan.seconds)
    stop = stop or threading.Event()
    limit = float("inf") if plan.seconds is None else plan.seconds + GRACE
    (job,) = workload.prepare(plan.options, journal)
    order = {"cores_text": cores, "seconds": plan.seconds, "warm_up": plan.warm_up}
    job = dataclasses.replace(job, settings={**job.settings, **order})
    hosts: dict[str, _Host] = {}
    ended_by = ""
    with contextlib.ExitStack() as stack:
        module = type(workload).__module__.rpartition(".")[2]
        running = processes.Workers(module, (job,), journal)
        stack.callback(running.end)
        running.wait_ready(stop, BUSY)
        began = time.monotonic()
        deaths: tuple[str, ...] = ()
        while not ended_by:
            is_done, deaths = running.is_done(), running.deaths()
            running.read_reports()
            while running.host_reports:
                line = running.host_reports.pop(0)
                host = hosts.get(line["host"]) or _Host(stack, home, plan, line)
                hosts[host.name] = host
                for second in host.take(line):
                    on_second(host.name, second, host.verdict)
            if is_done:
                ended_by = "death" if deaths else "work"
            elif time.monotonic() - began > limit:
                ended_by, deaths = "death", (f"{job.name} did not end in time",)
            elif stop.wait(POLL):
                ended_by = "stop"
        for host in hosts.values():
            host.end(ended_by)
    outcomes = [hosts[name].outcome() for name in sorted(hosts)]
    return combine(plan, outcomes, deaths, ended_by)


def combine(
    plan: runner.Plan,
    hosts: Sequence[runner.Outcome],
    deaths: Sequence[str] = (),
    ended_by: str = "",
) -> runner.Outcome:
    """Return the outcome of all hosts together: its checks name their host, and its status is that of the worst."""
    checks = [constancy.Check("workers", constancy.State.CROSSED, says) for says in deaths]
    figures: list[str] = []
    for host in hosts:
        for check in host.verdict.checks:
            name, says = f"{host.host}: {check.name}", f"{host.host}: {check.says}"
            checks.append(dataclasses.replace(check, name=name, says=says))
        parts = (host.verdict.status, *host.verdict.figures)
        figures += [f"{host.host}: {part}" for part in parts]
    statuses = {host.verdict.status for host in hosts} or {Constancy.UNKNOWN}
    status = Constancy.NOT_CONSTANT if deaths else min(statuses, key=ORDER.index)
    losses = {host.loss for host in hosts}
    if len(losses) > 1 and None not in losses:
        figures.append("hosts ended with different losses: processors or libraries differ")
    seconds = min((host.verdict.seconds for host in hosts), default=0)
    now = times.now_us()
    endings = {host.ended_by for host in hosts}
    return runner.Outcome(
        id="",
        workload=plan.workload,
        host=", ".join(host.host for host in hosts) or platform.node(),
        cores=tuple(sorted({core for host in hosts for core in host.cores})),
        began_us=min((host.began_us for host in hosts), default=now),
        ended_us=max((host.ended_us for host in hosts), default=now),
        ended_by=endings.pop() if len(endings) == 1 and not deaths else ended_by,
        trials=sum(host.trials for host in hosts),
        loss=losses.pop() if len(losses) == 1 else None,
        verdict=constancy.Verdict(status, seconds, tuple(checks), tuple(figures)),
        path=None,
        hosts=tuple(hosts),
    )


class _Host:
    """What one host has reported, and its file."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        home: pathlib.Path | None,
        plan: runner.Plan,
        line: Mapping[str, Any],
    ) -> None:
        self.name, self._plan = str(line["host"]), plan
        self._cores, self._began = tuple(line["cores"]), int(line["began_us"])
        self._us, self._trials, self._loss, self._ended = self._began, 0, None, ""
        self.verdict = constancy.Verdict(Constancy.UNKNOWN, 0, ())
        self._file = None
        if home is not None:
            options = runner.as_options(plan)
            self._file = loads.LoadWriter(
                home, self.name, plan.workload, self._cores, self._began, options
            )
            stack.callback(self._file.close)

    def take(self, line: Mapping[str, Any]) -> list[measurement.Second]:
        """Store a report, and return its seconds."""
        self.verdict = constancy.Verdict.from_json(line["verdict"])
        self._trials, self._loss, self._ended = line["trials"], line["loss"], line["ended_by"]
        seconds = [measurement.Second.from_json(each) for each in line["seconds"]]
        for second in seconds:
            self._us = second.us
            if self._file is not None:
                self._file.second(second.as_json())
        if self._file is not None:
            self._file.verdict(self._us, line["verdict"], ended=bool(self._ended))
        return seconds

    def end(self, ended_by: str) -> None:
        """Write the final verdict of a host that was stopped, or did not report its end."""
        if not self._ended:
            self._ended = ended_by
            if self._file is not None:
                self._file.verdict(self._us, self.verdict.as_json(), ended=True)

    def outcome(self) -> runner.Outcome:
        return runner.Outcome(
            id=self._file.id if self._file else "",
            workload=self._plan.workload,
            host=self.name,
            cores=self._cores,
            began_us=self._began,
            ended_us=self._us,
            ended_by=self._ended,
            trials=self._trials,
            loss=self._loss,
            verdict=self.verdict,
            path=self._file.path if self._file else None,
        )
