"""The two decoders of perf.data records: what they say, and that both say the same."""

from __future__ import annotations

import functools
import random
import struct

import perfdecoded
import perfrecords as make
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.sources.perf import decode

FULL = make.Layout()
UNKNOWN = ("[unknown]", 0)
decoded = functools.partial(perfdecoded.decoded, layout=FULL)


def stack_of(*records: bytes, layout: make.Layout = FULL) -> tuple[tuple[str, int], ...]:
    return perfdecoded.decoded(*records, layout=layout)[-1].stack


def names_of(*records: bytes) -> tuple[str, str]:
    last = decoded(*records)[-1]
    return last.thread, last.process


def result_of(*records: bytes, layout: make.Layout = FULL) -> decode.Decoded:
    kind, found = perfdecoded.same_of_both(b"".join(records), layout)
    assert kind == "result", found
    return found


def refusal_of(*records: bytes, layout: make.Layout = FULL) -> object:
    kind, found = perfdecoded.same_of_both(b"".join(records), layout)
    assert kind == "refused", found
    return found


# ------------------------------------------------------------------ samples


def test_every_field_of_a_sample() -> None:
    layout = make.Layout(FULL.type | make.ADDR | make.STREAM_ID | make.ID | make.IDENTIFIER)
    sample = layout.sample(
        77, [make.IN_KERNEL, 0xFFFF800000000010], pid=10, tid=11, cpu=3, period=2**64 - 1, event=5
    )
    (row,) = perfdecoded.decoded(sample, layout=layout, ids=[(4, 1), (5, 2), (6, 3)])
    assert (row.time, row.cpu, row.pid, row.tid, row.event) == (77, 3, 10, 11, 2)
    assert row.period == 2**64 - 1
    assert row.stack == (("[kernel]", 0xFFFF800000000010),)


def test_nothing_gives_nothing() -> None:
    columns, tasks, stacks, frames, strings, modules, lost = result_of()
    assert (*columns, *tasks, *stacks, *frames) == (b"",) * 14
    assert strings == [b"[kernel]", b"[unknown]", b"swapper"]
    assert modules == [(0, -1, b""), (1, -1, b"")]
    assert lost == 0


def test_what_a_sample_does_not_carry_is_minus_one() -> None:
    layout = make.Layout(make.IP | make.TIME)
    (row,) = perfdecoded.decoded(layout.sample(5, ip=0x10, mode=make.KERNEL), layout=layout)
    assert (row.pid, row.tid, row.cpu, row.period, row.thread) == (-1, -1, -1, 0, ":-1")
    assert row.stack == (("[kernel]", 0x10),)


def test_a_core_of_minus_one_stays() -> None:
    assert decoded(FULL.sample(1, cpu=-1))[0].cpu == -1


@pytest.mark.parametrize("mode", [make.KERNEL, make.USER, make.HYPERVISOR])
def test_without_a_chain_the_address_is_the_stack(mode: int) -> None:
    layout = make.Layout(make.IP | make.TID | make.TIME)
    mapped = layout.mmap2(1, 0x1000, 0x1000, b"/bin/x", offset=0x200)
    found = stack_of(mapped, layout.sample(2, ip=0x1234, mode=mode), layout=layout)
    assert found == {
        make.KERNEL: (("[kernel]", 0x1234),),
        make.USER: (("/bin/x", 0x434),),
        make.HYPERVISOR: (UNKNOWN,),
    }[mode]  # fmt: skip


def test_without_a_chain_a_marker_as_address_is_no_frame() -> None:
    layout = make.Layout(make.IP | make.TID | make.TIME)
    assert stack_of(layout.sample(2, ip=make.IN_USER), layout=layout) == ()


def test_an_empty_chain_is_an_empty_stack() -> None:
    assert stack_of(FULL.sample(1, [], ip=0x5)) == ()


def test_markers_say_where_the_words_after_them_lie() -> None:
    chain = [make.IN_KERNEL, 0x10, 0x11, make.IN_USER, 0x1010, make.IN_GUEST, 0x12, 2**64 - 4095]
    assert stack_of(
        FULL.mmap2(1, 0x1000, 0x1000, b"/bin/x"), FULL.sample(2, [*chain, 2**64 - 4096])
    ) == (("[kernel]", 0x10), ("[kernel]", 0x11), ("/bin/x", 0x10), UNKNOWN, UNKNOWN)


