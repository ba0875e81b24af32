"""The result of a decoder as values that a test can compare."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from overnight.sources.perf import _perfdata, decode
from overnight.sources.perf.process_table import UNKNOWN

if TYPE_CHECKING:
    import perfrecords as make


@dataclasses.dataclass(frozen=True)
class Row:
    time: int
    cpu: int
    pid: int
    tid: int
    thread: str
    process: str
    stack: tuple[tuple[str, int], ...]  # (module, address), leaf first
    event: int
    period: int
    row: int | None  # of the processes


@dataclasses.dataclass(frozen=True)
class Process:
    pid: int
    parent: int | None  # row
    start: int
    end: int
    name: str
    executable: str | None
    execed: int = 0


def unpack(columns: Sequence[bytes], forms: str) -> list[tuple[int, ...]]:
    return [
        struct.unpack(f"<{len(column) // struct.calcsize(form)}{form}", column)
        for column, form in zip(columns, forms, strict=True)
    ]


def outcome(
    decoder, stream: bytes, layout: make.Layout, ids: Sequence[tuple[int, int]] = ()
) -> tuple[str, object]:
    """Return ("result", tables) or ("refused", (problem, offset)); raise anything else."""
    numbers, events = struct.pack(f"<{len(ids)}Q", *(i for i, _ in ids)), bytes(e for _, e in ids)
    try:
        tables = decoder(
            memoryview(stream), layout.type, layout.read_format, layout.id_all, layout.build_ids,
            numbers, events,
        )  # fmt: skip
    except ValueError as error:
        return "refused", error.args
    return "result", tables


def same_of_both(
    stream: bytes, layout: make.Layout, ids: Sequence[tuple[int, int]] = ()
) -> tuple[str, object]:
    """Return the outcome, which must be equal in C and Python; ids must be sorted."""
    native = outcome(_perfdata.decode, stream, layout, ids)
    python = outcome(decode.decode, stream, layout, ids)
    assert native == python
    return native


def rows(tables: decode.Decoded) -> list[Row]:
    columns, tasks, stacks, frames, strings, modules, _, _ = tables
    time, cpu, task, stack, event, period = unpack(columns, "QiIIBQ")
    pid, tid, thread, process, row = unpack(tasks, "iiIII")
    ends, of_stacks = unpack(stacks, "II")
    owner, address = unpack(frames, "IQ")
    names = [name.decode() for name in strings]

    def frames_of(number: int) -> tuple[tuple[str, int], ...]:
        begin = ends[number - 1] if number else 0
        return tuple(
            (names[modules[owner[f]][0]], address[f]) for f in of_stacks[begin : ends[number]][::-1]
        )

    return [
        Row(
            time[i],
            cpu[i],
            pid[k],
            tid[k],
            names[thread[k]],
            names[process[k]],
            frames_of(stack[i]),
            event[i],
            period[i],
            None if row[k] == UNKNOWN else row[k],
        )
        for i, k in enumerate(task)
    ]


def processes(tables: decode.Decoded) -> list[Process]:
    _, _, _, _, strings, _, columns, _ = tables
    return [
        Process(
            pid,
            None if parent == UNKNOWN else parent,
            start,
            end,
            strings[name].decode(),
            None if executable == UNKNOWN else strings[executable].decode(),
            execed,
        )
        for pid, parent, start, end, name, executable, execed in zip(
            *unpack(columns, "iIQQIIQ"), strict=True
        )
    ]


def result_of(
    *records: bytes, layout: make.Layout, ids: Sequence[tuple[int, int]] = ()
) -> decode.Decoded:
    kind, result = same_of_both(b"".join(records), layout, ids)
    assert kind == "result", result
    return result


def decoded(*records: bytes, layout: make.Layout, ids: Sequence[tuple[int, int]] = ()) -> list[Row]:
    return rows(result_of(*records, layout=layout, ids=ids))
