from __future__ import annotations

import pathlib
import shutil

import fakehost
import pytest

from overnight import sources
from overnight.sources import interrupts


def test_a_real_host(captured: pathlib.Path) -> None:
    rows = interrupts.open_interrupts(captured)()
    assert list(rows) == ["eth0 irq37", "eth0 rx0", "eth0 tx0"]
    text = (captured / "proc/interrupts").read_text().splitlines()
    first, second = next(map(int, line.split()[1:3]) for line in text if "virtio2-input.0" in line)
    assert rows["eth0 rx0"] == (38, first + second, 0 if first > second else 1, max(first, second))
    facts = interrupts.open_queues(captured)()
    assert facts["eth0 tx0"] == {
        "irq": 39,
        "interface": "eth0",
        "queue": 0,
        "way": "tx",
        "name": "virtio2-output.0",
        "cores": "0",
        "core": 0,
    }
    assert interrupts.core_of(facts, "eth0", 0) == 0


@pytest.mark.parametrize(
    ("name", "interface", "queue"),
    [
        ("eth0-Tx-Rx-5", "eth0", (5, "")),
        ("ens5-Tx-Rx-31", "ens5", (31, "")),
        ("eth0-TxRx-12", "eth0", (12, "")),
        ("i40e-eth0-TxRx-3", "eth0", (3, "")),
        ("iavf-enp1s0-TxRx-7", "enp1s0", (7, "")),
        ("ice-eth2-TxRx-0", "eth2", (0, "")),
        ("eth0-rx-1", "eth0", (1, "rx")),
        ("eth0-tx-1", "eth0", (1, "tx")),
        ("eth0-rxtx-3", "eth0", (3, "")),
        ("rx7-Tx-Rx-2", "rx7", (2, "")),
        ("mlx5_comp17@pci:0000:3b:00.0", "eth0", (17, "")),
        ("mlx4-5@0000:81:00.0", "eth0", (5, "")),
        ("mlx5_async0@pci:0000:3b:00.0", "eth0", (-1, "")),
        ("virtio2-input.3", "eth0", (3, "rx")),
        ("virtio2-output.3", "eth0", (3, "tx")),
        ("virtio2-config", "eth0", (-1, "")),
        ("ena-mgmnt@pci:0000:20:03.0", "eth0", (-1, "")),
        ("mana_q4@pci:7870:00:00.0", "eth0", (4, "")),
        ("mana_hwc@pci:7870:00:00.0", "eth0", (-1, "")),
        ("i40e-0000:3b:00.0:misc", "eth0", (-1, "")),
        ("eth0", "eth0", (-1, "")),
        ("eth-old-Tx-Rx-9", "ens5", (9, "")),
    ],
)
def test_queues_by_drivers_names(name: str, interface: str, queue: tuple[int, str]) -> None:
    assert interrupts.parse_queue(name, interface) == queue


@pytest.mark.parametrize("kind", fakehost.NAMES)
def test_every_driver_gives_each_queue_a_core(tmp_path: pathlib.Path, kind: str) -> None:
    host = fakehost.FakeHost(tmp_path, 16, offline=(1, 9), interfaces={"eth0": kind}, queues=8)
    facts = interrupts.open_queues(tmp_path)()
    for queue in range(8):
        key = f"eth0 tx{queue}" if kind in ("virtio", "gve") else f"eth0 q{queue}"
        irq = host.irqs[int(facts[key]["irq"])]
        assert facts[key]["name"] == irq.name
        assert interrupts.core_of(facts, "eth0", queue) == irq.core
        assert facts[key]["xps"] == str(host.online[queue])
        if kind in ("virtio", "gve"):
            rx = host.irqs[int(facts[f"eth0 rx{queue}"]["irq"])]
            assert interrupts.core_of(facts, "eth0", queue, "rx") == rx.core
    assert interrupts.core_of(facts, "eth0", 99) == -1
    # The numbers have the same keys.
    assert set(interrupts.open_interrupts(tmp_path)()) == set(facts)


def test_a_large_host(large: fakehost.FakeHost) -> None:
    text = (large.root / "proc/interrupts").read_bytes()
    assert len(text) > 900_000
    rows = interrupts.open_interrupts(large.root)()
    assert set(rows) == {"eth0 irq420", *(f"eth0 q{n}" for n in range(32))}
    for irq, count, top, most in rows.values():
        counts = large.irqs[irq].counts
        assert (count, most) == (sum(counts), max(counts))
        assert counts[top] == most
        assert top not in (3, 97)


def test_the_busiest_core_is_that_of_the_last_interval(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 4, queues=1)
    number = host.of["eth0"][1]
    host.irqs[number].counts = [1000, 0, 0, 0]
    host.write()
    read = interrupts.open_interrupts(tmp_path)
    assert read()["eth0 q0"] == (number, 1000, 0, 1000)
    host.irqs[number].counts = [1003, 0, 50, 0]
    host.write()
    assert read()["eth0 q0"] == (number, 1053, 2, 50)


