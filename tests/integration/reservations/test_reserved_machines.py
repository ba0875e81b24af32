"""Machines and pool members of this host, reserved for real, with an agent; whatever is killed, nothing is left."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import serverprocesses
from realmachines import drained, inside, left_of, until

from overnight import reservations
from overnight.app import pool_serving, pools
from overnight.app import reservations as reservation_app
from overnight.database import engine
from overnight.model import times
from overnight.model.reservation import CheckState, Lease, Order, ReservationState
from overnight.pools.providers import nspawn as pool_nspawn
from overnight.reservations import context, control, janitor
from overnight.reservations.providers import _local_processes, nspawn, pool

pytestmark = [pytest.mark.needs_root, pytest.mark.together]

ORDER = Order(provider="nspawn", seconds=600, owner="test", start_agent=True)
POOL_ORDER = Order(provider="pool", where="ci", seconds=600, start_agent=True)
HOUR_US = 3600 * 1_000_000
RESERVE = """
import os, pathlib, signal, sys
from overnight import reservations
from overnight.database import engine
from overnight.model.reservation import Order
from overnight.reservations import context, control
from overnight.reservations.providers import nspawn
home, begin, end = pathlib.Path(sys.argv[1]), *sys.argv[2:]
def step(name):
    if name.startswith(begin) and name.endswith(end):
        os.kill(os.getpid(), signal.SIGKILL)
