"""Processes and their mappings as the records describe them: names, forks, files, JIT code."""

from __future__ import annotations

import functools
import struct

import perfdecoded
import perfrecords as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

FULL = make.Layout()
WITH_BUILD_IDS = make.Layout(build_ids=True)
UNKNOWN = ("[unknown]", 0)
decoded = functools.partial(perfdecoded.decoded, layout=FULL)
result_of = functools.partial(perfdecoded.result_of, layout=FULL)


def stack_of(*records: bytes) -> tuple[tuple[str, int], ...]:
    return decoded(*records)[-1].stack


def names_of(*records: bytes) -> tuple[str, str]:
    last = decoded(*records)[-1]
    return last.thread, last.process


# ------------------------------------------------------------------ names


def test_threads_have_their_own_names_and_that_of_their_process() -> None:
    known = FULL.comm(1, 10, b"server"), FULL.comm(1, 11, b"worker 1:2", pid=10)
    assert names_of(*known, FULL.sample(2, tid=11)) == ("worker 1:2", "server")
    assert names_of(*known, FULL.sample(2)) == ("server", "server")
    assert names_of(*known, FULL.sample(2, tid=12)) == (":12", "server")


def test_an_unnamed_process_has_the_name_of_its_thread() -> None:
    assert names_of(FULL.comm(1, 11, b"w", pid=10), FULL.sample(2, tid=11)) == ("w", "w")


def test_a_task_without_a_name_is_called_by_number() -> None:
    assert names_of(FULL.sample(2, tid=11)) == (":11", ":10")
    assert names_of(FULL.sample(2, pid=-1, tid=-1)) == (":-1", ":-1")
    assert names_of(FULL.sample(2, pid=-(2**31), tid=2**31 - 1)) == (
        ":2147483647", ":-2147483648",
    )  # fmt: skip


def test_idle_is_called_swapper() -> None:
    assert names_of(FULL.sample(1, pid=0)) == ("swapper", "swapper")


def test_a_new_name_applies_from_its_time_on() -> None:
    rows = decoded(
        FULL.comm(1, 10, b"sh"), FULL.sample(2), FULL.comm(3, 10, b"gcc"), FULL.sample(4)
    )
    assert [row.thread for row in rows] == ["sh", "gcc"]


def test_children_and_threads_inherit_names() -> None:
    known = FULL.comm(1, 10, b"sh"), FULL.comm(1, 12, b"pool", pid=10)
    assert names_of(*known, FULL.fork(2, 20, 10), FULL.sample(3, pid=20)) == ("sh", "sh")
    from_thread = FULL.fork(2, 10, 10, 13, 12)
    assert names_of(*known, from_thread, FULL.sample(3, tid=13)) == ("pool", "sh")


def test_a_placeholder_name_is_not_inherited() -> None:
    records = FULL.sample(1), FULL.fork(2, 20, 10), FULL.sample(3, pid=20)
    assert names_of(*records) == (":20", ":20")


def test_a_reused_pid_loses_its_name_to_an_unnamed_parent() -> None:
    records = FULL.comm(1, 20, b"old"), FULL.fork(2, 20, 10), FULL.sample(3, pid=20)
    assert names_of(*records) == (":20", ":20")


def test_names_end_at_a_zero_and_may_be_any_bytes() -> None:
    _, _, _, _, strings, *_ = result_of(
        FULL.comm(1, 10, b"a\xff\x80b"), FULL.comm(1, 11, b""), FULL.comm(1, 12, b"x" * 300)
    )
    assert strings[3:] == [b"a\xff\x80b", b"", b"x" * 300]


# ------------------------------------------------------------------ mappings


def test_an_address_is_an_offset_in_the_file() -> None:
    mapped = FULL.mmap2(1, 0x7000, 0x1000, b"/lib/a.so", offset=0x3000)
    at = [0x6FFF, 0x7000, 0x7FFF, 0x8000]
    assert stack_of(mapped, FULL.sample(2, [make.IN_USER, *at])) == (
        UNKNOWN, ("/lib/a.so", 0x3000), ("/lib/a.so", 0x3FFF), UNKNOWN,
    )  # fmt: skip


@pytest.mark.parametrize(
    "ignored",
    [
        FULL.mmap2(1, 0x1000, 0x1000, b"/data", protection=3),
        FULL.mmap(1, 0x1000, 0x1000, b"/data", misc=make.USER | make.MISC_DATA),
        FULL.mmap2(1, 0x1000, 0x1000, b"[kernel.kallsyms]_text", misc=make.KERNEL),
        FULL.mmap(1, 0x1000, 0x1000, b"[kernel.kallsyms]_text", pid=-1),
        FULL.mmap(1, 0x1000, 0, b"/empty"),
        FULL.mmap(1, 0x1000, 2**64 - 0x1000, b"/wraps"),
        FULL.mmap(1, 0x1000, 2**64 - 1, b"/wraps"),
        FULL.mmap2(1, 0x1000, 0x1000, b"/short")[:6] + struct.pack("<H", 72) + bytes(64),
        make.record(make.MMAP, struct.pack("<iiQQQ", 10, 10, 0x1000, 0x1000, 0)),
        make.record(make.COMM, struct.pack("<ii", 10, 10)),
        make.record(make.FORK, struct.pack("<iii", 10, 10, 10)),
        make.record(make.EXIT, b"1234567"),
        make.record(make.LOST, b"1234567"),
        make.record(make.LOST_SAMPLES),
        make.record(2**32 - 1, bytes(100)),
    ],
)
def test_mappings_without_code_change_nothing(ignored: bytes) -> None:
    (row,) = decoded(ignored, FULL.sample(2, [make.IN_USER, 0x1000]))
    assert (row.stack, row.thread) == ((UNKNOWN,), ":10")


