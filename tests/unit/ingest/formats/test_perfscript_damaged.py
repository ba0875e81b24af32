from __future__ import annotations

import gzip
import pathlib
import time

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from perftexts import HEADER, IDLE, SOFTIRQ_ON_IDLE, USER, read, sample, stack, threads

from overnight import errors
from overnight.ingest import formats
from overnight.ingest.formats import perfscript


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_compression_is_detected_by_content(tmp_path: pathlib.Path, pack: object) -> None:
    assert callable(pack)
    plain = (sample() + sample(at="   83.000000")).encode()
    parsed = read(tmp_path, pack(plain) + pack(plain))
    assert len(parsed.time) == 4


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_a_truncated_compressed_file_is_read_up_to_the_cut(
    tmp_path: pathlib.Path, pack: object
) -> None:
    assert callable(pack)
    noise = "".join(sample(f"t{n * 7919 % 10007}", f"{n:>5}") for n in range(20_000))
    packed = pack(noise.encode())
    parsed = read(tmp_path, packed[: len(packed) * 3 // 4])
    assert 1000 < len(parsed.time) < 20_000
    assert any("truncated" in note for note in parsed.notes)


@pytest.mark.parametrize("cut", range(3, len(sample("b"))))
def test_a_sample_cut_off_by_the_end_is_left_out(tmp_path: pathlib.Path, cut: int) -> None:
    text = sample() + sample("b")[:-cut]
    parsed = read(tmp_path, text)
    whole_lines = text.endswith("\n")
    assert any("ends within a line" in note for note in parsed.notes) is not whole_lines
    if not whole_lines:
        assert threads(parsed) == ["app"]


def test_unknown_lines_are_counted(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, sample() + "what is this\n\n" + sample("b") + "\n\tffff stray\n")
    assert threads(parsed) == ["app", "b"]
    first = len(sample().encode())
    assert f"2 unknown lines were skipped, the first at byte {first}" in parsed.notes


@pytest.mark.parametrize(
    ("text", "offset"),
    [("", 0), ("# only\n", 0), ("# c\nno sample here\n", 4), ("\0" * 100, 0)],
)
def test_a_file_without_samples_is_damaged(tmp_path: pathlib.Path, text: str, offset: int) -> None:
    with pytest.raises(errors.DamagedFileError) as caught:
        read(tmp_path, text)
    assert caught.value.offset == offset


@pytest.mark.parametrize("text", [b"x", b"\n", b"x\n", b"x\n\n", b"\t\n", b"1 1 [1] \n"])
def test_a_bomb_is_refused_quickly(tmp_path: pathlib.Path, text: bytes) -> None:
    packed = zstandard.ZstdCompressor().compress(text * ((64 << 20) // len(text)))
    begin = time.process_time()
    with pytest.raises(errors.DamagedFileError):
        read(tmp_path, packed)
    assert time.process_time() - begin < 2


def test_lines_of_spaces_are_skipped_quickly(tmp_path: pathlib.Path) -> None:
    begin = time.process_time()
    parsed = read(tmp_path, sample() + (" " * 900_000 + "x\n\n") * 20 + sample("b"))
    assert threads(parsed) == ["app", "b"]
    assert time.process_time() - begin < 1


def test_the_total_size_of_names_is_limited(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "MAX_NAMES", 100_000)
    text = "".join(sample(stack=f"\t1f f{n}{'x' * 5000} (/a)\n") for n in range(30))
    with pytest.raises(errors.DamagedFileError, match="names of 100000 bytes"):
        read(tmp_path, text)


def test_a_small_cache_changes_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(
        sample(f"t{n % 3}", at=f"{n:>5}.000000", stack=(USER, IDLE, SOFTIRQ_ON_IDLE)[n % 3])
        for n in range(60)
    )
    plain = read(tmp_path, text)
    monkeypatch.setattr(perfscript, "CACHE_BYTES", 400)
    small_cache = read(tmp_path, text)
    assert threads(small_cache) == threads(plain)
    assert [stack(small_cache, n) for n in range(60)] == [stack(plain, n) for n in range(60)]
    assert len(small_cache.frames.name) == len(plain.frames.name)


def test_lines_may_end_in_crlf(tmp_path: pathlib.Path) -> None:
    text = (HEADER + sample("a") + sample("b", stack=IDLE)).replace("\n", "\r\n")
    parsed = read(tmp_path, text)
    assert threads(parsed) == ["a", "b"]
    assert stack(parsed, 1) == ["common_startup_64", "do_idle", "pv_native_safe_halt"]
    assert parsed.frames.module[-1] == "[kernel]"
    assert (parsed.host, parsed.events) == ("web-7", ("cpu-clock",))
    assert not any("unknown lines" in note for note in parsed.notes)


def test_functions_without_addresses_are_distinct(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, sample(stack="\tleaf+0x1 (/a)\n\troot+0x1 (/a)\n"))
    assert stack(parsed, 0) == ["root", "leaf"]


def test_sniff_recognizes_its_format() -> None:
    assert perfscript.sniff(HEADER.encode())
    assert perfscript.sniff(b"# comment\n" + sample("a [b] c: d").encode())
    assert not perfscript.sniff(b"main;work;leaf 12\nmain;other 3\n")
    assert not perfscript.sniff(b"")


def test_identical_stacks_of_many_samples_are_kept_once(tmp_path: pathlib.Path) -> None:
    text = "".join(sample(at=f"{n:>5}.000000") for n in range(500))
    moved = USER.replace("9b0c2", "9b0c3").replace("0x12", "0x13")
    parsed = read(tmp_path, text + sample(stack=moved))
    assert len(parsed.time) == 501
    assert len(parsed.stacks.offset) == 2
    assert len(parsed.frames.name) == 2


GOOD = (HEADER + sample() + sample("foo 123 bar", "  7/8    ", stack=SOFTIRQ_ON_IDLE) * 2).encode()


def reads_or_refuses(folder: pathlib.Path, data: bytes) -> None:
    try:
        parsed = read(folder, data)
    except errors.DamagedFileError:
        return
    assert len(parsed.time) > 0
    assert (np.diff(parsed.time) >= 0).all()
    assert parsed.stacks.offset[-1] == len(parsed.stacks.frame)
    assert parsed.stack.max() < len(parsed.stacks.offset) - 1
    assert parsed.task.max() < len(parsed.tasks.thread)
    assert parsed.event.max() < len(parsed.events)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("fuzz")


@given(data=st.binary(max_size=2000))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_read_or_refused(folder: pathlib.Path, data: bytes) -> None:
    reads_or_refuses(folder, data)


@given(data=st.binary(max_size=400), magic=st.sampled_from([b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"]))
@settings(max_examples=60, deadline=None)
def test_any_compressed_bytes_are_read_or_refused(
    folder: pathlib.Path, data: bytes, magic: bytes
) -> None:
    reads_or_refuses(folder, magic + data)


@given(at=st.integers(0, len(GOOD) - 1), bit=st.integers(0, 7), end=st.integers(0, len(GOOD)))
@settings(max_examples=150, deadline=None)
def test_flipped_and_cut_files_are_read_or_refused(
    folder: pathlib.Path, at: int, bit: int, end: int
) -> None:
    data = bytearray(GOOD)
    data[at] ^= 1 << bit
    reads_or_refuses(folder, bytes(data[:end]))
    packed = bytearray(gzip.compress(GOOD, mtime=0))
    packed[at % len(packed)] ^= 1 << bit
    reads_or_refuses(folder, bytes(packed[: end or None]))


@given(
    lines=st.lists(
        st.one_of(
            st.sampled_from(["", "\t", "  x", "#", sample().split("\n")[0], "\t1f a (/b)"]),
            st.text(alphabet="\t 0123456789[]/:.#ax()-+", max_size=60),
        ),
        max_size=40,
    )
)
@settings(max_examples=150, deadline=None)
def test_lines_similar_to_samples_are_read_or_refused(
    folder: pathlib.Path, lines: list[str]
) -> None:
    reads_or_refuses(folder, "\n".join(lines).encode())


@pytest.mark.parametrize(
    "text",
    [
        b"".join(b"a 1 [000] %d.000000: x:\n\n" % (120 * i) for i in range(8000)),
        b"".join(b"a 1 [%d] %d.000000: x:\n\n" % (i, 120 * (i % 500)) for i in range(8000)),
    ],
    ids=["a segment for each sample", "all cores in each segment"],
)
def test_few_samples_cannot_fill_the_disk(tmp_path: pathlib.Path, text: bytes) -> None:
    file = tmp_path / "spread"
    file.write_bytes(text)
    with pytest.raises(errors.DamagedFileError, match="with few samples"):
        perfscript.read(file, "h")


def test_a_week_with_a_sample_now_and_then_is_read(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "week"
    file.write_bytes(b"".join(b"a 1 [000] %d.000000: x:\n\n" % (300 * i) for i in range(2016)))
    assert len(perfscript.read(file, "h").time) == 2016
