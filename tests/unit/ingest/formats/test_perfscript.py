from __future__ import annotations

import pathlib
import time

import numpy as np
import pytest
from perftexts import HEADER, IDLE, MTIME, SOFTIRQ_ON_IDLE, read, sample, stack, threads

from overnight.ingest.formats import perfscript


def test_all_fields_of_a_sample_are_read(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, sample())
    assert threads(parsed) == ["app"]
    assert stack(parsed, 0) == ["__libc_start_call_main", "work"]
    assert parsed.frames.module == ["/usr/lib/libc.so.6", "/opt/app/bin/app"]
    assert parsed.cpu.tolist() == [1]
    assert parsed.period.tolist() == [10309278]
    assert parsed.count.tolist() == [1]
    assert parsed.events == ("cpu-clock",)
    assert parsed.tasks.tid.tolist() == [123]
    assert parsed.tasks.pid.tolist() == [-1]
    assert parsed.frequency == 97
    assert parsed.timed
    assert parsed.begin <= int(parsed.time[0]) < parsed.end
    assert parsed.time.dtype == np.int64
    assert parsed.stack.dtype == np.uint32
    assert parsed.period.dtype == np.uint64


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
    parsed = read(tmp_path, sample(comm, ids) + sample(comm, ids, at="   83.000001"))
    assert threads(parsed) == [comm, comm]
    assert not any("unknown lines" in note for note in parsed.notes)
    first, _, second = ids.strip().partition("/")
    assert parsed.tasks.tid.tolist() == [int(second or first)]
    assert parsed.tasks.pid.tolist() == [int(first) if second else -1]


def test_names_are_padded_to_16_when_there_are_no_stacks(tmp_path: pathlib.Path) -> None:
    text = (
        "            perf  8161/8161   1320.984917253: page-faults:      5606934eb43d [unknown] (/usr/bin/perf)\n"
        "     Web Content     7/9      1320.984957623: page-faults:  ffffffff821ec1ad __put_user_4 ([kernel.kallsyms])\n"
    )
    parsed = read(tmp_path, text)
    assert threads(parsed) == ["perf", "Web Content"]
    assert [stack(parsed, 0), stack(parsed, 1)] == [["[unknown]"], ["__put_user_4"]]
    assert parsed.frames.module == ["/usr/bin/perf", "[kernel]"]
    assert parsed.frames.kind.tolist() == [0, 1]
    assert parsed.cpu.tolist() == [-1, -1]
    assert int(parsed.time[1]) - int(parsed.time[0]) == 40_370
    assert parsed.period.tolist() == [0, 0]


def test_squeezed_spaces_do_not_cut_a_name(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, "swapper 0 [000] 82.739145: 1 cycles:\n" + IDLE)
    assert threads(parsed) == ["swapper"]
    assert parsed.tasks.pid.tolist() == [0]


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
def test_a_function_name_is_complete(
    tmp_path: pathlib.Path, line: str, name: str, module: str, kind: int
) -> None:
    parsed = read(tmp_path, sample(stack=f"\t{line}\n"))
    assert stack(parsed, 0) == [name]
    assert parsed.frames.module == [module]
    assert parsed.frames.kind.tolist() == [kind]


def test_an_inlined_function_has_the_module_of_the_function_below_it(
    tmp_path: pathlib.Path,
) -> None:
    text = (
        "\tffffffff81 in (inlined)\n\tffffffff81000000 out+0x2 ([kernel.kallsyms])\n\t 1f m (/a)\n"
    )
    parsed = read(tmp_path, sample(stack=text))
    assert stack(parsed, 0) == ["m", "out", "in"]
    assert parsed.frames.module == ["/a", "[kernel]", "[kernel]"]


def test_samples_out_of_order_are_sorted_even_the_last(tmp_path: pathlib.Path) -> None:
    text = sample("a", at="   83.000000") + sample("b", at="   84.000000")
    parsed = read(tmp_path, text + sample("c", at="   82.000000"))
    assert threads(parsed) == ["c", "a", "b"]
    assert np.diff(parsed.time).tolist() == [10**9, 10**9]


