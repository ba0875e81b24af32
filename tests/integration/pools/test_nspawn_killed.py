"""The nspawn provider alone: machines are found after a kill at any step, and fully removed."""

from __future__ import annotations

import os
import pathlib
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from realmachines import drained, inside, leader_of, left_of, order, served, until

from overnight import pools
from overnight.app import pools as pool_app
from overnight.pools.providers import nspawn

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_nspawn, pytest.mark.together]

STEPS = ("folder", "planted", "cgroups", "spawned", "booting")
LAUNCH = """
import os, pathlib, signal, sys
from overnight import pools
from overnight.pools.providers import nspawn
folder, member, last = sys.argv[1:]
def step(name):
    if name == last:
        os.kill(os.getpid(), signal.SIGKILL)
provider = nspawn.Machines(pathlib.Path(folder), step)
provider.launch(pools.Order(owner="me", member_id=member, pool="ci", template="plain",
                            endpoint="http://127.0.0.1:9", token="5" * 64))
"""


@pytest.fixture
def member() -> str:
    return f"m-{secrets.token_hex(6)}"


@pytest.fixture
def provider(tmp_path: pathlib.Path) -> Iterator[nspawn.Machines]:
    machines = nspawn.create(tmp_path)
    yield machines
    for owner in ("me", "you"):
        for machine in machines.inventory(owner):
            machines.terminate(machine.id)


