from __future__ import annotations

import contextlib
import gzip
import io
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import folding
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight import errors
from overnight.ingest import formats
from overnight.ingest.formats import pprof
from overnight.model.flame import Frame
from overnight.reports import pprof as writer

if TYPE_CHECKING:
    from overnight.store import capture

BEGIN = 1_700_000_000_000_000_000


def varint(value: int) -> bytes:
    out = b""
    value %= 1 << 64
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(data)) + data


class Profile:
    """Builds a profile by the field numbers of profile.proto."""

    def __init__(self) -> None:
        self.strings = [""]
        self.out = b""

    def text(self, value: str) -> int:
        if value not in self.strings:
            self.strings.append(value)
        return self.strings.index(value)

    def measure(self, field: int, kind: str, unit: str) -> None:
        self.out += block(field, number(1, self.text(kind)), number(2, self.text(unit)))

    def function(self, id_: int, name: str) -> None:
        self.out += block(5, number(1, id_), number(2, self.text(name)))

    def mapping(self, id_: int, file: str) -> None:
        self.out += block(3, number(1, id_), number(5, self.text(file)))

    def location(self, id_: int, mapping: int, *functions: int, address: int = 0) -> None:
        lines = [block(4, number(1, function), number(2, 12)) for function in functions]
        self.out += block(4, number(1, id_), number(2, mapping), number(3, address), *lines)

    def sample(
        self, locations: list[int], values: list[int], *, packed: bool = True, **labels: str | int
    ) -> None:
        if packed:
            body = block(1, *map(varint, locations)) + block(2, *map(varint, values))
        else:
            body = b"".join(number(1, v) for v in locations) + b"".join(
                number(2, v) for v in values
            )
        for key, value in labels.items():
            what = number(3, value) if isinstance(value, int) else number(2, self.text(value))
            body += block(3, number(1, self.text(key)), what)
        self.out += block(2, body)

    def done(self, *, pack: bool = True) -> bytes:
        data = self.out + b"".join(block(6, string.encode()) for string in self.strings)
        return gzip.compress(data, mtime=0) if pack else data


def cpu_profile() -> Profile:
    profile = Profile()
    profile.measure(1, "samples", "count")
    profile.measure(1, "cpu", "nanoseconds")
    profile.measure(11, "cpu", "nanoseconds")
    profile.out += number(12, 10_000_000) + number(9, BEGIN) + number(10, 30_000_000_000)
    profile.mapping(1, "/opt/app")
    profile.mapping(2, "[kernel.kallsyms]")
    for id_, name in enumerate(["main", "inlined", "caller", "do_idle"], 1):
        profile.function(id_, name)
    profile.location(1, 1, 1)
    profile.location(2, 1, 2, 3)  # line[0] is the innermost
    profile.location(3, 2, 4)
    profile.location(9, 0, address=0xFFFFFFFF81000000)
    return profile


def read(folder: pathlib.Path, data: bytes) -> capture.Capture:
    path = folder / "profile.pb.gz"
    path.write_bytes(data)
    return pprof.read(path, "web-7")


def stacks(parsed: capture.Capture) -> list[list[str]]:
    offset, frame = parsed.stacks.offset, parsed.stacks.frame
    return [
        [parsed.frames.name[f] for f in frame[offset[stack] : offset[stack + 1]]]
        for stack in parsed.stack
    ]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("pack", [True, False])