def test_idle_stacks_and_work_on_top_of_idle_are_kept(tmp_path: pathlib.Path) -> None:
    idle = sample("swapper", "    0", stack=IDLE)
    parsed = read(tmp_path, idle + sample("swapper", "    0", stack=SOFTIRQ_ON_IDLE))
    assert stack(parsed, 0) == ["common_startup_64", "do_idle", "pv_native_safe_halt"]
    assert stack(parsed, 1)[-2:] == ["__do_softirq", "net_rx_action"]
    assert parsed.tasks.process == ["swapper"]


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
    parsed = read(tmp_path, text)
    assert parsed.events == (
        "cpu-clock", "sched:sched_switch", "cycles:u", "cpu/event=0x3c,umask=0x0/", "cycles",
    )  # fmt: skip
    assert parsed.event.tolist() == [0, 1, 2, 3, 4]
    assert parsed.period.tolist() == [1, 2, 3, 4, 5]


def test_tracepoint_output_is_not_part_of_names(tmp_path: pathlib.Path) -> None:
    what = "sched:sched_switch: prev_comm=x 1 [000] 5.000000: y prev_pid=3 ==> next_comm=z"
    parsed = read(tmp_path, sample(what=what))
    assert parsed.events == ("sched:sched_switch",)
    assert threads(parsed) == ["app"]
    assert stack(parsed, 0) == ["__libc_start_call_main", "work"]


@pytest.mark.parametrize("what", ["", "   4711 ", "cycles: ", "   4711 cycles:"])
@pytest.mark.parametrize("cpu", ["", "[003] "])
def test_fields_may_be_missing(tmp_path: pathlib.Path, what: str, cpu: str) -> None:
    parsed = read(tmp_path, sample(what=what, cpu=cpu))
    assert parsed.period.tolist() == [4711 if "4711" in what else 0]
    assert parsed.events == ("cycles" if "cycles" in what else "samples",)
    assert parsed.cpu.tolist() == [3 if cpu else -1]


def test_a_sample_may_have_no_stack(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, sample(stack="") + "\n" + sample(at="   82.800000"))
    assert [stack(parsed, 0), stack(parsed, 1)] == [[], ["__libc_start_call_main", "work"]]
    assert not any("unknown lines" in note for note in parsed.notes)


def test_source_lines_between_frames_are_skipped(tmp_path: pathlib.Path) -> None:
    lines = "\t           9b0c2 work (/a)\n  app.c:12\n\t           9b0c3 main (/a)\n  app.c:99\n"
    parsed = read(tmp_path, sample(stack=lines))
    assert stack(parsed, 0) == ["main", "work"]
    assert not any("unknown lines" in note for note in parsed.notes)


def test_a_process_has_the_name_of_its_main_thread(tmp_path: pathlib.Path) -> None:
    text = sample("worker 1", "  100/101  ") + sample("server", "  100/100  ", at="   83.000000")
    parsed = read(tmp_path, text + sample("lonely", "  200/201  ", at="   84.000000"))
    assert parsed.tasks.process == ["server", "server", ""]
    assert not any("process" in note for note in parsed.notes)


def test_lost_samples_are_counted_and_other_records_skipped(tmp_path: pathlib.Path) -> None:
    text = (
        "find  9378 [000]  1622.487853: PERF_RECORD_LOST lost 2\n"
        "find  9378 [000]  1622.487854: PERF_RECORD_COMM: process_api:1/1\n"
        + sample()
        + "find  9378 [000]  1622.487855: PERF_RECORD_LOST_SAMPLES lost 40\n"
    )
    parsed = read(tmp_path, text)
    assert parsed.lost == 42
    assert len(parsed.time) == 1
    assert not any("unknown lines" in note for note in parsed.notes)


def test_the_header_names_host_cores_and_frequency(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, HEADER + sample(at="   82.000000") + sample(at="   83.500000"))
    assert (parsed.host, parsed.cores, parsed.frequency) == ("web-7", (0, 1, 2, 3), 97)
    closed = time.mktime((2026, 11, 15, 6, 26, 59, 0, 0, -1))
    assert int(parsed.time[-1]) == round(closed) * 10**9
    assert int(parsed.time[0]) == int(parsed.time[-1]) - 1_500_000_000
    assert any("approximate" in note and "captured on" in note for note in parsed.notes)
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
    parsed = read(tmp_path, reference + sample(at=" 1622.525209"))
    assert int(parsed.time[0]) == 1794724322_521950000 + 999_999_746
    assert not any("approximate" in note for note in parsed.notes)


def test_without_a_header_the_file_time_is_the_end(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, sample())
    assert int(parsed.time[-1]) == MTIME
    assert (parsed.host, parsed.cores) == ("unknown", ())
    assert any("approximate" in note for note in parsed.notes)