def test_a_core_that_goes_offline_and_comes_back_changes_no_sum(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 4, queues=1)
    number = host.of["eth0"][1]
    host.irqs[number].counts = [10, 20, 500, 40]
    host.write()
    read = interrupts.open_interrupts(tmp_path)
    assert read()["eth0 q0"][1] == 570
    host.irqs[number].counts[3] += 5
    host.switch(2, on=False)
    assert read()["eth0 q0"] == (number, 575, 3, 5)
    host.irqs[number].counts[0] += 1
    host.switch(2, on=True)
    assert read()["eth0 q0"] == (number, 576, 0, 1)
    host.irqs[number].counts[2] += 7
    host.write()
    assert read()["eth0 q0"] == (number, 583, 2, 7)


def test_a_reset_gives_new_interrupts(tmp_path: pathlib.Path) -> None:
    """A driver that resets frees its interrupts: the same number begins again at zero."""
    host = fakehost.FakeHost(tmp_path, 2, queues=1)
    number = host.of["eth0"][1]
    host.irqs[number].counts = [1000, 0]
    host.write()
    read = interrupts.open_interrupts(tmp_path)
    read()
    host.irqs[number].counts = [3, 1]
    host.write()
    assert read()["eth0 q0"] == (number, 1004, 0, 3)


def test_columns_are_not_mixed_up_while_a_core_goes_offline() -> None:
    head = b"           CPU0       CPU1       CPU2       \n"
    short = b" 38:          1          2  PCI-MSI 1-edge      eth0-Tx-Rx-0\n"
    long = b" 39:          1          2          3          4  PCI-MSI 1-edge      eth0-Tx-Rx-1\n"
    good = b" 40:          1          2          3  PCI-MSI 1-edge      eth0-Tx-Rx-2\n"
    _, lines = interrupts.parse_interrupts(head + short + long + good, [38, 39, 40])
    assert lines == {40: ((1, 2, 3), "eth0-Tx-Rx-2")}


def test_numbers_of_any_width() -> None:
    head = b"             CPU0       \n"
    text = (
        head
        + b"    8:  1 IO-APIC 8-edge rtc0\n  108:  2 PCI-MSI 1-edge eth0\n10008:  3 PCI-MSI 1-edge x\n"
    )
    _, lines = interrupts.parse_interrupts(text, [8, 108, 10008, 9])
    assert {irq: counts for irq, (counts, _) in lines.items()} == {8: (1,), 108: (2,), 10008: (3,)}


def test_a_bridges_interrupts_are_not_the_interfaces(tmp_path: pathlib.Path) -> None:
    """Only a virtio device uses the interrupts of its parent device."""
    host = fakehost.FakeHost(tmp_path, 2, interfaces={"eth0": "virtio"}, queues=1)
    assert interrupts.read_nic_irqs(tmp_path) == {"eth0": host.of["eth0"]}
    host.put("sys/class/net/eth0/device/modalias", "pci:v00001D0Fd0000EC20\n")
    assert interrupts.read_nic_irqs(tmp_path) == {}
    with pytest.raises(sources.NoDataError):
        interrupts.open_interrupts(tmp_path)()
    with pytest.raises(sources.NoDataError):
        interrupts.open_queues(tmp_path)()
    host.put("sys/class/net/eth0/device/irq", "26\n")
    assert interrupts.read_nic_irqs(tmp_path) == {"eth0": [26]}


def test_the_rows_of_a_removed_interface_disappear(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 4, interfaces={"eth0": "ena", "ens5": "ixgbe"}, queues=2)
    read, queues = interrupts.open_interrupts(tmp_path), interrupts.open_queues(tmp_path)
    assert len(read()) == len(queues()) == 6
    shutil.rmtree(tmp_path / f"proc/irq/{host.of['ens5'][1]}")
    assert len(queues()) == 5
    shutil.rmtree(tmp_path / "sys/class/net/ens5")
    assert set(read()) == set(queues()) == {f"eth0 irq{host.of['eth0'][0]}", "eth0 q0", "eth0 q1"}


def test_the_allowed_cores_are_used_when_the_effective_core_is_unknown(
    tmp_path: pathlib.Path,
) -> None:
    host = fakehost.FakeHost(tmp_path, 4, queues=1)
    number = host.of["eth0"][1]
    (tmp_path / f"proc/irq/{number}/effective_affinity_list").unlink()
    host.put("sys/class/net/eth0/threaded", "1\n")
    host.put("sys/class/net/eth0/queues/rx-0/rps_cpus", "e\n")
    fact = interrupts.open_queues(tmp_path)()["eth0 q0"]
    assert (fact["cores"], fact["core"]) == ("0-3", -1)
    assert (fact["threaded"], fact["rps"]) == (True, "1-3")


@pytest.mark.parametrize(
    ("mask", "cores"),
    [
        (b"00000000,00000000\n", ""),
        (b"ffffffff,ffffffff,ffffffff\n", "0-95"),
        (b"80000000,00000000\n", "63"),
        (b"5\n", "0,2"),
        (b"ff00ff", "0-7,16-23"),
    ],
)
def test_masks(mask: bytes, cores: str) -> None:
    assert interrupts.parse_mask(mask) == cores
