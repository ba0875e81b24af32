"""Interrupts of network interfaces, and which core serves which queue.

/proc/interrupts has a line per interrupt and a column per online core. At 192 cores it is a megabyte;
only the lines of network interfaces are parsed::

               CPU0       CPU1
     38:      60509      31284 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0

The device lists the interrupts of an interface (/sys/class/net/IF/device/msi_irqs). Their names do not tell:
drivers name them after the interface, the PCI device or themselves, and an interface may have been renamed.

A driver that resets names a queue but not a core. The core is the interrupt's (effective_affinity_list), and
must be known before the reset: afterwards the interrupts are new and may be on other cores.
"""

from __future__ import annotations

import dataclasses
import operator
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence

from overnight import errors, sources
from overnight.model import cpu

WRAP = 1 << 32  # the kernel counts an interrupt of one core in 32 bits
# Words in names of interrupts that do not serve a queue: management, configuration, commands.
NO_QUEUE = ("mgmnt", "mgmt", "config", "async", "misc", "cmd", "pages", "ctrl", "hwc", "event", "fdir")  # fmt: skip
GVE_BLOCK = ("ntfy-blk", "ntfy-block")
# Enough for several interfaces with many queues; each is one row per poll and a few files.
MAX_IRQS = 1024
NO_INTERRUPTS = "no network interface here has interrupts of its own"


@dataclasses.dataclass(frozen=True)
class Vector:
    """An interrupt of an interface; `queue` is -1 where it does not serve one."""

    irq: int
    interface: str
    name: str
    queue: int = -1
    way: str = ""  # "tx", "rx", "" for both

    @property
    def key(self) -> str:
        """Return `eth0 q5`, or `eth0 tx5` where each direction has its own interrupt."""
        if self.queue < 0:
            return f"{self.interface} irq{self.irq}"
        return f"{self.interface} {self.way or 'q'}{self.queue}"


Line = tuple[tuple[int, ...], str]  # the counts of the cores, and the name


def parse_interrupts(data: bytes, irqs: Iterable[int]) -> tuple[tuple[str, ...], dict[int, Line]]:
    """Parse the cores and the lines of the given interrupts.

    >>> text = b"           CPU0       CPU7       \\n 38:  60509  31284 PCI-MSIX 1-edge  virtio2-input.0\\n"
    >>> parse_interrupts(text, [38, 39])
    (('0', '7'), {38: ((60509, 31284), 'virtio2-input.0')})
    """
    head = data[: data.find(b"\n")]
    cores = tuple(head.decode("ascii").replace("CPU", "").split())
    if not cores:
        raise ValueError("the first line of /proc/interrupts does not name a core")
    # kernel/irq/proc.c indents the header by the width of the numbers plus eight.
    width = max(len(head) - len(head.lstrip(b" ")) - 8, 0)
    wanted = {b"%s:" % str(irq).rjust(width).encode("ascii"): irq for irq in irqs}
    lines: dict[int, Line] = {}
    # Going from line to line is five times as fast as searching for each number, at 192 cores.
    at = data.find(b"\n") + 1
    while at:
        irq = wanted.get(data[at : at + width + 1])
        end = data.find(b"\n", at)
        if irq is not None:
            line = data[at : end if end >= 0 else len(data)]
            _, *counts, rest = line.split(None, len(cores) + 1)
            words = rest.split()
            # A core that goes on-line or off-line during the read changes the columns halfway: such a
            # line has a word among the counts, or a count among the words.
            if len(counts) == len(cores) and counts[-1].isdigit() and not words[0].isdigit():
                lines[irq] = tuple(map(int, counts)), sources.clean(words[-1])
        at = end + 1
    return cores, lines


def parse_queue(name: str, interface: str) -> tuple[int, str]:
    """Parse queue and direction from a driver's name for an interrupt; -1 for no queue.

    >>> [parse_queue(n, "eth0") for n in ("eth0-Tx-Rx-5", "virtio2-output.0", "mlx5_comp3@pci:0000:3b:00.0")]
    [(5, ''), (0, 'tx'), (3, '')]
    >>> [parse_queue(n, "eth0") for n in ("ena-mgmnt@pci:0000:20:03.0", "eth0", "mlx5_async0@pci:1")]
    [(-1, ''), (-1, ''), (-1, '')]
    """
    base = name.partition("@")[0]
    if base == interface:
        return -1, ""
    # The interface's own name may contain any of the words, as `rx0` or `misc1` do.
    rest = base.replace(interface, "", 1).lower()
    stem = rest.rstrip("0123456789")
    if stem == rest or any(word in stem for word in NO_QUEUE):
        return -1, ""
    sends, receives = "tx" in stem or "output" in stem, "rx" in stem or "input" in stem
    way = "" if sends == receives else "tx" if sends else "rx"
    return int(rest[len(stem) :]), way


