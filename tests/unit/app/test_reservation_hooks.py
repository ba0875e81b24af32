"""What reservations ask of the fleet: agents, tokens, loads."""

from __future__ import annotations

import pathlib
import types
from typing import TYPE_CHECKING

import fleetworld
import pytest

from overnight import errors
from overnight.app import load, reservation_hooks
from overnight.model import times
from overnight.model.control_plane import Role
from overnight.model.load import Constancy
from overnight.model.reservation import CheckState
from overnight.model.uplink import TaskKind, TaskReport, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from overnight.reservations.context import Hooks


@pytest.fixture
def fleet(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fleetworld.World]:
    world = fleetworld.World(f"sqlite:///{tmp_path / 'pools.db'}", tmp_path / "blobs")
    monkeypatch.setattr(times, "now_us", world.clock)
    yield world
    world.close()


@pytest.fixture
def hooks(fleet: fleetworld.World, tmp_path: pathlib.Path) -> Hooks:
    return reservation_hooks.make(fleet.plane.context.database, tmp_path)


def test_the_fleet_says_when_it_heard_a_host(fleet: fleetworld.World, hooks: Hooks) -> None:
    assert hooks.heard("db-7") is None
    who = fleet.enrol()
    heard = hooks.heard("db-7")
    assert heard is not None
    assert (heard.agent_us, heard.skew_us) == (None, None)
    fleet.clock.forward(100)
    fleet.plane.report(who, fleetworld.report(102))
    heard = hooks.heard("db-7")
    assert heard is not None
    assert (heard.agent_us, heard.skew_us) == (fleet.clock(), 2_000_000)


def test_an_agent_gets_a_token_that_enrols_one_host(fleet: fleetworld.World, hooks: Hooks) -> None:
    assert hooks.agent_setup("node-1", "").token == ""
    setup = hooks.agent_setup("node-1", "https://centre:8416")
    assert setup.server == "https://centre:8416"
    assert setup.token not in repr(setup)
    [token] = fleet.plane.tokens.list()
    assert (token.role, token.name) == (Role.AGENT, "reservation of node-1")
    fleet.plane.agents.enrol(setup.token, fleetworld.credential_of("ip-10-0-0-7"), "ip-10-0-0-7")
    with pytest.raises(errors.OvernightError):
        fleet.plane.agents.enrol(setup.token, fleetworld.credential_of("other"), "other")


@pytest.mark.parametrize(
    ("reported", "state"),
    [
        (TaskState.DONE, CheckState.PASSED),
        (TaskState.FAILED, CheckState.FAILED),
        (TaskState.REFUSED, CheckState.UNKNOWN),
        (None, CheckState.UNKNOWN),
    ],
)
def test_the_agent_of_a_host_runs_the_load(
    fleet: fleetworld.World,
    hooks: Hooks,
    monkeypatch: pytest.MonkeyPatch,
    reported: TaskState | None,
    state: CheckState,
) -> None:
    who = fleet.enrol()
    monkeypatch.setattr(reservation_hooks, "TASK_SECONDS", 0.5)

    def report(_: float) -> None:
        for task in fleet.plane.report(who, fleetworld.report(1)).tasks:
            assert task.arguments == {"workload": "cpu", "seconds": 60, "duty": 60}
            if reported is not None:
                fleet.plane.tasks.report(who, task.id, TaskReport(reported, "CPU 60.0 %"))

    monkeypatch.setattr(reservation_hooks.time, "sleep", report)
    assert hooks.load_gate is not None
    check = hooks.load_gate("kubernetes", "db-7")
    assert (check.name, check.state) == ("load-constancy", state)
    assert bool(check.advice) is (state is not CheckState.PASSED)
    # One that did not end is withdrawn; nothing runs later on a host that was given back.
    [asked] = [t for t in fleet.plane.tasks.list("db-7") if t.kind is TaskKind.LOAD]
    assert asked.state.is_final


def test_a_host_without_an_agent_has_no_verdict(hooks: Hooks) -> None:
    assert hooks.load_gate is not None
    assert hooks.load_gate("kubernetes", "nowhere").state is CheckState.UNKNOWN


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (Constancy.CONSTANT, CheckState.PASSED),
        (Constancy.UNKNOWN, CheckState.PASSED),
        (Constancy.NOT_CONSTANT, CheckState.FAILED),
    ],
)
def test_this_machine_runs_the_load_itself(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch, status: Constancy, state: CheckState
) -> None:
    verdict = types.SimpleNamespace(status=status, says="CPU 60.0 %")
    monkeypatch.setattr(load, "run", lambda *_: types.SimpleNamespace(verdict=verdict))
    assert hooks.load_gate is not None
    check = hooks.load_gate("local", "here")
    assert (check.state, check.detail) == (state, "CPU 60.0 %")
