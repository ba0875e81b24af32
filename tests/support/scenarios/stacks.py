"""Realistic stacks: user code first, then kernel functions, the leaf last."""

from __future__ import annotations

from scenarios import work

Path = work.Path


def user(*names: str, module: str = "/usr/bin/app") -> Path:
    return tuple((name, module, 0) for name in names)


def kernel(*names: str) -> Path:
    return tuple((name, "[kernel]", 1) for name in names)


SYSCALL = kernel("entry_SYSCALL_64_after_hwframe", "do_syscall_64")
GO = user("runtime.goexit", module="/usr/bin/kubelet")
FAULT = kernel("asm_exc_page_fault", "exc_page_fault", "do_user_addr_fault", "handle_mm_fault")
RECEIVE = kernel("net_rx_action", "napi_poll", "ena_io_poll", "napi_gro_receive", "tcp_v4_rcv")
ON_IDLE = kernel("asm_common_interrupt", "irq_exit_rcu", "__do_softirq")


def program(module: str, names: tuple[str, ...], kernel_share: float) -> work.Stacks:
    """Ordinary work: mostly its own code, some system calls."""
    entry = user("_start", "main", module=module)
    calls = (
        kernel("ksys_read", "vfs_read", "ext4_file_read_iter", "copy_page_to_iter"),
        kernel("ksys_write", "vfs_write", "sock_write_iter", "tcp_sendmsg", "tcp_sendmsg_locked"),
        kernel("__x64_sys_futex", "do_futex", "futex_wait", "schedule"),
        kernel("__x64_sys_epoll_wait", "do_epoll_wait", "ep_poll"),
    )
    paths = [
        ((1 - kernel_share) / len(names), (*entry, *user(name, module=module))) for name in names
    ]
    paths += [
        (kernel_share / len(calls), (*entry, *user(names[0], module=module), *SYSCALL, *call))
        for call in calls
    ]
    return tuple(paths)


def numa_stat(module: str) -> work.Stacks:
    """Kernel 5.4, cgroup v1: a read of memory.numa_stat walks every memory cgroup, dead ones too."""
    top = (
        *user(
            "runtime.goexit",
            "github.com/google/cadvisor/manager.(*containerData).housekeeping",
            "github.com/opencontainers/runc/libcontainer/cgroups/fs.(*MemoryGroup).GetStats",
            "os.(*File).Read",
            "syscall.Syscall",
            module=module,
        ),
        *SYSCALL,
        *kernel("ksys_read", "vfs_read", "seq_read", "memcg_numa_stat_show"),
    )
    lru = kernel("mem_cgroup_nr_lru_pages")
    return (
        (0.86, (*top, *lru)),
        (0.06, (*top, *lru, *kernel("mem_cgroup_node_nr_lru_pages"))),
        (0.05, (*top, *kernel("mem_cgroup_iter", "css_next_descendant_pre"))),
        (0.03, top),
    )


def zombie_reclaim(module: str, functions: tuple[str, ...]) -> work.Stacks:
    """Newer kernels: reclaim below a limit visits every memory cgroup, dead ones too."""
    top = (*_reclaim(module, functions), *kernel("shrink_node", "shrink_node_memcgs"))
    return (
        (0.38, (*top, *kernel("mem_cgroup_iter"))),
        (0.22, (*top, *kernel("mem_cgroup_iter", "css_next_descendant_pre"))),
        (0.25, (*top, *kernel("shrink_lruvec"))),
        (0.10, (*top, *kernel("shrink_slab", "list_lru_count_one"))),
        (0.05, top),
    )


def limit_reclaim(module: str, functions: tuple[str, ...]) -> work.Stacks:
    """A cgroup at its limit frees its own pages: real work on pages, no walk."""
    top = (
        *_reclaim(module, functions),
        *kernel("shrink_node", "shrink_node_memcgs", "shrink_lruvec"),
    )
    inactive = (*top, *kernel("evict_folios", "shrink_folio_list"))
    return (
        (0.30, inactive),
        (0.22, (*inactive, *kernel("__remove_mapping"))),
        (0.18, (*inactive, *kernel("try_to_unmap", "rmap_walk_file"))),
        (0.15, (*top, *kernel("evict_folios", "isolate_folios"))),
        (0.15, (*top, *kernel("lru_add_drain", "folio_batch_move_lru"))),
    )


def _reclaim(module: str, functions: tuple[str, ...]) -> Path:
    return (
        *user("_start", "main", *functions, module=module),
        *FAULT,
        *kernel(
            "__handle_mm_fault",
            "do_anonymous_page",
            "mem_cgroup_charge",
            "try_charge_memcg",
            "try_to_free_mem_cgroup_pages",
            "do_try_to_free_pages",
        ),
    )


