"""The process table of both decoders: one row for each process from its fork to its exit."""

from __future__ import annotations

import numpy as np
import perfdecoded
import perfrecords as make
import pytest
from perfdecoded import Process

from overnight.sources.perf import _perfdata, decode, process_table, processes

FULL = make.Layout()
EXEC = make.MISC_COMM_EXEC
LISTED = make.MISC_FORK_EXEC
INIT = Process(1, None, 0, 0, ":1", None)

# A process that ran before: perf lists it at time zero, with its parent, name and files.
SHELL = (
    FULL.fork(0, 10, 1, misc=LISTED),
    FULL.comm(0, 10, b"bash"),
    FULL.mmap2(0, 0x1000, 0x1000, b"/bin/bash"),
    FULL.mmap2(0, 0x9000, 0x1000, b"/lib/libc.so"),
)
BASH = Process(10, 0, 0, 0, "bash", "/bin/bash")


def execed(time: int, pid: int, name: bytes) -> tuple[bytes, ...]:
    return (
        FULL.comm(time, pid, name, misc=EXEC),
        FULL.mmap2(time, 0x1000, 0x1000, b"/bin/" + name, pid=pid),
        FULL.mmap2(time, 0x9000, 0x1000, b"/lib/ld.so", pid=pid),
    )


