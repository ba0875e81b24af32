"""Check stack profiles: perf, permissions, and whether stacks will be complete."""

from __future__ import annotations

import pathlib
import re

from overnight.app import doctor
from overnight.model.checkup import Check, Question
from overnight.model.text import plural
from overnight.sources import kernel
from overnight.sources.perf import command, perfdata

GROUP = "Profiles"
ZONE = "Europe/Berlin"  # any of the database
# As `app.imports` lists them; a test compares. It needs numpy, which takes a second to load.
FORMATS = ("perf.data", "collapsed", "perf script", "pprof", "dmesg", "journal", "sadf", "sysstat")
ORDER = 2

PERF = Question(
    "perf_binary", "perf", "used by the perf recorder; the native recorder does not need it"
)
SYSCALL = Question(
    "perf_event_open",
    "perf_event_open",
    "the system call behind every stack sample; tried on every core",
)
PARANOID = Question(
    "perf_event_paranoid",
    "perf_event_paranoid",
    "above -1, only privileged users may sample the processes of other users",
)
SYMBOLS = Question(
    "kallsyms",
    "Kernel symbols",
    "without them, kernel stacks show addresses instead of function names",
)
PROCESSES = Question(
    "processes",
    "Other processes",
    "without access to their maps and files, functions have no names, above all in containers",
)
FRAME_POINTERS = Question(
    "frame_pointers",
    "Frame pointers",
    "user stacks are unwound by frame pointers; code built without them has truncated stacks",
)
DECODER = Question(
    "decoder",
    "perf.data decoder",
    "the C extensions read and store profiles many times faster than pure Python",
)
VIEWER = Question("viewer", "Viewer page", "-O html writes a night as one page that works offline")
IMPORTS = Question(
    "imports",
    "Files of other tools",
    "`overnight import FILE` reads them where the recorder did not run, in the time zone of their host",
)

INSTALL_PERF = "apt-get install linux-perf   (Ubuntu: linux-tools-$(uname -r))"
ALLOW = doctor.grant("CAP_PERFMON", "kernel.perf_event_paranoid=-1")
KEEP_FRAME_POINTERS = (
    "build services with -fno-omit-frame-pointer; run Python services with PYTHONPERFSUPPORT=1 "
    "(kernel stacks are complete either way)"
)

# How a function that keeps the frame pointer begins: `push %rbp; mov %rsp,%rbp` on x86-64,
# `stp x29, x30, [sp, #-N]!` on ARM. Measured: 0.04 a KiB in Debian 12's libc, which is built
# without; 0.7 in libjvm and 0.4 in node, which are built with them.
PROLOGUE = re.compile(rb"\x55\x48\x89\xe5|\xfd\x7b[\x80-\xbf]\xa9")
PROLOGUES_PER_KIB = 0.3


def checks(host: doctor.Surroundings) -> tuple[Check, ...]:
    return (
        _perf_binary(),
        _perf_event_open(host),
        _paranoid(host),
        _symbols(host),
        _processes(host),
        _frame_pointers(),
        _decoder(),
        _viewer(),
        _imports(),
    )


def _perf_binary() -> Check:
    perf = command.find_perf()
    if perf is None:
        return PERF.missing("no perf on PATH: only record --recorder perf needs it", INSTALL_PERF)
    version = command.read_version(perf)
    if version is None:
        return PERF.missing(
            f"{perf} does not run: only record --recorder perf needs it", INSTALL_PERF, path=perf
        )
    return PERF.ok(f"{perf} {version}", path=perf, version=version)