def test_all_fields_of_a_profile_are_read(tmp_path: pathlib.Path, pack: bool, packed: bool) -> None:
    profile = cpu_profile()
    profile.sample([3, 2, 1], [4, 40_000_000], packed=packed, comm="nginx", pid=77, tid=78, cpu=3)
    profile.sample([9, 1], [1, 10_000_000], packed=packed, thread="Web Content", pid="5")
    parsed = read(tmp_path, profile.done(pack=pack))
    assert stacks(parsed) == [["main", "caller", "inlined", "do_idle"], ["main", "[unknown]"]]
    assert parsed.count.tolist() == [4, 1]
    assert parsed.period.tolist() == [10_000_000, 10_000_000]
    assert parsed.events == ("cpu",)
    assert (parsed.frequency, parsed.host, parsed.timed) == (100, "web-7", False)
    assert (parsed.begin, parsed.end) == (BEGIN, BEGIN + 30_000_000_000)
    assert parsed.time.tolist() == [BEGIN, BEGIN]
    assert parsed.cpu.tolist() == [3, -1]
    assert parsed.tasks.pid.tolist() == [77, 5]
    assert parsed.tasks.tid.tolist() == [78, -1]
    assert parsed.tasks.process == ["nginx", ""]
    assert parsed.tasks.thread == ["", "Web Content"]
    frames = zip(parsed.frames.name, parsed.frames.module, parsed.frames.kind.tolist(), strict=True)
    assert set(frames) == {
        ("main", "/opt/app", 0),
        ("caller", "/opt/app", 0),
        ("inlined", "/opt/app", 0),
        ("do_idle", "[kernel]", 1),
        ("[unknown]", "", 1),
    }


def test_a_root_that_repeats_the_process_is_no_function(tmp_path: pathlib.Path) -> None:
    profile = cpu_profile()
    profile.function(5, "nginx")
    profile.location(5, 0, 5)
    profile.location(6, 1, 5)  # a function of that name, in a binary
    names = {"systemd_unit": "web.service", "core": "0", "thread_comm": "nginx: worker"}
    profile.sample([1, 5], [1, 1], comm="nginx", **names)
    profile.sample([1, 6], [1, 1], comm="nginx")
    profile.sample([1, 5], [1, 1], comm="caddy")
    profile.sample([5], [1, 1], thread="nginx")
    profile.sample([5, 1], [1, 1], comm="nginx")
    parsed = read(tmp_path, profile.done())
    assert stacks(parsed) == [
        ["main"],
        ["nginx", "main"],
        ["nginx", "main"],
        [],
        ["main", "nginx"],
    ]
    assert (parsed.tasks.unit[0], parsed.tasks.thread[0]) == ("web.service", "nginx: worker")
    assert parsed.cpu.tolist() == [0, -1, -1, -1, -1]


def test_measures_other_than_samples_become_events(tmp_path: pathlib.Path) -> None:
    profile = Profile()
    profile.measure(1, "alloc_objects", "count")
    profile.measure(1, "alloc_space", "bytes")
    profile.function(1, "f")
    profile.location(1, 0, 1)
    profile.sample([1], [3, 0])
    profile.sample([1, 1], [0, 1 << 40])
    profile.sample([1], [-5, -5])
    parsed = read(tmp_path, profile.done())
    assert parsed.events == ("alloc_objects", "alloc_space")
    assert parsed.event.tolist() == [0, 1]
    assert parsed.count.tolist() == [1, (1 << 40) // 1000]
    assert any("divided by 1000" in note for note in parsed.notes)
    assert any("has no time" in note for note in parsed.notes)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda p: p.sample([77], [1, 1]), "location 77"),
        (lambda p: p.sample([1], [0, 0]), "no sample with a positive value"),
        (lambda p: None, "no sample"),
        (lambda p: p.sample([1], [1, 1]) or p.measure(1, "x", "y") or p.strings.pop(), "string"),
    ],
)
def test_an_inconsistent_profile_is_damaged(
    tmp_path: pathlib.Path, spoil: object, problem: str
) -> None:
    assert callable(spoil)
    profile = cpu_profile()
    spoil(profile)
    with pytest.raises(errors.DamagedFileError, match=problem):
        read(tmp_path, profile.done())


def test_sniff_recognizes_a_profile_and_its_prefixes() -> None:
    profile = cpu_profile()
    for n in range(50):
        profile.sample([1], [1, n])
    whole = profile.done(pack=False)
    assert all(pprof.sniff(whole[:end]) for end in range(10, len(whole)))


def test_a_profile_cut_short_is_damaged(tmp_path: pathlib.Path) -> None:
    profile = cpu_profile()
    profile.sample([1], [1, 1])
    whole = profile.done(pack=False)
    with pytest.raises(errors.DamagedFileError):
        read(tmp_path, gzip.compress(whole)[:-9])
    with pytest.raises(errors.DamagedFileError):
        read(tmp_path, whole[:-2])


