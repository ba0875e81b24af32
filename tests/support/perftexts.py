"""Output of perf script, and the captures that are read from it."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING

from overnight.ingest.formats import perfscript

if TYPE_CHECKING:
    from overnight.store import capture

MTIME = 1_700_000_000_000_000_000

IDLE = (
    "\tffffffff821f1eab pv_native_safe_halt+0xb ([kernel.kallsyms])\n"
    "\tffffffff813c3826 do_idle+0x136 ([kernel.kallsyms])\n"
    "\tffffffff812fae63 common_startup_64+0x13b ([kernel.kallsyms])\n"
)
SOFTIRQ_ON_IDLE = (
    "\tffffffff81a00010 net_rx_action+0x10 ([kernel.kallsyms])\n"
    "\tffffffff81200020 __do_softirq+0x20 ([kernel.kallsyms])\n" + IDLE
)
USER = (
    "\t           9b0c2 work+0x12 (/opt/app/bin/app)\n"
    "\t           2724a __libc_start_call_main+0x7a (/usr/lib/libc.so.6)\n"
)
HEADER = """\
# ========
# captured on    : Sun Nov 15 06:26:59 2026
# header version : 1
# hostname : web-7
# os release : 6.18.44
# nrcpus online : 4
# nrcpus avail : 4
# cmdline : /usr/bin/perf record -a -g -F 97 -o p.data -- make -C 3
# event : name = cpu-clock:ppp, , id = { 65, 66 }, type = 1, size = 128, { sample_period, sample_freq } = 97, sample_type = IP|TID|TIME, read_format = ID, disabled = 1, inherit = 1, freq = 1, precise_ip = 3
# event : name = dummy:HG, , id = { 67 }, type = 1, { sample_period, sample_freq } = 97, sample_type = IP, inherit = 1, freq = 1
# CPU_TOPOLOGY info available, use -I to display
# ========
#
"""


def sample(
    comm: str = "app",
    tid: str = "  123",
    cpu: str = "[001] ",
    at: str = "   82.739145",
    what: str = "  10309278 cpu-clock:ppp: ",
    stack: str = USER,
) -> str:
    return f"{comm} {tid} {cpu}{at}: {what}\n{stack}\n"


def write(folder: pathlib.Path, text: str | bytes) -> pathlib.Path:
    path = folder / "capture.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(path, ns=(MTIME, MTIME))
    return path


def read(folder: pathlib.Path, text: str | bytes) -> capture.Capture:
    return perfscript.read(write(folder, text), "")


def stack(taken: capture.Capture, row: int) -> list[str]:
    number = taken.stack[row]
    begin, end = taken.stacks.offset[number], taken.stacks.offset[number + 1]
    return [taken.frames.name[frame] for frame in taken.stacks.frame[begin:end]]


def threads(taken: capture.Capture) -> list[str]:
    return [taken.tasks.thread[task] for task in taken.task]
