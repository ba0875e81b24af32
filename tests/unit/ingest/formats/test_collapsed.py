from __future__ import annotations

import contextlib
import gzip
import os
import pathlib
from typing import TYPE_CHECKING

import folding
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight import errors
from overnight.ingest.formats import collapsed
from overnight.model.flame import Frame, FrameKind
from overnight.reports import collapsed as writer

if TYPE_CHECKING:
    from overnight.store import capture

MTIME = 1_700_000_000_000_000_000


def read(folder: pathlib.Path, text: str | bytes) -> capture.Capture:
    path = folder / "stacks.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(path, ns=(MTIME, MTIME))
    return collapsed.read(path, "web-7")


def stacks(parsed: capture.Capture) -> list[list[str]]:
    offset, frame = parsed.stacks.offset, parsed.stacks.frame
    return [
        [parsed.frames.name[f] for f in frame[offset[number] : offset[number + 1]]]
        for number in parsed.stack
    ]


def test_lines_become_rows_at_one_instant(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, "nginx;main;do_syscall_64_[k];f_[j];g_[i] 42\ngrep;main 7\n\n")
    assert stacks(parsed) == [["main", "do_syscall_64", "f", "g"], ["main"]]
    assert [parsed.tasks.process[task] for task in parsed.task] == ["nginx", "grep"]
    assert parsed.count.tolist() == [42, 7]
    assert parsed.time.tolist() == [MTIME, MTIME]
    assert not parsed.timed
    assert parsed.host == "web-7"
    kinds = dict(zip(parsed.frames.name, parsed.frames.kind.tolist(), strict=True))
    assert kinds == {"main": 0, "do_syscall_64": 1, "f": 0, "g": 0}
    assert any("used as the process" in note for note in parsed.notes)


@pytest.mark.parametrize(
    ("root", "process", "pid", "tid"),
    [
        ("cc1plus", "cc1plus", -1, -1),
        ("pool-7", "pool-7", -1, -1),
        ("Web Content", "Web Content", -1, -1),
        ("kworker/0:1-eve", "kworker/0:1-eve", -1, -1),
        ("java-12/34", "java", 12, 34),
        ("java-?/34", "java", -1, 34),
        ("java-?", "java", -1, -1),
    ],
)
def test_a_process_keeps_its_whole_name(
    tmp_path: pathlib.Path, root: str, process: str, pid: int, tid: int
) -> None:
    parsed = read(tmp_path, f"{root};main;work 3\n")
    assert parsed.tasks.process == [process]
    assert parsed.tasks.pid.tolist() == [pid]
    assert parsed.tasks.tid.tolist() == [tid]


@pytest.mark.parametrize(
    "text",
    [
        "java/lang/Thread.run;Main.main;work 3\n",  # longer than a process name
        "start;work;start 3\n",  # a root that is also called
        "std::run;work 3\n",
        "f(int);work 3\n",
        "[unknown];work 3\n",
        "entry_64_[k];work 3\n",
        "a;b 1\n;b 1\n",
        "work 3\n",
    ],
)
def test_a_function_is_not_taken_for_a_process(tmp_path: pathlib.Path, text: str) -> None:
    parsed = read(tmp_path, text)
    assert parsed.tasks.process == [""]
    assert sum(map(len, stacks(parsed))) == text.count(";") + text.count("\n")


def test_the_same_stack_twice_is_one_row(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, "a;b 1\na;c 2\na;b 3\n")
    assert parsed.count.tolist() == [4, 2]


def test_names_may_hold_spaces_and_numbers(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, "app;operator new(unsigned long) 12;f 2 3.0 5\n")
    assert stacks(parsed) == [["operator new(unsigned long) 12", "f 2 3.0"]]
    assert parsed.count.tolist() == [5]


