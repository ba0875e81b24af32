"""Hosts of a cluster: which ones run a trial, and their outcomes together. Reports are stored by host."""

from __future__ import annotations

import contextlib
import json
import pathlib
from typing import Any

import pytest

from overnight import load
from overnight.load import cluster, constancy, measurement, runner
from overnight.load.workloads import _ray
from overnight.model.load import Constancy
from overnight.store import loads

PLAN = runner.Plan("trials", load.Options(orchestrator="ray"), 10.0)


def node(name: str, *, cpus: float = 4.0, alive: bool = True, number: int = 1) -> dict[str, Any]:
    address = f"10.0.0.{number}"
    resources = {"CPU": cpus, f"node:{address}": 1.0, "node:__internal_head__": 1.0}
    return {"NodeID": f"{number:08x}ffff", "Alive": alive, "NodeManagerHostname": name, "NodeManagerAddress": address, "Resources": resources}  # fmt: skip


def test_every_live_host_with_cpus_has_a_trial_that_takes_it_whole() -> None:
    nodes = [node("b", number=2), node("a"), node("c", alive=False), node("head", cpus=0)]
    first, second = _ray.choose_hosts(nodes, ())
    assert (first.name, second.name) == ("a", "b")
    assert first.resources == {"CPU": 4.0, "node:10.0.0.1": _ray.SHARE}
    assert _ray.SHARE > 0.5, "two trials would fit on one host"


def test_hosts_are_chosen_by_name_or_address() -> None:
    nodes = [node("a", number=1), node("b", number=2), node("c", number=3)]
    assert [host.name for host in _ray.choose_hosts(nodes, ("b", "10.0.0.3"))] == ["b", "c"]
    with pytest.raises(OSError, match="does not have d; it has a, b, c"):
        _ray.choose_hosts(nodes, ("a", "d"))
    with pytest.raises(OSError, match="does not have a host with CPUs; it has none"):
        _ray.choose_hosts([], ())


def test_nodes_of_one_machine_have_names_of_their_own() -> None:
    hosts = _ray.choose_hosts([node("a", number=1), node("a", number=2)], ())
    assert [host.name for host in hosts] == ["a-00000001", "a-00000002"]


def verdict(status: Constancy) -> constancy.Verdict:
    check = constancy.Check("cpu CV", constancy.State.KEPT, "cpu CV 0.3 %", 0.003, 0.02)
    return constancy.Verdict(status, 20, (check,), ("steal 0 %",))


def outcome(host: str, status: Constancy, loss: float | None = 0.5) -> runner.Outcome:
    return runner.Outcome("1", "trials", host, (1,), 5, 9, "time", 3, loss, verdict(status), None)


@pytest.mark.parametrize(
    ("statuses", "whole"),
    [
        ((Constancy.CONSTANT, Constancy.CONSTANT), Constancy.CONSTANT),
        ((Constancy.CONSTANT, Constancy.UNKNOWN), Constancy.UNKNOWN),
        ((Constancy.NOT_CONSTANT, Constancy.UNKNOWN), Constancy.NOT_CONSTANT),
    ],
)
def test_a_load_is_as_constant_as_its_worst_host(
    statuses: tuple[Constancy, ...], whole: Constancy
) -> None:
    hosts = [outcome(f"h{n}", status) for n, status in enumerate(statuses)]
    combined = cluster.combine(PLAN, hosts)
    assert combined.verdict.status is whole
    assert [check.name for check in combined.verdict.checks] == ["h0: cpu CV", "h1: cpu CV"]
    assert f"h0: {statuses[0]}" in combined.verdict.figures
    assert (combined.trials, combined.loss, combined.ended_by) == (6, 0.5, "time")
    assert [each["host"] for each in combined.as_json()["hosts"]] == ["h0", "h1"]  # type: ignore[attr-defined]


def test_a_driver_that_died_and_different_losses_are_stated() -> None:
    hosts = [outcome("a", Constancy.CONSTANT, 0.5), outcome("b", Constancy.CONSTANT, 0.6)]
    combined = cluster.combine(PLAN, hosts, ("ray-driver ended with 3: lost",), "death")
    assert (combined.verdict.status, combined.ended_by) == (Constancy.NOT_CONSTANT, "death")
    assert combined.loss is None
    assert any("different losses" in figure for figure in combined.verdict.figures)
    assert cluster.combine(PLAN, []).verdict.status is Constancy.UNKNOWN


def report(first: int, ended_by: str = "") -> dict[str, Any]:
    seconds = [
        measurement.Second(5_000_000 + n * 1_000_000, float(n), True, {"cpu": 0.6}, {1: 0.01}, 0.0, 0.0, {"cpu": 0.1}, n)
        for n in range(first, first + 2)
    ]  # fmt: skip
    line = {"host": "a", "began_us": 5_000_000, "cores": [1], "trials": first, "loss": 0.5, "ended_by": ended_by}  # fmt: skip
    line |= {"seconds": [each.as_json() for each in seconds]}
    line |= {"verdict": verdict(Constancy.CONSTANT).as_json()}
    return json.loads(json.dumps(line))  # type: ignore[no-any-return]


@pytest.mark.parametrize("ended_by", ["time", ""])
def test_reports_of_a_host_are_stored_also_if_it_was_stopped(
    tmp_path: pathlib.Path, ended_by: str
) -> None:
    with contextlib.ExitStack() as stack:
        host = cluster._Host(stack, tmp_path, PLAN, report(0))
        (first, _) = host.take(report(0))
        assert (first.sys, first.at) == ({1: 0.01}, 0.0)
        host.take(report(2, ended_by))
        host.end("stop")
    (stored,) = loads.read_loads(tmp_path, "a")
    assert (stored.ended, stored.status, stored.until_us) == (True, "constant", 8_000_000)
    assert len(list(loads.read_seconds(tmp_path, stored))) == 4
    assert host.outcome().ended_by == (ended_by or "stop")
