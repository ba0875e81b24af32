"""Every mechanism matches its functions and no others, and stacks of real programs get the right one."""

from __future__ import annotations

import pathlib
import re

from tests import mechanisms

from overnight.detectors import mechanism_table
from overnight.model.flame import UNKNOWN, Frame, FrameKind

ROOT = pathlib.Path(__file__).parents[3]
TABLE = mechanism_table.mechanisms()


def kernel(*names: str) -> tuple[Frame, ...]:
    return tuple(Frame(name, "[kernel]", FrameKind.KERNEL) for name in names)


def user(*names: str, module: str = "/opt/app") -> tuple[Frame, ...]:
    return tuple(Frame(name, module) for name in names)


def name_of(stack: tuple[Frame, ...]) -> str:
    found = mechanism_table.classify(stack)
    return found[0].name if found else ""


def test_a_mechanism_matches_its_examples_only() -> None:
    names = [mechanism.name for mechanism in TABLE]
    assert len(set(names)) == len(names)
    for mechanism in TABLE:
        assert mechanism.matches
        assert mechanism.misses
        known = re.compile(mechanism.functions).fullmatch
        assert [name for name in mechanism.matches if not known(name)] == [], mechanism.name
        assert [name for name in mechanism.misses if known(name)] == [], mechanism.name


def test_texts_fit_into_the_sentences_of_the_verdict() -> None:
    for each in TABLE:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", each.name)
        assert each.space in ("kernel", "user")
        assert 0 < each.share <= 0.5
        for text in (each.does, each.why, each.change, each.experiment):
            assert text[0].islower(), text
            assert text[-1] not in ".;", text
        for text in (each.title, each.look):
            assert text[0].isupper(), text
            assert text[-1] != ".", text


def test_counters_are_recorded_signals() -> None:
    """A misspelt column would never contradict anything."""
    document = (ROOT / "docs" / "signals.md").read_text()
    rows = {
        row.group(1): row.group(0)
        for row in re.finditer(r"^\| `([\w-]+)` \|.*$", document, re.MULTILINE)
    }
    checked = 0
    for mechanism in TABLE:
        for counter in mechanism.counters:
            for column in counter.columns:
                assert f"`{column}`" in rows[counter.signal], (mechanism.name, column)
                checked += 1
    assert checked > 10


