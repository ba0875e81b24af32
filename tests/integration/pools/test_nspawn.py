"""nspawn machines through the control plane: booted, claimed, replaced, returned, and fully removed."""

from __future__ import annotations

import contextlib
import pathlib
import re
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import assistants
import pytest
from realmachines import drained, inside, left_of, served, until

from overnight.app import clusters, pool_serving, pools
from overnight.model.cluster import ClusterOrder, ClusterState
from overnight.pools.providers import nspawn

if TYPE_CHECKING:
    from overnight.pools import control

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_nspawn, pytest.mark.together]


@pytest.fixture
def plane(tmp_path: pathlib.Path) -> Iterator[control.ControlPlane]:
    """A control plane that serves; its pool is drained at the end."""
    where = pools.Pools(tmp_path / "home")
    control_plane = where.plane
    stop = threading.Event()
    reaper = threading.Thread(
        target=pool_serving.serve, args=(where, stop), kwargs={"interval": 0.5}
    )
    reaper.start()
    yield control_plane
    until(lambda: drained(control_plane))
    stop.set()
    reaper.join()
    assert not (tmp_path / "home/pools/nspawn/trees").exists()


def kinds(plane: control.ControlPlane) -> list[tuple[str, str]]:
    return [(event.kind, event.reason) for event in plane.show("ci").events]


def test_a_machine_is_ready_claimed_returned_and_gone(plane: control.ControlPlane) -> None:
    plane.create(name="ci", template="plain", target_size=1, provider="nspawn")
    until(lambda: plane.show("ci").counts.ready == 1)
    [grant] = plane.acquire("ci", acquired_by="job-1")
    address = grant.member.address
    leader = pathlib.Path("/proc", address.partition("#")[2])
    assert (leader / "comm").read_text().strip() == "systemd"
    assert (leader / "status").read_text().partition("NSpid:")[2].split()[1] == "1"
    assert inside(address, "systemctl", "is-system-running", "--wait") == "running"
    assert inside(address, "hostname") == f"overnight-{grant.member.id}"
    assert "overlay" in inside(address, "findmnt", "-no", "FSTYPE", "/")
    assert "ro" in inside(address, "findmnt", "-no", "OPTIONS", "/usr").split(",")
    # The host has none of the machine's mounts.
    host = pathlib.Path("/proc/self/mountinfo").read_text()
    assert grant.member.id not in host
    plane.give_back(grant.claim.id)
    until(lambda: left_of(grant.member.id) == [])
    until(lambda: plane.show("ci").counts.ready == 1)  # its replacement


def test_a_machine_that_powers_off_is_noticed_and_replaced(
    plane: control.ControlPlane, tmp_path: pathlib.Path
) -> None:
    plane.create(name="ci", template="plain", target_size=1, provider="nspawn")
    until(lambda: plane.show("ci").counts.ready == 1)
    [first] = plane.show("ci").members
    inside(first.address, "systemctl", "poweroff")
    until(lambda: ("member_gone", "machine_gone") in kinds(plane))
    until(lambda: plane.show("ci").counts.ready == 1)
    [second] = plane.show("ci").members
    assert second.id != first.id
    until(lambda: left_of(first.id) == [])
    # Only its log is kept, for a day.
    [place] = (tmp_path / "home/pools/nspawn/members").glob(f"*/{first.id}")
    assert [path.name for path in place.iterdir()] == ["log"]
    plane.context.provider("nspawn").terminate(first.id, 10)


def test_a_machine_has_its_template_and_is_ready_once_its_units_run(
    plane: control.ControlPlane, tmp_path: pathlib.Path
) -> None:
    units = tmp_path / "home/pools/templates/runner-2/etc/systemd/system"
    (units / "multi-user.target.wants").mkdir(parents=True)
    (units / "prepare.service").write_text(
        "[Service]\nType=oneshot\nRemainAfterExit=yes\n"
        "ExecStart=/bin/sh -c 'sleep 0.5; echo done > /srv/prepared'\n"
    )
    (units / "multi-user.target.wants/prepare.service").symlink_to("../prepare.service")
    plane.create(
        name="ci", template="runner-2", target_size=1, provider="nspawn", instance_type="192M"
    )
    until(lambda: plane.show("ci").counts.ready == 1)
    [member] = plane.show("ci").members
    assert inside(member.address, "cat", "/srv/prepared") == "done"
    limits = [
        int(path.read_text())
        for name in nspawn.LIMITS
        for path in pathlib.Path("/sys/fs/cgroup").rglob(f"overnight-{member.id}/{name}")
    ]
    assert limits == [192 * 1024**2]


def plant_template(home: pathlib.Path, name: str, unit: str, ready: str = "") -> None:
    template = home / "pools/templates" / name
    units = template / "etc/systemd/system"
    (units / "multi-user.target.wants").mkdir(parents=True)
    (units / "prepare.service").write_text(unit)
    (units / "multi-user.target.wants/prepare.service").symlink_to("../prepare.service")
    if ready:
        script = template / "etc/overnight/ready"
        script.parent.mkdir()
        script.write_text(ready)
        script.chmod(0o755)


