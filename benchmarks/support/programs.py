"""Made-up programs for the synthetic night: functions, and stacks that grow like real call trees."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from overnight.model.flame import FrameKind
from overnight.store import capture

__all__ = ["PROGRAMS", "Pool", "Program", "make_pool"]

KERNEL = "[kernel]"
DEEPEST = 60
HOT = 200  # the most frequent stacks of a program: the same all night


@dataclasses.dataclass(frozen=True)
class Program:
    """A binary: the numbers of its functions and stacks in the whole night, and its first frames."""

    name: str
    module: str
    functions: int
    stacks: int
    begins: tuple[str, ...]
    kernel_share: float = 0.2


USER = ("_start", "__libc_start_main_impl", "main")
GO = ("runtime.goexit.abi0", "runtime.main", "main.main")
PYTHON = (*USER, "Py_BytesMain", "Py_RunMain", "_PyEval_EvalFrameDefault")
THREAD = ("ret_from_fork_asm", "ret_from_fork", "kthread")
IDLE = ("secondary_startup_64_no_verify", "start_secondary", "cpu_startup_entry", "do_idle")
HALT = ("default_idle_call", "default_idle", "pv_native_safe_halt")
SYSCALL = ("entry_SYSCALL_64_after_hwframe", "do_syscall_64")

PROGRAMS = (
    Program("python3", "/usr/lib/libtorch_cpu.so", 4000, 42_000, PYTHON, 0.12),
    Program("pt_data_worker", "/usr/lib/libtorch_python.so", 2500, 30_000, PYTHON, 0.35),
    Program("kubelet", "/usr/bin/kubelet", 2500, 9_000, GO, 0.4),
    Program("containerd", "/usr/bin/containerd", 1500, 6_000, GO, 0.4),
    Program("containerd-shim", "/usr/bin/containerd-shim-runc-v2", 700, 4_000, GO, 0.4),
    Program("cilium-agent", "/usr/bin/cilium-agent", 1500, 5_000, GO, 0.4),
    Program("node_exporter", "/usr/bin/node_exporter", 800, 4_000, GO, 0.6),
    Program("fluent-bit", "/usr/bin/fluent-bit", 700, 4_000, USER, 0.3),
    Program("systemd-journal", "/usr/lib/systemd/systemd-journald", 300, 2_000, USER, 0.5),
    Program("amazon-ssm-agen", "/usr/bin/amazon-ssm-agent", 600, 2_000, GO, 0.4),
    Program("bash", "/usr/bin/bash", 300, 3_000, USER, 0.7),
    Program("kworker", KERNEL, 0, 3_000, THREAD, 1.0),
    Program("ksoftirqd", KERNEL, 0, 1_500, (*THREAD, "run_ksoftirqd", "handle_softirqs"), 1.0),
    Program("swapper", KERNEL, 0, 500, IDLE, 1.0),
)
VERBS = (
    "get", "put", "alloc", "free", "read", "write", "lock", "unlock", "queue", "flush", "update", "check", "charge", "walk", "scan",
)  # fmt: skip
THINGS = (
    "page", "folio", "memcg", "inode", "dentry", "task", "skb", "sock", "timer", "bio", "extent", "slab", "vma", "zone", "cpu", "irq",
)  # fmt: skip
ENDS = (
    "slow", "fast", "locked", "range", "one", "all", "many", "list", "work", "common", "noprof", "rcu", "prepare", "finish",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Pool:
    """Every stack of the night; program p's are `first[p] … first[p + 1] - 1`."""

    frames: capture.Frames
    stacks: capture.Stacks
    first: npt.NDArray[np.int64]
    incident: int  # kubelet in mem_cgroup_iter
    halted: int  # an idle core


def make_pool(seed: int) -> Pool:
    """Build the pool; the same seed gives the same pool."""
    rng = np.random.default_rng(seed)
    numbers: dict[tuple[str, str, int], int] = {}

    def frame(name: str, module: str) -> int:
        kind = int(FrameKind.KERNEL if module == KERNEL else FrameKind.USER)
        return numbers.setdefault((name, module, kind), len(numbers))

    kernel = [frame(f"{v}_{t}_{e}", KERNEL) for v in VERBS for t in THINGS for e in ENDS]
    rng.shuffle(kernel)
    entry = [frame(name, KERNEL) for name in SYSCALL]
    halt = [frame(name, KERNEL) for name in HALT]
    paths: list[list[int]] = []
    first = []
    halted = incident = 0
    for program in PROGRAMS:
        first.append(len(paths))
        stem = program.name.replace("-", "_")
        begins = [frame(name, program.module) for name in program.begins]
        functions = [
            frame(f"{stem}::{THINGS[i % 16]}::{VERBS[i % 15]}_{ENDS[i % 14]}_{i}", program.module)
            for i in range(program.functions)
        ]
        grown = _grow(rng, program, begins, functions, kernel, entry)
        if program.name == "swapper":
            halted = len(paths)
            grown[0] = begins + halt
        if program.name == "kubelet":
            incident = len(paths) + 1
            names = ("__x64_sys_read", "vfs_read", "seq_read_iter", "memcg_stat_show")
            tail = (*names, "memory_stat_format", "mem_cgroup_flush_stats", "mem_cgroup_iter")
            grown[1] = begins + functions[:12] + entry + [frame(name, KERNEL) for name in tail]
        paths += grown
    first.append(len(paths))
    ends = np.cumsum([len(path) for path in paths])
    rows = list(numbers)
    return Pool(
        capture.Frames(
            [row[0] for row in rows],
            [row[1] for row in rows],
            np.array([row[2] for row in rows], np.uint8),
        ),
        capture.Stacks(
            np.concatenate([[0], ends]).astype(np.uint32),
            np.fromiter((f for path in paths for f in path), np.uint32, int(ends[-1])),
        ),
        np.array(first),
        incident,
        halted,
    )


def _grow(
    rng: np.random.Generator,
    program: Program,
    begins: list[int],
    functions: list[int],
    kernel: list[int],
    entry: list[int],
) -> list[list[int]]:
    """Branch each new stack from an older one near its end, and add callees of its last frame."""
    n = program.stacks
    older, cut, more = rng.random(n), rng.geometric(0.35, n), rng.geometric(0.3, n)
    into, which = rng.random(n), rng.geometric(0.4, (n, DEEPEST))
    deep = rng.integers(5, DEEPEST - 5, n)
    is_kernel = set(kernel) | set(entry)
    paths: list[list[int]] = []
    for i in range(n):
        if i < n // 100 + 1:  # seeds, of any depth
            path, want = list(begins), max(1, int(deep[i]) - len(begins))
        else:
            base = paths[int(older[i] ** 2 * i)]
            path, want = base[: max(len(begins), len(base) - int(cut[i]))], int(more[i])
        inside = not functions or path[-1] in is_kernel
        if not inside and into[i] < program.kernel_share and len(path) < DEEPEST - 4:
            path += entry
            inside = True
        among = kernel if inside else functions
        for k in range(max(5 - len(path), min(want, DEEPEST - len(path)))):
            path.append(among[(path[-1] * 31 + int(which[i, k])) % len(among)])
        paths.append(path)
    return paths
