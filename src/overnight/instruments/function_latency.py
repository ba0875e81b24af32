"""How long one kernel function takes, on each core."""

from __future__ import annotations

import pathlib
import re
import subprocess

from overnight import errors, instruments
from overnight.instruments import _bpftrace
from overnight.model.instrument import ReadingKind

FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,127}")
# Entry and return: by fentry, which costs less than a kprobe and needs BTF, else by kprobe. bpftrace called fentry kfunc
# before 0.21 (0.17 aborts when it sees the new name), and still accepts that.
WAYS = (("kfunc", "kretfunc"), ("kprobe", "kretprobe"))
TRY_SECONDS = 20.0


class FunctionLatency(instruments.Instrument):
    name = "function-latency"
    about = "how long a kernel function takes on each core, by fentry or kprobe"
    target = "function"
    needs_target = True

    def prepare(self, target: str, root: pathlib.Path = instruments.ROOT) -> instruments.Pipeline:
        if not FUNCTION.fullmatch(target):
            raise errors.UsageError(
                f"{target!r} is not a kernel function",
                why="a function has letters, digits, _ and .",
                todo="write it as `overnight top` shows it: mem_cgroup_iter",
            )
        binary = instruments.find_tool("bpftrace")
        reasons = {}
        for entry, leave in WAYS:
            reasons[entry] = _try_to_attach(binary, f"{entry}:{target}", f"{leave}:{target}")
            if not reasons[entry]:
                return make_program(entry, leave, target).pipeline(make_reader(target), root)
        raise errors.CannotError(
            f"cannot trace the kernel function {target}",
            why="; ".join(f"{way}: {reason}" for way, reason in reasons.items()),
            todo=f"choose a function of /proc/kallsyms (grep -w {target} /proc/kallsyms), or a kernel with"
            " CONFIG_KPROBES, or with CONFIG_DEBUG_INFO_BTF and without lockdown",
        )


def _try_to_attach(binary: str, *probes: str) -> str:
    """Return why these probes cannot be attached; '' if they can."""
    program = f"BEGIN {{ exit(); }} {' '.join(f'{probe} {{ @ = count(); }}' for probe in probes)}"
    try:
        done = subprocess.run(
            [binary, "-e", program], capture_output=True, timeout=TRY_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it was not attached in {TRY_SECONDS:.0f} s"
    return _bpftrace.find_reason(done.stderr) or "unknown error" if done.returncode else ""


def make_program(entry: str, leave: str, function: str) -> _bpftrace.Program:
    return _bpftrace.Program(
        {},
        f"""
{entry}:{function} {{ @at[tid] = nsecs; }}
{leave}:{function} /@at[tid]/ {{
  $us = (nsecs - @at[tid]) / 1000;
  delete(@at[tid]);
  @wait[cpu] = hist($us);
  @max[cpu] = max($us);
}}
""",
        ("wait", "max"),
        ("at",),
    )


def make_reader(function: str) -> _bpftrace.JsonReader:
    return _bpftrace.JsonReader(
        lambda maps: _bpftrace.read_latency(maps, ReadingKind.FUNCTION, function)
    )


INSTRUMENT = FunctionLatency()