def name_queues(interface: str, names: Mapping[int, str]) -> list[Vector]:
    """Assign the interrupts of one interface to the queues they serve.

    gve has notification blocks: the first half sends, the second half receives (gve_tx_idx_to_ntfy and
    gve_rx_idx_to_ntfy in its driver).
    """
    vectors = []
    blocks = sum(any(word in name for word in GVE_BLOCK) for name in names.values())
    for irq, name in sorted(names.items()):
        queue, way = parse_queue(name, interface)
        if queue >= 0 and any(word in name for word in GVE_BLOCK):
            way = "tx" if queue < blocks // 2 else "rx"
            queue -= 0 if way == "tx" else blocks // 2
        vectors.append(Vector(irq, interface, name, queue, way))
    return vectors


def parse_mask(text: bytes) -> str:
    """Convert a mask of cores to the kernel's list format.

    >>> parse_mask(b"00000001,0000000f\\n"), parse_mask(b"0"), parse_mask(b"28")
    ('0-3,32', '', '3,5')
    """
    bits = f"{int(text.replace(b',', b''), 16):b}"
    return cpu.format_cores(core for core, bit in enumerate(reversed(bits)) if bit == "1")


def read_nic_irqs(root: pathlib.Path = sources.ROOT) -> dict[str, list[int]]:
    """List the interrupts of each hardware interface, by the name of its sysfs folder."""
    folder = os.fspath(root / "sys/class/net")
    irqs_by_interface: dict[str, list[int]] = {}
    assigned: set[int] = set()
    for name in sources.hardware_interfaces(root):
        irqs = _device_irqs(f"{folder}/{name}/device")
        # Two interfaces of one device share its interrupts: each is counted once.
        if fresh := [irq for irq in irqs if irq not in assigned]:
            irqs_by_interface[name] = fresh
            assigned.update(fresh)
    return irqs_by_interface


def _device_irqs(device: str) -> list[int]:
    names = sources.list_folder(f"{device}/msi_irqs")
    if not names and b"virtio:" in (sources.read_once(f"{device}/modalias") or b""):
        # A virtio device is a child of the PCI device that has the interrupts. The parent of a plain
        # PCI device is a bridge with interrupts of its own.
        names = sources.list_folder(f"{device}/../msi_irqs")
    if names:
        return sorted(map(int, names))
    line = sources.read_once(f"{device}/irq")  # a device without message-signalled interrupts
    return [int(line)] if line and line.strip().isdigit() and int(line) else []


