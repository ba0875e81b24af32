"""Interrupts of network interfaces, and which core serves which queue.

/proc/interrupts, a line an interrupt and a column an online core; at 192 cores it is a megabyte, of
which only the lines of network interfaces are taken apart::

               CPU0       CPU1
     38:      60509      31284 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0

Which interrupts are an interface's, its device says (/sys/class/net/IF/device/msi_irqs), not the name: drivers
name them after the interface, the PCI device or themselves, and the name may be older than the interface's.

A driver that resets names a queue and no core. The core is the interrupt's (effective_affinity_list), and it
must be known before the reset: afterwards the interrupts are new, and may be elsewhere.
"""

from __future__ import annotations

import dataclasses
import operator
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence

from overnight import sources

__all__ = [
    "SIGNALS",
    "Line",
    "Vector",
    "core_of",
    "moved",
    "name_queues",
    "open_interrupts",
    "open_queues",
    "parse_interrupts",
    "parse_mask",
    "parse_queue",
    "read_nic_irqs",
    "risen",
]

WRAP = 1 << 32  # the kernel counts an interrupt of one core in 32 bits
# What is at the end of a name that is not a queue's: management, configuration, commands.
NO_QUEUE = (
    "mgmnt",
    "mgmt",
    "config",
    "async",
    "misc",
    "cmd",
    "pages",
    "ctrl",
    "hwc",
    "event",
    "fdir",
)
GVE_BLOCK = ("ntfy-blk", "ntfy-block")
# A host with several interfaces of many queues; each is one row a look and a few files.
MOST_IRQS = 1024


@dataclasses.dataclass(frozen=True)
class Vector:
    """An interrupt of an interface: `queue` is -1 where it serves none."""

    irq: int
    interface: str
    name: str
    queue: int = -1
    way: str = ""  # "tx", "rx", "" for both

    @property
    def key(self) -> str:
        """`eth0 q5`; `eth0 tx5` where each direction has an interrupt of its own."""
        if self.queue < 0:
            return f"{self.interface} irq{self.irq}"
        return f"{self.interface} {self.way or 'q'}{self.queue}"


Line = tuple[tuple[int, ...], str]  # the counts of the cores, and the name


def parse_interrupts(data: bytes, irqs: Iterable[int]) -> tuple[tuple[str, ...], dict[int, Line]]:
    """The cores, and the lines of those interrupts; one that nobody asked for has no line.

    >>> text = b"           CPU0       CPU7       \\n 38:  60509  31284 PCI-MSIX 1-edge  virtio2-input.0\\n"
    >>> parse_interrupts(text, [38, 39])
    (('0', '7'), {38: ((60509, 31284), 'virtio2-input.0')})
    """
    head = data[: data.find(b"\n")]
    cores = tuple(head.decode("ascii").replace("CPU", "").split())
    if not cores:
        raise ValueError("the first line of the interrupts names no core")
    # kernel/irq/proc.c indents the head by the width of the numbers and eight.
    width = max(len(head) - len(head.lstrip(b" ")) - 8, 0)
    wanted = {b"%s:" % str(irq).rjust(width).encode("ascii"): irq for irq in irqs}
    lines: dict[int, Line] = {}
    # From line end to line end: five times as fast as searching for each number, at 192 cores.
    at = data.find(b"\n") + 1
    while at:
        irq = wanted.get(data[at : at + width + 1])
        end = data.find(b"\n", at)
        if irq is not None:
            line = data[at : end if end >= 0 else len(data)]
            _, *counts, rest = line.split(None, len(cores) + 1)
            words = rest.split()
            # A core that goes or comes while the file is read changes the columns in the midst of it:
            # such a line has a word among the counts, or a count among the words.
            if len(counts) == len(cores) and counts[-1].isdigit() and not words[0].isdigit():
                lines[irq] = tuple(map(int, counts)), sources.clean(words[-1])
        at = end + 1
    return cores, lines


