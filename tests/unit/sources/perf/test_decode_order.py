"""Both decoders: records in any order, chains in changing address spaces, streams released while read."""

from __future__ import annotations

import pathlib

import perfdecoded
import perfrecords as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.sources.perf import _perfdata, perfdata

LAYOUT = make.Layout()
LONG = 8000  # words in a chain: a record may have 64 KiB
LAST = 2**64 - 1


def times_of(times: list[int]) -> list[int]:
    """Return the decoded times; each sample has its place in the file as its period."""
    records = [LAYOUT.sample(time, [1], period=i) for i, time in enumerate(times)]
    rows = perfdecoded.decoded(*records, layout=LAYOUT)
    assert [row.period for row in rows] == sorted(range(len(times)), key=times.__getitem__)
    return [row.time for row in rows]


@settings(max_examples=60)
@given(st.lists(st.one_of(st.integers(0, 40), st.integers(0, LAST)), max_size=40))
def test_samples_are_sorted_by_time_then_by_file_order(times: list[int]) -> None:
    assert times_of(times) == sorted(times)


@pytest.mark.parametrize(
    "times",
    [
        list(range(2000, 0, -1)),
        [LAST, *range(2000, 0, -1)],  # all but one close together
        [0] * 500 + [LAST - i % 7 for i in range(500)],
        [10**13 + i // 2 * 10**6 + i % 2 * 10**9 for i in range(1000)],  # two cores
    ],
)
def test_samples_far_from_their_place_are_sorted(times: list[int]) -> None:
    assert times_of(times) == sorted(times)


def test_a_chain_is_resolved_in_the_address_space_of_its_time() -> None:
    chain = [make.IN_KERNEL, 0xFFFF_FFFF_8000_0000, make.IN_USER, 0x1010, 0x9010]
    records = [
        LAYOUT.mmap2(1, 0x1000, 0x1000, b"/bin/a"),
        LAYOUT.fork(2, 11, 10),
        LAYOUT.sample(3, chain),
        LAYOUT.sample(4, chain, pid=11),
        LAYOUT.mmap2(5, 0x1000, 0x1000, b"/bin/b", pid=11),
        LAYOUT.sample(6, chain),
        LAYOUT.sample(7, chain, pid=11),
        LAYOUT.sample(8, chain),
        LAYOUT.mmap2(9, 0x9000, 0x1000, b"/lib/c"),
        LAYOUT.sample(10, chain, pid=11),
        LAYOUT.sample(11, chain),
        LAYOUT.sample(12, chain, pid=12),
    ]
    rows = perfdecoded.decoded(*records, layout=LAYOUT)
    assert [[module for module, _ in row.stack[1:]] for row in rows] == [
        ["/bin/a", "[unknown]"],
        ["/bin/a", "[unknown]"],
        ["/bin/a", "[unknown]"],
        ["/bin/b", "[unknown]"],
        ["/bin/a", "[unknown]"],
        ["/bin/b", "[unknown]"],
        ["/bin/a", "/lib/c"],
        ["[unknown]", "[unknown]"],
    ]


def test_a_thread_has_the_name_of_its_time() -> None:
    records = [
        LAYOUT.comm(1, 10, b"before"),
        LAYOUT.sample(2),
        LAYOUT.sample(3),
        LAYOUT.comm(4, 10, b"after"),
        LAYOUT.sample(5),
        LAYOUT.sample(6, pid=10 + 1024),
        LAYOUT.sample(7),
    ]
    rows = perfdecoded.decoded(*records, layout=LAYOUT)
    assert [row.thread for row in rows] == ["before", "before", "after", ":1034", "after"]


def long_stream(samples: int) -> bytes:
    """Chains that differ only in their first word, some of them repeated."""
    rest = list(range(1, LONG))
    return b"".join(LAYOUT.sample(i, [i % 40 * 0x1000, *rest]) for i in range(samples))


def test_forget_is_called_and_may_release_pages() -> None:
    stream = memoryview(long_stream(400))
    offsets: list[int] = []
    plain = _perfdata.decode(stream, LAYOUT.type, 0, True, False, b"", b"")
    result = _perfdata.decode(stream, LAYOUT.type, 0, True, False, b"", b"", offsets.append)
    assert result == plain
    assert offsets == sorted(offsets)
    assert 0 < offsets[0] < offsets[-1] == len(stream)


def test_an_error_in_forget_ends_decoding() -> None:
    def fail(_: int) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        _perfdata.decode(memoryview(long_stream(200)), LAYOUT.type, 0, True, False, b"", b"", fail)


def test_a_long_file_reads_the_same_from_disk(tmp_path: pathlib.Path) -> None:
    stream = long_stream(300)
    path = tmp_path / "perf.data"
    path.write_bytes(make.file([LAYOUT.attr()], [stream]))
    with perfdata.open_perfdata(path) as file:
        assert file.decode() == _perfdata.decode(
            memoryview(stream), LAYOUT.type, 0, True, False, b"", b""
        )
        assert bytes(file.stream) == stream  # released pages are read again
