"""The results of the two decoders of perf.data records, which must be equal."""

from __future__ import annotations

import functools
import random
import struct

import perfdecoded
import perfrecords as make
import pytest

FULL = make.Layout()
UNKNOWN = ("[unknown]", 0)
decoded = functools.partial(perfdecoded.decoded, layout=FULL)
result_of = functools.partial(perfdecoded.result_of, layout=FULL)


def stack_of(*records: bytes, layout: make.Layout = FULL) -> tuple[tuple[str, int], ...]:
    return perfdecoded.decoded(*records, layout=layout)[-1].stack


def refusal_of(*records: bytes, layout: make.Layout = FULL) -> object:
    kind, refusal = perfdecoded.same_of_both(b"".join(records), layout)
    assert kind == "refused", refusal
    return refusal


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


def test_an_empty_stream_has_no_samples() -> None:
    columns, tasks, stacks, frames, strings, modules, processes, lost = result_of()
    assert (*columns, *tasks, *stacks, *frames, *processes) == (b"",) * 22
    assert strings == [b"[kernel]", b"[unknown]", b"swapper"]
    assert modules == [(0, -1, b""), (1, -1, b"")]
    assert lost == 0


def test_fields_that_a_sample_lacks_are_minus_one() -> None:
    layout = make.Layout(make.IP | make.TIME)
    (row,) = perfdecoded.decoded(layout.sample(5, ip=0x10, mode=make.KERNEL), layout=layout)
    assert (row.pid, row.tid, row.cpu, row.period, row.thread) == (-1, -1, -1, 0, ":-1")
    assert row.stack == (("[kernel]", 0x10),)


def test_a_core_of_minus_one_is_kept() -> None:
    assert decoded(FULL.sample(1, cpu=-1))[0].cpu == -1


@pytest.mark.parametrize("mode", [make.KERNEL, make.USER, make.HYPERVISOR])
def test_without_a_chain_the_address_is_the_stack(mode: int) -> None:
    layout = make.Layout(make.IP | make.TID | make.TIME)
    mapped = layout.mmap2(1, 0x1000, 0x1000, b"/bin/x", offset=0x200)
    stack = stack_of(mapped, layout.sample(2, ip=0x1234, mode=mode), layout=layout)
    assert stack == {
        make.KERNEL: (("[kernel]", 0x1234),),
        make.USER: (("/bin/x", 0x434),),
        make.HYPERVISOR: (UNKNOWN,),
    }[mode]  # fmt: skip


def test_without_a_chain_a_marker_is_not_a_frame() -> None:
    layout = make.Layout(make.IP | make.TID | make.TIME)
    assert stack_of(layout.sample(2, ip=make.IN_USER), layout=layout) == ()


def test_an_empty_chain_is_an_empty_stack() -> None:
    assert stack_of(FULL.sample(1, [], ip=0x5)) == ()


def test_markers_set_the_mode_of_the_words_after_them() -> None:
    chain = [make.IN_KERNEL, 0x10, 0x11, make.IN_USER, 0x1010, make.IN_GUEST, 0x12, 2**64 - 4095]
    assert stack_of(
        FULL.mmap2(1, 0x1000, 0x1000, b"/bin/x"), FULL.sample(2, [*chain, 2**64 - 4096])
    ) == (("[kernel]", 0x10), ("[kernel]", 0x11), ("/bin/x", 0x10), UNKNOWN, UNKNOWN)


def test_a_chain_without_a_marker_has_the_mode_of_its_sample() -> None:
    assert stack_of(FULL.sample(2, [0x10], mode=make.KERNEL)) == (("[kernel]", 0x10),)
    assert stack_of(FULL.sample(2, [0x10], mode=make.USER)) == (UNKNOWN,)


def test_the_same_chain_and_mode_in_another_address_space_is_another_stack() -> None:
    chain = [make.IN_USER, 0x1010]
    rows = decoded(
        FULL.mmap2(1, 0x1000, 0x1000, b"/a", pid=1),
        FULL.mmap2(1, 0x1000, 0x1000, b"/b", pid=2),
        FULL.sample(2, chain, pid=1),
        FULL.sample(2, chain, pid=2),
        FULL.sample(2, chain, pid=3),
        FULL.sample(2, chain, pid=4),
    )
    assert [row.stack for row in rows] == [
        (("/a", 0x10),),
        (("/b", 0x10),),
        (UNKNOWN,),
        (UNKNOWN,),
    ]