# Hot call paths of real programs (6.18, x86-64), then those of look-alikes, older kernels and arm64.
STACKS = (
    ("smaps-reading", "vfs_read seq_read_iter show_smap walk_page_vma smaps_pte_range smaps_account"),
    ("smaps-reading", "vfs_read seq_read_iter show_map show_map_vma seq_path mangle_path"),
    ("smaps-reading", "vfs_read seq_read m_show show_pid_smap walk_page_range"),
    ("ptrace", "__x64_sys_ptrace arch_ptrace ptrace_request _raw_spin_unlock_irq"),
    ("traced", "syscall_trace_enter ptrace_stop schedule __schedule finish_task_switch.isra.0"),
    ("audit", "syscall_trace_enter.constprop.0 __audit_syscall_entry audit_filter_rules"),
    ("tracing", "vfs_read function_trace_call trace_function ring_buffer_lock_reserve"),
    ("bpf", "udp_sendmsg ip_finish_output2 net_rx_action udp_queue_rcv_one_skb sk_filter_trim_cap"),
    ("netfilter", "udp_sendmsg ip_send_skb __ip_local_out nf_hook_slow nft_do_chain_ipv4 nft_do_chain"),
    ("cgroup-churn", "do_mkdirat vfs_mkdir kernfs_iop_mkdir cgroup_mkdir cgroup_apply_control_enable"),
    ("cgroup-churn", "process_one_work css_free_rwork_fn mem_cgroup_css_free"),
    ("shrinkers", "path_lookupat __lookup_slow d_alloc_parallel try_charge_memcg try_to_free_mem_cgroup_pages shrink_slab do_shrink_slab super_cache_scan"),
    ("page-cache-reclaim", "exc_page_fault filemap_fault try_charge_memcg try_to_free_mem_cgroup_pages shrink_lruvec"),
    ("direct-reclaim", "handle_mm_fault __alloc_pages_slowpath.constprop.0 try_to_free_pages do_try_to_free_pages"),
    ("background-reclaim", "kthread kswapd balance_pgdat shrink_node"),
    ("swap", "exc_page_fault handle_mm_fault do_swap_page swapin_readahead"),
    ("compaction", "vfs_write sysctl_compaction_handler compact_node __compact_zone isolate_migratepages_block"),
    ("compaction", "do_huge_pmd_anonymous_page __alloc_pages_direct_compact try_to_compact_pages compact_zone_order"),
    ("numa-balancing", "exc_page_fault handle_mm_fault __handle_mm_fault do_numa_page migrate_misplaced_folio"),
    ("tlb-shootdown", "__x64_sys_mprotect mprotect_fixup flush_tlb_mm_range on_each_cpu_cond_mask smp_call_function_many_cond"),
    ("tlb-shootdown", "__do_munmap tlb_finish_mmu native_flush_tlb_others smp_call_function_many"),
    ("huge-pages", "exc_page_fault __handle_mm_fault do_huge_pmd_anonymous_page folio_zero_user clear_page_erms"),
    ("huge-pages", "do_translation_fault handle_mm_fault do_huge_pmd_anonymous_page clear_huge_page"),
    ("fork-exec", "__do_sys_clone3 kernel_clone copy_process copy_page_range"),
    ("fork-exec", "do_syscall_64 SyS_execve do_execveat_common load_elf_binary"),
    ("fork-exec", "do_group_exit do_exit mmput exit_mmap unmap_vmas"),
    ("signals", "__x64_sys_kill kill_something_info do_send_sig_info _raw_spin_unlock_irqrestore"),
    ("signals", "exit_to_user_mode_loop arch_do_signal_or_restart get_signal"),
    ("socket-tables", "vfs_read seq_read tcp_seq_next established_get_next"),
    ("proc-scan", "vfs_read seq_read_iter proc_single_show proc_pid_status"),
    ("proc-scan", "iterate_dir proc_pid_readdir proc_fill_cache"),
    ("negative-dentries", "do_faccessat path_lookupat walk_component __lookup_slow ext4_lookup"),
    ("directory-scan", "iterate_dir ext4_readdir ext4_htree_fill_tree"),
    ("writeback", "do_fsync ext4_sync_file file_write_and_wait_range schedule __schedule"),
    ("writeback", "process_one_work wb_workfn wb_writeback writeback_sb_inodes"),
    ("futex-convoy", "__x64_sys_futex do_futex futex_wait futex_do_wait schedule __schedule"),
    ("timers", "__x64_sys_clock_nanosleep hrtimer_nanosleep do_nanosleep schedule __schedule"),
    ("pipe-ping-pong", "ksys_read vfs_read anon_pipe_read schedule __schedule finish_task_switch.isra.0"),
    ("pipe-ping-pong", "ksys_read vfs_read eventfd_read do_wait_intr_irq schedule __schedule"),
    ("epoll-wakeups", "__x64_sys_epoll_wait do_epoll_wait schedule_hrtimeout_range_clock schedule"),
    ("epoll-wakeups", "SyS_epoll_wait ep_poll schedule_hrtimeout_range schedule __schedule"),
    ("receive-softirq", "kthread napi_threaded_poll __napi_poll ena_io_poll"),
    ("tcp-transmit", "__sys_sendto tcp_sendmsg tcp_write_xmit __tcp_transmit_skb ip_finish_output2 net_rx_action"),
    ("udp-loopback", "__sys_sendto udp_sendmsg ip_finish_output2 net_rx_action __napi_poll process_backlog"),
    ("udp-transmit", "__sys_sendto udp_sendmsg udp_send_skb ip_send_skb ip_output"),
    ("busy-polling", "__x64_sys_recvfrom __sys_recvfrom sock_recvmsg __unix_dgram_recvmsg"),
    ("busy-polling", "__x64_sys_poll do_sys_poll sock_poll unix_dgram_poll"),
    ("busy-polling", "__x64_sys_sched_yield do_sched_yield"),
    ("mmap-churn", "__x64_sys_munmap __vm_munmap do_vmi_munmap vms_complete_munmap_vmas unmap_vmas"),
    ("mmap-churn", "__x64_sys_mprotect do_mprotect_pkey mprotect_fixup flush_tlb_mm_range"),
    ("page-faults", "exc_page_fault handle_mm_fault do_anonymous_page clear_page_erms"),
    ("page-faults", "el0_da do_mem_abort do_page_fault handle_mm_fault"),
    ("page-faults", "__x64_sys_madvise do_madvise zap_page_range_single_batched"),
    ("kworker", "worker_thread process_one_work flush_to_ldisc n_tty_receive_buf_common"),
    # Look-alikes.
    ("", "exit_to_user_mode_loop schedule __schedule finish_task_switch.isra.0"),
    ("", "ksys_read vfs_read filemap_read copy_page_to_iter _copy_to_iter"),
    ("", "ksys_read vfs_read anon_pipe_read copy_page_to_iter"),
    ("", "vfs_read seq_read_iter memory_stat_show memcg1_stat_format"),
    ("", "__x64_sys_openat path_openat link_path_walk lookup_fast __d_lookup_rcu"),
    ("", "do_rmdir vfs_rmdir shrink_dcache_parent shrink_dentry_list"),
    ("", "ext4_buffered_write_iter generic_perform_write copy_folio_from_iter_atomic"),
    ("", "__x64_sys_getppid __task_pid_nr_ns"),
    ("", "kernel_wait4 do_wait schedule __schedule"),
    ("", "__sys_sendto unix_stream_sendmsg sock_alloc_send_pskb"),
    ("", "__sys_recvfrom sock_recvmsg unix_stream_read_generic unix_stream_read_actor"),
)  # fmt: skip


