"""Hostile record streams: both decoders have the same outcome, quickly and within bounds."""

from __future__ import annotations

import struct

import perfdecoded
import perfrecords as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.sources.perf import _perfdata, decode

FULL = make.Layout()
UNKNOWN = ("[unknown]", 0)


def test_mappings_of_one_process_are_bounded() -> None:
    count = decode.MAPPINGS_A_PROCESS
    records = [FULL.mmap(i, (i + 1) * 16, 8, b"x") for i in range(count + 5)]
    probes = [16, count * 16, count * 16 + 16]
    sample = FULL.sample(count + 9, [make.IN_USER, *probes])
    (row,) = perfdecoded.decoded(*records, sample, layout=FULL)
    assert [module for module, _ in row.stack] == ["x", "x", "[unknown]"]


def forks(count: int, *, ending: bool) -> bytes:
    """A process with the maximum number of mappings, and children that copy them all."""
    base = [FULL.mmap(1, (i + 1) * 16, 8, b"x") for i in range(decode.MAPPINGS_A_PROCESS - 1)]
    for pid in range(11, 11 + count):
        base += [FULL.fork(2, pid, 10), FULL.mmap(2, 8, 8, b"y", pid=pid)]
        if ending:
            base.append(FULL.exit(2, pid))
    return b"".join(base)


def test_ended_processes_are_forgotten_when_there_are_too_many() -> None:
    stream = forks(70, ending=True)
    probes = [FULL.sample(3, [make.IN_USER, 8], pid=pid) for pid in (11, 79, 80)]
    kind, result = perfdecoded.same_of_both(stream + b"".join(probes), FULL)
    assert kind == "result"
    assert [row.stack for row in perfdecoded.rows(result)] == [(UNKNOWN,), (("y", 0),), (("y", 0),)]


@pytest.mark.timeout(20)
def test_endless_forking_is_refused() -> None:
    kind, (problem, offset) = perfdecoded.same_of_both(forks(600, ending=False), FULL)
    assert (kind, problem) == ("refused", "more memory mappings than any host has")
    assert offset > 0


def test_distinct_tasks_and_files_cost_the_same_each() -> None:
    """100,000 of them once shared one hash, and decoding took minutes."""
    layout = make.Layout(make.TID)
    samples = b"".join(layout.sample(pid=pid, tid=5) for pid in range(100_000))
    modules = b"".join(
        make.record(
            make.MMAP2,
            struct.pack("<iiQQQQQQII8x", 1, 1, 4096, 64, 0, i, 2**40 - 31 * i, 0, 4, 2),
        )
        for i in range(50_000)
    )
    kind, result = perfdecoded.outcome(_perfdata.decode, samples + modules, layout)
    assert (kind, len(result[0][1]), len(result[5])) == ("result", 400_000, 50_002)


WORDS = st.sampled_from(
    [0, 8, 0x1000, 0x1FFF, 2**63, make.IN_KERNEL, make.IN_USER, 2**64 - 1, 2**64 - 4096]
)
PIDS = st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 2**31 - 1])
TIMES = st.sampled_from([0, 1, 2, 3, 2**32, 2**64 - 1])
NAMES = st.sampled_from([b"", b"a", b"//anon", b"/memfd:x", b"/lib/x.so", b"\xff" * 9, b"y" * 80])
LENGTHS = st.sampled_from([0, 1, 8, 0x1000, 2**63, 2**64 - 1])
LAYOUTS = st.builds(
    make.Layout,
    st.one_of(
        st.sampled_from([FULL.type, FULL.type | make.ID, FULL.type | make.READ | make.IDENTIFIER]),
        st.integers(0, 2**17 - 1),
        st.integers(0, 2**64 - 1),
    ),
    st.one_of(st.just(0), st.integers(0, 31), st.integers(0, 2**64 - 1)),
    st.booleans(),
    st.booleans(),
)


def records_of(layout: make.Layout) -> st.SearchStrategy[bytes]:
    """Records of every kind, valid in layout, with extreme numbers."""
    odd = st.sampled_from([make.USER, make.KERNEL, make.USER | make.MISC_DATA, 2 | 1 << 14, 65535])
    return st.one_of(
        st.builds(
            layout.sample, TIMES, st.lists(WORDS, max_size=6), pid=PIDS, tid=PIDS,
            cpu=st.integers(-1, 3), ip=WORDS, event=st.integers(0, 4), mode=st.integers(0, 7),
            read=st.lists(st.integers(0, 3), max_size=5),
        ),
        st.builds(layout.comm, TIMES, PIDS, NAMES, st.none() | PIDS, st.sampled_from([0, 1 << 13])),
        st.builds(layout.fork, TIMES, PIDS, PIDS, PIDS, PIDS, st.sampled_from([0, 1 << 13])),
        st.builds(layout.exit, TIMES, PIDS, PIDS),
        st.builds(layout.mmap, TIMES, WORDS, LENGTHS, NAMES, pid=PIDS, offset=WORDS, misc=odd),
        st.builds(
            layout.mmap2, TIMES, WORDS, LENGTHS, NAMES, pid=PIDS, offset=WORDS, misc=odd,
            inode=st.integers(0, 1), protection=st.sampled_from([0, 4, 5, 2**32 - 1]),
            build_id=st.none() | st.sampled_from([b"", b"\1" * 20, b"\1\0"]),
        ),
        st.builds(make.lost, st.integers(0, 2**64 - 1)),
        st.builds(make.lost_samples, st.integers(0, 2**64 - 1)),
        st.builds(make.record, st.integers(0, 90), st.binary(max_size=90), st.integers(0, 65535)),
        st.builds(
            make.record, st.integers(0, 14), st.binary(max_size=90),
            size=st.integers(0, 120) | st.just(65535),
        ),
    )  # fmt: skip


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, make.Layout]:
    """Whole records; a few bytes may be changed, and the end may be missing."""
    layout = draw(LAYOUTS)
    stream = bytearray(b"".join(draw(st.lists(records_of(layout), max_size=12))))
    for at, value in draw(
        st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=4)
    ):
        if at < len(stream):
            stream[at] = value
    keep = draw(st.none() | st.integers(0, len(stream)))
    return bytes(stream[:keep]), layout


IDS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 255)), max_size=6).map(sorted)


@settings(max_examples=80)
@given(streams(), IDS)
def test_both_decoders_agree_on_hostile_streams(
    stream: tuple[bytes, make.Layout], ids: list[tuple[int, int]]
) -> None:
    perfdecoded.same_of_both(*stream, ids)


@settings(max_examples=80)
@given(
    st.lists(
        st.one_of(
            st.builds(FULL.fork, TIMES, PIDS, PIDS, misc=st.sampled_from([0, 1 << 13])),
            st.builds(FULL.exit, TIMES, PIDS, PIDS),
            st.builds(FULL.sample, TIMES, pid=PIDS),
        ),
        max_size=30,
    )
)
def test_no_process_is_its_own_ancestor(records: list[bytes]) -> None:
    table = perfdecoded.processes(perfdecoded.result_of(*records, layout=FULL))
    for row, process in enumerate(table):
        above = process.parent
        for _ in table:
            assert above != row
            above = None if above is None else table[above].parent


@settings(max_examples=50)
@given(st.binary(max_size=400), LAYOUTS)
def test_both_decoders_agree_on_any_bytes(stream: bytes, layout: make.Layout) -> None:
    perfdecoded.same_of_both(stream, layout)