def test_a_chain_without_marker_begins_where_the_sample_was_taken() -> None:
    assert stack_of(FULL.sample(2, [0x10], mode=make.KERNEL)) == (("[kernel]", 0x10),)
    assert stack_of(FULL.sample(2, [0x10], mode=make.USER)) == (UNKNOWN,)


def test_the_same_chain_and_mode_in_another_address_space_is_another_stack() -> None:
    chain = [make.IN_USER, 0x1010]
    found = decoded(
        FULL.mmap2(1, 0x1000, 0x1000, b"/a", pid=1),
        FULL.mmap2(1, 0x1000, 0x1000, b"/b", pid=2),
        FULL.sample(2, chain, pid=1),
        FULL.sample(2, chain, pid=2),
        FULL.sample(2, chain, pid=3),
        FULL.sample(2, chain, pid=4),
    )
    assert [row.stack for row in found] == [
        (("/a", 0x10),),
        (("/b", 0x10),),
        (UNKNOWN,),
        (UNKNOWN,),
    ]


# PERF_SAMPLE_READ: how many words it takes, for each read_format.
READS = [
    (0, [1]),
    (make.ENABLED | make.RUNNING, [1, 2, 3]),
    (make.READ_ID | make.READ_LOST, [1, 2, 3]),
    (make.ENABLED | make.RUNNING | make.READ_ID | make.READ_LOST, [1, 2, 3, 4, 5]),
    (make.GROUP, [0]),
    (make.GROUP, [3, 1, 2, 3]),
    (make.GROUP | make.ENABLED | make.READ_ID, [2, 9, 1, 1, 2, 2]),
    (make.GROUP | make.READ_ID | make.READ_LOST | make.RUNNING, [1, 9, 1, 1, 1]),
]


@pytest.mark.parametrize(("read_format", "words"), READS)
def test_counter_values_are_stepped_over(read_format: int, words: list[int]) -> None:
    layout = make.Layout(FULL.type | make.READ, read_format)
    sample = layout.sample(1, [make.IN_KERNEL, 0x42], read=words)
    assert stack_of(sample, layout=layout) == (("[kernel]", 0x42),)


@pytest.mark.parametrize("members", [2, 7, 2**13, 2**63, 2**64 - 1])
def test_a_group_with_more_members_than_fit_is_refused(members: int) -> None:
    layout = make.Layout(make.TIME | make.READ, make.GROUP | make.READ_ID)
    sample = layout.sample(1, read=[members, 1, 2])
    problem = f"a sample of {len(sample)} bytes, too short for what it carries"
    first = layout.comm(1, 5, b"x")
    assert refusal_of(first, sample, layout=layout) == (problem, len(first))


@pytest.mark.parametrize("depth", [1, 2**13, 2**61, 2**64 - 1])
def test_a_chain_deeper_than_its_record_is_refused(depth: int) -> None:
    layout = make.Layout(make.CALLCHAIN)
    sample = make.record(make.SAMPLE, struct.pack("<Q", depth))
    problem = "a sample of 16 bytes, too short for what it carries"
    assert refusal_of(sample, layout=layout) == (problem, 0)


@pytest.mark.parametrize("cut", range(8, 64, 4))
def test_a_sample_that_is_too_short_is_refused(cut: int) -> None:
    layout = make.Layout(FULL.type | make.READ, make.GROUP)
    whole = layout.sample(1, [], read=[0])
    assert len(whole) == 64
    short = make.record(make.SAMPLE, whole[8:cut])
    problem = f"a sample of {cut} bytes, too short for what it carries"
    assert refusal_of(short, layout=layout) == (problem, 0)


@pytest.mark.parametrize("size", range(8))
def test_a_record_smaller_than_its_header_is_refused(size: int) -> None:
    first = FULL.sample(1)
    bad = make.record(99, size=size)
    assert refusal_of(first, bad) == (f"a record of {size} bytes", len(first))


@pytest.mark.parametrize("left", [1, 7, 8, 9, 63])
def test_a_record_that_the_end_cuts_off_is_left_out(left: int) -> None:
    first, second = FULL.sample(1), FULL.sample(2, [0x1])
    assert [row.time for row in decoded(first + second[:left])] == [1]