def test_stacks_of_the_kernel_get_their_mechanism() -> None:
    found = [(name_of((*user("main"), *kernel(*path.split()))), path) for _, path in STACKS]
    assert found == list(STACKS)
    assert {name for name, _ in STACKS} >= {
        mechanism.name for mechanism in TABLE if mechanism.space == "kernel"
    }


def test_functions_of_user_space_are_not_those_of_the_kernel() -> None:
    for path in ("do_futex", "show_smap", "compact_zone"):
        assert name_of(user("main", path)) == ""
    assert name_of(kernel("deflate")) == ""


def test_stacks_of_user_space_get_their_mechanism() -> None:
    python = user("_PyEval_EvalFrameDefault", module="/usr/bin/python3.11")
    cases = {
        "user-crypto": [
            (*python, *user(UNKNOWN, module="/usr/lib/x86_64-linux-gnu/libcrypto.so.3")),
            (*python, *user("crc32_z", module="/lib/libz.so.1.2.13")),
            user("main.main", "crypto/sha256.block"),
        ],
        "user-compression": [
            (*python, *user(UNKNOWN, module="/lib/x86_64-linux-gnu/libz.so.1.2.13")),
            user("main", "ZSTD_compressBlock_doubleFast.constprop.0"),
            user("main", UNKNOWN, module="/usr/bin/xz"),
        ],
        "python-loop": [python, (*user("py::run:/opt/a.py"), *python), (*python, *python)],
        "jvm-gc": [
            user("thread_native_entry", "GangWorker::loop", "MarkFromRootsTask::work"),
            user("WorkerThread::run", "G1ParEvacuateFollowersClosure::do_void", "memmove"),
            user("ZMark::work", "ZMark::follow_object"),
        ],
        "go-gc": [
            user("runtime.goexit.abi0", "runtime.mallocgc", "runtime.gcAssistAlloc1", "memmove"),
            user("runtime.systemstack.abi0", "runtime.gcBgMarkWorker.func2", "runtime.gcDrain"),
        ],
        "spin-loop": [
            user("main", "clock_gettime@@GLIBC_2.17", "__vdso_clock_gettime"),
            user("main", "pthread_spin_lock"),
        ],
        # Not the interpreter's loop, a callee that waits, a library below a system call, other work.
        "": [
            (*python, *user("list_sort", module="/usr/bin/python3.11")),
            (*python, *kernel("ksys_read", "vfs_read")),
            (*user("SSL_read", module="/lib/libcrypto.so.3"), *kernel("vfs_read")),
            user("JavaMain", "JavaCalls::call_helper", "Interpreter"),
            user("runtime.main", "main.main"),
            user("main", "memset"),
            user(UNKNOWN, module="/opt/libzebra.so"),
        ],
    }  # fmt: skip
    found = {name: {name_of(stack) for stack in stacks} for name, stacks in cases.items()}
    assert found == {name: {name} for name in cases}
    assert cases.keys() >= {each.name for each in TABLE if each.space == "user"}


def test_a_finding_names_work_functions_and_python_functions() -> None:
    def named(stack: tuple[Frame, ...]) -> str:
        found = mechanism_table.classify(stack)
        assert found is not None
        return found[0].name_function(stack, found[1])

    work = kernel("worker_thread", "process_one_work", "flush_to_ldisc.part.0", "memset")
    assert named(work) == "flush_to_ldisc"
    assert named(work[:2]) == ""
    assert named(user("py::main:/a.py", "py::scan:/a.py", "_PyEval_EvalFrameDefault")) == "py::scan:/a.py"  # fmt: skip
    assert named(user("_PyEval_EvalFrameDefault")) == ""
    assert named(kernel("kernel_clone", "copy_process.isra.0")) == "copy_process"


def test_the_document_lists_every_mechanism() -> None:
    scenes = mechanisms.discover()
    reproduced = {name for name, scene in scenes.items() if scene.program is not None}
    assert scenes.keys() <= {each.name for each in TABLE}
    document = (ROOT / "docs" / "diagnosis.md").read_text()
    rows = []
    for each in TABLE:
        counters = ", ".join(
            f"{counter.signal} {' + '.join(counter.columns)} >= {counter.least:,.0f}/s"
            for counter in each.counters
        )
        label = "" if each.name in reproduced else "not reproduced"
        does = each.does.partition("[")[0]
        rows.append(f"| `{each.name}` | {does} | {100 * each.share:.0f} % | {counters} | {label} |")
    assert "\n".join(rows) in document