def test_the_last_byte_of_memory_can_be_mapped() -> None:
    mapped = FULL.mmap(1, 2**63, 2**63 - 1, b"/high")
    assert stack_of(mapped, FULL.sample(2, [make.IN_USER, 2**64 - 4096])) == (
        ("/high", 2**63 - 4096),
    )


def test_offsets_wrap_the_same_in_both_decoders() -> None:
    mapped = FULL.mmap(1, 0x1000, 0x1000, b"/x", offset=2**64 - 8)
    over = FULL.mmap(2, 0x1000, 0x800, b"/y", offset=2**64 - 1)
    assert stack_of(mapped, over, FULL.sample(3, [make.IN_USER, 0x1001, 0x1810])) == (
        ("/y", 0), ("/x", 0x808),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("start", "length", "wanted"),
    [
        (0, 4, "NNNNaaaabbbb"),
        (4, 4, "....NNNNbbbb"),
        (5, 1, "....aNaabbbb"),
        (5, 2, "....aNNabbbb"),
        (6, 3, "....aaNNNbbb"),
        (3, 9, "...NNNNNNNNN"),
        (2, 3, "..NNNaaabbbb"),
        (8, 4, "....aaaaNNNN"),
    ],
)
def test_a_mapping_replaces_only_what_it_covers(start: int, length: int, wanted: str) -> None:
    stack = stack_of(
        FULL.mmap2(1, 4, 4, b"a", offset=4),
        FULL.mmap2(1, 8, 4, b"b", offset=8),
        FULL.mmap2(2, start, length, b"N", offset=start),
        FULL.sample(3, [make.IN_USER, *range(12)]),
    )
    assert "".join("." if module == "[unknown]" else module for module, _ in stack) == wanted
    assert all(address == i or module == "[unknown]" for i, (module, address) in enumerate(stack))


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=25))
def test_later_mappings_cover_earlier_ones(spans: list[tuple[int, int]]) -> None:
    cells: list[tuple[str, int]] = [UNKNOWN] * 64
    records = []
    for i, (start, length) in enumerate(spans):
        records.append(FULL.mmap2(i, start, length, b"m%d" % i, offset=100 * i))
        for cell in range(start, start + length):
            cells[cell] = (f"m{i}", cell - start + 100 * i)
    chain = [make.IN_USER, *range(64)]
    assert stack_of(*records, FULL.sample(99, chain)) == tuple(cells)