# PERF_SAMPLE_READ: its words for each read_format.
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
def test_counter_values_are_skipped(read_format: int, words: list[int]) -> None:
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
def test_a_record_cut_off_by_the_end_is_ignored(left: int) -> None:
    first, second = FULL.sample(1), FULL.sample(2, [0x1])
    assert [row.time for row in decoded(first + second[:left])] == [1]


# ------------------------------------------------------------------ several events


@pytest.mark.parametrize("where", [make.ID, make.IDENTIFIER, make.ID | make.IDENTIFIER])
def test_the_id_selects_the_event(where: int) -> None:
    layout = make.Layout(FULL.type | where)
    ids = [(7, 0), (8, 1), (2**64 - 1, 2)]
    samples = [layout.sample(t, event=e) for t, e in enumerate((8, 7, 2**64 - 1, 9, 0))]
    rows = perfdecoded.decoded(*samples, layout=layout, ids=ids)
    assert [row.event for row in rows] == [1, 0, 2, 0, 0]


def test_of_two_different_ids_the_later_one_counts() -> None:
    layout = make.Layout(make.ID | make.IDENTIFIER)
    sample = make.record(make.SAMPLE, struct.pack("<QQ", 1, 2))
    (row,) = perfdecoded.decoded(sample, layout=layout, ids=[(1, 1), (2, 2)])
    assert row.event == 2


def test_an_id_that_several_events_claim_belongs_to_the_last() -> None:
    layout = make.Layout(make.ID)
    ids = [(1, 9), (5, 1), (5, 2), (5, 3), (6, 8)]
    (row,) = perfdecoded.decoded(layout.sample(event=5), layout=layout, ids=ids)
    assert row.event == 3


def test_without_ids_there_is_one_event() -> None:
    layout = make.Layout(make.ID)
    assert perfdecoded.decoded(layout.sample(event=5), layout=layout)[0].event == 0


# ------------------------------------------------------------------ order


def test_records_apply_in_time_order_not_in_file_order() -> None:
    chain = [make.IN_USER, 0x1000]
    rows = decoded(
        FULL.sample(30, chain),
        FULL.sample(10, chain),
        FULL.mmap2(20, 0x1000, 0x1000, b"/late"),
        FULL.comm(25, 10, b"named"),
    )
    assert [(row.time, row.stack, row.thread) for row in rows] == [
        (10, (UNKNOWN,), ":10"),
        (30, (("/late", 0),), "named"),
    ]


def test_equal_times_keep_the_file_order() -> None:
    rows = decoded(
        FULL.sample(5, cpu=1),
        FULL.comm(5, 10, b"one"),
        FULL.sample(5, cpu=2),
        FULL.comm(5, 10, b"two"),
        FULL.sample(5, cpu=3),
        FULL.sample(4, cpu=0),
    )
    assert [(row.cpu, row.thread) for row in rows] == [
        (0, ":10"), (1, ":10"), (2, "one"), (3, "two"),
    ]  # fmt: skip


def test_times_of_all_sizes_are_sorted() -> None:
    rng = random.Random(4)
    times = [rng.getrandbits(bits) for bits in range(65) for _ in range(5)]
    rows = decoded(*(FULL.sample(time, cpu=i) for i, time in enumerate(times)))
    assert [row.time for row in rows] == sorted(times)
    wanted = [i for i, _ in sorted(enumerate(times), key=lambda pair: pair[1])]
    assert [row.cpu for row in rows] == wanted


def test_without_identity_side_band_comes_first() -> None:
    layout = make.Layout(id_all=False)
    rows = perfdecoded.decoded(layout.sample(5), layout.comm(9, 10, b"x"), layout=layout)
    assert rows[0].thread == "x"


@pytest.mark.parametrize("kind", [make.TIME, make.TIME | make.TID, make.TIME | make.CPU | make.ID])
def test_the_time_of_side_band_is_read_from_its_identity(kind: int) -> None:
    layout = make.Layout(kind | make.TID)
    early, late = layout.sample(5), layout.sample(7)
    rows = perfdecoded.decoded(layout.comm(6, 10, b"x"), late, early, layout=layout)
    assert [row.thread for row in rows] == [":10", "x"]


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
def test_losses_reported_twice_count_once(records: list[bytes], wanted: int) -> None:
    assert result_of(*records)[-1] == wanted