def parse_queue(name: str, interface: str) -> tuple[int, str]:
    """Queue and direction that a driver's name for an interrupt tells; -1 for none.

    >>> [parse_queue(n, "eth0") for n in ("eth0-Tx-Rx-5", "virtio2-output.0", "mlx5_comp3@pci:0000:3b:00.0")]
    [(5, ''), (0, 'tx'), (3, '')]
    >>> [parse_queue(n, "eth0") for n in ("ena-mgmnt@pci:0000:20:03.0", "eth0", "mlx5_async0@pci:1")]
    [(-1, ''), (-1, ''), (-1, '')]
    """
    base = name.partition("@")[0]
    if base == interface:
        return -1, ""
    # The interface's own name may hold any of the words, as `rx0` or `misc1` do.
    rest = base.replace(interface, "", 1).lower()
    stem = rest.rstrip("0123456789")
    if stem == rest or any(word in stem for word in NO_QUEUE):
        return -1, ""
    sends, takes = "tx" in stem or "output" in stem, "rx" in stem or "input" in stem
    way = "" if sends == takes else "tx" if sends else "rx"
    return int(rest[len(stem) :]), way


def name_queues(interface: str, names: Mapping[int, str]) -> list[Vector]:
    """The interrupts of one interface with the queues they serve.

    gve has notification blocks: the first half of them sends, the second takes
    (gve_tx_idx_to_ntfy and gve_rx_idx_to_ntfy in its driver).
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
    """A mask of cores in the kernel's list format.

    >>> parse_mask(b"00000001,0000000f\\n"), parse_mask(b"0"), parse_mask(b"28")
    ('0-3,32', '', '3,5')
    """
    bits = int(text.replace(b",", b""), 16)
    parts, core = [], 0
    while bits:
        skip = (bits & -bits).bit_length() - 1
        bits >>= skip
        length = (~bits & (bits + 1)).bit_length() - 1
        core += skip
        parts.append(f"{core}-{core + length - 1}" if length > 1 else str(core))
        core += length
        bits >>= length
    return ",".join(parts)


def read_nic_irqs(root: pathlib.Path = sources.ROOT) -> dict[str, list[int]]:
    """The interrupts of each interface that is hardware, under the name that its folder has."""
    folder = os.fspath(root / "sys/class/net")
    irqs_by_interface: dict[str, list[int]] = {}
    taken: set[int] = set()
    for name in sources.hardware_interfaces(root):
        irqs = _device_irqs(f"{folder}/{name}/device")
        # Two interfaces of one device share its interrupts: each is counted once.
        if fresh := [irq for irq in irqs if irq not in taken]:
            irqs_by_interface[name] = fresh
            taken.update(fresh)
    return irqs_by_interface


def _device_irqs(device: str) -> list[int]:
    names = sources.list_folder(f"{device}/msi_irqs")
    if not names and b"virtio:" in (sources.read_once(f"{device}/modalias") or b""):
        # A virtio device lies inside the PCI device that has the interrupts. Others do not: the parent
        # of a plain PCI device is a bridge, with interrupts of its own.
        names = sources.list_folder(f"{device}/../msi_irqs")
    if names:
        return sorted(map(int, names))
    line = sources.read_once(f"{device}/irq")  # a device without message-signalled interrupts
    return [int(line)] if line and line.strip().isdigit() and int(line) else []


def open_interrupts(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    """The look at the counts, under the same keys as the queues.

    The counts of single cores are not kept, so this look compares with the one before: `top_core` is
    the core that took most since then. A core that goes off-line takes its column with it; the sum goes on
    from where it was.
    """
    file = sources.KeptFile(root / "proc/interrupts", room=16384)
    before: dict[int, tuple[tuple[int, ...], int]] = {}
    columns: tuple[str, ...] = ()

    def read() -> sources.Rows:
        nonlocal columns
        devices = read_nic_irqs(root)
        if not devices:
            raise sources.NoDataError("no network interface here has interrupts of its own")
        wanted = sorted(irq for irqs in devices.values() for irq in irqs)[:MOST_IRQS]
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
                    then = moved(then, columns, cores, now)
                rose = risen(then, now)
                most = max(rose)
                total += sum(rose)
                before[vector.irq] = now, total
                rows[vector.key] = vector.irq, total, int(cores[rose.index(most)]), most
        columns = cores
        return rows

    return read


def risen(then: Sequence[int], now: Sequence[int]) -> list[int]:
    """By how much each core's count has risen; all of it where there is nothing to compare with.

    >>> risen([5, WRAP - 1, 9], [7, 3, 4]), risen([], [7])
    ([2, 4, 4], [7])
    """
    if not then:
        return list(now)
    rose = list(map(operator.sub, now, then))
    if min(rose) < 0:
        # A small number after a very large one went over the top; else the interrupt is a new one.
        for i, more in enumerate(rose):
            if more < 0:
                rose[i] = more + WRAP if more < -WRAP // 2 else now[i]
    return rose


def moved(
    then: Sequence[int], columns: Sequence[str], cores: Sequence[str], now: Sequence[int]
) -> tuple[int, ...]:
    """The counts of before in the columns of now.

    A core that was off-line counted nothing: it begins with what it has now, for that was taken in
    before it went.

    >>> moved([1, 2], ["0", "1"], ["1", "5"], [4, 9])
    (2, 9)
    """
    known = dict(zip(columns, then, strict=True))
    return tuple(known.get(core, count) for core, count in zip(cores, now, strict=True))


def open_queues(root: pathlib.Path = sources.ROOT) -> sources.FactReader:
    """The look at which core serves each queue.

    `cores` is where the interrupt goes, `core` the one core where it is one, else -1. `xps` are the
    cores that send through the queue, `rps` those that its packets are handed to. `threaded`: a kernel
    thread polls, and runs where the scheduler puts it.
    """
    irq_folder = os.fspath(root / "proc/irq")
    net_folder = os.fspath(root / "sys/class/net")

    def read() -> sources.Facts:
        devices = read_nic_irqs(root)
        if not devices:
            raise sources.NoDataError("no network interface here has interrupts of its own")
        facts: dict[str, sources.Fact] = {}
        for interface, irqs in devices.items():
            names = {irq: name for irq in irqs[:MOST_IRQS] if (name := _action(irq_folder, irq))}
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
    """The driver's name for an interrupt: a folder of that name stands beside its settings.

    /proc/interrupts has it too, but is a megabyte.
    """
    try:
        with os.scandir(f"{folder}/{irq}") as entries:
            return next((sources.clean(e.name) for e in entries if e.is_dir()), "")
    except OSError:
        return ""


def _affinity(folder: str, irq: int) -> str:
    # Older kernels tell only the wish, smp_affinity_list.
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
    """The core that serves a queue; -1 where it is not one core, or not known.

    >>> core_of({"eth0 q5": {"core": 39}}, "eth0", 5)
    39
    """
    for key in (f"{interface} q{queue}", f"{interface} {way}{queue}"):
        if key in facts:
            return int(facts[key].get("core", -1))
    return -1


SIGNALS = (
    sources.Signal(
        "interrupts",
        10.0,
        "interface queue",
        (
            sources.Column("irq", "gauge"),
            sources.Column("count"),
            sources.Column("top_core", "gauge"),
            sources.Column("top_count", "gauge"),
        ),
        open_interrupts,
        "/proc/interrupts: how often each queue of a network interface called, and the core that took most of it",
    ),
    sources.FactSignal(
        "nic-queues",
        10.0,
        "interface queue",
        open_queues,
        "/proc/irq, /sys/class/net: which core serves which queue; a reset names the queue alone",
    ),
)
