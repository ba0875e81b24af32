from __future__ import annotations

import gzip
import os
import pathlib
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight import errors
from overnight.ingest import formats
from overnight.ingest.formats import perfscript

if TYPE_CHECKING:
    from overnight.store import capture

MTIME = 1_700_000_000_000_000_000

IDLE = (
    "\tffffffff821f1eab pv_native_safe_halt+0xb ([kernel.kallsyms])\n"
    "\tffffffff813c3826 do_idle+0x136 ([kernel.kallsyms])\n"
    "\tffffffff812fae63 common_startup_64+0x13b ([kernel.kallsyms])\n"
)
SOFTIRQ_ON_IDLE = (
    "\tffffffff81a00010 net_rx_action+0x10 ([kernel.kallsyms])\n"
    "\tffffffff81200020 __do_softirq+0x20 ([kernel.kallsyms])\n" + IDLE
)
USER = (
    "\t           9b0c2 work+0x12 (/opt/app/bin/app)\n"
    "\t           2724a __libc_start_call_main+0x7a (/usr/lib/libc.so.6)\n"
)
HEADER = """\
# ========
# captured on    : Sun Nov 15 06:26:59 2026
# header version : 1
# hostname : web-7
# os release : 6.18.44
# nrcpus online : 4
# nrcpus avail : 4
# cmdline : /usr/bin/perf record -a -g -F 97 -o p.data -- make -C 3
# event : name = cpu-clock:ppp, , id = { 65, 66 }, type = 1, size = 128, { sample_period, sample_freq } = 97, sample_type = IP|TID|TIME, read_format = ID, disabled = 1, inherit = 1, freq = 1, precise_ip = 3
# event : name = dummy:HG, , id = { 67 }, type = 1, { sample_period, sample_freq } = 97, sample_type = IP, inherit = 1, freq = 1
# CPU_TOPOLOGY info available, use -I to display
# ========
#
"""


def sample(
    comm: str = "app",
    tid: str = "  123",
    cpu: str = "[001] ",
    at: str = "   82.739145",
    what: str = "  10309278 cpu-clock:ppp: ",
    stack: str = USER,
) -> str:
    return f"{comm} {tid} {cpu}{at}: {what}\n{stack}\n"


def write(folder: pathlib.Path, text: str | bytes) -> pathlib.Path:
    path = folder / "capture.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(path, ns=(MTIME, MTIME))
    return path


def read(folder: pathlib.Path, text: str | bytes) -> capture.Capture:
    return perfscript.read(write(folder, text), "")


def stack(taken: capture.Capture, row: int) -> list[str]:
    number = taken.stack[row]
    begin, end = taken.stacks.offset[number], taken.stacks.offset[number + 1]
    return [taken.frames.name[frame] for frame in taken.stacks.frame[begin:end]]


def threads(taken: capture.Capture) -> list[str]:
    return [taken.tasks.thread[task] for task in taken.task]


def test_a_sample_is_read_whole(tmp_path: pathlib.Path) -> None:
    taken = read(tmp_path, sample())
    assert threads(taken) == ["app"]
    assert stack(taken, 0) == ["__libc_start_call_main", "work"]
    assert taken.frames.module == ["/usr/lib/libc.so.6", "/opt/app/bin/app"]
    assert taken.cpu.tolist() == [1]
    assert taken.period.tolist() == [10309278]
    assert taken.count.tolist() == [1]
    assert taken.events == ("cpu-clock",)
    assert taken.tasks.tid.tolist() == [123]
    assert taken.tasks.pid.tolist() == [-1]
    assert taken.frequency == 97
    assert taken.timed
    assert taken.begin <= int(taken.time[0]) < taken.end
    assert taken.time.dtype == np.int64
    assert taken.stack.dtype == np.uint32
    assert taken.period.dtype == np.uint64