CASES: dict[str, tuple[tuple[bytes, ...], list[Process]]] = {
    "it ran before the recording": (SHELL, [INIT, BASH]),
    "fork, exec and exit": (
        (*SHELL, FULL.fork(5, 11, 10), *execed(6, 11, b"gzip"), FULL.exit(9, 11)),
        [INIT, BASH, Process(11, 1, 5, 9, "gzip", "/bin/gzip", 6)],
    ),
    "a fork without exec runs the executable of its parent": (
        (*SHELL, FULL.fork(5, 11, 10), FULL.mmap2(6, 0x20000, 0x1000, b"/lib/x.so", pid=11)),
        [INIT, BASH, Process(11, 1, 5, 0, "bash", "/bin/bash")],
    ),
    "the last exec of a chain counts": (
        (*SHELL, FULL.fork(5, 11, 10), *execed(6, 11, b"env"), *execed(7, 11, b"nice"),
         *execed(8, 11, b"make"), FULL.fork(9, 12, 11)),
        [INIT, BASH, Process(11, 1, 5, 0, "make", "/bin/make", 8),
         Process(12, 2, 9, 0, "make", "/bin/make")],
    ),
    "an exec whose files are lost leaves the executable unknown": (
        (*SHELL, FULL.comm(6, 10, b"gzip", misc=EXEC)),
        [INIT, Process(10, 0, 0, 0, "gzip", None, 6)],
    ),
    "a process names itself": (
        (*SHELL, FULL.comm(6, 10, b"bash: worker")),
        [INIT, Process(10, 0, 0, 0, "bash: worker", "/bin/bash")],
    ),
    "threads have no rows, and their names are not the process's": (
        (*SHELL, FULL.fork(5, 10, 10, tid=15), FULL.comm(6, 15, b"worker", pid=10),
         FULL.comm(6, 15, b"thread", pid=10, misc=EXEC), FULL.exit(7, 10, tid=15)),
        [INIT, BASH],
    ),
    "threads that outlive the main thread move the end": (
        (*SHELL, FULL.exit(7, 10), FULL.exit(8, 10, tid=15)),
        [INIT, Process(10, 0, 0, 8, "bash", "/bin/bash")],
    ),
    "a reused pid is two rows": (
        (*SHELL, FULL.fork(3, 11, 10), FULL.exit(4, 11), FULL.fork(5, 11, 10), FULL.exit(6, 11)),
        [INIT, BASH, Process(11, 1, 3, 4, "bash", "/bin/bash"),
         Process(11, 1, 5, 6, "bash", "/bin/bash")],
    ),
    "the pid of a listed process that ended is reused": (
        (*SHELL, FULL.exit(4, 10), FULL.fork(5, 10, 1)),
        [INIT, Process(10, 0, 0, 4, "bash", "/bin/bash"), Process(10, 0, 5, 0, ":10", None)],
    ),
    "a lost exit does not join two processes": (
        (*SHELL, FULL.fork(3, 11, 10), FULL.fork(5, 11, 10), FULL.fork(6, 10, 11)),
        [INIT, BASH, Process(11, 1, 3, 0, "bash", "/bin/bash"),
         Process(11, 1, 5, 0, "bash", "/bin/bash"), Process(10, 3, 6, 0, "bash", "/bin/bash")],
    ),
    "a process listed while its fork was being recorded is one row": (
        (*SHELL, FULL.fork(0, 11, 10, misc=LISTED), FULL.comm(0, 11, b"gzip"),
         FULL.mmap2(0, 0x1000, 0x1000, b"/bin/gzip", pid=11), FULL.fork(5, 11, 10), FULL.exit(9, 11)),
        [INIT, BASH, Process(11, 1, 5, 9, "gzip", "/bin/gzip")],
    ),
    "a parent is listed after its child": (
        (FULL.fork(0, 9, 10, misc=LISTED), FULL.comm(0, 9, b"child"), *SHELL),
        [Process(10, 2, 0, 0, "bash", "/bin/bash"), Process(9, 0, 0, 0, "child", None), INIT],
    ),
    "anonymous memory, the vdso and data are not the executable": (
        (*SHELL, FULL.comm(6, 10, b"x", misc=EXEC),
         FULL.mmap2(6, 0x1000, 0x1000, b"//anon"), FULL.mmap2(6, 0x1000, 0x1000, b"[vdso]"),
         FULL.mmap2(6, 0x1000, 0x1000, b"/memfd:jit"),
         FULL.mmap2(6, 0x1000, 0x1000, b"/etc/data", protection=1),
         FULL.mmap(6, 0x1000, 0x1000, b"/bin/x")),
        [INIT, Process(10, 0, 0, 0, "x", "/bin/x", 6)],
    ),
    "a library that a process listed without its files maps later is not its executable": (
        (FULL.fork(0, 10, 1, misc=LISTED), FULL.mmap2(5, 0x1000, 0x1000, b"/lib/x.so")),
        [INIT, Process(10, 0, 0, 0, ":10", None)],
    ),
    "processes that start each other": (
        (FULL.fork(0, 6, 5), FULL.fork(0, 7, 6), FULL.fork(0, 5, 7)),
        [Process(5, 2, 0, 0, ":5", None), Process(6, None, 0, 0, ":6", None),
         Process(7, 1, 0, 0, ":7", None)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_rows(case: str) -> None:
    records, expected = CASES[case]
    assert perfdecoded.processes(perfdecoded.result_of(*records, layout=FULL)) == expected


def test_a_sample_belongs_to_the_process_that_had_the_pid_then() -> None:
    records = (
        FULL.sample(1, pid=11),
        FULL.fork(2, 11, 10),
        FULL.sample(3, pid=11, tid=12),
        FULL.exit(4, 11),
        FULL.sample(5, pid=11),
        FULL.fork(6, 11, 10),
        FULL.sample(7, pid=11),
        FULL.sample(8, pid=10),
        FULL.sample(9, pid=99),
    )
    rows = perfdecoded.decoded(*records, layout=FULL)
    assert [row.row for row in rows] == [None, 1, 1, 2, 0, None]


def test_without_times_a_reused_pid_is_two_rows() -> None:
    layout = make.Layout(make.TID)
    records = (layout.fork(1, 11, 10), layout.exit(2, 11), layout.fork(3, 11, 10))
    table = perfdecoded.processes(perfdecoded.result_of(*records, layout=layout))
    assert [(process.pid, process.start) for process in table] == [(10, 0), (11, 0), (11, 0)]


def test_the_records_of_the_native_recorder_are_rows() -> None:
    maps = b"400000-401000 r-xp 00000000 fe:00 12  /bin/true\n"
    listed = (
        processes.fork_record(10, 1),
        processes.comm_record(10, 10, b"true"),
        *processes.map_records(10, maps),
    )
    layout = make.Layout(make.IP | make.TID | make.TIME | make.CPU)
    assert perfdecoded.processes(perfdecoded.result_of(*listed, layout=layout)) == [
        INIT,
        Process(10, 0, 0, 0, "true", "/bin/true"),
    ]


@pytest.mark.parametrize("decoder", [_perfdata.decode, decode.decode], ids=["C", "Python"])
def test_rows_are_bounded(decoder: object, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = make.Layout(make.TID, id_all=False)
    limit = process_table.ROWS_LIMIT
    if decoder is decode.decode:  # a million forks take it ten seconds
        limit = 4
        monkeypatch.setattr(process_table, "ROWS_LIMIT", limit)
    forks = np.full((limit, 6), (make.FORK, 24 << 16, 0, 1, 0, 1), np.int32)
    forks[:, 2] = forks[:, 4] = np.arange(2, limit + 2)
    samples = b"".join(layout.sample(pid=pid) for pid in (2, limit, limit + 1))
    stream = layout.comm(0, 1, b"init") + forks.tobytes() + samples
    kind, result = perfdecoded.outcome(decoder, stream, layout)
    assert (kind, len(result[6][0])) == ("result", 4 * limit)
    assert [row.row for row in perfdecoded.rows(result)] == [1, limit - 1, None]