def test_concurrent_launches_of_a_member_give_one_machine(
    provider: nspawn.Machines, member: str
) -> None:
    machines: list[pools.Machine] = []
    threads = [
        threading.Thread(target=lambda: machines.append(provider.launch(order(member))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(machines) == 3
    assert len(set(machines)) == 1
    assert provider.inventory("me") == machines[:1]
    assert provider.inventory("you") == []
    provider.terminate(member)
    assert left_of(member) == []


def test_only_the_owner_can_read_the_order_and_no_command_line_has_the_token(
    provider: nspawn.Machines, member: str, tmp_path: pathlib.Path
) -> None:
    machine = provider.launch(order(member))
    place = tmp_path / "pools/nspawn/members/me" / member
    assert place.stat().st_mode & 0o077 == 0
    assert (place / "upper/var/lib/overnight/order.json").stat().st_mode & 0o077 == 0
    for line in left_of(member):
        assert "5" * 64 not in line
    parent = (pathlib.Path("/proc") / str(leader_of(machine)) / "environ").read_text()
    assert "5" * 64 not in parent


@pytest.mark.parametrize("last", STEPS)
def test_everything_left_by_a_launcher_killed_at_any_step_is_found(
    provider: nspawn.Machines, member: str, tmp_path: pathlib.Path, last: str
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", LAUNCH, str(tmp_path / "pools"), member, last], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    machines = provider.inventory("me")
    assert [machine.member_id for machine in machines] in ([[member]] if last == "booting" else [[], [member]])  # fmt: skip
    provider.terminate(member)
    # A process about to enter its cgroups finds them gone, and ends.
    until(lambda: left_of(member) == [])
    assert provider.inventory("me") == []
    assert not (tmp_path / "pools/nspawn").exists()


@pytest.mark.parametrize("last", ["planted", "cgroups", "booting"])
def test_a_killed_launch_can_be_retried(
    provider: nspawn.Machines, member: str, tmp_path: pathlib.Path, last: str
) -> None:
    subprocess.run(
        [sys.executable, "-c", LAUNCH, str(tmp_path / "pools"), member, last], check=False
    )
    before = provider.inventory("me") if last == "booting" else []
    machine = provider.launch(order(member))
    assert before in ([], [machine])
    assert provider.inventory("me") == [machine]
    assert leader_of(machine)


def test_a_machine_whose_pid_1_was_killed_is_gone_and_can_be_launched_again(
    provider: nspawn.Machines, member: str
) -> None:
    machine = provider.launch(order(member))
    os.kill(leader_of(machine), signal.SIGKILL)
    until(lambda: provider.inventory("me") == [])
    until(lambda: left_of(member) == [])
    again = provider.launch(order(member))
    assert leader_of(again) != leader_of(machine)


def test_a_machine_survives_its_nspawn_and_can_be_terminated(
    provider: nspawn.Machines, member: str
) -> None:
    machine = provider.launch(order(member))
    until(
        lambda: inside(machine.address, "systemctl", "is-active", "multi-user.target") == "active"
    )
    status = pathlib.Path(f"/proc/{leader_of(machine)}/status").read_text()
    parent = int(status.partition("PPid:")[2].split()[0])
    assert pathlib.Path(f"/proc/{parent}/comm").read_text().strip() == "systemd-nspawn"
    os.kill(parent, signal.SIGKILL)
    until(lambda: not pathlib.Path(f"/proc/{parent}").exists())
    assert provider.inventory("me") == [machine]
    assert inside(machine.address, "systemctl", "is-active", "overnight-member") == "active"
    provider.terminate(member)
    assert left_of(member) == []


@pytest.mark.parametrize(
    ("message", "reason"),
    [("Cannot allocate memory", "provider_quota_exceeded"), ("no luck", "provider_error")],
)
def test_a_machine_that_does_not_boot_has_a_reason_and_leaves_nothing(
    provider: nspawn.Machines,
    member: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    reason: str,
) -> None:
    monkeypatch.setattr(nspawn, "MOUNT", f"echo '{message}' >&2; exit 1")
    with pytest.raises(pools.ProviderError, match=message) as caught:
        provider.launch(order(member))
    assert (caught.value.reason, caught.value.nothing_made) == (reason, True)
    assert left_of(member) == []
    assert not (tmp_path / "pools/nspawn").exists()


KILLED_REPLENISH = """
import os, pathlib, signal, sys
from overnight.database import engine
from overnight.pools import control
from overnight.pools.providers import nspawn
home, last = pathlib.Path(sys.argv[1]), sys.argv[2]
def step(name):
    if name == last:
        os.kill(os.getpid(), signal.SIGKILL)
provider = nspawn.Machines(home / "pools", step)
plane = control.ControlPlane(engine.Database(engine.default_url(home)), {"nspawn": provider})
plane.replenish("ci")
"""


def test_a_machine_whose_launcher_was_killed_is_adopted_and_becomes_ready(
    tmp_path: pathlib.Path,
) -> None:
    plane = pool_app.Pools(tmp_path).plane
    with socket.create_server(("127.0.0.1", 0)) as free:
        plane.set("endpoint", f"http://127.0.0.1:{free.getsockname()[1]}")
    plane.create(name="ci", template="plain", target_size=1, provider="nspawn")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_REPLENISH, str(tmp_path), "booting"], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    [member] = plane.show("ci").members
    assert member.machine_id is None
    try:
        with served(tmp_path):
            until(lambda: plane.show("ci").counts.ready == 1)
            [again] = plane.show("ci").members
            assert again.id == again.machine_id == member.id
            assert inside(again.address, "hostname") == f"overnight-{member.id}"
    finally:
        until(lambda: drained(plane))
    assert left_of(member.id) == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_launchers_killed_at_any_moment_leave_nothing(
    provider: nspawn.Machines, tmp_path: pathlib.Path
) -> None:
    """Kill at every 3 ms from the first step until long after the last."""
    found_alive = 0
    for number in range(60):
        member = f"m-{secrets.token_hex(6)}"
        command = [sys.executable, "-c", LAUNCH, str(tmp_path / "pools"), member, "never"]
        with subprocess.Popen(command) as launcher:
            until((tmp_path / "pools/nspawn/members/me" / member).exists)
            time.sleep(number * 0.003)
            launcher.kill()
        machines = provider.inventory("me")
        assert [machine.member_id for machine in machines] in ([], [member])
        found_alive += len(machines)
        provider.terminate(member)
        until(lambda member=member: left_of(member) == [])
        assert not (tmp_path / "pools/nspawn").exists()
    assert found_alive > 10


UNIFIED = """
umount --recursive /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec "$@"
"""
ON_V2 = """
import pathlib, subprocess, sys
from overnight import pools
from overnight.pools.providers import nspawn
folder, member = sys.argv[1:]
provider = nspawn.Machines(pathlib.Path(folder))
machine = provider.launch(pools.Order(owner="me", member_id=member, pool="ci", template="plain",
                                      endpoint="http://127.0.0.1:9", token="5" * 64))
assert provider.inventory("me") == [machine]
inside = ["nsenter", "--target", machine.address.partition("#")[2], "--all", "--"]
while subprocess.run([*inside, "systemctl", "is-active", "--quiet", "overnight-member"]).returncode:
    assert provider.inventory("me") == [machine]
subprocess.run([*inside, "stat", "--file-system", "--format=%T", "/sys/fs/cgroup"], check=True)
provider.terminate(member)
assert provider.inventory("me") == []
"""


def test_a_machine_boots_on_a_host_with_only_cgroup_v2(member: str, tmp_path: pathlib.Path) -> None:
    """Simulate such a host in a mount namespace; its controllers are not tested."""
    result = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-ec", UNIFIED, "v2",
         sys.executable, "-c", ON_V2, str(tmp_path), member],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "cgroup2fs"
    assert left_of(member) == []
