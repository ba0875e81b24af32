"""A booted systemd inside this host: its crash loops, visible and hidden, and its removal."""

from __future__ import annotations

import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator

import machines
import pytest

from overnight.agent.watches import loops
from overnight.model import clock
from overnight.sources import cgroupchurn
from overnight.sources.systemd import manager, units

pytestmark = pytest.mark.needs_nspawn

OURS = ("loop.service", "/hidden.service")

LOOP = machines.unit("exit 3", service="Restart=always\nRestartSec=50ms")
# Its own supervisor: systemd sees no failure while its tasks die one after the other.
HIDDEN = machines.unit("exec sh /supervise", service="Restart=always\nDelegate=yes")
SUPERVISE = """
path=$(sed -n 's/^[0-9]*:name=systemd:/systemd/p' /proc/self/cgroup)
[ -n "$path" ] || path=$(sed -n 's/^0:://p' /proc/self/cgroup)
cd "/sys/fs/cgroup/$path" || exit 1
while :; do
  mkdir task
  sh -c 'echo 0 > task/cgroup.procs; exec sleep 0.05'
  until rmdir task; do :; done
done
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[machines.Machine]:
    with machines.machine(
        {
            "loop.service": LOOP,
            "hidden.service": HIDDEN,
            "idle.service": machines.unit("sleep 999"),
        },
        {"supervise": SUPERVISE},
    ) as booted:
        yield booted


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_machine_is_found_without_being_registered(machine: machines.Machine) -> None:
    assert manager.machines()[machine.name] == machine.leader


def test_units_of_a_machine_and_their_restarts(machine: machines.Machine) -> None:
    systemd = units.Manager("/run/systemd/private", machine.leader)
    services: dict[str, units.Unit] = {}

    def looped() -> bool:
        # systemd forgets the last result while the next start is under way.
        services.update(systemd.read())
        loop = services["loop.service"]
        return loop.restarts >= 5 and loop.result == "exit-code"

    wait_for(looped)
    loop = services["loop.service"]
    assert (loop.file, loop.preset, loop.restart) == ("enabled", "enabled", "always")
    assert abs(loop.since_us / 1e6 - time.time()) < 60
    assert services["idle.service"].fact()["active"] == "active"
    assert (services["hidden.service"].active, services["hidden.service"].restarts) == ("active", 0)
    # The number that systemctl shows.
    restarts = machine.run("systemctl", "show", "loop.service", "-p", "NRestarts", "--value")
    assert 0 <= int(restarts) - loop.restarts < 200


def test_the_signals_name_the_machine(machine: machines.Machine) -> None:
    fleet = units.Fleet()
    services = fleet.read()
    assert f"{machine.name}:loop.service" in services
    assert fleet.read() is services  # both signals share one query


def test_a_loop_that_systemd_does_not_see_is_found_by_births(machine: machines.Machine) -> None:
    with contextlib.closing(cgroupchurn.Churn(cgroupchurn.hierarchies(pathlib.Path("/")))) as churn:

        def births() -> tuple[int, ...]:
            rows = churn.read()
            return next(
                (
                    row
                    for key, row in rows.items()
                    if key.startswith(machine.cgroup) and key.endswith("/hidden.service")
                ),
                (0, 0, 0, 0),
            )

        wait_for(lambda: births()[2] >= 6)
        born, died, short, _ = births()
        # One that was there at the start has no birth.
        assert born + 1 >= died >= short >= 6
        rows = churn.read()
    assert not any("idle.service" in key for key in rows)
    restarts = machine.run("systemctl", "show", "hidden.service", "-p", "NRestarts", "--value")
    assert int(restarts) == 0


def test_the_watches_see_both_loops(machine: machines.Machine) -> None:
    """Feed the agent's watches with these rows until both report."""
    seen: dict[str, str] = {}
    crash, hidden = loops.CrashLoop(), loops.HiddenLoop()
    fleet = units.Manager("/run/systemd/private", machine.leader)
    with contextlib.closing(cgroupchurn.Churn(cgroupchurn.hierarchies(pathlib.Path("/")))) as churn:

        def poll() -> bool:
            now = clock.Clock(time.time_ns(), time.monotonic_ns())
            restarts = {name: (item.restarts,) for name, item in fleet.read().items()}
            sightings = [
                *crash.check("unit-restarts", now, restarts),
                *hidden.check("cgroup-births", now, churn.read()),
            ]
            seen.update({item.kind: item.key for item in sightings if item.key.endswith(OURS)})
            return len(seen) == 2

        wait_for(poll)
    assert seen["unit.crash_loop"] == "loop.service"
    assert seen["unit.hidden_crash_loop"].startswith(machine.cgroup)


def left_behind(name: str, tree: pathlib.Path, leader: int) -> list[str]:
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    leftovers = [str(path) for path in pathlib.Path("/sys/fs/cgroup").glob(f"*/{name}*")]
    leftovers += [str(path) for path in (tree, pathlib.Path(f"/proc/{leader}")) if path.exists()]
    leftovers += [str(path) for path in pathlib.Path("/run/systemd/nspawn").glob(f"*/{name}*")]
    return leftovers + ([mounts] if name in mounts else [])


def test_nothing_is_left_even_when_the_test_fails() -> None:
    seen = []

    def fail() -> None:
        with machines.machine() as machine:
            seen.append((machine.name, machine.tree, machine.leader))
            assert machine.run("cat", "/etc/os-release").startswith("ID=overnight")
            assert left_behind(*seen[0])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert left_behind(*seen[0]) == []


def test_a_machine_that_goes_away_is_no_longer_queried() -> None:
    now = [1000.0]
    fleet = units.Fleet(clock=lambda: now[0])
    with machines.machine() as machine:
        assert any(key.startswith(f"{machine.name}:") for key in fleet.read())
    now[0] += 30
    with contextlib.suppress(units.sources.NoDataError):
        fleet.read()
    now[0] += 30
    with contextlib.suppress(units.sources.NoDataError):
        assert not any(key.startswith(f"{machine.name}:") for key in fleet.read())
    assert machine.name not in fleet._managers