# ------------------------------------------------------------------ several events


@pytest.mark.parametrize("where", [make.ID, make.IDENTIFIER, make.ID | make.IDENTIFIER])
def test_the_id_says_which_event(where: int) -> None:
    layout = make.Layout(FULL.type | where)
    ids = [(7, 0), (8, 1), (2**64 - 1, 2)]
    samples = [layout.sample(t, event=e) for t, e in enumerate((8, 7, 2**64 - 1, 9, 0))]
    found = perfdecoded.decoded(*samples, layout=layout, ids=ids)
    assert [row.event for row in found] == [1, 0, 2, 0, 0]


def test_where_both_ids_are_there_and_differ_the_later_one_counts() -> None:
    layout = make.Layout(make.ID | make.IDENTIFIER)
    sample = make.record(make.SAMPLE, struct.pack("<QQ", 1, 2))
    (row,) = perfdecoded.decoded(sample, layout=layout, ids=[(1, 1), (2, 2)])
    assert row.event == 2


def test_an_id_that_several_events_claim_is_the_last_ones() -> None:
    layout = make.Layout(make.ID)
    ids = [(1, 9), (5, 1), (5, 2), (5, 3), (6, 8)]
    (row,) = perfdecoded.decoded(layout.sample(event=5), layout=layout, ids=ids)
    assert row.event == 3


def test_without_ids_there_is_one_event() -> None:
    layout = make.Layout(make.ID)
    assert perfdecoded.decoded(layout.sample(event=5), layout=layout)[0].event == 0


# ------------------------------------------------------------------ order


def test_records_count_in_order_of_time_not_of_the_file() -> None:
    chain = [make.IN_USER, 0x1000]
    found = decoded(
        FULL.sample(30, chain),
        FULL.sample(10, chain),
        FULL.mmap2(20, 0x1000, 0x1000, b"/late"),
        FULL.comm(25, 10, b"named"),
    )
    assert [(row.time, row.stack, row.thread) for row in found] == [
        (10, (UNKNOWN,), ":10"),
        (30, (("/late", 0),), "named"),
    ]


def test_of_equal_times_the_file_says_the_order() -> None:
    found = decoded(
        FULL.sample(5, cpu=1),
        FULL.comm(5, 10, b"one"),
        FULL.sample(5, cpu=2),
        FULL.comm(5, 10, b"two"),
        FULL.sample(5, cpu=3),
        FULL.sample(4, cpu=0),
    )
    assert [(row.cpu, row.thread) for row in found] == [
        (0, ":10"), (1, ":10"), (2, "one"), (3, "two"),
    ]  # fmt: skip


def test_times_of_all_sizes_are_sorted() -> None:
    rng = random.Random(4)
    times = [rng.getrandbits(bits) for bits in range(65) for _ in range(5)]
    found = decoded(*(FULL.sample(time, cpu=i) for i, time in enumerate(times)))
    assert [row.time for row in found] == sorted(times)
    wanted = [i for i, _ in sorted(enumerate(times), key=lambda pair: pair[1])]
    assert [row.cpu for row in found] == wanted


def test_without_identity_side_band_comes_first() -> None:
    layout = make.Layout(id_all=False)
    found = perfdecoded.decoded(layout.sample(5), layout.comm(9, 10, b"x"), layout=layout)
    assert found[0].thread == "x"


@pytest.mark.parametrize("kind", [make.TIME, make.TIME | make.TID, make.TIME | make.CPU | make.ID])
def test_the_time_of_side_band_is_found_in_its_identity(kind: int) -> None:
    layout = make.Layout(kind | make.TID)
    early, late = layout.sample(5), layout.sample(7)
    found = perfdecoded.decoded(layout.comm(6, 10, b"x"), late, early, layout=layout)
    assert [row.thread for row in found] == [":10", "x"]


# ------------------------------------------------------------------ names


def test_threads_have_their_own_names_and_that_of_their_process() -> None:
    known = FULL.comm(1, 10, b"server"), FULL.comm(1, 11, b"worker 1:2", pid=10)
    assert names_of(*known, FULL.sample(2, tid=11)) == ("worker 1:2", "server")
    assert names_of(*known, FULL.sample(2)) == ("server", "server")
    assert names_of(*known, FULL.sample(2, tid=12)) == (":12", "server")


