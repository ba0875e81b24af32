"""Files of other tools are recognised by content, imported and queried."""

from __future__ import annotations

import dataclasses
import gzip
import io
import os
import pathlib

import captures
import folding
import pytest
import zstandard

from overnight import errors
from overnight.app import imports
from overnight.model.flame import Frame
from overnight.queries import flame, reader
from overnight.reports import collapsed, pprof
from overnight.store import segments, writer

SCRIPT = """\
nginx     10/11  [001]  1000.000100:   10309278 cpu-clock:ppp:
\t    55d0c0de work+0x1f (/usr/bin/nginx)
\t    55d0c000 main+0x10 (/usr/bin/nginx)

nginx     10/11  [001]  1000.010100:   10309278 cpu-clock:ppp:
\t    55d0c0de work+0x1f (/usr/bin/nginx)
\t    55d0c000 main+0x10 (/usr/bin/nginx)

swapper     0/0  [000]  1000.020100:   10309278 cpu-clock:ppp:
\tffffffff821f1eab pv_native_safe_halt+0xb ([kernel.kallsyms])

"""
FOLDED = folding.fold(
    title="t", host="web", begin_ns=captures.NIGHT, end_ns=captures.NIGHT + captures.SECOND,
    frequency=100, cores=(0,), event="cpu-clock",
    stacks=(
        ((Frame("nginx"), Frame("main"), Frame("work")), 2),
        ((Frame("nginx"), Frame("main"), Frame("tcp_sendmsg", "", 1)), 3),
    ),
)  # fmt: skip


def render(writer_: object) -> bytes:
    buffer = io.BytesIO()
    writer_.write(FOLDED, buffer)  # type: ignore[attr-defined]
    return buffer.getvalue()


FILES = {
    "perf script": (SCRIPT.encode(), 2, 3),
    "collapsed": (render(collapsed), 5, 5),
    "pprof": (gzip.decompress(render(pprof)), 5, None),
}


def query_flame(home: pathlib.Path) -> flame.FlameTree:
    source = reader.Reader(segments.Catalogue(home))
    return flame.flame(source, source.extent())


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("packed", ["plain", "gzip", "zstd"])
def test_a_format_is_recognised_by_its_content(
    tmp_path: pathlib.Path, kind: str, packed: str
) -> None:
    data, busy, samples = FILES[kind]
    if packed == "gzip":
        data = gzip.compress(data)
    elif packed == "zstd":
        data = zstandard.ZstdCompressor().compress(data)
    path = tmp_path / "misnamed.data"
    path.write_bytes(data)
    (imported,) = imports.import_files(tmp_path / "home", [path], imports.Options(host="web-7"))
    assert (imported.format, imported.host, imported.path, imported.lost) == (
        kind,
        "web-7",
        str(path),
        0,
    )
    assert imported.segments == 1
    assert samples is None or imported.samples == samples
    assert imported.begin_us <= imported.end_us
    tree = query_flame(tmp_path / "home")
    assert tree.coverage.samples == busy
    assert {"main", "work"} <= set(tree.names)


def test_the_same_file_twice_changes_nothing(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.perf"
    path.write_text(SCRIPT)
    first, again = imports.import_files(tmp_path / "home", [path, path])
    assert (first.known, again.known) == (False, True)
    assert dataclasses.replace(again, known=False) == first
    assert query_flame(tmp_path / "home").coverage.samples == 2
    assert query_flame(tmp_path / "home").coverage.idle == 1


def test_two_collapsed_files_with_the_same_time_are_both_kept(tmp_path: pathlib.Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"app;main;{name} 4\n")
        os.utime(tmp_path / name, ns=(captures.NIGHT, captures.NIGHT))
    list(imports.import_files(tmp_path / "home", [tmp_path / "a", tmp_path / "b"]))
    assert query_flame(tmp_path / "home").coverage.samples == 8


def test_an_unknown_format_is_an_error(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"\xff\xd8\xff\xe0" * 100)
    with pytest.raises(errors.CannotError, match="has an unknown format") as caught:
        list(imports.import_files(tmp_path / "home", [path]))
    assert all(name in caught.value.todo for name in imports.format_names())
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("kind", ["", "collapsed", "perf.data"])
def test_a_missing_file_is_an_error(tmp_path: pathlib.Path, kind: str) -> None:
    path = tmp_path / "gone"
    with pytest.raises(errors.CannotError, match="cannot be read") as caught:
        list(imports.import_files(tmp_path / "home", [path], imports.Options(kind=kind)))
    assert caught.value.why == "No such file or directory"


def test_a_named_format_is_not_guessed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "one-line"
    path.write_text("a 1\n")  # too little to be recognised
    with pytest.raises(errors.CannotError):
        list(imports.import_files(tmp_path / "home", [path]))
    (imported,) = imports.import_files(tmp_path / "home", [path], imports.Options(kind="collapsed"))
    assert imported.samples == 1
    for kind in ("pprof", "perf.data", "perf script"):
        with pytest.raises(errors.DamagedFileError):
            list(imports.import_files(tmp_path / "home", [path], imports.Options(kind=kind)))
    with pytest.raises(errors.UsageError, match="no format 'jfr'"):
        list(imports.import_files(tmp_path / "home", [path], imports.Options(kind="jfr")))


def test_names_of_formats() -> None:
    assert imports.format_names() == (
        "perf.data", "collapsed", "perf script", "pprof", "dmesg", "journal", "sadf", "sysstat",
    )  # fmt: skip


@pytest.mark.parametrize("damage", ["?", "PERFILE2" + "x" * 200])
def test_one_bad_file_and_nothing_is_stored(tmp_path: pathlib.Path, damage: str) -> None:
    log, good, bad = tmp_path / "dmesg", tmp_path / "good", tmp_path / "zbad"
    log.write_text(
        "2026-11-15T03:14:07,000000+00:00 ena 0000:00:05.0 eth0: Keep alive watchdog timeout.\n"
    )
    good.write_text(SCRIPT)
    bad.write_text(damage)
    options = imports.Options(host="db-7")
    with pytest.raises(errors.CannotError, match="zbad"):
        list(imports.import_files(tmp_path / "home", [log, good, bad], options))
    assert not (tmp_path / "home").exists()
    imported = list(imports.import_files(tmp_path / "home", [log, good], options))
    assert len(imported) == 2
    assert query_flame(tmp_path / "home").coverage.samples == 2


def test_a_store_that_cannot_be_written_is_an_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.perf"
    path.write_text(SCRIPT)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "write_capture", full)
    with pytest.raises(errors.CannotError, match="cannot store") as caught:
        list(imports.import_files(tmp_path / "home", [path]))
    assert caught.value.why.startswith("No space left on device; ")
    assert caught.value.why.endswith(f" MB are free in {tmp_path}")


def test_unreadable_kallsyms_are_an_error(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "perf.data"
    path.write_bytes(b"PERFILE2" + bytes(200))
    with pytest.raises(errors.CannotError, match="kallsyms cannot be read"):
        list(imports.import_files(tmp_path / "home", [path], kallsyms=tmp_path / "kallsyms"))
    with pytest.raises(errors.DamagedFileError):
        list(imports.import_files(tmp_path / "home", [path], root=tmp_path))