@pytest.mark.parametrize(
    "name",
    [
        b"//anon", b"/dev/zero (deleted)", b"/anon_hugepage (deleted)", b"[heap]", b"[stack]",
        b"[stack:12]", b"/SYSV00000000 (deleted)", b"/memfd:doublemapper (deleted)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("second", [False, True], ids=["MMAP", "MMAP2"])
def test_jit_code_is_resolved_by_address_in_its_process_map(name: bytes, second: bool) -> None:
    mapped = (FULL.mmap2 if second else FULL.mmap)(1, 0x1000, 0x1000, name, pid=7, offset=5)
    stack = stack_of(mapped, FULL.sample(2, [make.IN_USER, 0x1008], pid=7))
    assert stack == (("/tmp/perf-7.map", 0x1008),)


def modules_of(*records: bytes, layout: make.Layout = FULL) -> list[tuple[bytes, int, bytes]]:
    _, _, _, _, strings, modules, *_ = result_of(*records, layout=layout)
    return [(strings[name], pid, build_id) for name, pid, build_id in modules[2:]]


def test_files_are_distinguished_by_inode() -> None:
    assert modules_of(
        FULL.mmap2(1, 0x1000, 0x1000, b"/bin/x", pid=1, inode=5),
        FULL.mmap2(2, 0x1000, 0x1000, b"/bin/x", pid=2, inode=5),
        FULL.mmap2(3, 0x1000, 0x1000, b"/bin/x", pid=3, inode=6),
        FULL.mmap(4, 0x1000, 0x1000, b"/bin/x", pid=4),
    ) == [(b"/bin/x", 1, b""), (b"/bin/x", 3, b""), (b"/bin/x", 4, b"")]


def test_files_are_distinguished_by_build_id_which_is_stored() -> None:
    assert modules_of(
        FULL.mmap2(1, 0x1000, 0x1000, b"/x", pid=1, build_id=b"\1" * 20),
        FULL.mmap2(1, 0x1000, 0x1000, b"/x", pid=2, build_id=b"\1" * 20),
        FULL.mmap2(1, 0x1000, 0x1000, b"/x", pid=3, build_id=b"\2" * 20),
        FULL.mmap2(1, 0x1000, 0x1000, b"/x", pid=4, build_id=b"\1" * 16),
        FULL.mmap2(1, 0x1000, 0x1000, b"/x", pid=5, build_id=b""),
        layout=WITH_BUILD_IDS,
    ) == [(b"/x", 1, b"\1" * 20), (b"/x", 3, b"\2" * 20), (b"/x", 4, b"\1" * 16), (b"/x", 5, b"")]


def test_a_build_id_that_is_too_long_is_cut() -> None:
    mapped = bytearray(FULL.mmap2(1, 0x1000, 0x1000, b"/x", build_id=b"\7" * 20))
    mapped[40] = 255
    assert modules_of(bytes(mapped), layout=WITH_BUILD_IDS) == [(b"/x", 10, b"\7" * 20)]


def test_the_inode_is_not_read_as_the_build_id_that_another_recording_asks_for() -> None:
    leaked = make.USER | make.MISC_BUILD_ID
    assert modules_of(
        FULL.mmap2(1, 0x1000, 0x1000, b"/x", pid=1, inode=5),
        FULL.mmap2(2, 0x1000, 0x1000, b"/x", pid=2, inode=5, misc=leaked),
        FULL.mmap2(3, 0x1000, 0x1000, b"/x", pid=3, inode=6, misc=leaked),
    ) == [(b"/x", 1, b""), (b"/x", 3, b"")]


def test_children_keep_the_mappings_of_their_parent_at_the_fork() -> None:
    rows = decoded(
        FULL.mmap2(1, 0x1000, 0x1000, b"/both", pid=1),
        FULL.fork(2, 2, 1),
        FULL.mmap2(3, 0x2000, 0x1000, b"/child", pid=2),
        FULL.mmap2(3, 0x3000, 0x1000, b"/parent", pid=1),
        *(FULL.sample(4, [make.IN_USER, 0x1000, 0x2000, 0x3000], pid=pid) for pid in (1, 2)),
    )
    assert [row.stack for row in rows] == [
        (("/both", 0), UNKNOWN, ("/parent", 0)),
        (("/both", 0), ("/child", 0), UNKNOWN),
    ]


def test_the_child_of_an_unknown_parent_has_its_own_mappings() -> None:
    records = FULL.fork(2, 2, 1), FULL.mmap2(3, 0x2000, 0x1000, b"/child", pid=2)
    assert stack_of(*records, FULL.sample(4, [make.IN_USER, 0x2000], pid=2)) == (("/child", 0),)
    assert stack_of(*records, FULL.sample(4, [make.IN_USER, 0x2000], pid=1)) == (UNKNOWN,)


def test_processes_older_than_the_recording_inherit_nothing() -> None:
    rows = decoded(
        FULL.mmap2(0, 0x1000, 0x1000, b"/old", pid=2),
        FULL.mmap2(0, 0x2000, 0x1000, b"/parent", pid=1),
        FULL.comm(0, 1, b"init"),
        FULL.fork(0, 2, 1, misc=make.MISC_FORK_EXEC),
        FULL.mmap2(0, 0x3000, 0x1000, b"/own", pid=2),
        FULL.sample(1, [make.IN_USER, 0x1000, 0x2000, 0x3000], pid=2),
        FULL.sample(1, [make.IN_USER, 0x2000], pid=1),
    )
    assert rows[0].stack == (UNKNOWN, UNKNOWN, ("/own", 0))
    assert rows[0].thread == "init"
    assert rows[1].stack == (("/parent", 0),)


def test_a_new_thread_shares_all_mappings() -> None:
    mapped = FULL.mmap2(1, 0x1000, 0x1000, b"/x")
    thread = FULL.fork(2, 10, 10, 11, 10)
    assert stack_of(mapped, thread, FULL.sample(4, [make.IN_USER, 0x1000], tid=11)) == (("/x", 0),)


def test_a_reused_pid_has_the_mappings_of_its_new_parent() -> None:
    records = (
        FULL.mmap2(1, 0x1000, 0x1000, b"/old", pid=2),
        FULL.exit(2, 2),
        FULL.mmap2(1, 0x2000, 0x1000, b"/new", pid=1),
        FULL.fork(3, 2, 1),
        FULL.fork(4, 2, 1),
        FULL.sample(5, [make.IN_USER, 0x1000, 0x2000], pid=2),
    )
    assert stack_of(*records) == (UNKNOWN, ("/new", 0))


def test_samples_after_the_end_of_a_process_still_have_names() -> None:
    mapped = FULL.mmap2(1, 0x1000, 0x1000, b"/x")
    ended = FULL.exit(2, 10), FULL.exit(2, 10, 11)
    assert stack_of(mapped, *ended, FULL.sample(3, [make.IN_USER, 0x1000])) == (("/x", 0),)