def _perf_event_open(host: doctor.Surroundings) -> Check:
    probe = host.events
    facts: dict[str, object] = {
        "cores": len(probe.cores),
        "refused": {str(core): reason for core, reason in probe.refused.items()},
        "kernel_stacks": probe.kernel_stacks,
        "hardware_cycles": probe.hardware_cycles,
        "own_process": probe.own_process,
    }
    if probe.everywhere and probe.kernel_stacks:
        clock = "hardware cycles" if probe.hardware_cycles else "the CPU clock"
        return SYSCALL.ok(
            f"works on every core, {len(probe.cores)} in all, sampling {clock}",
            **facts,
        )
    if probe.cores:
        lacking = "kernel stacks" if probe.everywhere else f"cores {sorted(probe.refused)}"
        found = f"works on {plural(len(probe.cores), 'core')}, without {lacking}"
        return SYSCALL.degraded(found, ALLOW, **facts)
    reason = next(iter(probe.refused.values()), "no core found")
    fix = (
        ALLOW
        if reason.startswith(("EACCES", "EPERM"))
        else "run overnight on the host itself, or lift the container's seccomp filter"
    )
    return SYSCALL.missing(f"refused on every core: {reason}", fix, **facts)


def _paranoid(host: doctor.Surroundings) -> Check:
    level = kernel.read_paranoid(host.root)
    if level is None:
        return PARANOID.missing(
            "this kernel has no perf events", "boot a kernel built with CONFIG_PERF_EVENTS=y"
        )
    if host.is_root:
        return PARANOID.ok(f"{level} (does not apply to root)", level=level)
    if level < 0 or (host.events.everywhere and host.events.kernel_stacks):
        return PARANOID.ok(str(level), level=level)
    return PARANOID.degraded(f"{level}: this user may not sample whole cores", ALLOW, level=level)


def _symbols(host: doctor.Surroundings) -> Check:
    if kernel.read_kallsyms_visible(host.root):
        return SYMBOLS.ok("/proc/kallsyms shows addresses")
    return SYMBOLS.degraded(
        "/proc/kallsyms hides its addresses",
        doctor.grant("CAP_SYSLOG", "kernel.kptr_restrict=0 kernel.perf_event_paranoid=-1"),
    )


def _processes(host: doctor.Surroundings) -> Check:
    if kernel.read_processes_visible(host.root):
        return PROCESSES.ok("accessible")
    return PROCESSES.degraded("those of other users are closed", doctor.grant("CAP_SYS_PTRACE"))


def _frame_pointers() -> Check:
    libc = _libc()
    if libc is None:
        return FRAME_POINTERS.degraded("no libc found to inspect", KEEP_FRAME_POINTERS)
    body = libc.read_bytes()
    density = round(1024 * len(PROLOGUE.findall(body)) / len(body), 3)
    facts = {"libc": str(libc), "prologues_per_kib": density}
    if density >= PROLOGUES_PER_KIB:
        return FRAME_POINTERS.ok(f"{libc.name} of this system is built with them", **facts)
    return FRAME_POINTERS.degraded(
        f"{libc.name} of this system is built without them", KEEP_FRAME_POINTERS, **facts
    )


def _libc() -> pathlib.Path | None:
    """Return the C library of this process: it shows the build flags of the distribution."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        path = line[line.find("/") :] if "/" in line else ""
        if re.search(r"/(libc\.so\.6|libc-[\d.]+\.so|ld-musl-[^/]+\.so\.1)$", path):
            return pathlib.Path(path)
    return None


def _decoder() -> Check:
    from importlib.util import find_spec

    # Not imported: its package imports numpy.
    folding = find_spec("overnight.store._tree") is not None
    if perfdata.HAS_EXTENSION and folding:
        return DECODER.ok("C extensions", extension=True)
    return DECODER.degraded(
        "pure-Python fallback: the C extensions were not built",
        "apt-get install gcc python3-dev && pip install --force-reinstall --no-deps overnight",
        extension=False,
    )


def _viewer() -> Check:
    import importlib.resources

    if importlib.resources.files("overnight").joinpath("reports/viewer.html").is_file():
        return VIEWER.ok("installed")
    return VIEWER.degraded("not installed", "make setup   (in the checkout; needs Node.js 18.20)")


def _imports() -> Check:
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(ZONE)
    except zoneinfo.ZoneInfoNotFoundError:
        found = "no time zone database: import --timezone takes only offsets such as +02:00"
        return IMPORTS.degraded(found, "apt-get install tzdata", formats=list(FORMATS))
    return IMPORTS.ok(", ".join(FORMATS), formats=list(FORMATS))