def test_fractions_keep_their_proportions(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, "a;b 0.0025\na;c 0.01\na;d 1e-3\n")
    assert (parsed.count / parsed.count[2]).tolist() == [2.5, 10.0, 1.0]
    assert any("multiplied by" in note for note in parsed.notes)
    assert read(tmp_path, "a;b 2.0\n").count.tolist() == [2]


def test_weights_too_large_are_scaled(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, "a;b 20000000000000\na;c 10000000000000\na;d 1\n")
    assert parsed.count[0] == 2 * parsed.count[1]
    assert parsed.count[2] == 1
    assert any("multiplied by 0.0001" in note for note in parsed.notes)


def test_unknown_lines_are_counted(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, "a;b 1\nno count here\na;c 1\n# a comment\n")
    assert "1 unknown lines were skipped, the first at byte 6" in parsed.notes


@pytest.mark.parametrize("text", ["", "nothing\n", "a;b 0\n", "a;b -1\n", "a;b 1e999\n", "\0\0"])
def test_a_file_without_stacks_is_damaged(tmp_path: pathlib.Path, text: str) -> None:
    with pytest.raises(errors.DamagedFileError):
        read(tmp_path, text)


@pytest.mark.parametrize("text", [b"x", b"\n", b"x\n", b" \n", b"1 1 1 x\n"])
def test_a_bomb_is_refused(tmp_path: pathlib.Path, text: bytes) -> None:
    packed = zstandard.ZstdCompressor().compress(text * ((64 << 20) // len(text)))
    with pytest.raises(errors.DamagedFileError):
        read(tmp_path, packed)


def test_gzip_and_a_last_line_without_a_newline(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, gzip.compress(b"a;b 1\na;c 2"))
    assert parsed.count.tolist() == [1, 2]


NAMES = st.text(min_size=1, max_size=20).filter(lambda name: name == name.strip())
FRAMES = st.builds(Frame, NAMES, st.just(""), st.sampled_from([FrameKind.USER, FrameKind.KERNEL]))
STACKS = st.tuples(
    st.lists(FRAMES, min_size=1, max_size=5).map(tuple),
    st.integers(1, 2**32 - 1),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("fuzz")


@given(
    samples=st.lists(STACKS, min_size=1, max_size=8, unique_by=lambda stack: stack[0]),
)
@settings(max_examples=100, deadline=None)
def test_written_stacks_are_read_back(folder: pathlib.Path, samples: list[folding.Stack]) -> None:
    root = Frame("a process")  # a name from NAMES that equals it would be a function
    whole = folding.fold([((root, *frames), count) for frames, count in samples])
    path = folder / "written.collapsed"
    with path.open("wb") as file:
        writer.write(whole, file)
    parsed = collapsed.read(path, "h")
    assert parsed.tasks.process == ["a process"]
    assert sum(parsed.count.tolist()) == sum(count for _, count in samples)
    kinds = [
        [int(parsed.frames.kind[f]) for f in parsed.stacks.frame[begin:end]]
        for begin, end in zip(parsed.stacks.offset[:-1], parsed.stacks.offset[1:], strict=True)
    ]
    assert [kinds[number] for number in parsed.stack] == [
        [frame.kind for frame in frames[1:]] for frames, _ in folding.unfold(whole)
    ]
    plain = {
        f.name for frames, _ in samples for f in frames if f.name.isascii() and f.name.isalnum()
    }
    assert plain <= set(parsed.frames.name)


@given(data=st.binary(max_size=500))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_read_or_refused(folder: pathlib.Path, data: bytes) -> None:
    with contextlib.suppress(errors.DamagedFileError):
        assert len(read(folder, data).time) > 0


@given(text=st.text(alphabet="ab;_[k] 019.e+-/?\n\r\t", max_size=300))
@settings(max_examples=200, deadline=None)
def test_lines_similar_to_stacks_are_read_or_refused(folder: pathlib.Path, text: str) -> None:
    try:
        parsed = read(folder, text)
    except errors.DamagedFileError:
        return
    assert int(parsed.count.min()) >= 1