@pytest.mark.parametrize(
    "comm",
    [
        "cc1plus",
        "kworker/0:1-events",
        "kworker/u8:1-events_unbound",
        "(sd-pam)",
        "Web Content",
        "foo 123 bar",
        "a [b] c: d",
        "x 1 2.000000:",
        "12345",
        "1 [0] 1.000000:",
        " lead and tail ",
        ":-1",
        "tab\there",
        "naïve",
    ],
)
@pytest.mark.parametrize("ids", ["    7", "  123", "1234567", "  123/124  ", "1234567/1234568"])
def test_a_thread_name_is_never_cut(tmp_path: pathlib.Path, comm: str, ids: str) -> None:
    taken = read(tmp_path, sample(comm, ids) + sample(comm, ids, at="   83.000001"))
    assert threads(taken) == [comm, comm]
    assert not any("not understood" in note for note in taken.notes)
    first, _, second = ids.strip().partition("/")
    assert taken.tasks.tid.tolist() == [int(second or first)]
    assert taken.tasks.pid.tolist() == [int(first) if second else -1]


def test_names_padded_to_sixteen_where_there_are_no_stacks(tmp_path: pathlib.Path) -> None:
    text = (
        "            perf  8161/8161   1320.984917253: page-faults:      5606934eb43d [unknown] (/usr/bin/perf)\n"
        "     Web Content     7/9      1320.984957623: page-faults:  ffffffff821ec1ad __put_user_4 ([kernel.kallsyms])\n"
    )
    taken = read(tmp_path, text)
    assert threads(taken) == ["perf", "Web Content"]
    assert [stack(taken, 0), stack(taken, 1)] == [["[unknown]"], ["__put_user_4"]]
    assert taken.frames.module == ["/usr/bin/perf", "[kernel]"]
    assert taken.frames.kind.tolist() == [0, 1]
    assert taken.cpu.tolist() == [-1, -1]
    assert int(taken.time[1]) - int(taken.time[0]) == 40_370
    assert taken.period.tolist() == [0, 0]


def test_squeezed_spaces_do_not_cut_a_name(tmp_path: pathlib.Path) -> None:
    taken = read(tmp_path, "swapper 0 [000] 82.739145: 1 cycles:\n" + IDLE)
    assert threads(taken) == ["swapper"]
    assert taken.tasks.pid.tolist() == [0]


@pytest.mark.parametrize(
    ("line", "name", "module", "kind"),
    [
        ("1f eab+0xb (/a)", "eab", "/a", 0),
        ("1f operator+ (/a)", "operator+", "/a", 0),
        ("1f X::operator+(X const&)+0x1f (/a)", "X::operator+(X const&)", "/a", 0),
        ("1f operator+=+0x0 (/a)", "operator+=", "/a", 0),
        ("1f a+0xzz (/a)", "a+0xzz", "/a", 0),
        ("1f a+0x1+0x2 (/a)", "a+0x1", "/a", 0),
        ("1f f(int (*)(char), void (*)())+0x2 (/a)", "f(int (*)(char), void (*)())", "/a", 0),
        ("1f (anonymous namespace)::f(int) (/a b (c))", "(anonymous namespace)::f(int)", "/a b (c)", 0),
        ("1f std::vector<int, a<b> >::f; g+0x9 (/a)", "std::vector<int, a<b> >::f; g", "/a", 0),
        ("1f f+0x2 (/memfd:x (deleted))", "f", "/memfd:x (deleted)", 0),
        ("1f f+0x2 (/odd) name)", "f", "/odd) name", 0),
        ("1f f+0x2 (/odd(name)", "f", "/odd(name", 0),
        ("1f f+0x2 (/a+0x99)", "f", "/a", 0),
        ("1f f(int)", "f(int)", "", 0),
        ("1f void (anonymous namespace)::f(int)", "void (anonymous namespace)::f(int)", "", 0),
        ("1f [unknown] ([unknown])", "[unknown]", "", 0),
        ("1f (/a)", "[unknown]", "/a", 0),
        ("1f", "[unknown]", "", 0),
        ("ffffffffc0a01234 nf_hook+0x1 ([nf_conntrack])", "nf_hook", "[nf_conntrack]", 1),
        ("ffffffffc0a01234 f+0x1 (/lib/modules/6.1/nf-tables.ko.xz)", "f", "[nf_tables]", 1),
        ("ffffffff81000000 f (/usr/lib/debug/boot/vmlinux-6.1)", "f", "[kernel]", 1),
        ("ffffffff81000000 f", "f", "", 1),
        ("7fff1 clock_gettime+0x1 ([vdso])", "clock_gettime", "[vdso]", 0),
        ("ffffffffff600000 time ([vsyscall])", "time", "[vsyscall]", 0),
        ("f+0x1 ([kernel.kallsyms])", "f", "[kernel]", 1),
    ],
)  # fmt: skip
def test_a_function_is_kept_whole(
    tmp_path: pathlib.Path, line: str, name: str, module: str, kind: int
) -> None:
    taken = read(tmp_path, sample(stack=f"\t{line}\n"))
    assert stack(taken, 0) == [name]
    assert taken.frames.module == [module]
    assert taken.frames.kind.tolist() == [kind]