@pytest.mark.parametrize("lines", [100, 60_000])
def test_a_small_file_cannot_take_hours(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    monkeypatch.setattr(formats, "MAX_STACK_FRAMES", 1 << 20)
    profile = cpu_profile()
    profile.location(5, 0, *([1] * lines))
    profile.out += b"".join(
        block(2, block(1, *[varint(5)] * (1 + n)), block(2, b"\x01\x01")) for n in range(500)
    )
    expand, expanded = pprof._Profile._expand, 0

    def count(*arguments: Any) -> Sequence[int]:
        nonlocal expanded
        frames = expand(*arguments)
        expanded += len(frames)
        return frames

    monkeypatch.setattr(pprof._Profile, "_expand", count)
    with pytest.raises(errors.DamagedFileError, match="too many frames"):
        read(tmp_path, profile.done())
    assert lines < expanded <= (1 << 20) + lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("fuzz")


FRAMES = st.builds(
    Frame,
    st.text(min_size=1, max_size=12),
    st.sampled_from(["", "/opt/a b", "[kernel]", "[nf_conntrack]", "/lib/x.so (deleted)"]),
    st.just(0),
).map(lambda f: Frame(f.name, f.module, int(f.module.startswith("["))))
STACKS = st.tuples(st.lists(FRAMES, min_size=1, max_size=6).map(tuple), st.integers(1, 2**32 - 1))


@given(
    # Equal stacks are folded into one, whose sum must fit too.
    samples=st.lists(STACKS, min_size=1, max_size=8, unique_by=lambda stack: stack[0]),
    frequency=st.sampled_from([0, 97, 1000]),
    event=st.sampled_from(["cpu-clock", "page-faults", ""]),
)
@settings(max_examples=100, deadline=None)
def test_written_profiles_are_read_back(
    folder: pathlib.Path, samples: list[folding.Stack], frequency: int, event: str
) -> None:
    buffer = io.BytesIO()
    folded = folding.fold(
        samples, begin_ns=BEGIN, end_ns=BEGIN + 5, frequency=frequency, cores=(0,), event=event,
        lost=3, notes=("n",),
    )  # fmt: skip
    writer.write(folded, buffer)
    assert pprof.sniff(gzip.decompress(buffer.getvalue()))
    parsed = read(folder, buffer.getvalue())
    frames = [
        Frame(*frame)
        for frame in zip(
            parsed.frames.name, parsed.frames.module, parsed.frames.kind.tolist(), strict=True
        )
    ]
    offset = parsed.stacks.offset
    again = [
        (tuple(frames[f] for f in parsed.stacks.frame[offset[s] : offset[s + 1]]), int(count))
        for s, count in zip(parsed.stack, parsed.count, strict=True)
    ]
    assert again == folding.unfold(folded)
    assert (parsed.begin, parsed.end) == (BEGIN, BEGIN + 5)
    assert parsed.frequency == (frequency if event == "cpu-clock" else 0)


def good() -> bytes:
    profile = cpu_profile()
    profile.sample([3, 2, 1], [4, 40_000_000], comm="nginx", pid=77, cpu=3)
    return profile.done(pack=False)


GOOD = good()


def reads_or_refuses(folder: pathlib.Path, data: bytes) -> None:
    with contextlib.suppress(errors.DamagedFileError):
        assert len(read(folder, data).time) > 0
    pprof.sniff(data)


@given(data=st.binary(max_size=500))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_read_or_refused(folder: pathlib.Path, data: bytes) -> None:
    reads_or_refuses(folder, data)
    reads_or_refuses(folder, GOOD + data)


@given(
    at=st.integers(0, len(GOOD) - 1),
    bits=st.integers(1, 255),
    end=st.integers(1, len(GOOD)),
)
@settings(max_examples=300, deadline=None)
def test_flipped_and_cut_files_are_read_or_refused(
    folder: pathlib.Path, at: int, bits: int, end: int
) -> None:
    data = bytearray(GOOD)
    data[at] ^= bits
    reads_or_refuses(folder, bytes(data))
    reads_or_refuses(folder, bytes(data[:end]))