provider = nspawn.create(reservations.Settings(home=home, steps=step))
database = engine.Database(engine.default_url(home), steps=step)
plane = control.ControlPlane(context.Context(database, {"nspawn": provider}))
plane.reserve(plane.preflight(Order(provider="nspawn", seconds=600, owner="test", start_agent=True)))
"""


@pytest.fixture
def home(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A data home, whose machines are terminated should a test fail."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    yield folder
    machines = pool_nspawn.create(folder)
    for place in machines.members.glob("*/*"):
        machines.terminate(place.name)


def open_plane(
    home: pathlib.Path, provider: reservations.Provider
) -> tuple[control.ControlPlane, engine.Database]:
    database = engine.Database(engine.default_url(home))
    return control.ControlPlane(context.Context(database, {provider.name: provider})), database


def reserve_and_die(home: pathlib.Path, begin: str, end: str) -> None:
    """Reserve a machine in a process that is killed at a step."""
    command = [sys.executable, "-c", RESERVE, str(home), begin, end]
    killed = subprocess.run(command, capture_output=True, timeout=100, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr


def clean(home: pathlib.Path, *, later_us: int) -> tuple[janitor.Cleaned, ...]:
    """Run a janitor that has nothing but the data home of the machines."""
    provider = nspawn.create(reservations.Settings(home=home))
    now_us = time.time_ns() // 1000 + later_us
    return janitor.clean(provider, ORDER, clock=lambda: now_us, sleep=lambda _: None)


def check_nothing_left(home: pathlib.Path, host: str) -> None:
    until(lambda: left_of(host.removeprefix("overnight-")) == [])
    assert not (home / "pools/nspawn").exists()


@pytest.mark.needs_nspawn
def test_the_janitor_alone_removes_a_machine_with_its_agent(home: pathlib.Path) -> None:
    reserve_and_die(home, "start_agent", "after")
    [left] = clean(home, later_us=0)
    host = left.held.host
    assert (left.why, left.held.lease and left.held.lease.owner) == ("", "test")
    provider = nspawn.create(reservations.Settings(home=home))
    [place] = (home / "pools/nspawn/members").glob("r-*/*")
    assert place.stat().st_mode & 0o077 == 0
    machine = pool_nspawn.find_machine(place)
    assert machine is not None
    # It records, and nothing in it tries to reach a pool.
    until(lambda: inside(machine.address, "ls", f"/var/lib/overnight-agent/signals/{host}"))
    assert inside(machine.address, "systemctl", "is-enabled", "overnight-member") == "masked"
    assert provider.hear(host, ORDER).agent_us is not None
    # Repeated, and taken off again.
    provider.start_agent(host, ORDER, left.held.lease, reservations.AgentSetup(server=""))
    provider.stop_agent(host, ORDER, left.held.id)
    assert provider.hear(host, ORDER).agent_us is None
    files = inside(machine.address, "sh", "-c", "ls -d /opt/* /var/lib/overnight-agent /run/systemd/system/*")  # fmt: skip
    assert "overnight-" not in files
    [removed] = clean(home, later_us=HOUR_US)
    assert removed.released
    check_nothing_left(home, host)


STEPS = (
    ("claim", "before"), ("write lease", "before"), ("claim", "after"), ("folder", ""),
    ("planted", ""), ("cgroups", ""), ("spawned", ""), ("booting", ""), ("mark", "after"),
    ("empty", "before"), ("renew", "after"), ("start_agent", "before"),
)  # fmt: skip


@pytest.mark.long
@pytest.mark.needs_nspawn
@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", STEPS, ids=" ".join)
def test_a_controller_killed_at_any_step_leaves_nothing(
    home: pathlib.Path, step: tuple[str, str]
) -> None:
    reserve_and_die(home, *step)
    cleaned = clean(home, later_us=HOUR_US)
    assert [each.released for each in cleaned] == [True] * (step != STEPS[0])
    for each in cleaned:
        check_nothing_left(home, each.held.host)
    assert not (home / "pools/nspawn").exists()


@pytest.mark.needs_nspawn
def test_a_machine_that_ends_is_reported_and_not_booted_again(home: pathlib.Path) -> None:
    provider = nspawn.create(reservations.Settings(home=home))
    plane, database = open_plane(home, provider)
    made = plane.reserve(plane.preflight(Order(provider="nspawn", seconds=600)))
    [host] = made.held
    [place] = (home / "pools/nspawn/members").glob("r-*/*")
    other = "r-" + "0" * 12
    with pytest.raises(reservations.TakenError, match=f"belongs to {made.id}"):
        provider.claim(host.name, ORDER, Lease(other, "you", 1, 1))
    provider.release(host.name, ORDER, other)  # of another lease: nothing happens
    machine = pool_nspawn.find_machine(place)
    assert machine is not None
    inside(machine.address, "systemctl", "poweroff")
    until(lambda: pool_nspawn.find_machine(place) is None)
    later = dataclasses.replace(plane.context, clock=lambda: times.now_us() + 60_000_000)
    control.ControlPlane(later).tick()
    now = plane.show(made.id)
    marks = next(check for check in now.held[0].checks if check.name == "marks")
    assert (marks.state, "has ended" in marks.detail) == (CheckState.UNKNOWN, True)
    assert plane.release(made.id).state is ReservationState.RELEASED
    check_nothing_left(home, host.name)
    database.close()


@pytest.mark.long
@pytest.mark.needs_nspawn
def test_the_agent_in_a_machine_reports_to_its_server(home: pathlib.Path) -> None:
    with serverprocesses.running(home) as server:
        where = reservation_app.Reservations(home)
        order = dataclasses.replace(ORDER, agent_server=server.url)
        made = where.reserve(order, confirmed=True).reservation
        [host] = made.held
        assert host.agent == "started"
        hear = where.plane.context.hooks.heard
        until(lambda: (heard := hear(host.name)) and heard.agent_us, 60)
        assert where.release(made.id).reservation.state is ReservationState.RELEASED
    check_nothing_left(home, host.name)


def find_recorders(lease_id: str) -> list[_local_processes.Process]:
    found = _local_processes.find_marked(_local_processes.read_processes(), lease_id)
    return [process for process in found if process.is_recorder]


@contextlib.contextmanager
def serving(home: pathlib.Path, **pool_fields: object) -> Iterator[pools.Pools]:
    """Serve a pool with one ready member; it is drained at the end."""
    where, stop = pools.Pools(home), threading.Event()
    thread = threading.Thread(
        target=pool_serving.serve, args=(where, stop), kwargs={"interval": 0.5}, daemon=True
    )
    thread.start()
    try:
        where.plane.create(name="ci", template="plain", target_size=1, **pool_fields)
        until(lambda: where.plane.show("ci").counts.ready == 1)
        yield where
        until(lambda: drained(where.plane))
    finally:
        drained(where.plane)
        stop.set()
        thread.join(30)


@pytest.mark.parametrize("ends", ["released", pytest.param("terminated", marks=pytest.mark.long)])
def test_a_member_that_is_a_process_is_reserved_with_a_recorder(
    home: pathlib.Path, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(home, provider="process") as where, monkeypatch.context() as patched:
        # Another recorder of this host would be used, and none started.
        patched.setattr(pool.PoolMembers, "hear", lambda *_: reservations.Heard())
        provider = pool.create(
            reservations.Settings(home=home, pools=lambda: pools.Pools(home).plane)
        )
        plane, database = open_plane(home, provider)
        made = plane.reserve(plane.preflight(POOL_ORDER))
        [host] = made.held
        assert host.agent == "started"
        until(lambda: find_recorders(f"{made.id}/{host.name}"))
        patched.undo()
        assert provider.hear(host.name, POOL_ORDER).agent_us is not None
        if ends == "terminated":  # as the reaper does when the lease is over
            where.plane.terminate(host.name)
            until(lambda: not find_recorders(f"{made.id}/{host.name}"))
        assert plane.release(made.id).state is ReservationState.RELEASED
        database.close()
        assert find_recorders(f"{made.id}/{host.name}") == []
        until(lambda: not (home / "pools/machines" / host.name).exists())  # the reaper may do it
        assert where.plane.show("ci").counts.claimed == 0


@pytest.mark.needs_nspawn
@pytest.mark.long
def test_a_member_that_is_a_machine_is_reserved_with_a_recorder(home: pathlib.Path) -> None:
    with serving(home, provider="nspawn", reuse_without_reset=True) as where:
        provider = pool.create(
            reservations.Settings(home=home, pools=lambda: pools.Pools(home).plane)
        )
        plane, database = open_plane(home, provider)
        made = plane.reserve(plane.preflight(POOL_ORDER))
        [host] = made.held
        assert host.agent == "started"
        address = where.plane.member(host.name).address
        until(lambda: inside(address, "ls", "/var/lib/overnight-agent/signals"))
        assert plane.release(made.id).state is ReservationState.RELEASED
        database.close()
        # It is ready again, without the agent.
        assert where.plane.member(host.name).state == "ready"
        assert "overnight-" not in inside(address, "ls", "/opt", "/var/lib", "/run/systemd/system")
