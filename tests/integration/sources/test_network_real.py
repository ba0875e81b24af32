"""Network signals on a real veth pair in the test's own namespace."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import overnight
from overnight import sources
from overnight.sources import ethtool, interrupts, netqueues

SYS = pathlib.Path("/sys")
BEGIN = """
import json, pathlib, socket, subprocess, time
from overnight.sources import ethtool, interrupts, netqueues
from overnight import sources
def ip(*words): subprocess.run(["ip", *words], check=True)
def bring_up():
    # The kernel drops packets until it has noticed the carrier, up to a second later.
    ip("link", "set", "over0", "up"); ip("link", "set", "over1", "up")
    for _ in range(100):
        if pathlib.Path("/sys/class/net/over0/operstate").read_text() == "up\\n":
            return
        time.sleep(0.1)
    raise TimeoutError("over0 has no carrier")
"""
Run = Callable[[str], object]
Rows = Mapping[str, Any]


@pytest.fixture
def run_isolated() -> Run:
    """Return a function that runs Python in a new network namespace and returns its JSON output."""

    def run(script: str) -> object:
        # /sys shows the interfaces of the namespace in which it was mounted.
        inside = 'mount -t sysfs sysfs /sys && exec "$0" -c "$1"'
        done = subprocess.run(
            ["unshare", "--net", "--mount", "sh", "-c", inside, sys.executable, BEGIN + script],
            env={**os.environ, "PYTHONPATH": str(pathlib.Path(overnight.__file__).parents[1])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.needs_root
def test_traffic_and_link_flaps_are_counted(run_isolated: Run) -> None:
    before, after, none = run_isolated(
        """
ip("link", "add", "over0", "type", "veth", "peer", "name", "over1")
bring_up()
read = netqueues.open_interfaces()
packet_socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
packet_socket.bind(("over0", 0x88B5))
before = read()
for _ in range(37):
    packet_socket.send(b"\\xff" * 12 + b"\\x88\\xb5" + b"x" * 86)
ip("link", "set", "over1", "down"); ip("link", "set", "over1", "up")
after = read()
ip("link", "del", "over0")
print(json.dumps([before, after, read()]))
"""
    )
    names = netqueues.SIGNALS[0].columns
    sent = {n: after["over0"][i] - before["over0"][i] for i, n in enumerate(names)}
    received = {n: after["over1"][i] - before["over1"][i] for i, n in enumerate(names)}
    # The kernel sends a few packets of its own over a new link.
    assert sent["tx_packets"] >= 37
    assert received["rx_packets"] >= 37
    assert sent["tx_bytes"] >= 37 * 100
    assert sent["carrier_changes"] == 2
    assert set(none) == {"lo"}


@pytest.mark.needs_root
def test_a_drivers_counters_are_matched_with_their_names(run_isolated: Run) -> None:
    """The value of one counter is known: the index of the peer."""
    rows, troubles, facts, gone, index = run_isolated(
        """
ip("link", "add", "over0", "type", "veth", "peer", "name", "over1")
index = socket.if_nametoindex("over1")
names = lambda: ["lo", "over0", "none"]
troubles = dict(ethtool.open_ethtool(interfaces=names)())
facts = ethtool.open_drivers(interfaces=names)()
ethtool.TROUBLE = ("peer_ifindex",)
read = ethtool.open_ethtool(interfaces=names)
rows = read()
ip("link", "del", "over0")
print(json.dumps([rows, troubles, facts, read(), index]))
"""
    )
    assert rows == {"over0 peer_ifindex": [index]}
    assert "over0 rx_queue_0_drops" in troubles
    assert all(key.startswith("over0 ") for key in troubles)
    assert facts["over0"]["driver"] == "veth"
    assert "none" not in facts
    assert gone == {}


@pytest.mark.needs_root
def test_interfaces_that_are_not_hardware_have_no_interrupts(run_isolated: Run) -> None:
    assert run_isolated(
        """
ip("link", "add", "over0", "type", "veth", "peer", "name", "over1")
answers = []
for module in (interrupts, netqueues, ethtool):
    for signal in module.SIGNALS:
        try:
            answers.append([signal.name, len(signal.open(sources.ROOT)())])
        except sources.NoDataError:
            answers.append([signal.name, "no data"])
print(json.dumps(answers))
"""
    ) == [
        ["interrupts", "no data"],
        ["nic-queues", "no data"],
        ["interfaces", 3],
        ["tx-timeouts", "no data"],
        ["ethtool", "no data"],
        ["nic-drivers", "no data"],
    ]


def poll(read: Callable[[], Rows]) -> Rows:
    """Return the rows; none where the source finds no hardware."""
    try:
        return read()
    except sources.NoDataError:
        return {}


def test_counts_match_the_kernels_other_files() -> None:
    """/sys/kernel/irq has the same numbers."""

    def read_irq_count(irq: int) -> int:
        return sum(map(int, (SYS / f"kernel/irq/{irq}/per_cpu_count").read_text().split(",")))

    irqs = [irq for irqs in interrupts.read_nic_irqs().values() for irq in irqs]
    before = {irq: read_irq_count(irq) for irq in irqs}
    rows = poll(interrupts.open_interrupts())
    after = {irq: read_irq_count(irq) for irq in irqs}
    handled = {irq for irq in irqs if (SYS / f"kernel/irq/{irq}/actions").read_text().strip()}
    assert handled <= {row[0] for row in rows.values()} <= set(irqs)
    for irq, count, _, _ in rows.values():
        assert before[irq] <= count <= after[irq]


def test_every_queue_has_the_kernels_core() -> None:
    facts = poll(interrupts.open_queues())
    assert set(facts) == set(poll(interrupts.open_interrupts()))
    assert any(fact["queue"] == 0 for fact in facts.values()) == bool(interrupts.read_nic_irqs())
    for fact in facts.values():
        action = (SYS / f"kernel/irq/{fact['irq']}/actions").read_text().strip()
        assert fact["name"] == action
        effective = pathlib.Path(f"/proc/irq/{fact['irq']}/effective_affinity_list").read_text()
        assert fact["cores"] == effective.strip()


def test_every_transmit_queue_of_this_host_has_a_row() -> None:
    assert set(poll(netqueues.open_timeouts())) == {
        f"{name} q{queue.name[3:]}"
        for name in sources.hardware_interfaces()
        for queue in (SYS / f"class/net/{name}/queues").glob("tx-*")
    }


def test_drivers_of_this_hosts_hardware() -> None:
    facts = poll(ethtool.open_drivers())
    drivers = {
        name: link.resolve().name
        for name in sources.hardware_interfaces()
        if (link := SYS / f"class/net/{name}/device/driver").exists()
    }
    # mlx5_core and mlx5e differ in a letter, as others do: the beginning is the same.
    assert {name: str(facts[name]["driver"])[:3] for name in drivers} == {
        name: driver[:3] for name, driver in drivers.items()
    }
    assert set(facts) <= set(sources.hardware_interfaces())