def test_where_the_process_has_no_name_the_thread_gives_it() -> None:
    assert names_of(FULL.comm(1, 11, b"w", pid=10), FULL.sample(2, tid=11)) == ("w", "w")


def test_who_has_no_name_is_called_by_number() -> None:
    assert names_of(FULL.sample(2, tid=11)) == (":11", ":10")
    assert names_of(FULL.sample(2, pid=-1, tid=-1)) == (":-1", ":-1")
    assert names_of(FULL.sample(2, pid=-(2**31), tid=2**31 - 1)) == (
        ":2147483647", ":-2147483648",
    )  # fmt: skip


def test_idle_is_called_swapper() -> None:
    assert names_of(FULL.sample(1, pid=0)) == ("swapper", "swapper")


def test_a_new_name_holds_from_its_time_on() -> None:
    found = decoded(
        FULL.comm(1, 10, b"sh"), FULL.sample(2), FULL.comm(3, 10, b"gcc"), FULL.sample(4)
    )
    assert [row.thread for row in found] == ["sh", "gcc"]


def test_children_and_threads_inherit_names() -> None:
    known = FULL.comm(1, 10, b"sh"), FULL.comm(1, 12, b"pool", pid=10)
    assert names_of(*known, FULL.fork(2, 20, 10), FULL.sample(3, pid=20)) == ("sh", "sh")
    from_thread = FULL.fork(2, 10, 10, 13, 12)
    assert names_of(*known, from_thread, FULL.sample(3, tid=13)) == ("pool", "sh")


def test_a_made_up_name_is_not_inherited() -> None:
    records = FULL.sample(1), FULL.fork(2, 20, 10), FULL.sample(3, pid=20)
    assert names_of(*records) == (":20", ":20")


def test_a_reused_pid_loses_its_name_to_an_unnamed_parent() -> None:
    records = FULL.comm(1, 20, b"old"), FULL.fork(2, 20, 10), FULL.sample(3, pid=20)
    assert names_of(*records) == (":20", ":20")


def test_names_end_at_a_zero_and_may_be_any_bytes() -> None:
    _, _, _, _, strings, _, _ = result_of(
        FULL.comm(1, 10, b"a\xff\x80b"), FULL.comm(1, 11, b""), FULL.comm(1, 12, b"x" * 300)
    )
    assert strings[3:] == [b"a\xff\x80b", b"", b"x" * 300]


# ------------------------------------------------------------------ mappings


def test_an_address_is_one_in_the_file() -> None:
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
def test_what_maps_no_code_changes_nothing(ignored: bytes) -> None:
    (row,) = decoded(ignored, FULL.sample(2, [make.IN_USER, 0x1000]))
    assert (row.stack, row.thread) == ((UNKNOWN,), ":10")


def test_the_last_byte_of_memory_can_be_mapped() -> None:
    mapped = FULL.mmap(1, 2**63, 2**63 - 1, b"/high")
    assert stack_of(mapped, FULL.sample(2, [make.IN_USER, 2**64 - 4096])) == (
        ("/high", 2**63 - 4096),
    )


def test_offsets_wrap_alike() -> None:
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
def test_a_mapping_over_others_leaves_what_sticks_out(start: int, length: int, wanted: str) -> None:
    found = stack_of(
        FULL.mmap2(1, 4, 4, b"a", offset=4),
        FULL.mmap2(1, 8, 4, b"b", offset=8),
        FULL.mmap2(2, start, length, b"N", offset=start),
        FULL.sample(3, [make.IN_USER, *range(12)]),
    )
    assert "".join("." if module == "[unknown]" else module for module, _ in found) == wanted
    assert all(address == i or module == "[unknown]" for i, (module, address) in enumerate(found))


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=25))
def test_many_mappings_are_as_painted_one_over_the_other(spans: list[tuple[int, int]]) -> None:
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
def test_made_code_is_looked_up_by_address_in_the_map_of_its_process(
    name: bytes, second: bool
) -> None:
    mapped = (FULL.mmap2 if second else FULL.mmap)(1, 0x1000, 0x1000, name, pid=7, offset=5)
    found = stack_of(mapped, FULL.sample(2, [make.IN_USER, 0x1008], pid=7))
    assert found == (("/tmp/perf-7.map", 0x1008),)