def test_an_inlined_function_lies_in_the_one_below_it(tmp_path: pathlib.Path) -> None:
    text = (
        "\tffffffff81 in (inlined)\n\tffffffff81000000 out+0x2 ([kernel.kallsyms])\n\t 1f m (/a)\n"
    )
    taken = read(tmp_path, sample(stack=text))
    assert stack(taken, 0) == ["m", "out", "in"]
    assert taken.frames.module == ["/a", "[kernel]", "[kernel]"]


def test_samples_out_of_order_are_sorted_the_last_one_too(tmp_path: pathlib.Path) -> None:
    text = sample("a", at="   83.000000") + sample("b", at="   84.000000")
    taken = read(tmp_path, text + sample("c", at="   82.000000"))
    assert threads(taken) == ["c", "a", "b"]
    assert np.diff(taken.time).tolist() == [10**9, 10**9]


def test_idle_and_work_on_top_of_idle_stay(tmp_path: pathlib.Path) -> None:
    idle = sample("swapper", "    0", stack=IDLE)
    taken = read(tmp_path, idle + sample("swapper", "    0", stack=SOFTIRQ_ON_IDLE))
    assert stack(taken, 0) == ["common_startup_64", "do_idle", "pv_native_safe_halt"]
    assert stack(taken, 1)[-2:] == ["__do_softirq", "net_rx_action"]
    assert taken.tasks.process == ["swapper"]


def test_events_and_periods_are_kept_apart(tmp_path: pathlib.Path) -> None:
    names = [
        "cpu-clock:ppp",
        "sched:sched_switch",
        "cycles:u",
        "cpu/event=0x3c,umask=0x0/",
        "cycles:P",
    ]
    text = "".join(
        sample(at=f"   8{n}.000000", what=f"{n + 1:>10} {name}: ") for n, name in enumerate(names)
    )
    taken = read(tmp_path, text)
    assert taken.events == (
        "cpu-clock", "sched:sched_switch", "cycles:u", "cpu/event=0x3c,umask=0x0/", "cycles",
    )  # fmt: skip
    assert taken.event.tolist() == [0, 1, 2, 3, 4]
    assert taken.period.tolist() == [1, 2, 3, 4, 5]


def test_what_a_tracepoint_prints_is_no_part_of_names(tmp_path: pathlib.Path) -> None:
    what = "sched:sched_switch: prev_comm=x 1 [000] 5.000000: y prev_pid=3 ==> next_comm=z"
    taken = read(tmp_path, sample(what=what))
    assert taken.events == ("sched:sched_switch",)
    assert threads(taken) == ["app"]
    assert stack(taken, 0) == ["__libc_start_call_main", "work"]


@pytest.mark.parametrize("what", ["", "   4711 ", "cycles: ", "   4711 cycles:"])
@pytest.mark.parametrize("cpu", ["", "[003] "])
def test_fields_may_be_missing(tmp_path: pathlib.Path, what: str, cpu: str) -> None:
    taken = read(tmp_path, sample(what=what, cpu=cpu))
    assert taken.period.tolist() == [4711 if "4711" in what else 0]
    assert taken.events == ("cycles" if "cycles" in what else "samples",)
    assert taken.cpu.tolist() == [3 if cpu else -1]


def test_a_sample_may_have_no_stack(tmp_path: pathlib.Path) -> None:
    taken = read(tmp_path, sample(stack="") + "\n" + sample(at="   82.800000"))
    assert [stack(taken, 0), stack(taken, 1)] == [[], ["__libc_start_call_main", "work"]]
    assert not any("not understood" in note for note in taken.notes)


def test_source_lines_between_frames_are_passed_over(tmp_path: pathlib.Path) -> None:
    lines = "\t           9b0c2 work (/a)\n  app.c:12\n\t           9b0c3 main (/a)\n  app.c:99\n"
    taken = read(tmp_path, sample(stack=lines))
    assert stack(taken, 0) == ["main", "work"]
    assert not any("not understood" in note for note in taken.notes)


