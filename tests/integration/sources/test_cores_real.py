"""Core signals on this host's kernel under real load."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from overnight import sources
from overnight.model import cpu as modes
from overnight.sources import cpu, interrupts, pressure, schedstat, softirqs, softnet

PROC = pathlib.Path("/proc")
SPIN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass\n"
TICK = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def spinning(core: int) -> Iterator[None]:
    """Run a process that keeps the core busy, once it has started."""
    with subprocess.Popen([sys.executable, "-c", SPIN, str(core)], stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        try:
            yield
        finally:
            child.kill()


@pytest.fixture
def core() -> Iterator[int]:
    """A core to which this test is pinned."""
    allowed = os.sched_getaffinity(0)
    chosen = max(allowed)
    os.sched_setaffinity(0, {chosen})
    yield chosen
    os.sched_setaffinity(0, allowed)


def test_ticks_of_every_core_are_complete_and_rise() -> None:
    read = cpu.open_ticks(sources.ROOT)
    first, second = read(), read()
    assert set(first) == {str(core) for core in cpu.online()}
    for name, row in first.items():
        assert len(row) == 10
        assert sum(second[name]) >= sum(row)


def test_a_busy_core_has_no_idle_ticks() -> None:
    busy = max(os.sched_getaffinity(0))
    read = cpu.open_ticks(sources.ROOT)
    with spinning(busy):
        first = now = read()[str(busy)]
        while sum(now) - sum(first) < TICK:
            now = read()[str(busy)]
    rose = dict(zip(modes.MODES, (b - a for a, b in zip(first, now, strict=True)), strict=True))
    assert rose["idle"] + rose["iowait"] <= TICK // 10
    # Other processes may use the core too, and the time of a niced process counts as nice.
    assert rose["user"] + rose["nice"] > TICK // 10


def test_packets_are_counted_on_the_receiving_core(core: int) -> None:
    """Packets over loopback are received by the core that sent them."""
    packets, interrupts = softnet.open_softnet(), softirqs.open_softirqs()
    kind = softirqs.KINDS.index("NET_RX")
    before, interrupts_before = packets()[str(core)][0], interrupts()[str(core)][kind]
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
    ):
        receiver.bind(("127.0.0.1", 0))
        for _ in range(300):
            sender.sendto(b"x", receiver.getsockname())
            receiver.recv(1)
    assert (packets()[str(core)][0] - before) % 2**32 >= 300
    assert (interrupts()[str(core)][kind] - interrupts_before) % 2**32 > 0


def test_online_cores_have_rows() -> None:
    online = {str(core) for core in cpu.online()}
    assert set(softirqs.open_softirqs()()) == set(softnet.open_softnet()()) == online


@pytest.mark.needs_root
@pytest.mark.long  # switching a core off unpins the processes of others
def test_a_core_switched_off_has_no_rows_until_it_is_back() -> None:
    core = max(cpu.online())
    switch = pathlib.Path(f"/sys/devices/system/cpu/cpu{core}/online")
    if not switch.exists():
        pytest.skip("no core of this host can be switched off")
    readers = [cpu.open_ticks(), softirqs.open_softirqs(), softnet.open_softnet()]
    if (PROC / "schedstat").exists():
        readers.append(schedstat.open_schedstat())
    counts = interrupts.open_interrupts() if interrupts.read_nic_irqs() else dict
    before, counted = [read() for read in readers], counts()
    switch.write_text("0")
    try:
        during, meanwhile = [read() for read in readers], counts()
    finally:
        switch.write_text("1")
    after, counted_after = [read() for read in readers], counts()
    for rows in (before, after):
        assert all(str(core) in each for each in rows)
    assert not any(str(core) in each for each in during)
    assert sum(after[0][str(core)]) >= sum(before[0][str(core)])
    # The sums do not fall with the column, and do not jump when it is back.
    for key, row in counted.items():
        assert row[1] <= meanwhile[key][1] <= counted_after[key][1] < row[1] + 100_000


def test_waiting_for_a_core_is_counted_where_the_kernel_counts_it() -> None:
    busy = str(max(os.sched_getaffinity(0)))
    # Where a process waited for a fifth of a second: the total pressure in us, the core's wait in ms.
    counters = {
        PROC / "pressure/cpu": (pressure.open_pressure(), "cpu", 0, 200_000),
        PROC / "schedstat": (schedstat.open_schedstat(), busy, 1, 200),
    }
    counted = [counter for path, counter in counters.items() if path.exists()]
    assert counted, "this kernel counts no waiting: build it with CONFIG_PSI or CONFIG_SCHEDSTATS"
    for path, (read, *_) in counters.items():
        if not path.exists():
            with pytest.raises(sources.NoDataError):
                read()
    with spinning(int(busy)), spinning(int(busy)):
        for read, key, column, waited in counted:
            first = now = read()[key]
            while now[column] - first[column] < waited:
                # The kernel adds pressure in whole jiffies: a faster reader sees no change.
                time.sleep(0.1)
                now = read()[key]
            assert now[0] > first[0]
