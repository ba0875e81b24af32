"""Damaged and hostile files: intact blocks are read, damage is reported, memory is bounded."""

from __future__ import annotations

import json
import lzma
import os
import pathlib
import random
import shutil
import struct
import tracemalloc
import zlib

import hypothesis
import pytest
import rings
from hypothesis import strategies as st

from overnight.store.ring import block_encoder, blocks, check, columns, layout, open_block, reader


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    """Four blocks of 100 s in one file."""
    writer = rings.open_writer(tmp_path, block_seconds=100)
    rings.record(writer, range(400))
    writer.close()
    return tmp_path


def _blocks(path: pathlib.Path) -> list[blocks.Block | blocks.Damage]:
    with path.open("rb") as file:
        return list(blocks.blocks_of(path, file.fileno()))


def _read_seconds(home: pathlib.Path) -> list[int]:
    source = reader.Reader(home)
    numbers = rings.everything(source)
    expected = rings.expected_numbers(range(400))
    assert all(expected[at] == value for at, value in numbers.items())
    return sorted({(at - rings.us(0)) // 1_000_000 for at, _, _ in numbers})


def test_the_block_after_a_damaged_head_is_found(home: pathlib.Path) -> None:
    (path,) = rings.ring_files(home)
    second = _blocks(path)[1]
    assert isinstance(second, blocks.Block)
    data = bytearray(path.read_bytes())
    data[second.offset + 30] ^= 4
    path.write_bytes(data)
    assert _read_seconds(home) == [*range(100), *range(200, 400)]
    source = reader.Reader(home)
    rings.everything(source)
    assert source.problems == [f"{path}: the data at byte {second.offset} is not a block"]
    (problem,) = check.check(home).problems
    assert problem.path == str(path)


def test_the_extent_leaves_out_a_damaged_first_block(home: pathlib.Path) -> None:
    (path,) = rings.ring_files(home)
    path.write_bytes(b"rubbish" + path.read_bytes()[7:])
    assert reader.Reader(home).extent(rings.HOST) == (rings.us(100), rings.us(399))


def test_a_file_that_begins_with_garbage_is_read(home: pathlib.Path) -> None:
    (path,) = rings.ring_files(home)
    path.write_bytes(b"\0" * 3_000_000 + blocks.MAGIC + path.read_bytes())
    assert _read_seconds(home) == list(range(400))


def test_every_cut_gives_the_blocks_before_it(home: pathlib.Path) -> None:
    (path,) = rings.ring_files(home)
    whole = path.read_bytes()
    ends = [b.offset + b.head.size for b in _blocks(path) if isinstance(b, blocks.Block)]
    for size in (0, 1, 79, 80, 81, ends[0] - 1, ends[0], ends[2] + 40, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert _read_seconds(home) == list(range(100 * sum(end <= size for end in ends)))


@pytest.mark.parametrize("part", ["head", "directory", "chunks"])
def test_a_flipped_bit_never_gives_a_wrong_number(home: pathlib.Path, part: str) -> None:
    """Only the block with the flipped bit is lost, and the damage is reported."""
    (path,) = rings.ring_files(home)
    whole = path.read_bytes()
    seeded = random.Random(7)
    for number, block in enumerate(_blocks(path)):
        assert isinstance(block, blocks.Block)
        directory = block.offset + blocks.HEAD_BYTES
        body = directory + block.head.directory_bytes
        begin, end = {
            "head": (block.offset, directory),
            "directory": (directory, body),
            "chunks": (body, block.offset + block.head.size),
        }[part]
        others = {second for second in range(400) if second // 100 != number}
        for at in {begin, end - 1, *(seeded.randrange(begin, end) for _ in range(4))}:
            data = bytearray(whole)
            data[at] ^= 1 << seeded.randrange(8)
            path.write_bytes(data)
            assert others <= set(_read_seconds(home))
            assert check.check(home).problems
    path.write_bytes(whole)


def test_a_flipped_bit_in_an_open_block(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path)
    rings.record(writer, range(60))
    (path,) = rings.open_files(tmp_path)
    whole = path.read_bytes()
    seeded = random.Random(8)
    for _ in range(25):
        data = bytearray(whole)
        data[seeded.randrange(len(data))] ^= 1 << seeded.randrange(8)
        path.write_bytes(data)
        seconds = _read_seconds(tmp_path)
        assert seconds == list(range(len(seconds)))
    path.write_bytes(whole)
    writer.close()


def test_every_cut_of_an_open_block_gives_the_readings_before_it(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path)
    rings.record(writer, range(12))
    (path,) = rings.open_files(tmp_path)
    whole = path.read_bytes()
    counts = []
    for size in range(0, len(whole) + 1, 7):
        path.write_bytes(whole[:size])
        counts.append(len(_read_seconds(tmp_path)))
    assert counts == sorted(counts)
    assert counts[0] == 0
    path.write_bytes(whole)
    assert len(_read_seconds(tmp_path)) == 12
    writer.close()


def _write_ring_file(home: pathlib.Path, block: bytes) -> pathlib.Path:
    folder = layout.host_folder(home, rings.HOST)
    folder.mkdir(parents=True)
    (folder / "host").write_text(rings.HOST)
    path = folder / f"{rings.BEGIN_US}-1a2b3c4d.ring"
    path.write_bytes(block)
    return path


def _block(change: dict[str, object], chunks: tuple[bytes, ...] = ()) -> bytes:
    """A block with valid checksums and a changed directory."""
    head = open_block.head_record(rings.HOST, rings.BOOT, rings.BEGIN_US, full=True)
    table = open_block.TableWriter(0, "cpu", rings.COLUMNS)
    for second in range(20):
        mono = 100_000_000 + second * 1_000_000
        head += table.record(rings.rows_of(second), rings.us(second), mono)
        table.commit()
    data = block_encoder.pack_at_once(open_block.parse(head))
    block_head = blocks.read_head(data)
    assert block_head is not None
    begin = blocks.HEAD_BYTES + block_head.directory_bytes
    directory = json.loads(zlib.decompress(data[blocks.HEAD_BYTES : begin]))
    entry = directory["tables"][0]
    for name, value in change.items():
        (directory if name in directory else entry)[name] = value
    return _assemble(block_head, zlib.compress(json.dumps(directory).encode()), data[begin:] + b"".join(chunks))  # fmt: skip


def _assemble(block_head: blocks.Head, directory: bytes, body: bytes, version: int = 1) -> bytes:
    head = blocks.HEAD.pack(
        blocks.MAGIC, version, block_head.flags, len(directory), zlib.crc32(directory), len(body),
        block_head.stamp_us, block_head.begin_us, block_head.end_us, block_head.begin_mono_us, block_head.end_mono_us,
        block_head.readings, block_head.boot.encode(),
    )  # fmt: skip
    return head + struct.pack("<I", zlib.crc32(head)) + directory + body


@pytest.mark.parametrize(
    "change",
    [
        {"looks": 1 << 63},
        {"looks": -1},
        {"looks": 1 << 22, "keys": [str(n) for n in range(1000)]},
        {"clocks": 1 << 62},
        {"clocks": 3},
        {"keys": []},
        {"keys": None},
        {"columns": ["user"]},
        {"coded": [[9, False]] * 3},
        {"coded": [[1 << 63, False]] * 3},
        {"coded": [[0, True]] * 3},
        {"total": [0, 1, 2, 7]},
        {"total": [1, 2]},
        {"chunks": [[3, [0, 1 << 63, 10, 0, 0]]]},
        {"chunks": [[3, [-5, 10, 10, 0, 0]]]},
        {"chunks": [[3, [0, 10]]]},
        {"chunks": "no"},
        {"chunks": []},
        {"first": [0, 0, 1 << 63, 0, 0]},
        {"at": [1, False, [0, 0, 0, 0, 0]]},
        {"gaps": [0, False, [0, 0, 0, 0, 0]], "counts": [0, False, [0, 0, 0, 0, 0]]},
        {"tables": 5},
        {"tables": [5]},
        {"mono": {}},
    ],
    ids=" ".join,
)
def test_an_invalid_directory_gives_nothing_and_is_reported(
    tmp_path: pathlib.Path, change: dict[str, object]
) -> None:
    _write_ring_file(tmp_path, _block(change))
    source = reader.Reader(tmp_path)
    tracemalloc.start()
    numbers = rings.everything(source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * layout.MAX_BYTES
    assert numbers == {}
    assert source.problems
    assert check.check(tmp_path).problems


@pytest.mark.parametrize(
    ("width", "tables", "looks", "is_read"),
    [(50, 1, 100, True), (51, 1, 100, False), (1, 51, 100, False), (1, 1001, 1, False)],
)
def test_constant_numbers_are_limited(
    tmp_path: pathlib.Path, monkeypatch, width: int, tables: int, looks: int, is_read: bool
) -> None:
    """They need no bytes: a block of some kilobytes could claim any number of them."""
    monkeypatch.setattr(layout, "MAX_NUMBERS", 5000)
    block_head = blocks.read_head(_block({}))
    assert block_head is not None
    nothing, zeros = [0, 0, 0, 0, 0], bytes(8 * width)
    entry = {
        "signal": "cpu", "columns": [f"c{n}" for n in range(width)], "keys": ["0"], "total": [],
        "looks": looks, "at": [0, False, nothing], "coded": [[0, False]] * width,
        "chunks": [[width, nothing]],
        "first": [block_head.chunk_bytes, len(zeros), len(zeros), columns.PLAIN, zlib.crc32(zeros)],
    }  # fmt: skip
    _write_ring_file(tmp_path, _block({"tables": [entry] * tables}, (zeros,)))
    source = reader.Reader(tmp_path)
    assert bool(list(source.numbers(rings.HOST, "cpu", 0, 1 << 62))) == is_read
    assert bool(source.problems) == (not is_read)


def test_the_unchanged_block_is_read(tmp_path: pathlib.Path) -> None:
    """The reader refuses the changes above, not the block itself."""
    _write_ring_file(tmp_path, _block({}))
    assert rings.everything(reader.Reader(tmp_path)) == rings.expected_numbers(range(20))
    assert check.check(tmp_path).problems == ()


def test_a_bomb_is_not_unpacked_past_its_stated_size() -> None:
    bomb = lzma.compress(bytes(16 << 20), lzma.FORMAT_RAW, filters=columns.FILTERS)
    small = zlib.compress(bytes(layout.MAX_BYTES + 1), 1)
    assert len(bomb) < 10_000
    tracemalloc.start()
    with pytest.raises(columns.DamagedError, match="instead of 1000"):
        columns.expand(columns.LZMA, bomb, 1000)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    with pytest.raises(columns.DamagedError, match="claims"):
        columns.expand(columns.LZMA, bomb, layout.MAX_BYTES + 1)
    with pytest.raises(columns.DamagedError, match="too large"):
        columns.inflate(small, layout.MAX_BYTES)
    assert tracemalloc.get_traced_memory()[1] < 3 * layout.MAX_BYTES
    tracemalloc.stop()


def test_many_small_bombs_are_limited_together() -> None:
    facts = [1, 1, "units", True, {"a": {"x": " " * (30 << 20)}}, []]
    bomb = open_block.record(open_block.FACTS, zlib.compress(json.dumps(facts).encode(), 1))
    block = open_block.parse(open_block.head_record("h", "b", 1, full=True) + 20 * bomb)
    assert len(block.facts) == 4
    assert "too large" in block.damage


def test_constant_rows_are_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of zeros is packed to nothing, and each of its rows is an object when keys come and go."""
    monkeypatch.setattr(layout, "MAX_NUMBERS", 5000)
    table = open_block.TableWriter(0, "x", ("n",))
    parts = [open_block.head_record("h", "b", 1, full=True)]
    for second in range(10):
        parts.append(table.record({str(key): (0,) for key in range(1000)}, second, second))
        table.commit()
    block = open_block.parse(b"".join(parts))
    assert len(block.tables[0].readings) == 5
    assert "too many rows" in block.damage


def test_a_later_version_is_refused_with_its_number(tmp_path: pathlib.Path) -> None:
    data = _block({})
    block_head = blocks.read_head(data)
    assert block_head is not None
    begin = blocks.HEAD_BYTES
    path = _write_ring_file(
        tmp_path,
        _assemble(
            block_head,
            data[begin : begin + block_head.directory_bytes],
            data[begin + block_head.directory_bytes :],
            version=2,
        ),
    )
    source = reader.Reader(tmp_path)
    assert rings.everything(source) == {}
    assert source.problems == [
        f"{path}: the block at byte 0 has version 2; this overnight reads versions up to 1: update overnight"
    ]
    assert check.check(tmp_path).problems[0].todo.startswith("update overnight")


def test_an_open_block_of_a_later_version_is_refused_and_left_alone(tmp_path: pathlib.Path) -> None:
    rings.open_writer(tmp_path).close()
    path = layout.host_folder(tmp_path, rings.HOST) / f"{rings.BEGIN_US}-1a2b3c4d.open"
    head = {"version": 2, "host": "x", "boot": "y", "stamp_us": 1, "full": True}
    path.write_bytes(open_block.record(open_block.HEAD, json.dumps(head).encode()))
    source = reader.Reader(tmp_path)
    assert rings.everything(source) == {}
    assert "update overnight" in source.problems[0]
    rings.open_writer(tmp_path).close()
    assert path.exists()


@hypothesis.settings(max_examples=200)
@hypothesis.given(st.binary(max_size=300), st.sampled_from(range(5)))
def test_any_record_is_parsed_or_refused(payload: bytes, kind: int) -> None:
    head = open_block.head_record("h", "b", 1, full=True)
    for data in (payload, head + payload, head + open_block.record(kind, payload)):
        try:
            block = open_block.parse(data)
        except columns.DamagedError:
            continue
        block_encoder.pack_at_once(block, packed=False)


def test_differences_beyond_64_bits_wrap() -> None:
    head = open_block.head_record("h", "b", 1, full=True)
    table = open_block.TableWriter(0, "x", ("n",))
    first, other = (table.record({key: ((1 << 63) - 1,)}, 1, 1) for key in "ab")
    grown = open_block.record(open_block.DELTAS, open_block.READING.pack(0, 2, 2, 1, 0) + b"\x05")
    block = open_block.parse(head + first + grown + other)
    assert not block.damage
    assert blocks.read_head(block_encoder.pack_at_once(block)) is not None


def test_a_length_of_4_gigabytes_in_an_open_block_counts_as_a_cut(tmp_path: pathlib.Path) -> None:
    head = open_block.head_record("h", "b", 1, full=True)
    block = open_block.parse(head + struct.pack("<IIB", 0, 0xFFFFFFFF, 1) + b"x" * 50)
    assert block == open_block.parse(head)
    assert not block.damage


def test_other_files_are_ignored(home: pathlib.Path) -> None:
    folder = layout.host_folder(home, rings.HOST)
    (folder / "notes.txt").write_text("hello")
    (folder / "-1-zzzzzzzz.ring").write_bytes(os.urandom(100))
    (home / "signals" / "stray").write_text("x")
    (home / "signals" / "empty").mkdir()
    assert _read_seconds(home) == list(range(400))
    assert reader.Reader(home).hosts() == (rings.HOST,)
    assert check.check(home).problems == ()
    shutil.rmtree(folder)
    assert reader.Reader(home).hosts() == ()