def test_a_process_has_the_name_of_its_main_thread(tmp_path: pathlib.Path) -> None:
    text = sample("worker 1", "  100/101  ") + sample("server", "  100/100  ", at="   83.000000")
    taken = read(tmp_path, text + sample("lonely", "  200/201  ", at="   84.000000"))
    assert taken.tasks.process == ["server", "server", ""]
    assert not any("process" in note for note in taken.notes)


def test_lost_samples_are_counted_and_other_records_passed_over(tmp_path: pathlib.Path) -> None:
    text = (
        "find  9378 [000]  1622.487853: PERF_RECORD_LOST lost 2\n"
        "find  9378 [000]  1622.487854: PERF_RECORD_COMM: process_api:1/1\n"
        + sample()
        + "find  9378 [000]  1622.487855: PERF_RECORD_LOST_SAMPLES lost 40\n"
    )
    taken = read(tmp_path, text)
    assert taken.lost == 42
    assert len(taken.time) == 1
    assert not any("not understood" in note for note in taken.notes)


def test_the_header_names_host_cores_and_frequency(tmp_path: pathlib.Path) -> None:
    taken = read(tmp_path, HEADER + sample(at="   82.000000") + sample(at="   83.500000"))
    assert (taken.host, taken.cores, taken.frequency) == ("web-7", (0, 1, 2, 3), 97)
    closed = time.mktime((2026, 11, 15, 6, 26, 59, 0, 0, -1))
    assert int(taken.time[-1]) == round(closed) * 10**9
    assert int(taken.time[0]) == int(taken.time[-1]) - 1_500_000_000
    assert any("approximate" in note and "captured on" in note for note in taken.notes)
    assert perfscript.read(tmp_path / "capture.txt", "given").host == "given"


def test_cores_asked_for_are_the_cores(tmp_path: pathlib.Path) -> None:
    header = HEADER.replace("-a -g", "-C 1,3-4 -g")
    assert read(tmp_path, header + sample()).cores == (1, 3, 4)
    beyond = read(tmp_path, HEADER + sample(cpu="[009] "))
    assert beyond.cores == (9,)
    assert any("on-line" in note for note in beyond.notes)


def test_a_reference_time_makes_the_wall_clock_exact(tmp_path: pathlib.Path) -> None:
    reference = (
        "# clockid: monotonic (1)\n# reference time: 2026-11-15 06:32:02.521950 = "
        "1794724322.521950 (TOD) = 1621.525209254 (monotonic)\n"
    )
    taken = read(tmp_path, reference + sample(at=" 1622.525209"))
    assert int(taken.time[0]) == 1794724322_521950000 + 999_999_746
    assert not any("approximate" in note for note in taken.notes)