@pytest.fixture
def tools(tmp_path: pathlib.Path) -> Iterator[assistants.LocalTools]:
    with contextlib.closing(assistants.LocalTools(tmp_path / "home")) as local:
        yield local


def find_failed(tools: assistants.LocalTools, reason: str) -> Any:
    """Return the last failure with a reason, as assistants see it."""
    events = tools.call_tool("recent_events", pool_id="ci")["events"]
    return next(e for e in events if (e["kind"], e["reason"]) == ("member_errored", reason))


def test_a_machine_whose_unit_or_readiness_command_fails_is_never_ready(
    plane: control.ControlPlane, tools: assistants.LocalTools, tmp_path: pathlib.Path
) -> None:
    failing = "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo disk is missing; exit 3'\n"
    plant_template(tmp_path / "home", "broken", failing)
    working = "[Service]\nType=oneshot\nExecStart=/bin/true\n"
    plant_template(
        tmp_path / "home", "empty", working, "#!/bin/sh\necho reason=module_pull_failed; exit 1\n"
    )
    plane.create(
        name="ci", template="broken", target_size=1, provider="nspawn",
        breaker_failures=2, launch_backoff_seconds=0,
    )  # fmt: skip
    until(lambda: plane.show("ci").pool.breaker_opened_us)
    ask = tools.call_tool
    assert not [event for event in plane.show("ci").events if event.kind == "member_ready"]
    failed = find_failed(tools, "unit_failed")
    assert failed["detail"] == {"host_text": "prepare.service"}
    assert plane.show("ci").pool.last_failure == "unit_failed"
    shown = ask("system_get_instance_pool", id="ci")
    assert shown["instance_pool"]["ready_count"] == 0
    [problem] = [each for each in shown["problems"] if each["name"] == "breaker_open"]
    assert problem["said"] == {"host_text": "prepare.service"}
    assert ask("attribute_failure", id="ci")["cause"] == "bootstrap_failed"
    until(lambda: plane.member(failed["instance_id"]).gone_us)
    explained = ask("attribute_failure", id=failed["instance_id"])
    assert explained["cause"] == "bootstrap_failed"
    console = "\n".join(line["host_text"] for line in explained["console"])
    assert re.search(r"sh\[\d+\]: disk is missing$", console, re.MULTILINE)
    assert "Failed to start prepare.service" in console
    plane.update("ci", template="empty", close_breaker=True)
    until(lambda: ("member_errored", "module_pull_failed") in kinds(plane))
    failed = find_failed(tools, "module_pull_failed")
    assert ask("attribute_failure", id=failed["instance_id"])["cause"] == "template_missing"
    # The pool's owner may accept failed units.
    plane.update("ci", template="broken", close_breaker=True, failed_units_action="ignore")
    until(lambda: plane.show("ci").counts.ready == 1)


def test_a_machine_survives_a_killed_control_plane(tmp_path: pathlib.Path) -> None:
    plane = pools.Pools(tmp_path).plane
    plane.create(name="ci", template="plain", target_size=1, provider="nspawn")
    with served(tmp_path):
        until(lambda: plane.show("ci").counts.ready == 1)
        [first] = plane.show("ci").members
    try:
        # The agent is killed while no control plane runs; it is the same member after its restart.
        inside(first.address, "systemctl", "kill", "--signal=KILL", "overnight-member")
        with served(tmp_path):
            until(lambda: (plane.member(first.id).beat_us or 0) > (first.beat_us or 0))
            [again] = plane.show("ci").members
            assert (again.id, again.address) == (first.id, first.address)
            assert ("member_missing", "not_in_inventory") not in kinds(plane)
            [grant] = plane.acquire("ci")
            assert grant.member.id == first.id
    finally:
        until(lambda: drained(plane))
    assert left_of(first.id) == []


def test_a_cluster_of_two_machines_is_held_and_released(tmp_path: pathlib.Path) -> None:
    where = pools.Pools(tmp_path)
    use = clusters.Clusters(where)
    with served(tmp_path):
        until(lambda: where.plane.reaper_us)
        order = ClusterOrder(count=2, template="plain", provider="nspawn", acquired_by="trainer")
        name = use.create(order, confirmed=True).cluster.id
        try:
            held = use.follow(name)
            assert held.cluster.state is ClusterState.HELD, held
            members = held.details.members
            names = {inside(member.address, "hostname") for member in members}
            assert names == {f"overnight-{member.id}" for member in members}
            assert len(names) == len(held.details.claims) == 2
        finally:
            if use.show(name).cluster.state is ClusterState.ASSEMBLING:
                use.cancel(name)
            else:
                use.release(name)
            until(lambda: not use.list())
    assert [left_of(member.id) for member in members] == [[], []]
    assert not (tmp_path / "pools/nspawn/trees").exists()
