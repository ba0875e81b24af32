"""A whole host's /proc and /sys in a folder, as the kernel writes them: any number of cores, seeded.

    host = fakehost.FakeHost(folder, cores=192, offline=(3, 97))
    host.advance(1.0)     # a second later: the counters have risen, the files are written again

The formats are those of fs/proc, kernel/irq/proc.c, kernel/sched/stats.c, kernel/sched/psi.c,
net/core/net-procfs.c and mm/vmstat.c, by the versions that the arguments name. The same seed makes the
same host, and the same steps the same numbers.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random
from collections.abc import Collection, Iterable, Mapping

SOFTIRQS = (
    "HI",
    "TIMER",
    "NET_TX",
    "NET_RX",
    "BLOCK",
    "IRQ_POLL",
    "TASKLET",
    "SCHED",
    "HRTIMER",
    "RCU",
)
VMSTAT = ["nr_free_pages", "nr_zone_inactive_anon", "nr_zone_active_anon", "nr_mlock", "numa_hit", "numa_miss", "nr_dirty", "nr_writeback", "workingset_nodes", "workingset_refault_anon", "workingset_refault_file", "pgpgin", "pgpgout", "pswpin", "pswpout", "allocstall_dma", "allocstall_dma32", "allocstall_normal", "allocstall_movable", "pgfree", "pgactivate", "pgfault", "pgmajfault", "pgsteal_kswapd", "pgsteal_direct", "pgscan_kswapd", "pgscan_direct", "pgscan_direct_throttle", "slabs_scanned", "drop_pagecache", "drop_slab", "oom_kill", "numa_pages_migrated", "compact_migrate_scanned", "compact_stall", "compact_fail", "thp_fault_alloc", "thp_fault_fallback", "thp_collapse_alloc", "thp_split_page"] + [f"nr_other_{n}" for n in range(150)]  # fmt: skip
MEMINFO = ["MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "SwapCached", "Active", "Inactive", "SwapTotal", "SwapFree", "Dirty", "Writeback", "AnonPages", "Mapped", "Shmem", "KReclaimable", "Slab", "SReclaimable", "SUnreclaim", "KernelStack", "PageTables", "Percpu"]  # fmt: skip
# kind of interface -> names of its interrupts; {i} the interface, {n} the queue, {a} the PCI address
NAMES = {
    "ena": (["ena-mgmnt@pci:{a}"], ["{i}-Tx-Rx-{n}"]),
    "ixgbe": (["{i}"], ["{i}-TxRx-{n}"]),
    "i40e": (["i40e-{a}:misc"], ["i40e-{i}-TxRx-{n}"]),
    "iavf": (["iavf-{a}:mbx"], ["iavf-{i}-TxRx-{n}"]),
    "mlx5": (["mlx5_async0@pci:{a}"], ["mlx5_comp{n}@pci:{a}"]),
    "virtio": (["virtio2-config"], ["virtio2-input.{n}", "virtio2-output.{n}"]),
    "gve": (["gve-mgmnt@pci:{a}"], ["gve-ntfy-blk{n}@pci:{a}"]),
}
MOUNTS = {
    "v1": "31 24 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n",
    "v2": "30 23 0:26 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n",
    "hybrid": "31 24 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "39 24 0:35 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
}
POD = "kubepods/burstable/pod1"  # has a CPU quota


@dataclasses.dataclass
class Irq:
    name: str
    core: int
    counts: list[int]


def as_list(cores: Iterable[int]) -> str:
    """Format cores in the kernel's list format."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and parts[-1][1] == core - 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


