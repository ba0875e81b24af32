"""Damaged or foreign texts give numbers or the expected error, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis
import pytest
from hypothesis import strategies as st

from overnight.sources import (
    cpu,
    cputhrottling,
    disks,
    frequency,
    interrupts,
    limits,
    load,
    memory,
    netqueues,
    pressure,
    schedstat,
    softirqs,
    softnet,
    vmstat,
)
from overnight.sources.processes import affinity

PARSERS: dict[str, Callable[[bytes], object]] = {
    "cpu": cpu.parse_ticks,
    "affinity": affinity.parse_affinity,
    "cpu-throttling": cputhrottling.parse_throttling,
    "disks": disks.parse_disks,
    "frequency": frequency.parse_number,
    "interrupts": lambda data: interrupts.parse_interrupts(data, range(50)),
    "files": limits.parse_files,
    "threads": limits.parse_threads,
    "load": load.parse_load,
    "mask": interrupts.parse_mask,
    "memory": memory.parse_memory,
    "interfaces": netqueues.parse_interfaces,
    "pressure": pressure.parse_pressure,
    "schedstat": schedstat.parse_schedstat,
    "softirqs": softirqs.parse_softirqs,
    "softnet": lambda data: softnet.parse_softnet(data, lambda: [0, 1]),
    "vmstat": vmstat.parse_vmstat,
}
WORDS = st.sampled_from(
    b"cpu cpu0 CPU0 CPU1 38: NET_RX: eth0: some full total=7 version domain0 MemTotal: kB oom_kill 1/22 "
    b"00000001 0.47 7 -3 PCI-MSI eth0-Tx-Rx-0 \xff\x00 intr pgscan_direct 99999999999999999999 , "
    b"nr_periods nr_throttled throttled_time \nCpus_allowed_list: 0-3".split()
)
LINES = st.lists(st.lists(WORDS, max_size=6).map(b" ".join), max_size=6).map(b"\n".join)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", PARSERS)
@hypothesis.given(LINES | st.binary(max_size=60))
@hypothesis.settings(max_examples=150)
def test_any_text_gives_numbers_or_an_error(name: str, data: bytes) -> None:
    try:
        PARSERS[name](data)
    except ValueError:
        return