def modules_of(*records: bytes) -> list[tuple[bytes, int, bytes]]:
    _, _, _, _, strings, modules, _ = result_of(*records)
    return [(strings[name], pid, build_id) for name, pid, build_id in modules[2:]]


def test_files_are_told_apart_by_inode() -> None:
    assert modules_of(
        FULL.mmap2(1, 0x1000, 0x1000, b"/bin/x", pid=1, inode=5),
        FULL.mmap2(2, 0x1000, 0x1000, b"/bin/x", pid=2, inode=5),
        FULL.mmap2(3, 0x1000, 0x1000, b"/bin/x", pid=3, inode=6),
        FULL.mmap(4, 0x1000, 0x1000, b"/bin/x", pid=4),
    ) == [(b"/bin/x", 1, b""), (b"/bin/x", 3, b""), (b"/bin/x", 4, b"")]


def test_files_are_told_apart_by_build_id_which_is_kept() -> None:
    assert modules_of(
        FULL.mmap2(1, 0x1000, 0x1000, b"/x", pid=1, build_id=b"\1" * 20),
        FULL.mmap2(1, 0x1000, 0x1000, b"/x", pid=2, build_id=b"\1" * 20),
        FULL.mmap2(1, 0x1000, 0x1000, b"/x", pid=3, build_id=b"\2" * 20),
        FULL.mmap2(1, 0x1000, 0x1000, b"/x", pid=4, build_id=b"\1" * 16),
        FULL.mmap2(1, 0x1000, 0x1000, b"/x", pid=5, build_id=b""),
    ) == [(b"/x", 1, b"\1" * 20), (b"/x", 3, b"\2" * 20), (b"/x", 4, b"\1" * 16), (b"/x", 5, b"")]


def test_a_build_id_longer_than_there_is_room_for_is_cut() -> None:
    mapped = bytearray(FULL.mmap2(1, 0x1000, 0x1000, b"/x", build_id=b"\7" * 20))
    mapped[40] = 255
    assert modules_of(bytes(mapped)) == [(b"/x", 10, b"\7" * 20)]


def test_children_keep_what_their_parent_had_mapped_then() -> None:
    found = decoded(
        FULL.mmap2(1, 0x1000, 0x1000, b"/both", pid=1),
        FULL.fork(2, 2, 1),
        FULL.mmap2(3, 0x2000, 0x1000, b"/child", pid=2),
        FULL.mmap2(3, 0x3000, 0x1000, b"/parent", pid=1),
        *(FULL.sample(4, [make.IN_USER, 0x1000, 0x2000, 0x3000], pid=pid) for pid in (1, 2)),
    )
    assert [row.stack for row in found] == [
        (("/both", 0), UNKNOWN, ("/parent", 0)),
        (("/both", 0), ("/child", 0), UNKNOWN),
    ]


def test_the_child_of_an_unknown_parent_maps_its_own() -> None:
    records = FULL.fork(2, 2, 1), FULL.mmap2(3, 0x2000, 0x1000, b"/child", pid=2)
    assert stack_of(*records, FULL.sample(4, [make.IN_USER, 0x2000], pid=2)) == (("/child", 0),)
    assert stack_of(*records, FULL.sample(4, [make.IN_USER, 0x2000], pid=1)) == (UNKNOWN,)


def test_a_new_thread_shares_all() -> None:
    mapped = FULL.mmap2(1, 0x1000, 0x1000, b"/x")
    thread = FULL.fork(2, 10, 10, 11, 10)
    assert stack_of(mapped, thread, FULL.sample(4, [make.IN_USER, 0x1000], tid=11)) == (("/x", 0),)


def test_a_reused_pid_has_what_its_new_parent_has() -> None:
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


# ------------------------------------------------------------------ losses


@pytest.mark.parametrize(
    ("records", "wanted"),
    [
        ([make.lost(3), make.lost(4)], 7),
        ([make.lost_samples(3), make.lost_samples(4)], 7),
        ([make.lost(3), make.lost_samples(4)], 4),
        ([make.lost(5), make.lost_samples(4)], 5),
        ([make.lost(2**64 - 1), make.lost(2)], 1),
    ],
)
def test_losses_told_twice_count_once(records: list[bytes], wanted: int) -> None:
    assert result_of(*records)[-1] == wanted