class FakeHost:
    """The constructor writes all files. `offline` cores leave holes in the numbering."""

    def __init__(
        self,
        root: pathlib.Path,
        cores: int = 192,
        *,
        offline: Collection[int] = (),
        possible: int = 0,
        interfaces: Mapping[str, str] | None = None,
        queues: int = 32,
        seed: int = 1,
        softnet_columns: int = 15,
        schedstat: int = 15,
        pressure: Collection[str] = ("cpu", "memory", "io", "irq"),
        cgroups: str = "v1",
    ) -> None:
        self.root = root
        self.cores = cores
        self.possible = max(possible, cores)
        self.online = [core for core in range(cores) if core not in offline]
        self.interfaces = dict(interfaces or {"eth0": "ena"})
        self.queues = queues
        self.softnet_columns = softnet_columns
        self.schedstat = schedstat
        self.pressure_files = tuple(pressure)
        self.random = random.Random(seed)
        draw = self.random.randrange
        self.ticks = [[draw(10_000_000) for _ in range(10)] for _ in range(cores)]
        self.softirqs = [
            [draw(10_000_000) if core < cores else 0 for core in range(self.possible)]
            for _ in SOFTIRQS
        ]
        self.softnet = [[draw(1 << 32), draw(9), draw(99), draw(99), 0] for _ in range(cores)]
        self.sched = [[draw(10**15), draw(10**13), draw(10**8)] for _ in range(cores)]
        self.psi = {name: [draw(10**10), draw(10**9)] for name in self.pressure_files}
        self.vmstat = [draw(10**9) for _ in VMSTAT]
        self.traffic = {name: [draw(10**12) for _ in range(16)] for name in self.interfaces}
        self.irqs: dict[int, Irq] = {}
        self._make_irqs()
        self._write_fixed(cgroups)
        self.write()

    # What does not change from one second to the next.

    def _make_irqs(self) -> None:
        draw, number = self.random.randrange, 24
        self.of: dict[str, list[int]] = {}
        names: list[tuple[str, str]] = [("", f"nvme{d}q{q}") for d in range(4) for q in range(99)]
        if self.cores < 32:
            names = names[:4]
        for at, (interface, kind) in enumerate(self.interfaces.items()):
            address = f"0000:{0x20 + at:02x}:03.0"
            others, each = NAMES[kind]
            queues = self.queues * 2 if kind == "gve" else self.queues
            names += [(interface, o.format(i=interface, a=address)) for o in others]
            names += [
                (interface, name.format(i=interface, n=n, a=address))
                for n in range(queues)
                for name in each
            ]
        for interface, name in names:
            core = self.online[draw(len(self.online))]
            counts = [0] * self.cores
            counts[core] = draw(1 << 30)
            counts[self.online[0]] += draw(99)
            self.irqs[number] = Irq(name, core, counts)
            if interface:
                self.of.setdefault(interface, []).append(number)
            number += 1

    def put(self, path: str, text: str | bytes) -> None:
        """Write one file."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)

    def _write_fixed(self, cgroups: str) -> None:
        self.put("sys/devices/system/cpu/possible", f"0-{self.possible - 1}\n")
        self.put("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
        self.put("proc/sys/kernel/random/boot_id", "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0\n")
        self.put("proc/sys/kernel/pid_max", "4194304\n")
        self.put("proc/sys/kernel/threads-max", "2061580\n")
        self.put("proc/sys/net/netfilter/nf_conntrack_max", "262144\n")
        self.put("proc/self/mountinfo", MOUNTS[cgroups])
        self.put(
            "proc/cgroups",
            "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t3\t240\t1\nmemory\t8\t68680\t1\n",
        )
        self._write_cgroups(cgroups)
        for number in (number for numbers in self.of.values() for number in numbers):
            irq = self.irqs[number]
            self.put(f"proc/irq/{number}/smp_affinity_list", as_list(self.online) + "\n")
            self.put(f"proc/irq/{number}/effective_affinity_list", f"{irq.core}\n")
            (self.root / f"proc/irq/{number}" / irq.name).mkdir(exist_ok=True)
        for at, (interface, kind) in enumerate(self.interfaces.items()):
            self._write_interface(
                interface, kind, f"sys/devices/pci0000:20/0000:{0x20 + at:02x}:03.0"
            )
        (self.root / "sys/class/net/lo").mkdir(parents=True, exist_ok=True)
        for core in range(self.cores):
            folder = f"sys/devices/system/cpu/cpu{core}"
            self.put(f"{folder}/cpufreq/scaling_cur_freq", "2899998\n")
            self.put(f"{folder}/thermal_throttle/core_throttle_count", "3\n")
            self.put(f"{folder}/thermal_throttle/package_throttle_count", "5\n")
        (self.root / "sys/block/nvme0n1/device").mkdir(parents=True, exist_ok=True)
        (self.root / "sys/block/loop0").mkdir(exist_ok=True)

    def _write_cgroups(self, layout: str) -> None:
        """Write a few live cgroups, and dying ones below the root that hold a page each."""
        top = "sys/fs/cgroup"
        memory = top if layout == "v2" else f"{top}/memory"
        unified = f"{top}/unified" if layout == "hybrid" else top
        for group in ("system.slice/ecs.service", POD, "user.slice"):
            self.put(f"{memory}/{group}/cgroup.procs", "")
        cpu = top if layout == "v2" else f"{top}/cpu,cpuacct"
        for group, quota in (("system.slice", -1), ("kubepods", -1), (POD, 200_000)):
            if layout == "v2":
                self.put(f"{cpu}/{group}/cpu.max", f"{'max' if quota < 0 else quota} 100000\n")
                text = "usage_usec 98\nnr_periods 90\nnr_throttled 3\nthrottled_usec 4500\n"
            else:
                self.put(f"{cpu}/{group}/cpu.cfs_quota_us", f"{quota}\n")
                text = "nr_periods 90\nnr_throttled 3\nthrottled_time 4500000\n"
            self.put(f"{cpu}/{group}/cpu.stat", text)
        self.put(f"{memory}/memory.stat", f"cache 0\ntotal_cache {68_440 * 4096}\n")
        if layout != "v1":
            self.put(f"{unified}/cgroup.stat", "nr_descendants 5\nnr_dying_descendants 68440\n")

    def _write_interface(self, interface: str, kind: str, device: str) -> None:
        inner = f"{device}/virtio2" if kind == "virtio" else device
        alias = "virtio:d00000001v00001AF4" if kind == "virtio" else "pci:v00001D0Fd0000EC20"
        self.put(f"{inner}/modalias", alias + "\n")
        for number in self.of[interface]:
            self.put(f"{device}/msi_irqs/{number}", "msix\n")
        folder = f"sys/class/net/{interface}"
        self.put(f"{folder}/carrier_changes", "2\n")
        self.put(f"{folder}/threaded", "0\n")
        (self.root / folder / "device").symlink_to((self.root / inner).resolve())
        for queue in range(self.queues):
            core = self.online[queue % len(self.online)]
            self.put(f"{folder}/queues/tx-{queue}/tx_timeout", "0\n")
            self.put(f"{folder}/queues/tx-{queue}/xps_cpus", as_mask(core, self.possible))
            self.put(f"{folder}/queues/rx-{queue}/rps_cpus", as_mask(-1, self.possible))

    # Files that change.

    def advance(self, seconds: float = 1.0) -> None:
        """Advance time: one core is saturated in the kernel, the others do a little of everything."""
        draw = self.random.randrange
        interval = round(100 * seconds)
        full = self.online[draw(len(self.online))]
        for core in self.online:
            used = [0, 0, interval] if core == full else [draw(20), 0, draw(9)]
            for mode, ticks in enumerate([*used, interval - sum(used)]):
                self.ticks[core][mode] += ticks
            for kind in self.softirqs:
                kind[core] += draw(300)
            self.softnet[core][0] = (self.softnet[core][0] + draw(5000)) % (1 << 32)
            self.sched[core][0] += sum(used) * 10_000_000
            self.sched[core][1] += draw(50_000_000)
            self.sched[core][2] += draw(900)
        for irq in self.irqs.values():
            irq.counts[irq.core] += draw(2000)
        for totals in self.psi.values():
            totals[0] += draw(100_000)
            totals[1] += draw(10_000)
        self.vmstat = [count + draw(500) for count in self.vmstat]
        for counters in self.traffic.values():
            for i in (0, 1, 8, 9):
                counters[i] += draw(1_000_000)
        self.write()

    def run(self, pid: int, name: str, ticks: int, *, thread: int) -> None:
        """Write a process on core 7 that has used some ticks, with a real-time thread."""
        for path, policy in ((f"{pid}/stat", 0), (f"{pid}/task/{thread}/stat", 1)):
            fields = ["0"] * 50
            fields[0], fields[11], fields[17], fields[36] = "R", str(ticks), "2", "7"
            fields[37], fields[38] = str(policy * 50), str(policy)
            number = path.split("/")[-2]
            self.put(f"proc/{path}", f"{number} ({name}) {' '.join(fields)}\n")
        self.put(
            f"proc/{pid}/status", f"Name:\t{name}\nCpus_allowed_list:\t4-7\nMems_allowed:\t1\n"
        )

    def switch(self, core: int, *, on: bool) -> None:
        """Take a core offline, or bring it back."""
        self.online = sorted({*self.online, core} if on else {*self.online} - {core})
        self.write()

    def write(self) -> None:
        """Write all files that change."""
        self.put("sys/devices/system/cpu/online", as_list(self.online) + "\n")
        self.put("proc/stat", self.stat())
        self.put("proc/softirqs", self.softirqs_text())
        self.put("proc/net/softnet_stat", self.softnet_stat())
        self.put("proc/interrupts", self.interrupts())
        self.put("proc/schedstat", self.schedstat_text())
        self.put("proc/loadavg", f"0.47 1.29 21.51 1/{1000 + self.vmstat[0] % 1000} 29767\n")
        self.put("proc/uptime", f"{self.ticks[0][3] / 100:.2f} {self.ticks[0][3]:.2f}\n")
        self.put("proc/sys/fs/file-nr", f"{1024 + self.vmstat[1] % 9999}\t0\t9223372036854775807\n")
        self.put("proc/sys/net/netfilter/nf_conntrack_count", f"{self.vmstat[2] % 262144}\n")
        self.put(
            "proc/vmstat", "".join(f"{n} {v}\n" for n, v in zip(VMSTAT, self.vmstat, strict=True))
        )
        self.put(
            "proc/meminfo",
            "".join(
                f"{n + ':':<15} {self.vmstat[i] % 10**8:>8} kB\n" for i, n in enumerate(MEMINFO)
            ),
        )
        self.put("proc/net/dev", self.net_dev())
        counters = " ".join(str(count % 10**8) for count in self.vmstat[:17])
        disks = ("7 0 loop0", "259 0 nvme0n1", "259 1 nvme0n1p1")
        self.put("proc/diskstats", "".join(f"   {disk} {counters}\n" for disk in disks))
        for name, (some, full) in self.psi.items():
            lines = {"some": some, "full": full}
            if name == "irq":
                del lines["some"]
            text = "".join(
                f"{line} avg10=0.12 avg60=0.05 avg300=0.01 total={total}\n"
                for line, total in lines.items()
            )
            self.put(f"proc/pressure/{name}", text)

    def stat(self) -> str:
        sums = [sum(column) for column in zip(*(self.ticks[c] for c in self.online), strict=True)]
        lines = ["cpu  " + " ".join(map(str, sums))]
        lines += [f"cpu{c} " + " ".join(map(str, self.ticks[c])) for c in self.online]
        every = [sum(irq.counts) for irq in self.irqs.values()]
        lines.append(f"intr {sum(every)} " + " ".join(map(str, every)) + " 0" * 1500)
        lines += ["ctxt 211531", "btime 1700000000", "processes 37205", "procs_running 2"]
        return "\n".join([*lines, "procs_blocked 0", "softirq 3 1 1 1", ""])

    def softirqs_text(self) -> str:
        lines = [" " * 20 + "".join(f"CPU{core:<8d}" for core in range(self.possible))]
        for kind, counts in zip(SOFTIRQS, self.softirqs, strict=True):
            lines.append(f"{kind:>12s}:" + "".join(f" {count:10d}" for count in counts))
        return "\n".join([*lines, ""])

    def softnet_stat(self) -> str:
        lines = []
        for core in self.online:
            processed, dropped, squeezed, rps, limited = self.softnet[core]
            fields = [processed, dropped, squeezed, 0, 0, 0, 0, 0, 0, rps, limited, 0, core, 0, 0]
            lines.append(" ".join(f"{f:08x}" for f in fields[: self.softnet_columns]))
        return "\n".join([*lines, ""])

    def interrupts(self) -> str:
        width = 3
        lines = [" " * (width + 8) + "".join(f"CPU{core:<8d}" for core in self.online)]
        for number, irq in self.irqs.items():
            counts = "".join(f" {irq.counts[core]:10d}" for core in self.online)
            lines.append(
                f"{number:{width}d}:{counts}  PCI-MSI {524288 + number}-edge      {irq.name}"
            )
        for name, words in (("LOC", "Local timer interrupts"), ("TLB", "TLB shootdowns")):
            lines.append(f"{name}:" + "".join(f" {9:10d}" for _ in self.online) + f"   {words}")
        return "\n".join([*lines, "ERR:          0", ""])

    def schedstat_text(self) -> str:
        lines = [f"version {self.schedstat}", "timestamp 4295201317"]
        mask = as_mask(0, self.possible).strip()
        named = "MC " if self.schedstat >= 17 else ""
        for core in self.online:
            # Before version 15 (2.6.38) three more numbers stood in front.
            front = "0 0 0 0 0 0 " if self.schedstat >= 15 else "1 2 3 4 5 6 7 8 9 "
            lines.append(f"cpu{core} {front}" + " ".join(map(str, self.sched[core])))
            lines += [f"domain{d} {named}{mask}" + " 1024" * 36 for d in range(3)]
        return "\n".join([*lines, ""])

    def net_dev(self) -> str:
        head = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop|bytes packets errs drop\n"
        rows = {"lo": [0] * 16, **self.traffic}
        return head + "".join(
            f"{name:>6}: " + " ".join(f"{n:7d}" for n in numbers) + "\n"
            for name, numbers in rows.items()
        )


def as_mask(core: int, possible: int) -> str:
    """Format a mask with one core, or none, in groups of 32 bits."""
    digits = f"{1 << core if core >= 0 else 0:0{-(-possible // 32) * 8}x}"
    return ",".join(digits[i : i + 8] for i in range(0, len(digits), 8)) + "\n"
