"""perf.data files in every layout that perf writes, and in invalid ones."""

from __future__ import annotations

import pathlib
import random
import struct
from collections.abc import Callable

import perfdecoded
import perfrecords as make
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight import errors
from overnight.sources.perf import compressed, decode, perfdata

LAYOUT = make.Layout()
WITH_ID = make.Layout(LAYOUT.type | make.ID)
RECORDS = (
    LAYOUT.comm(1, 10, b"server"),
    LAYOUT.mmap2(1, 0x1000, 0x1000, b"/bin/server"),
    *(LAYOUT.sample(2 + i, [make.IN_USER, 0x1000 + i], cpu=i % 2) for i in range(20)),
    make.record(make.FINISHED_ROUND),
)
FEATURES = {
    make.HOSTNAME: make.string_feature(b"web-1"),
    make.NRCPUS: struct.pack("<II", 8, 2),
    make.EVENT_DESC: make.event_desc([b"cycles:ppp"], LAYOUT.attr(), [[]]),
    make.CLOCK_DATA: struct.pack("<IIQQ", 1, 1, 1_700_000_000_000_000_000, 5_000),
}
FILE = make.file([LAYOUT.attr()], RECORDS, features=FEATURES)
PIPE = make.pipe([LAYOUT.attr()], RECORDS, features=FEATURES)


def zstd() -> compressed.Decompress:
    return zstandard.ZstdDecompressor().decompressobj().decompress


def opened(path: pathlib.Path, data: bytes) -> tuple[perfdata.PerfData, list[perfdecoded.Row]]:
    path.write_bytes(data)
    with perfdata.open_perfdata(path, zstd) as file:
        return file, perfdecoded.rows(file.decode())


def refusal(path: pathlib.Path, data: bytes) -> tuple[int, str]:
    path.write_bytes(data)
    with pytest.raises(errors.DamagedFileError) as caught, perfdata.open_perfdata(path, zstd) as f:
        f.decode()
    assert caught.value.path == str(path)
    assert f"at byte {caught.value.offset}" in str(caught.value)
    return caught.value.offset, str(caught.value)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "perf.data"


# ------------------------------------------------------------------ shapes


@pytest.mark.parametrize("data", [FILE, PIPE], ids=["file", "pipe"])
def test_the_features_of_a_file(path: pathlib.Path, data: bytes) -> None:
    file, rows = opened(path, data)
    assert (file.hostname, file.cores, file.finished) == ("web-1", 2, True)
    assert file.clock == perfdata.Clock(samples=5_000, wall=1_700_000_000_000_000_000)
    assert [(event.name, event.frequency) for event in file.events] == [("cycles:ppp", 499)]
    assert [row.time for row in rows] == list(range(2, 22))
    assert rows[3].stack == (("/bin/server", 3),)
    assert {row.thread for row in rows} == {"server"}


