"""Kernel settings: sysctl, modules and their parameters, CPU, memory, clock.

Values that the kernel itself changes are left out, so that an unchanged host gives the same result.
"""

from __future__ import annotations

import contextlib
import re
import stat
from collections.abc import Mapping

from overnight.sources.image import inventory
from overnight.sources.image import tree as trees

SYSCTL_LIMIT = 16 << 10
MAX_SYSCTLS = 20_000
MAX_DEPTH = 8
MAX_MODULES = 2_000
MAX_PARAMETERS = 400
HUGE_PAGES = ("enabled", "defrag", "shmem_enabled", "use_zero_page", "khugepaged/defrag", "khugepaged/scan_sleep_millisecs", "khugepaged/pages_to_scan", "khugepaged/max_ptes_none")  # fmt: skip
VOLATILE = re.compile(
    r"^(kernel\.random\.|kernel\.ns_last_pid$|kernel\.pty\.nr$|fs\.(file|inode|dentry|aio)-?(nr|state)$|"
    r"fs\.quota\.|fs\.binfmt_misc\.|net\.netfilter\.nf_conntrack_count$|net\.nf_conntrack_count$|kernel\.perf_event_max_sample_rate$|"
    r"kernel\.(core_uses_pid_nr|sched_domain)\b|kernel\.sched_domain\.|vm\.stat_refresh$|net\.ipv[46]\.route\.flush$|"
    r"vm\.(drop_caches|compact_memory)$|dev\.(cdrom\.info|raid\.|parport)|kernel\.(tainted_last|cap_last)|kernel\.firmware_config|"
    r"net\.unix\.|debug\.kprobes|kernel\.spl\.|kernel\.seccomp\.actions_avail$|kernel\.keys\.|user\.|sunrpc\.|kernel\.hostname$|kernel\.domainname$|fs\.mqueue\.queues)"
)
# Identity and secrets are never read.
SECRET = re.compile(
    r"secret|fastopen_key|(^|\.)random\.|password|cookie|boot_id|uuid", re.IGNORECASE
)
INTERFACE = re.compile(r"^net\.(?:ipv4|ipv6|mpls)\.(?:conf|neigh)\.(.+)\.[a-z0-9_]+$")


def read_kernel(tree: trees.Tree, gaps: inventory.Gaps) -> inventory.Part:
    """Read release, version, taint and the version of NVIDIA's GPU driver."""
    base = "/proc/sys/kernel"
    paths = {"release": "osrelease", "version": "version", "tainted": "tainted"}
    facts = _read_files(tree, gaps, {key: f"{base}/{name}" for key, name in paths.items()})
    facts |= _read_files(tree, gaps, {"architecture": f"{base}/arch"}, optional=True)
    if nvidia := tree.line("/proc/driver/nvidia/version"):
        facts["nvidia"] = nvidia.splitlines()[0]
    return facts


def read_sysctl(tree: trees.Tree, gaps: inventory.Gaps) -> inventory.Part:
    """Read /proc/sys, except volatile and secret settings and those of virtual interfaces."""
    physical = _physical(tree)
    settings: inventory.Part = {}
    waiting = [("/proc/sys", "", 0)]
    while waiting:
        folder, prefix, depth = waiting.pop()
        for name in inventory.list_names(tree, gaps, folder, prefix.rstrip(".") or "sysctl"):
            path, key = f"{folder}/{name}", f"{prefix}{name}"
            status = tree.stat(path, follow=False)
            if status is None or VOLATILE.search(key) or SECRET.search(key):
                continue
            if stat.S_ISDIR(status.st_mode):
                if depth < MAX_DEPTH:
                    waiting.append((path, key + ".", depth + 1))
                continue
            match = INTERFACE.match(key)
            # A write-only file has no read bits.
            if not status.st_mode & 0o444 or (match and match[1] not in physical):
                continue
            if len(settings) >= MAX_SYSCTLS:
                gaps("sysctl", f"more than {MAX_SYSCTLS}: the rest is left out")
                return settings
            with inventory.report_errors(gaps, key):
                settings[key] = _flat(tree.text(path, SYSCTL_LIMIT))
    return settings


def _physical(tree: trees.Tree) -> set[str]:
    """List the interfaces that have a device, and the names that every host has."""
    names: tuple[str, ...] = ()
    with contextlib.suppress(OSError):
        names = tree.names("/sys/class/net")
    devices = {name for name in names if tree.exists(f"/sys/class/net/{name}/device")}
    return {"all", "default", "lo"} | devices


