"""A booted systemd inside this host: its crash loops, open and hidden, and that it leaves nothing."""

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
# A supervisor of its own: to systemd it runs without a fault, while its tasks die one after the other.
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
    ) as one:
        yield one


def wait_for(what: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_it_is_found_without_being_registered(machine: machines.Machine) -> None:
    assert manager.machines()[machine.name] == machine.leader


def test_units_of_a_machine_and_their_restarts(machine: machines.Machine) -> None:
    one = units.Manager("/run/systemd/private", machine.leader)
    found: dict[str, units.Unit] = {}

    def looped() -> bool:
        # systemd forgets the last result while the next start is under way.
        found.update(one.read())
        loop = found["loop.service"]
        return loop.restarts >= 5 and loop.result == "exit-code"

    wait_for(looped)
    loop = found["loop.service"]
    assert (loop.file, loop.preset, loop.restart) == ("enabled", "enabled", "always")
    assert abs(loop.since_us / 1e6 - time.time()) < 60
    assert found["idle.service"].fact()["active"] == "active"
    assert (found["hidden.service"].active, found["hidden.service"].restarts) == ("active", 0)
    # What systemd itself says, by its own tool.
    said = machine.run("systemctl", "show", "loop.service", "-p", "NRestarts", "--value")
    assert 0 <= int(said) - loop.restarts < 200


def test_the_signals_name_the_machine(machine: machines.Machine) -> None:
    fleet = units.Fleet()
    found = fleet.read()
    assert f"{machine.name}:loop.service" in found
    assert fleet.read() is found  # both signals share one query


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
        assert born >= died >= short >= 6
        rows = churn.read()
    assert not any("idle.service" in key for key in rows)
    shown = machine.run("systemctl", "show", "hidden.service", "-p", "NRestarts", "--value")
    assert int(shown) == 0


def test_the_watches_see_both_loops(machine: machines.Machine) -> None:
    """What the agent makes of these rows, with as many polls as it takes."""
    seen: dict[str, str] = {}
    crash, hidden = loops.CrashLoop(), loops.HiddenLoop()
    fleet = units.Manager("/run/systemd/private", machine.leader)
    with contextlib.closing(cgroupchurn.Churn(cgroupchurn.hierarchies(pathlib.Path("/")))) as churn:

        def poll() -> bool:
            now = clock.Clock(time.time_ns(), time.monotonic_ns())
            restarts = {name: (one.restarts,) for name, one in fleet.read().items()}
            sightings = [
                *crash.check("unit-restarts", now, restarts),
                *hidden.check("cgroup-births", now, churn.read()),
            ]
            seen.update({one.kind: one.key for one in sightings if one.key.endswith(OURS)})
            return len(seen) == 2

        wait_for(poll)
    assert seen["unit.crash_loop"] == "loop.service"
    assert seen["unit.hidden_crash_loop"].startswith(machine.cgroup)


def left_behind(name: str, tree: pathlib.Path, leader: int) -> list[str]:
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    found = [str(path) for path in pathlib.Path("/sys/fs/cgroup").glob(f"*/{name}*")]
    found += [str(path) for path in (tree, pathlib.Path(f"/proc/{leader}")) if path.exists()]
    found += [str(path) for path in pathlib.Path("/run/systemd/nspawn").glob(f"*/{name}*")]
    return found + ([mounts] if name in mounts else [])


def test_nothing_is_left_even_when_the_test_fails() -> None:
    seen = []

    def fail() -> None:
        with machines.machine() as one:
            seen.append((one.name, one.tree, one.leader))
            assert one.run("cat", "/etc/os-release").startswith("ID=overnight")
            assert left_behind(*seen[0])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert left_behind(*seen[0]) == []


def test_a_machine_that_goes_away_is_no_longer_queried() -> None:
    now = [1000.0]
    fleet = units.Fleet(clock=lambda: now[0])
    with machines.machine() as one:
        assert any(key.startswith(f"{one.name}:") for key in fleet.read())
    now[0] += 30
    with contextlib.suppress(units.sources.NoDataError):
        fleet.read()
    now[0] += 30
    with contextlib.suppress(units.sources.NoDataError):
        assert not any(key.startswith(f"{one.name}:") for key in fleet.read())
    assert one.name not in fleet._managers
