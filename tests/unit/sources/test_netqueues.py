from __future__ import annotations

import pathlib
import shutil

import fakehost
import pytest

from overnight import sources
from overnight.sources import netqueues


def test_a_real_host(captured: pathlib.Path) -> None:
    rows = netqueues.open_interfaces(captured)()
    assert set(rows) == {"lo", "ifb0", "ifb1", "eth0"}
    line = next(
        line.split()
        for line in (captured / "proc/net/dev").read_text().splitlines()
        if "eth0" in line
    )
    numbers = list(map(int, line[1:]))
    assert rows["eth0"] == (2, *numbers[:4], *numbers[8:12])
    assert netqueues.open_timeouts(captured)() == {"eth0 q0": (0,)}


def test_counters_of_every_queue(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 8, interfaces={"eth0": "ena", "ens5": "mlx5"}, queues=4)
    host.put("sys/class/net/ens5/queues/tx-3/tx_timeout", "2\n")
    read = netqueues.open_timeouts(tmp_path)
    rows = read()
    assert set(rows) == {f"{name} q{n}" for name in ("eth0", "ens5") for n in range(4)}
    assert [key for key, (count,) in rows.items() if count] == ["ens5 q3"]
    # Remove a queue, then an interface.
    shutil.rmtree(tmp_path / "sys/class/net/ens5/queues/tx-3")
    assert "ens5 q3" not in read()
    shutil.rmtree(tmp_path / "sys/class/net/ens5")
    assert set(read()) == {f"eth0 q{n}" for n in range(4)}


def test_without_hardware_there_is_no_data(tmp_path: pathlib.Path) -> None:
    with pytest.raises(sources.NoDataError):
        netqueues.open_timeouts(tmp_path)()


def line(name: bytes, first: int) -> bytes:
    return name + b": " + b" ".join(b"%d" % n for n in range(first, first + 16)) + b"\n"


def test_hardware_comes_first_and_containers_do_not_crowd_it_out(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 2)
    veths = b"".join(line(b"veth%d" % n, n) for n in range(500))
    host.put("proc/net/dev", b"head\nhead\n" + veths + line(b"eth0", 1000))
    read = netqueues.open_interfaces(tmp_path)
    rows = read()
    assert len(rows) == netqueues.MAX_INTERFACES
    assert rows["eth0"][1] == 1000
    # Chosen interfaces stay chosen while they exist, whatever comes before them.
    host.put(
        "proc/net/dev",
        b"head\n" + line(b"aaa", 7) + veths[: veths.find(b"veth90")] + line(b"eth0", 1001),
    )
    assert set(read()) == set(rows)
    host.put("proc/net/dev", b"head\n" + line(b"aaa", 7) + line(b"eth0", 1001))
    assert set(read()) == {"aaa", "eth0"}


def test_hostile_names(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 2)
    host.put(
        "proc/net/dev", b"head\n" + line(b"  \xff\x1b[31m", 1) + line(b"a:b", 2) + b"cut: 1 2\n"
    )
    assert set(netqueues.open_interfaces(tmp_path)()) == {"\\xff\\x1b[31m", "a:b"}


def test_a_container_reads_its_hosts_interfaces_not_its_own(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 2)
    host.put("proc/1/net/dev", b"head\n" + line(b"host0", 5))
    assert set(netqueues.open_interfaces(tmp_path)()) == {"host0"}