def realtime(module: str, names: tuple[str, ...]) -> work.Stacks:
    """A real-time thread that polls: its own code, and the real-time class in the timer's ticks."""
    entry = user("_start", "main", module=module)
    loop = (*entry, *user(names[0], module=module))
    tick = kernel("asm_sysvec_apic_timer_interrupt", "update_process_times", "scheduler_tick")
    return (
        (0.62, loop),
        (0.18, (*loop, *user(names[-1], module=module))),
        (
            0.14,
            (*loop, *SYSCALL, *kernel("__x64_sys_sched_yield", "do_sched_yield", "yield_task_rt")),
        ),
        (0.06, (*loop, *tick, *kernel("task_tick_rt", "update_curr_rt"))),
    )


def storm() -> work.Stacks:
    """Endless receive work in ksoftirqd."""
    top = kernel(
        "ret_from_fork", "kthread", "smpboot_thread_fn", "run_ksoftirqd", "__do_softirq",
        "net_rx_action",
    )  # fmt: skip
    poll = (*top, *kernel("__napi_poll", "ena_io_poll"))
    return (
        (0.25, poll),
        (0.30, (*poll, *kernel("napi_gro_receive", "dev_gro_receive"))),
        (0.25, (*poll, *kernel("netif_receive_skb_list_internal", "ip_rcv", "udp_queue_rcv_skb"))),
        (0.12, (*poll, *kernel("__netif_receive_skb_core", "nf_hook_slow"))),
        (0.08, top),
    )


def receive_on_idle() -> work.Stacks:
    """Ordinary receive work, on top of the idle task."""
    top = (*kernel("secondary_startup_64", "cpu_startup_entry", "do_idle"), *ON_IDLE)
    return ((0.7, (*top, *RECEIVE)), (0.3, (*top, *kernel("net_rx_action", "napi_poll"))))


def recorder() -> work.Stacks:
    """The recorder's own work."""
    top = user("main", "cmd_record", "record__mmap_read_all", module="/usr/bin/perf")
    write = (*SYSCALL, *kernel("ksys_write", "vfs_write", "ext4_file_write_iter"))
    return ((0.5, top), (0.5, (*top, *write)))


def convoy(module: str, names: tuple[str, ...]) -> work.Stacks:
    """Processes that wait for the same lock."""
    top = (
        *user("_start", "main", names[0], module=module),
        *SYSCALL,
        *kernel("__x64_sys_openat", "do_sys_openat2", "path_openat", "lookup_fast", "lockref_get"),
    )
    return (
        (0.90, (*top, *kernel("_raw_spin_lock", "native_queued_spin_lock_slowpath"))),
        (0.06, (*top, *kernel("_raw_spin_lock"))),
        (0.04, top),
    )


def interrupted(own: work.Stacks) -> work.Stacks:
    """Work of a process whose core another one interrupts all the time."""
    flush = kernel("asm_sysvec_call_function", "__sysvec_call_function", "flush_tlb_func")
    return (
        *((0.1 * weight, path) for weight, path in own),
        *((0.9 * w, (*p, *flush)) for w, p in own),
    )


def shootdown(module: str) -> work.Stacks:
    """Changes of a process's mappings, which all its cores have to learn."""
    top = (*user("_start", "main", "release", module=module), *SYSCALL, *kernel("__x64_sys_munmap"))
    flush = kernel("tlb_finish_mmu", "flush_tlb_mm_range", "smp_call_function_many_cond")
    return ((0.7, (*top, *flush)), (0.3, (*top, *kernel("unmap_region", "free_pgtables"))))


def short_lived(module: str) -> work.Stacks:
    """Processes that start, do little, and end."""
    entry = user("_start", "main", module=module)
    return (
        (0.35, (*SYSCALL, *kernel("__x64_sys_execve", "do_execveat_common", "load_elf_binary"))),
        (0.25, (*SYSCALL, *kernel("__x64_sys_exit_group", "do_exit", "exit_mmap"))),
        (0.40, (*entry, *user("deflate", module=module))),
    )


def callbacks(function: str, *, in_worker: bool) -> work.Stacks:
    """Kernel work of an unknown driver: in a worker, or as callbacks on top of a process."""
    thread = kernel("ret_from_fork", "kthread", "worker_thread", "process_one_work")
    softirq = (
        *user("_start", "main"),
        *kernel("irq_exit_rcu", "__do_softirq", "rcu_core", "rcu_do_batch"),
    )
    top = (*(thread if in_worker else softirq), *kernel(function))
    return ((0.7, top), (0.3, (*top, *kernel("xa_erase"))))


def smaps(module: str, names: tuple[str, ...]) -> work.Stacks:
    """Reads of /proc/PID/smaps: the kernel walks the page tables of each mapping."""
    top = (
        *user(*names, module=module),
        *SYSCALL,
        *kernel("ksys_read", "vfs_read", "seq_read_iter"),
    )
    walk = (
        *top,
        *kernel("show_smap", "smap_gather_stats", "walk_page_vma", "__walk_page_range"),
        *kernel("walk_pgd_range", "smaps_pte_range"),
    )
    return (
        (0.41, (*walk, *kernel("smaps_account"))),
        (0.22, walk),
        (0.12, (*walk, *kernel("vm_normal_page"))),
        (0.15, (*top, *kernel("show_smap", "seq_put_decimal_ull_width"))),
        (0.10, user(*names, module=module)),
    )
