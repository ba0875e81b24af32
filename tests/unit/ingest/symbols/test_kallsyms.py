from __future__ import annotations

import pathlib
import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from overnight.ingest.symbols import kallsyms

SAMPLE = b"""\
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000040 t do_one_initcall
ffffffff81000100 r some_constant
ffffffff81000200 W weak_function
ffffffff81000300 D a_variable
ffffffffc0201000 t nf_ct_get_tuple\t[nf_conntrack]
ffffffffc0201100 T nf_conntrack_in\t[nf_conntrack]
ffffffffc0300000 t $x\t[arm]
ffffffffc0345678 t bpf_prog_6deef7357e7b4530_sd_fw_egress\t[bpf]
"""


def resolve(text: bytes, *addresses: int) -> list[tuple[str, str] | None]:
    kernel = kallsyms.parse_kallsyms(text)
    return [
        (kernel.functions.name(i), kernel.modules[kernel.module_of[i]]) if i >= 0 else None
        for i in kernel.functions.find(np.array(addresses, np.uint64)).tolist()
    ]


def test_functions_of_the_kernel_its_modules_and_bpf_programs() -> None:
    assert resolve(
        SAMPLE, 0xFFFFFFFF81000047, 0xFFFFFFFF81000201, 0xFFFFFFFFC0201001, 0xFFFFFFFFC0345680
    ) == [
        ("do_one_initcall", "[kernel]"),
        ("weak_function", "[kernel]"),
        ("nf_ct_get_tuple", "[nf_conntrack]"),
        ("bpf_prog_6deef7357e7b4530_sd_fw_egress", "[bpf]"),
    ]


def test_the_last_alias_counts() -> None:
    assert resolve(SAMPLE, 0xFFFFFFFF81000000) == [("_text", "[kernel]")]


def test_read_only_data_is_not_a_function() -> None:
    assert resolve(SAMPLE, 0xFFFFFFFF81000100) == [("do_one_initcall", "[kernel]")]


def test_addresses_between_kernel_and_modules_have_no_name() -> None:
    assert resolve(SAMPLE, 0xFFFFFFFF90000000, 0xFFFFFFFFC0280000, 0xFFFFFFFF80000000) == [None] * 3


def test_addresses_hidden_by_the_kernel_give_nothing() -> None:
    hidden = b"".join(b"0" * 16 + line[16:] + b"\n" for line in SAMPLE.splitlines())
    assert len(kallsyms.parse_kallsyms(hidden).functions) == 0
    assert kallsyms.parse_kallsyms(b"").modules == ("[kernel]",)


def test_invalid_lines_are_skipped() -> None:
    noise = b"\nffff\nzzzzzzzz81000000 T bad\nffffffff81000050 T\n\xff\xfe\n" + b"x" * 99 + b"\n"
    assert resolve(noise + SAMPLE, 0xFFFFFFFF81000060) == [("do_one_initcall", "[kernel]")]
    assert resolve(SAMPLE.rstrip(b"\n"), 0xFFFFFFFFC0345680) == resolve(SAMPLE, 0xFFFFFFFFC0345680)


@example(b"\0", SAMPLE.index(b"nf_ct_get_tuple"))  # a name of no characters
@given(st.binary(max_size=300), st.integers(0, len(SAMPLE)))
def test_any_bytes_can_be_read(noise: bytes, place: int) -> None:
    kernel = kallsyms.parse_kallsyms(SAMPLE[:place] + noise + SAMPLE[place:])
    assert len(kernel.module_of) == len(kernel.functions)
    assert all(kernel.functions.name(i) for i in range(len(kernel.functions)))


def test_a_missing_kallsyms_file_gives_none(tmp_path: pathlib.Path) -> None:
    assert kallsyms.read_kallsyms(tmp_path) is None


@pytest.mark.needs_root
def test_this_kernel_is_parsed_quickly() -> None:
    text = kallsyms.read_kallsyms()
    assert text is not None
    begin = time.process_time()
    kernel = kallsyms.parse_kallsyms(text)
    assert time.process_time() - begin < 1
    assert len(kernel.functions) > 10_000
    starts = kernel.functions.start
    assert bool((starts[1:] > starts[:-1]).all())