def read_modules(tree: trees.Tree, gaps: inventory.Gaps) -> inventory.Part:
    """Read version, source version and parameters of loaded and built-in modules."""
    modules: inventory.Part = {}
    names = inventory.list_names(tree, gaps, "/sys/module")
    if len(names) > MAX_MODULES:
        gaps("modules", f"more than {MAX_MODULES}: the rest is left out")
    for name in names[:MAX_MODULES]:
        base = f"/sys/module/{name}"
        versions = {key: tree.line(f"{base}/{key}") for key in ("version", "srcversion", "taint")}
        module = {key: value for key, value in versions.items() if value}
        parameters: tuple[str, ...] = ()
        with contextlib.suppress(OSError):
            parameters = tree.names(f"{base}/parameters")
        for parameter in parameters[:MAX_PARAMETERS]:
            path = f"{base}/parameters/{parameter}"
            status = tree.stat(path, follow=False)
            if status is None or not status.st_mode & 0o444 or SECRET.search(parameter):
                continue
            with inventory.report_errors(gaps, f"{name}.parameters.{parameter}"):
                module[f"parameters.{parameter}"] = _flat(tree.text(path, SYSCTL_LIMIT))
        if module:
            modules[name] = module
    return modules


def parse_cpuinfo(text: str) -> dict[str, str]:
    """Parse the model of the first core, which represents all, and every core's microcode.

    >>> parse_cpuinfo("processor\\t: 0\\nmodel name\\t: X\\nmicrocode\\t: 0x1\\nflags\\t: b a\\n")
    {'model name': 'X', 'flags': 'a b', 'microcode': '0x1', 'cores': '1'}
    """
    facts: dict[str, str] = {}
    microcodes = set()
    cores = 0
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if not colon:
            continue
        if key == "processor":
            cores += 1
        elif key == "microcode":
            microcodes.add(value)
        elif key in ("vendor_id", "model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part"):  # fmt: skip
            facts.setdefault(key, value)
        elif key in ("flags", "Features", "bugs"):
            facts.setdefault(key, " ".join(sorted(value.split())))
    if microcodes:
        facts["microcode"] = " ".join(sorted(microcodes))
    return {**facts, "cores": str(cores)}


def read_cpu(tree: trees.Tree, gaps: inventory.Gaps) -> inventory.Part:
    """Read model, microcode, mitigations, SMT and frequency governor."""
    facts: inventory.Part = {}
    with inventory.report_errors(gaps, "/proc/cpuinfo"):
        facts |= parse_cpuinfo(tree.text("/proc/cpuinfo", 16 << 20))
    base = "/sys/devices/system/cpu"
    paths = {name: name for name in ("online", "possible", "isolated", "nohz_full", "smt/control")}
    paths |= {
        "governor": "cpu0/cpufreq/scaling_governor",
        "frequency driver": "cpu0/cpufreq/scaling_driver",
        "idle driver": "cpuidle/current_driver",
    }
    files = {key: f"{base}/{path}" for key, path in paths.items()}
    facts |= _read_files(tree, gaps, files, optional=True)
    folder = f"{base}/vulnerabilities"
    names = inventory.list_names(tree, gaps, folder)
    files = {f"mitigation {name}": f"{folder}/{name}" for name in names}
    return facts | _read_files(tree, gaps, files)


def read_memory(tree: trees.Tree, gaps: inventory.Gaps) -> inventory.Part:
    """Read memory size, huge pages, NUMA nodes and kernel same-page merging."""
    facts: inventory.Part = {}
    with inventory.report_errors(gaps, "/proc/meminfo"):
        # Not model.meminfo: a snapshot stores the kernel's own text, `24684100 kB`.
        for line in tree.text("/proc/meminfo", 1 << 16).splitlines():
            if line.startswith(("MemTotal:", "SwapTotal:", "Hugepagesize:", "HugePages_Total:")):
                key, _, value = line.partition(":")
                facts[key] = value.strip()
    huge = "transparent_hugepage"
    files = {f"{huge}/{name}": f"/sys/kernel/mm/{huge}/{name}" for name in HUGE_PAGES}
    files |= {"numa nodes": "/sys/devices/system/node/online", "ksm": "/sys/kernel/mm/ksm/run"}
    return facts | _read_files(tree, gaps, files, optional=True)


def read_clock(tree: trees.Tree, gaps: inventory.Gaps) -> inventory.Part:
    base = "/sys/devices/system/clocksource/clocksource0"
    names = ("current_clocksource", "available_clocksource")
    return _read_files(tree, gaps, {name: f"{base}/{name}" for name in names})


def _read_files(
    tree: trees.Tree, gaps: inventory.Gaps, paths: Mapping[str, str], *, optional: bool = False
) -> inventory.Part:
    """Read small files by key; a missing file is a gap unless it is optional."""
    facts: inventory.Part = {}
    for key, path in paths.items():
        if optional and not tree.exists(path):
            continue
        with inventory.report_errors(gaps, path):
            facts[key] = _flat(tree.text(path, SYSCTL_LIMIT))
    return facts


def _flat(text: str) -> str:
    """Join the values with single spaces, as sysctl(8) prints them."""
    return " ".join(text.split())
