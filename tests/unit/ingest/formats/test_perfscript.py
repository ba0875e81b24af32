from __future__ import annotations

import pathlib
import time

import numpy as np
import pytest
from perftexts import HEADER, IDLE, MTIME, SOFTIRQ_ON_IDLE, read, sample, stack, threads

from overnight.ingest.formats import perfscript


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
    assert not any("unknown lines" in note for note in taken.notes)
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


def test_tracepoint_output_is_not_part_of_names(tmp_path: pathlib.Path) -> None:
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
    assert not any("unknown lines" in note for note in taken.notes)


def test_source_lines_between_frames_are_passed_over(tmp_path: pathlib.Path) -> None:
    lines = "\t           9b0c2 work (/a)\n  app.c:12\n\t           9b0c3 main (/a)\n  app.c:99\n"
    taken = read(tmp_path, sample(stack=lines))
    assert stack(taken, 0) == ["main", "work"]
    assert not any("unknown lines" in note for note in taken.notes)


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
    assert not any("unknown lines" in note for note in taken.notes)


def test_the_header_names_host_cores_and_frequency(tmp_path: pathlib.Path) -> None:
    taken = read(tmp_path, HEADER + sample(at="   82.000000") + sample(at="   83.500000"))
    assert (taken.host, taken.cores, taken.frequency) == ("web-7", (0, 1, 2, 3), 97)
    closed = time.mktime((2026, 11, 15, 6, 26, 59, 0, 0, -1))
    assert int(taken.time[-1]) == round(closed) * 10**9
    assert int(taken.time[0]) == int(taken.time[-1]) - 1_500_000_000
    assert any("approximate" in note and "captured on" in note for note in taken.notes)
    assert perfscript.read(tmp_path / "capture.txt", "given").host == "given"


def test_the_requested_cores_are_the_cores(tmp_path: pathlib.Path) -> None:
    header = HEADER.replace("-a -g", "-C 1,3-4 -g")
    assert read(tmp_path, header + sample()).cores == (1, 3, 4)
    beyond = read(tmp_path, HEADER + sample(cpu="[009] "))
    assert beyond.cores == (9,)
    assert any("off-line" in note for note in beyond.notes)


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