def open_interrupts(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    """Open a reader of the counts, under the same keys as the queues.

    The counts of single cores are not stored, so each reading is compared with the one before:
    `top_core` is the core that handled most interrupts since then. When a core goes off-line, its column
    disappears and the sum continues from its last value.
    """
    file = sources.KeptFile(root / "proc/interrupts", room=16384)
    before: dict[int, tuple[tuple[int, ...], int]] = {}
    columns: tuple[str, ...] = ()

    def read() -> sources.Rows:
        nonlocal columns
        devices = read_nic_irqs(root)
        if not devices:
            raise sources.NoDataError(NO_INTERRUPTS)
        wanted = sorted(irq for irqs in devices.values() for irq in irqs)[:MAX_IRQS]
        cores, lines = parse_interrupts(file.read(), wanted)
        for irq in before.keys() - set(wanted):
            del before[irq]
        rows: dict[str, tuple[int, ...]] = {}
        for interface, irqs in devices.items():
            names = {irq: lines[irq][1] for irq in irqs if irq in lines}
            for vector in name_queues(sources.clean(interface), names):
                now = lines[vector.irq][0]
                then, total = before.get(vector.irq, ((), 0))
                if then and columns != cores:
                    then = align_counts(then, columns, cores, now)
                increases = count_increases(then, now)
                highest = max(increases)
                total += sum(increases)
                before[vector.irq] = now, total
                rows[vector.key] = vector.irq, total, int(cores[increases.index(highest)]), highest
        columns = cores
        return rows

    return read


def count_increases(then: Sequence[int], now: Sequence[int]) -> list[int]:
    """Return the increase of each core's count; the whole count without an earlier reading.

    >>> count_increases([5, WRAP - 1, 9], [7, 3, 4]), count_increases([], [7])
    ([2, 4, 4], [7])
    """
    if not then:
        return list(now)
    increases = list(map(operator.sub, now, then))
    if min(increases) < 0:
        # A small count after a very large one has wrapped; otherwise the interrupt is a new one.
        for i, change in enumerate(increases):
            if change < 0:
                increases[i] = change + WRAP if change < -WRAP // 2 else now[i]
    return increases


def align_counts(
    then: Sequence[int], columns: Sequence[str], cores: Sequence[str], now: Sequence[int]
) -> tuple[int, ...]:
    """Arrange earlier counts by the current columns.

    A core that was off-line starts at its current count: that was counted before it went off-line.

    >>> align_counts([1, 2], ["0", "1"], ["1", "5"], [4, 9])
    (2, 9)
    """
    known = dict(zip(columns, then, strict=True))
    return tuple(known.get(core, count) for core, count in zip(cores, now, strict=True))


def open_queues(root: pathlib.Path = sources.ROOT) -> sources.FactReader:
    """Open a reader of the core that serves each queue.

    `cores` are the cores that the interrupt is routed to; `core` is the single one, or -1. `xps` are the
    cores that send through the queue, `rps` the cores that process its packets. With `threaded` a kernel
    thread polls the queue, on any core.
    """
    irq_folder = os.fspath(root / "proc/irq")
    net_folder = os.fspath(root / "sys/class/net")

    def read() -> sources.Facts:
        devices = read_nic_irqs(root)
        if not devices:
            raise sources.NoDataError(NO_INTERRUPTS)
        facts: dict[str, sources.Fact] = {}
        for interface, irqs in devices.items():
            names = {irq: name for irq in irqs[:MAX_IRQS] if (name := _action(irq_folder, irq))}
            threaded = (sources.read_once(f"{net_folder}/{interface}/threaded") or b"0").strip()
            for vector in name_queues(sources.clean(interface), names):
                cores = _affinity(irq_folder, vector.irq)
                fact: dict[str, str | int | float | bool] = {
                    "irq": vector.irq,
                    "interface": vector.interface,
                    "queue": vector.queue,
                    "way": vector.way,
                    "name": vector.name,
                    "cores": cores,
                    "core": int(cores) if cores.isdigit() else -1,
                }
                if vector.queue >= 0:
                    fact |= _steering(f"{net_folder}/{interface}/queues", vector)
                if threaded != b"0":
                    fact["threaded"] = True
                facts[vector.key] = fact
        return facts

    return read


def _action(folder: str, irq: int) -> str:
    """Read the driver's name for an interrupt: a folder next to its settings has that name.

    /proc/interrupts has it too, but is a megabyte.
    """
    try:
        with os.scandir(f"{folder}/{irq}") as entries:
            return next((sources.clean(e.name) for e in entries if e.is_dir()), "")
    except OSError as error:
        errors.raise_own(error)
        return ""


def _affinity(folder: str, irq: int) -> str:
    # Older kernels have only the requested affinity, smp_affinity_list.
    for name in ("effective_affinity_list", "smp_affinity_list"):
        text = (sources.read_once(f"{folder}/{irq}/{name}") or b"").strip()
        if text:
            return text.decode("ascii", "replace")
    return ""


def _steering(queues: str, vector: Vector) -> dict[str, str]:
    steering = {}
    for way, name in (("tx", "xps"), ("rx", "rps")):
        if vector.way in ("", way):
            mask = sources.read_once(f"{queues}/{way}-{vector.queue}/{name}_cpus")
            if mask and mask.strip(b"0,\n"):
                steering[name] = parse_mask(mask)
    return steering


def core_of(facts: sources.Facts, interface: str, queue: int, way: str = "tx") -> int:
    """Return the core that serves a queue; -1 where it is not a single one, or not known.

    >>> core_of({"eth0 q5": {"core": 39}}, "eth0", 5)
    39
    """
    for key in (f"{interface} q{queue}", f"{interface} {way}{queue}"):
        if key in facts:
            return int(facts[key].get("core", -1))
    return -1


COLUMNS = ("irq", "count", "top_core", "top_count")
SIGNALS = (
    sources.Signal("interrupts", 10.0, "interface queue", COLUMNS, open_interrupts),
    sources.FactSignal("nic-queues", 10.0, "interface queue", open_queues),
)
