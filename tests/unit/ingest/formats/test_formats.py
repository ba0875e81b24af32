from __future__ import annotations

import gzip
import importlib
import pathlib
import pkgutil

import pytest
import zstandard

from overnight import errors
from overnight.ingest import formats

READERS: tuple[formats.Reader, ...] = tuple(
    importlib.import_module(f"{formats.__name__}.{module.name}")
    for module in pkgutil.iter_modules(formats.__path__)
)
EXAMPLES = {
    "perf script": b"swapper     0 [000]    82.739145:   10309278 cpu-clock:ppp: \n\tff a (/b)\n\n",
    "collapsed": b"nginx;main;work 12\nnginx;main;sleep_[k] 3\n",
    "pprof": b"\x0a\x04\x08\x01\x10\x02\x12\x05\x0a\x01\x01\x12\x00\x32\x00\x32\x07samples",
}


def pack(kind: str, data: bytes) -> bytes:
    if kind == "gzip":
        return gzip.compress(data, mtime=0)
    return data if kind == "plain" else zstandard.ZstdCompressor().compress(data)


def test_there_is_an_example_of_each_format() -> None:
    assert {reader.NAME for reader in READERS} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_file_is_recognized_by_exactly_one_reader(name: str) -> None:
    assert [reader.NAME for reader in READERS if reader.sniff(EXAMPLES[name])] == [name]


@pytest.mark.parametrize(
    "head",
    [b"", b"\n\n", b"PERFILE2\x68\0\0\0", b"\x7fELF\x02\x01", b"{}", b"hello\nworld\n", b"a 1\n"],
)
def test_other_files_match_no_format(head: bytes) -> None:
    assert [reader.NAME for reader in READERS if reader.sniff(head)] == []


@pytest.mark.parametrize("kind", ["plain", "gzip", "zstd"])
def test_text_is_read_unchanged(tmp_path: pathlib.Path, kind: str) -> None:
    data = bytes(range(256)) * 4000
    path = tmp_path / "misnamed.txt"
    path.write_bytes(pack(kind, data))
    text = formats.Text(path)
    pieces = list(text)
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= formats.READ_SIZE
    assert not text.cut_short
    assert formats.read_head(path) == data[: formats.HEAD_SIZE]


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_concatenated_members_and_zero_padding_are_read(tmp_path: pathlib.Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(pack(kind, b"one") + pack(kind, b"two") + b"\0" * 100_000)
    text = formats.Text(path)
    assert b"".join(text) == b"onetwo"
    assert not text.cut_short


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_truncated_file_is_marked(tmp_path: pathlib.Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(pack(kind, b"some text" * 100)[:-5])
    text = formats.Text(path)
    list(text)
    assert text.cut_short


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_garbage_after_a_member_is_an_error(tmp_path: pathlib.Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(pack(kind, b"fine") + b"rubbish, and more of it")
    with pytest.raises(errors.DamagedFileError, match="invalid compressed data"):
        list(formats.Text(path))


@pytest.mark.parametrize("kind", ["plain", "gzip", "zstd"])
def test_decompressed_size_is_limited(tmp_path: pathlib.Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(pack(kind, b"\0" * 40_000_000))
    with pytest.raises(errors.DamagedFileError, match="more than 1000000 bytes"):
        list(formats.Text(path, 1_000_000))


def test_a_huge_zstd_window_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00\xff" + b"\0" * 20)  # a window of 3.75 TiB
    with pytest.raises(errors.DamagedFileError):
        list(formats.Text(path))


@pytest.mark.parametrize(
    ("module", "kernel"),
    [
        ("[kernel.kallsyms]", True),
        ("[kernel]", True),
        ("[nf_conntrack]", True),
        ("/lib/modules/6.1/kernel/fs/xfs.ko.zst", True),
        ("/boot/vmlinux-6.1", True),
        ("bpf_prog_6deef7357e7b4530", True),
        ("[vdso]", False),
        ("[vsyscall]", False),
        ("[unknown]", False),
        ("[anon:cache]", False),
        ("/usr/lib/libc.so.6", False),
        ("/opt/x.kotlin", False),
        ("", False),
    ],
)
def test_the_kernel_is_distinguished_from_programs(module: str, kernel: bool) -> None:
    assert formats.is_kernel(module) is kernel


def test_a_builder_refuses_too_many_frames(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "MAX_STACK_FRAMES", 10)
    builder = formats.Builder(tmp_path / "file")
    frames = [builder.frame(str(number), "", 0) for number in range(6)]
    assert builder.stack(frames) == builder.stack(list(frames)) == 0
    builder.at = 77
    with pytest.raises(errors.DamagedFileError) as caught:
        builder.stack(frames[:5])
    assert caught.value.offset == 77


def test_a_builder_refuses_too_many_events(tmp_path: pathlib.Path) -> None:
    builder = formats.Builder(tmp_path / "file")
    assert [builder.event(str(number)) for number in range(256)] == list(range(256))
    assert builder.event("7") == 7
    with pytest.raises(errors.DamagedFileError):
        builder.event("256")
