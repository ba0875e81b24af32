from __future__ import annotations

import os
import pathlib
import platform
import signal
import subprocess

import numpy as np
import pytest

from overnight.ingest.symbols import elf, files, resolver
from overnight.model.unknown import Why

AT = 0x1000
KERNEL = b"ffffffff81000000 T do_idle\nffffffffc0201000 t nf_hook\t[nf_conntrack]\n"


def offsets(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def by_address(named: resolver.Named) -> list[str]:
    return [named.names[i] for i in named.which.tolist()]


def make(folder: pathlib.Path, **options: object) -> resolver.Resolver:
    return resolver.Resolver(KERNEL, files.LiveFiles(root=folder).find, **options)


def test_each_address_gets_a_name_and_each_function_appears_once(
    elf_maker, symbol, tmp_path
) -> None:
    (tmp_path / "app").write_bytes(elf_maker([symbol("a", AT), symbol("b", AT + 64)]))
    named = make(tmp_path).resolve("/app", offsets(AT + 65, AT, AT + 3, 5, AT + 64))
    assert by_address(named) == ["b", "a", "a", "[unknown]", "b"]
    assert sorted(named.names) == ["[unknown]", "a", "b"]
    assert set(named.modules) == {"/app"}


def test_kernel_functions_come_with_their_modules(tmp_path) -> None:
    named = make(tmp_path).resolve_kernel(offsets(0xFFFFFFFF81000010, 0xFFFFFFFFC0201010, 1))
    functions = [(named.names[i], named.modules[i]) for i in named.which.tolist()]
    assert functions == [
        ("do_idle", "[kernel]"),
        ("nf_hook", "[nf_conntrack]"),
        ("[unknown]", "[kernel]"),
    ]


def test_a_kernel_without_symbols_is_a_problem(tmp_path) -> None:
    lookup = resolver.Resolver(None, files.LiveFiles(root=tmp_path).find)
    assert by_address(lookup.resolve_kernel(offsets(1))) == ["[unknown]"]
    assert lookup.problems == {"[kernel]": Why.NO_KALLSYMS}


def test_jit_code_is_named_by_address(tmp_path) -> None:
    lookup = make(tmp_path, perf_map=lambda pid: b"1000 10 jitted" if pid == 7 else None)
    assert by_address(lookup.resolve("/tmp/perf-7.map", offsets(0x1008, 0x1010))) == [
        "jitted",
        "[unknown]",
    ]
    assert by_address(lookup.resolve("/tmp/perf-8.map", offsets(0x1008))) == ["[unknown]"]
    assert lookup.problems == {"/tmp/perf-8.map": Why.NO_JIT_MAP}


def test_files_that_are_missing_or_damaged_are_named_in_problems(tmp_path) -> None:
    (tmp_path / "text").write_text("no program")
    lookup = make(tmp_path)
    for module in ("/gone", "/text", "[heap]", "", "//anon", "/nul\0", "/" + "long" * 2000):
        assert by_address(lookup.resolve(module, offsets(0, 2**64 - 1))) == ["[unknown]"] * 2
    expected = {"/gone": Why.FILE_GONE, "/text": Why.DAMAGED}
    assert expected.items() <= lookup.problems.items()


def test_a_file_without_permission_is_not_called_gone(tmp_path, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "secret").write_bytes(b"")
    (tmp_path / "proc/7").mkdir(parents=True)  # its root belongs to another user
    lookup = make(tmp_path)
    lookup.resolve("/of-a-container", offsets(AT), 7)
    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(files, "_is_inside", lambda *_: True)
    lookup.resolve("/secret", offsets(AT))
    assert lookup.problems == dict.fromkeys(("/of-a-container", "/secret"), Why.NO_PERMISSION)


def test_no_addresses_give_no_names(tmp_path) -> None:
    assert by_address(make(tmp_path).resolve("/gone", offsets())) == []


def test_tables_are_read_once_and_dropped_when_there_are_too_many(
    elf_maker, symbol, tmp_path, monkeypatch
) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(elf_maker([symbol(name, AT)]))
    table_bytes = elf.read_elf_symbols(tmp_path / "a").nbytes + resolver.TABLE_COST
    read = []
    real = elf.read_elf_symbols

    def reading(path: pathlib.Path, **options: object) -> object:
        read.append(path.name)
        return real(path, **options)

    monkeypatch.setattr(elf, "read_elf_symbols", reading)
    monkeypatch.setattr(resolver, "MAX_KEPT", 2 * table_bytes)
    lookup = make(tmp_path)
    for module in ("/a", "/b", "/a", "/c", "/a", "/b"):
        assert by_address(lookup.resolve(module, offsets(AT))) == [module[1:]]
    assert read == ["a", "b", "c", "b"]


def test_containers_have_different_files_under_the_same_path(elf_maker, symbol, tmp_path) -> None:
    for pid in (41, 42):
        inside = tmp_path / f"proc/{pid}/root/app"
        inside.parent.mkdir(parents=True)
        inside.write_bytes(elf_maker([symbol(f"in_{pid}", AT)]))
    lookup = make(tmp_path)
    assert by_address(lookup.resolve("/app", offsets(AT), 41)) == ["in_41"]
    assert by_address(lookup.resolve("/app", offsets(AT), 42)) == ["in_42"]
    assert by_address(lookup.resolve("/app", offsets(AT), 41)) == ["in_41"]
    assert by_address(lookup.resolve("/app", offsets(AT), 43)) == ["[unknown]"]


def test_a_file_is_read_from_the_root_of_the_process(elf_maker, symbol, tmp_path) -> None:
    inside = tmp_path / "proc/41/root/srv/app"
    inside.parent.mkdir(parents=True)
    inside.write_bytes(elf_maker([symbol("in_container", AT)], build_id=b"\x01" * 20))
    outside = tmp_path / "srv/app"
    outside.parent.mkdir()
    outside.write_bytes(elf_maker([symbol("on_host", AT)], build_id=b"\x02" * 20))
    live = files.LiveFiles(root=tmp_path)
    assert live.find("/srv/app", 41) == inside
    assert live.find("/srv/app", 42) == outside
    assert live.find("/srv/app", 41, "02" * 20) == outside
    assert live.find("/srv/app", 41, "03" * 20) is None


def test_a_file_that_was_replaced_since_the_recording_has_no_names(
    elf_maker, symbol, tmp_path
) -> None:
    (tmp_path / "app").write_bytes(elf_maker([symbol("new", AT)], build_id=b"\x02" * 32))
    lookup = make(tmp_path)
    assert by_address(lookup.resolve("/app", offsets(AT), 7, "01" * 20)) == ["[unknown]"]
    assert lookup.problems == {"/app": Why.FILE_GONE}
    for recorded in ("", "02" * 20):  # perf records at most 20 bytes
        assert by_address(lookup.resolve("/app", offsets(AT), 7, recorded)) == ["new"]


def test_a_perf_map_is_found_under_the_pid_inside_the_container(tmp_path) -> None:
    inside = tmp_path / "proc/900/root/tmp/perf-7.map"
    inside.parent.mkdir(parents=True)
    inside.write_bytes(b"1000 10 jitted")
    (tmp_path / "proc/900/status").write_text("Name:\tnode\nNSpid:\t900\t7\n")
    live = files.LiveFiles(root=tmp_path)
    assert live.perf_map(900) == b"1000 10 jitted"
    assert live.perf_map(901) is None


def test_files_of_a_running_process_are_found() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            path = files.LiveFiles().find("/bin/sh", process.pid)
            assert path is not None
            assert str(process.pid) in str(path)
            assert path.samefile("/bin/sh")
        finally:
            process.send_signal(signal.SIGKILL)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="named otherwise elsewhere")
def test_the_vdso_of_this_process_has_names() -> None:
    image = files.read_vdso()
    assert image is not None
    symbols = elf.read_elf_symbols(image, name="[vdso]")
    names = [symbols.name(i) for i in range(len(symbols))]
    assert "__vdso_clock_gettime" in names
    start = int(symbols.start[names.index("__vdso_clock_gettime")])
    named = resolver.Resolver(None, lambda *_: None, image).resolve("[vdso]", offsets(start + 1))
    assert by_address(named) == ["__vdso_clock_gettime"]


def test_a_missing_vdso_gives_none(tmp_path) -> None:
    assert files.read_vdso(tmp_path) is None