def test_without_a_header_the_file_time_is_the_end(tmp_path: pathlib.Path) -> None:
    taken = read(tmp_path, sample())
    assert int(taken.time[-1]) == MTIME
    assert (taken.host, taken.cores) == ("unknown", ())
    assert any("approximate" in note for note in taken.notes)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_compression_is_told_by_content(tmp_path: pathlib.Path, pack: object) -> None:
    assert callable(pack)
    plain = (sample() + sample(at="   83.000000")).encode()
    taken = read(tmp_path, pack(plain) + pack(plain))
    assert len(taken.time) == 4


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_a_compressed_file_cut_short_keeps_what_it_holds(
    tmp_path: pathlib.Path, pack: object
) -> None:
    assert callable(pack)
    noise = "".join(sample(f"t{n * 7919 % 10007}", f"{n:>5}") for n in range(20_000))
    packed = pack(noise.encode())
    taken = read(tmp_path, packed[: len(packed) * 3 // 4])
    assert 1000 < len(taken.time) < 20_000
    assert any("ends too early" in note for note in taken.notes)


@pytest.mark.parametrize("cut", range(3, len(sample("b"))))
def test_a_sample_that_the_end_cuts_is_left_out(tmp_path: pathlib.Path, cut: int) -> None:
    text = sample() + sample("b")[:-cut]
    taken = read(tmp_path, text)
    whole_lines = text.endswith("\n")
    assert any("ends within a line" in note for note in taken.notes) is not whole_lines
    if not whole_lines:
        assert threads(taken) == ["app"]


def test_lines_that_mean_nothing_are_counted(tmp_path: pathlib.Path) -> None:
    taken = read(tmp_path, sample() + "what is this\n\n" + sample("b") + "\n\tffff stray\n")
    assert threads(taken) == ["app", "b"]
    first = len(sample().encode())
    assert f"2 lines were not understood and left out, the first at byte {first}" in taken.notes


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


def test_lines_of_spaces_are_passed_over_quickly(tmp_path: pathlib.Path) -> None:
    begin = time.process_time()
    taken = read(tmp_path, sample() + (" " * 900_000 + "x\n\n") * 20 + sample("b"))
    assert threads(taken) == ["app", "b"]
    assert time.process_time() - begin < 1


def test_names_may_not_fill_the_memory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "NAMES_LIMIT", 100_000)
    text = "".join(sample(stack=f"\t1f f{n}{'x' * 5000} (/a)\n") for n in range(30))
    with pytest.raises(errors.DamagedFileError, match="names of 100000 bytes"):
        read(tmp_path, text)


def test_forgetting_what_was_met_changes_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(
        sample(f"t{n % 3}", at=f"{n:>5}.000000", stack=(USER, IDLE, SOFTIRQ_ON_IDLE)[n % 3])
        for n in range(60)
    )
    usual = read(tmp_path, text)
    monkeypatch.setattr(perfscript, "CACHE_BYTES", 400)
    forgetful = read(tmp_path, text)
    assert threads(forgetful) == threads(usual)
    assert [stack(forgetful, n) for n in range(60)] == [stack(usual, n) for n in range(60)]
    assert len(forgetful.frames.name) == len(usual.frames.name)


def test_lines_may_end_as_elsewhere(tmp_path: pathlib.Path) -> None:
    text = (HEADER + sample("a") + sample("b", stack=IDLE)).replace("\n", "\r\n")
    taken = read(tmp_path, text)
    assert threads(taken) == ["a", "b"]
    assert stack(taken, 1) == ["common_startup_64", "do_idle", "pv_native_safe_halt"]
    assert taken.frames.module[-1] == "[kernel]"
    assert (taken.host, taken.events) == ("web-7", ("cpu-clock",))
    assert not any("not understood" in note for note in taken.notes)


def test_functions_without_addresses_stay_apart(tmp_path: pathlib.Path) -> None:
    taken = read(tmp_path, sample(stack="\tleaf+0x1 (/a)\n\troot+0x1 (/a)\n"))
    assert stack(taken, 0) == ["root", "leaf"]


def test_sniff_knows_its_own() -> None:
    assert perfscript.sniff(HEADER.encode())
    assert perfscript.sniff(b"# comment\n" + sample("a [b] c: d").encode())
    assert not perfscript.sniff(b"main;work;leaf 12\nmain;other 3\n")
    assert not perfscript.sniff(b"")


def test_identical_stacks_of_many_samples_are_kept_once(tmp_path: pathlib.Path) -> None:
    text = "".join(sample(at=f"{n:>5}.000000") for n in range(500))
    moved = USER.replace("9b0c2", "9b0c3").replace("0x12", "0x13")
    taken = read(tmp_path, text + sample(stack=moved))
    assert len(taken.time) == 501
    assert len(taken.stacks.offset) == 2
    assert len(taken.frames.name) == 2


GOOD = (HEADER + sample() + sample("foo 123 bar", "  7/8    ", stack=SOFTIRQ_ON_IDLE) * 2).encode()


def reads_or_refuses(folder: pathlib.Path, data: bytes) -> None:
    try:
        taken = read(folder, data)
    except errors.DamagedFileError:
        return
    assert len(taken.time) > 0
    assert (np.diff(taken.time) >= 0).all()
    assert taken.stacks.offset[-1] == len(taken.stacks.frame)
    assert taken.stack.max() < len(taken.stacks.offset) - 1
    assert taken.task.max() < len(taken.tasks.thread)
    assert taken.event.max() < len(taken.events)


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
def test_lines_much_like_samples_are_read_or_refused(
    folder: pathlib.Path, lines: list[str]
) -> None:
    reads_or_refuses(folder, "\n".join(lines).encode())