@pytest.mark.parametrize("data", [FILE, PIPE], ids=["file", "pipe"])
def test_both_decoders_read_the_file(
    path: pathlib.Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = opened(path, data)[1]
    monkeypatch.setattr(perfdata, "decode_stream", decode.decode)
    assert opened(path, data)[1] == native


@pytest.mark.parametrize("make_file", [make.file, make.pipe])
def test_a_file_without_features(path: pathlib.Path, make_file) -> None:
    file, rows = opened(path, make_file([LAYOUT.attr(config=1)], RECORDS))
    assert (file.hostname, file.cores, file.clock) == ("", 0, None)
    assert file.events[0].name == "task-clock"
    assert len(rows) == 20


def test_an_unfinished_file_is_read_to_its_end(path: pathlib.Path) -> None:
    data = make.file([LAYOUT.attr()], RECORDS, features=FEATURES, finished=False)
    file, rows = opened(path, data[:-4])
    assert (file.finished, file.hostname, len(rows)) == (False, "", 20)


def test_a_file_cut_in_its_records_gives_those_before(path: pathlib.Path) -> None:
    file, rows = opened(path, FILE[: FILE.index(b"/bin/server") + 16 + 24 + 200])
    assert not file.finished
    assert 0 < len(rows) < 20


def test_an_event_with_a_fixed_period_has_no_frequency(path: pathlib.Path) -> None:
    attr = bytearray(LAYOUT.attr(frequency=100_000))
    attr[41] &= ~(1 << 2)
    assert opened(path, make.file([bytes(attr)], RECORDS))[0].events[0].frequency == 0


@pytest.mark.parametrize("make_file", [make.file, make.pipe])
def test_several_events_each_with_its_ids(path: pathlib.Path, make_file) -> None:
    ids = [[71, 72], [81, 82]]
    samples = [WITH_ID.sample(i, event=event) for i, event in enumerate((82, 71, 81, 72, 5))]
    names = make.event_desc([b"cycles", b"faults"], WITH_ID.attr(), ids)
    file, rows = opened(
        path,
        make_file(
            [WITH_ID.attr(0), WITH_ID.attr(2)], samples, ids=ids, features={make.EVENT_DESC: names}
        ),
    )
    assert [(event.name, event.ids) for event in file.events] == [
        ("cycles", (71, 72)), ("faults", (81, 82)),
    ]  # fmt: skip
    assert [row.event for row in rows] == [1, 0, 1, 0, 0]


def test_names_that_do_not_match_the_events_are_ignored(path: pathlib.Path) -> None:
    for content in (make.event_desc([b"a", b"b"], LAYOUT.attr(), [[], []]), b"\1\0\0\0", b""):
        data = make.file([LAYOUT.attr()], RECORDS, features={make.EVENT_DESC: content})
        assert opened(path, data)[0].events[0].name == "cpu-clock"


def test_a_dummy_event_may_carry_less(path: pathlib.Path) -> None:
    """Since 6.6, perf adds one to a sampling event with call chains."""
    dummy = make.Layout(WITH_ID.type & ~(make.CALLCHAIN | make.PERIOD))
    samples = [WITH_ID.sample(1, [make.IN_KERNEL, 7], event=2), dummy.comm(0, 10, b"x")]
    data = make.file([dummy.attr(config=9), WITH_ID.attr()], samples, ids=[[1], [2]])
    (row,) = opened(path, data)[1]
    assert (row.stack, row.event, row.thread) == ((("[kernel]", 7),), 1, "x")


def test_events_that_carry_different_fields_are_refused(path: pathlib.Path) -> None:
    for other in (make.Layout(LAYOUT.type & ~make.CALLCHAIN), make.Layout(id_all=False)):
        _, problem = refusal(path, make.file([LAYOUT.attr(), other.attr()], RECORDS))
        assert "different sample fields" in problem


def test_trace_data_in_a_pipe_is_skipped(path: pathlib.Path) -> None:
    trace = make.record(make.TRACING_DATA, struct.pack("<II", 32, 0)) + b"\xff" * 32
    assert len(opened(path, make.pipe([LAYOUT.attr()], [trace, *RECORDS]))[1]) == 20
    endless = make.record(make.TRACING_DATA, struct.pack("<II", 2**32 - 1, 0))
    assert "past the end" in refusal(path, make.pipe([LAYOUT.attr()], [endless]))[1]


# ------------------------------------------------------------------ compressed


def pieces(records: bytes, sizes: list[int]) -> list[bytes]:
    """Compress the stream as one frame, flushed after each size, as perf does after each read."""
    engine = zstandard.ZstdCompressor().compressobj()
    out, at = [], 0
    for size in [*sizes, len(records)]:
        out.append(
            engine.compress(records[at : at + size])
            + engine.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        )
        at += size
    return out


@pytest.mark.parametrize("wrap", [make.packed, make.packed2], ids=["COMPRESSED", "COMPRESSED2"])
@pytest.mark.parametrize("make_file", [make.file, make.pipe])
def test_compressed_records_are_decompressed(path: pathlib.Path, make_file, wrap) -> None:
    """Cut anywhere, with plain records in between."""
    plain, whole = RECORDS[0], b"".join(RECORDS[1:])
    parts = [wrap(piece) for piece in pieces(whole, [1, 6, 90, 200, 3])]
    between = [plain, parts[0], make.record(make.FINISHED_ROUND), parts[1], make.lost(7)]
    file, rows = opened(path, make_file([LAYOUT.attr()], [*between, *parts[2:], make.lost(1)]))
    assert file.stream_offset is None
    assert rows == opened(path, FILE)[1]


def test_losses_between_compressed_pieces_are_counted(path: pathlib.Path) -> None:
    parts = [make.packed(piece) for piece in pieces(b"".join(RECORDS), [100])]
    path.write_bytes(make.file([LAYOUT.attr()], [parts[0], make.lost(7), parts[1], make.lost(1)]))
    with perfdata.open_perfdata(path, zstd) as file:
        assert file.decode()[-1] == 8


def test_a_truncated_compressed_file_gives_its_complete_records(path: pathlib.Path) -> None:
    parts = [make.packed(piece) for piece in pieces(b"".join(RECORDS), [300, 300])]
    data = make.file([LAYOUT.attr()], parts, finished=False)
    assert 0 < len(opened(path, data[: -len(parts[-1]) - 1])[1]) < 20


def test_a_compressed_file_without_zstd_is_refused(path: pathlib.Path) -> None:
    path.write_bytes(make.file([LAYOUT.attr()], [make.packed(b"x")]))
    with (
        pytest.raises(errors.DamagedFileError, match="zstd is not installed"),
        perfdata.open_perfdata(path),
    ):
        pass


def test_invalid_compressed_data_is_refused_at_its_offset(path: pathlib.Path) -> None:
    data = make.file([LAYOUT.attr()], [RECORDS[0], make.packed(b"rubbish that is no zstd")])
    offset, problem = refusal(path, data)
    assert "compressed records" in problem
    assert data[offset + 8 : offset + 15] == b"rubbish"


def test_decompressed_data_must_be_records(path: pathlib.Path) -> None:
    """Other data was once kept as an incomplete record and copied with each piece."""
    parts = [make.packed(piece) for piece in pieces(bytes(5000), [100] * 40)]
    assert "not records" in refusal(path, make.file([LAYOUT.attr()], parts))[1]


def test_damage_in_unpacked_records_is_reported_as_such(path: pathlib.Path) -> None:
    short = make.record(make.SAMPLE, bytes(8))
    data = make.file([LAYOUT.attr()], [make.packed(pieces(RECORDS[0] + short, [])[0])])
    offset, problem = refusal(path, data)
    assert offset == len(RECORDS[0])
    assert "of the unpacked records" in problem


def test_a_decompression_bomb_is_refused_early(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run-length block of 4 bytes is 128 KiB; one piece could be 2 GiB."""
    monkeypatch.setattr(compressed, "EXPANSION_FLOOR", 1 << 20)
    monkeypatch.setattr(compressed, "EXPANSION", 1)
    header = b"\x28\xb5\x2f\xfd\x00\x58"
    filler = make.record(99, b"\x63" * 248)  # a run of "c" is records of type 0x63636363
    run = struct.pack("<I", 131072 << 3 | 1 << 1)[:3] + b"\x63"
    decompressed = [0]

    def counting() -> compressed.Decompress:
        engine = zstd()

        def unpack(piece: bytes) -> bytes:
            plain = engine(piece)
            decompressed[0] += len(plain)
            return plain

        return unpack

    path.write_bytes(make.file([LAYOUT.attr()], [filler, make.packed(header + run * 15_000)]))
    with (
        pytest.raises(errors.DamagedFileError, match="MiB"),
        perfdata.open_perfdata(path, counting),
    ):
        pass
    assert decompressed[0] < 20 << 20


# ------------------------------------------------------------------ hostile headers


def patched(data: bytes, at: int, form: str, *values: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(form, out, at, *values)
    return bytes(out)


ATTRS_AT = struct.unpack_from("<Q", FILE, 24)[0]


@pytest.mark.parametrize(
    ("data", "offset", "problem"),
    [
        (b"", 0, "empty"),
        (b"P", 0, "PERFILE2"),
        (b"PERFILE1" + FILE[8:], 0, "PERFILE2"),
        (FILE[:12], 8, "too early"),
        (FILE[:70], 0, "too early"),
        (PIPE[:16], 16, "does not describe an event"),
        (patched(FILE, 16, "<Q", 0), 16, "no room for an event"),
        (patched(FILE, 32, "<Q", 0), 16, "no room for an event"),
        (patched(FILE, 24, "<Q", 2**64 - 1), 16, "does not describe an event"),
        (patched(FILE, 40, "<Q", 2**63), 40, "past the end"),
        (patched(FILE, ATTRS_AT + 128, "<QQ", 2**64 - 1, 8), len(FILE), "past the end"),
        (patched(FILE, ATTRS_AT + 16, "<Q", 2**64 - 1), ATTRS_AT + 16, "samples a second"),
        (patched(PIPE, 16 + 6, "<H", 7), 16, "a record of 7 bytes"),
        (patched(PIPE, 16 + 6, "<H", 48), 16, "no room for an event"),
        (patched(FILE, len(FILE) - 16, "<Q", 2**63), len(FILE) - 24, "a clock"),
        (make.file([LAYOUT.attr()], [RECORDS[0], make.record(1, size=3)]), 296, "a record of 3"),
    ],
)
def test_an_invalid_header_is_refused(
    path: pathlib.Path, data: bytes, offset: int, problem: str
) -> None:
    refused_at, text = refusal(path, data)
    assert problem in text
    assert refused_at == offset


def test_four_billion_cores_are_refused(path: pathlib.Path) -> None:
    features = {make.NRCPUS: struct.pack("<II", 2, 2**32 - 1)}
    assert "cores" in refusal(path, make.file([LAYOUT.attr()], RECORDS, features=features))[1]


def test_many_events_that_share_all_bytes_as_ids_are_refused(path: pathlib.Path) -> None:
    """Each could claim the whole file as its ids, which needs quadratic memory."""
    data = bytearray(make.file([LAYOUT.attr()] * 200, [bytes(1 << 17)]))
    for i in range(200):
        struct.pack_into("<QQ", data, 104 + 144 * i + 128, 0, 1 << 17)
    assert "ids of them" in refusal(path, bytes(data))[1]
    assert "256 events" in refusal(path, make.file([LAYOUT.attr()] * 257, RECORDS))[1]
    assert "256 events" in refusal(path, make.pipe([LAYOUT.attr()] * 257, RECORDS))[1]


def test_an_error_leaves_the_file_unmapped_later(path: pathlib.Path) -> None:
    """Not BufferError: the views in the traceback outlive the map."""
    path.write_bytes(make.file([LAYOUT.attr()], [make.packed(b"rubbish"), *RECORDS]))
    for _ in range(3):
        with pytest.raises(errors.DamagedFileError), perfdata.open_perfdata(path, zstd):
            pass


# ------------------------------------------------------------------ damage anywhere

SHAPES: dict[str, Callable[[], bytes]] = {
    "file": lambda: FILE,
    "pipe": lambda: PIPE,
    "packed": lambda: make.file(
        [LAYOUT.attr()] * 2,
        [make.packed(p) for p in pieces(b"".join(RECORDS), [50, 400])],
        ids=[[1, 2], [3]],
        features=FEATURES,
    ),
}


def outcome(path: pathlib.Path, data: bytes) -> str:
    path.write_bytes(data)
    try:
        with perfdata.open_perfdata(path, zstd) as file:
            file.decode()
    except errors.DamagedFileError as error:
        damage = error
    else:
        return "read"
    assert damage.path == str(path)
    assert damage.offset >= 0
    return "refused"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_cut_anywhere_is_read_or_refused(path: pathlib.Path, shape: str) -> None:
    data = SHAPES[shape]()
    outcomes = [outcome(path, data[:end]) for end in range(0, len(data), 7)]
    assert outcomes[0] == "refused"
    assert outcomes.count("read") > len(outcomes) // 4


@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_with_flipped_bits_is_read_or_refused(path: pathlib.Path, shape: str) -> None:
    rng = random.Random(shape)
    whole = SHAPES[shape]()
    outcomes = set()
    for _ in range(250):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 1, 3, 20))):
            data[rng.randrange(8, len(data))] ^= 1 << rng.randrange(8)
        outcomes.add(outcome(path, bytes(data)))
    assert outcomes == {"read", "refused"}


@settings(max_examples=100)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_after_the_magic_are_read_or_refused(body: bytes, pipe: bool) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        head = struct.pack("<8sQ", b"PERFILE2", 16) if pipe else b"PERFILE2"
        assert outcome(pathlib.Path(file.name), head + body) in ("read", "refused")
