"""Every reader of files from elsewhere, to feed it damaged ones: it answers, or refuses with its own error.

Checksums, and the compression inside of the ring, would hide almost all code from changed bytes:
`ignoring_checksums` makes each checksum equal to every other, and stores those parts as they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import pathlib
import shutil
import tempfile
import types
import zlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

from overnight import errors
from overnight.app import imported_logs
from overnight.app import rules as app_rules
from overnight.app import snapshot as snapshots
from overnight.diagnosis import knowledge
from overnight.ingest import logs
from overnight.ingest import perfdata as ingest
from overnight.ingest.formats import collapsed, perfscript, pprof
from overnight.ingest.logs import dmesg, journal, sadf, sysstat
from overnight.ingest.symbols import cplusplus, demangle, elf, kallsyms, perfmap, table
from overnight.model import snapshot, times
from overnight.model.selection import Selection, Window
from overnight.queries import consumers, diff, flame, heatmap, processes, reader, samples, top, view
from overnight.sources.image import inventory, presets, unitfile
from overnight.sources.kernelrules import matcher, npd, rulefiles
from overnight.sources.perf import decode, perfdata
from overnight.store import check, hours, loads, parquet, parquet_writer, segments
from overnight.store.bundle import archive, header, unpacker
from overnight.store.ring import blocks, columns, layout, open_block
from overnight.store.ring import check as ring_check
from overnight.store.ring import reader as ring_reader

HOST = "db-7"
BEGIN_US = 1_794_725_459_000_000
EVER = 1 << 62
SYMBOLS = ingest.foreign_symbols(None, pathlib.Path("/nonexistent"))
RULES = tuple(rulefiles.built_in())
BUILT_IN = matcher.Matcher(RULES)
TABLES = {
    "nodes": {"frame": "u4", "up": "u4", "size": "u4", "hash": "u8", "flags": "u1", "own": "u8"},
    "frames": {"name": "U", "module": "U", "kind": "u1", "own": "u8", "whole": "u8"},
    "tasks": {
        "pid": "i4", "tid": "i4", "thread": "U", "process": "U", "unit": "U", "busy": "u8",
        "kernel": "u8", "idle": "u8", "row": "i4", "launcher": "U",
    },
    "samples": {
        "time_us": "i8", "cpu": "i2", "task": "u4", "node": "u4", "event": "u1", "count": "u4",
        "period": "u8",
    },
    "processes": {
        "pid": "i4", "parent": "i4", "started_us": "i8", "count": "u4", "name": "U", "comm": "U",
        "executable": "U", "command": "U", "user": "U", "cgroup": "U", "unit": "U", "container": "U",
        "pod": "U",
    },
    "spawns": {"launcher": "i4", "name": "U", "second": "i8", "count": "u4"},
}  # fmt: skip

# Two processes, five stacks, six samples; frames of kind 2 are processes, flag 2 is idle.
VALID: dict[str, Any] = {
    "nodes": {
        "frame": [0, 1, 2, 3, 4], "up": [0, 1, 1, 0, 1], "size": [3, 2, 1, 2, 1],
        "hash": [1, 2, 3, 4, 5], "flags": [0, 0, 0, 0, 2], "own": [0, 1, 3, 0, 2],
    },
    "frames": {
        "name": ["app", "main", "work", "swapper", "do_idle"], "module": ["", "a", "a", "", "[kernel]"],
        "kind": [2, 0, 0, 2, 1], "own": [0, 1, 3, 0, 0], "whole": [4, 4, 3, 0, 0],
    },
    "tasks": {
        "pid": [10, 0], "tid": [11, 0], "thread": ["app", "swapper"], "process": ["app", "swapper"],
        "unit": ["app.service", ""], "busy": [4, 0], "kernel": [0, 0], "idle": [0, 2],
        "row": [1, 0], "launcher": ["sh", ""],
    },
    "samples": {
        "time_us": [BEGIN_US + 300_000 * n for n in range(6)], "cpu": [0, 1, 0, 1, 0, 1],
        "task": [0, 0, 0, 0, 1, 1], "node": [1, 2, 2, 2, 4, 4], "event": [0] * 6, "count": [1] * 6,
        "period": [9] * 6,
    },
    "processes": {
        "pid": [0, 10], "parent": [-1, 0], "started_us": [0, BEGIN_US], "count": [1, 40],
        "name": ["sh", "app"], "comm": ["sh", "app"], "executable": ["", "/a"], "command": ["", "a b"],
        "user": ["", "root"], "cgroup": ["", "/c"], "unit": ["", "app.service"], "container": ["", ""],
        "pod": ["", ""],
    },
    "spawns": {
        "launcher": [0, 0], "name": ["app", "ls"], "second": [BEGIN_US // 10**6] * 2, "count": [40, 2],
    },
    "description": {},
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Reader:
    """`read` gets an empty folder and a file's content; it raises nothing but `refuses`."""

    read: Callable[[pathlib.Path, bytes], object]
    refuses: tuple[type[errors.OvernightError], ...] = ()


class _Number(int):
    __hash__ = int.__hash__

    def __eq__(self, _: object) -> bool:
        return True

    def __ne__(self, _: object) -> bool:
        return False


class _Text(str):
    __slots__ = ()
    __hash__ = str.__hash__
    __eq__, __ne__ = _Number.__eq__, _Number.__ne__


class _Digest:
    def __init__(self, *_: object, **__: object) -> None:
        pass

    def update(self, _: bytes) -> None:
        pass

    def digest(self) -> object:
        return _Text("")

    hexdigest = digest


@contextlib.contextmanager
def ignoring_checksums() -> Iterator[None]:
    checked = types.SimpleNamespace(**{**vars(zlib), "crc32": lambda *_: _Number(0)})
    plain = types.SimpleNamespace(**{**vars(checked), "compress": lambda data, *_: data})
    digests = types.SimpleNamespace(
        **{
            **vars(hashlib),
            "sha256": _Digest,
            "blake2b": _Digest,
            "file_digest": hashlib.file_digest,
        }
    )
    with contextlib.ExitStack() as stack:
        for module, name, value in (
            (blocks, "zlib", plain),
            (open_block, "zlib", plain),
            (columns, "inflate", lambda stored, most: stored[: max(1, most)]),
            (archive, "zlib", checked),
            (hours, "zlib", checked),
            (hours, "hashlib", digests),
            (header, "hashlib", digests),
            (unpacker, "hashlib", digests),
            # Its process of the C++ library is limited, and no part of what is tested.
            (cplusplus.WORKER, "_exchange", lambda names: [None] * len(names)),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _file(folder: pathlib.Path, name: str, data: bytes) -> pathlib.Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _read_perfdata(folder: pathlib.Path, data: bytes) -> None:
    path = _file(folder, "input", data)
    outcomes: list[object] = []
    with perfdata.open_perfdata(path, ingest._zstd) as file:
        for decoder in (perfdata.decode_stream, decode.decode):
            with mock.patch.object(perfdata, "decode_stream", decoder):
                try:
                    outcomes.append(file.decode())
                except errors.DamagedFileError as error:
                    outcomes.append(str(error))
    assert outcomes[0] == outcomes[1], "the decoders in C and in Python differ"
    ingest.read(path, SYMBOLS)


def _import_log(module: logs.Reader, folder: pathlib.Path, data: bytes) -> None:
    module.sniff(data)
    ingest.parse_name(_text(data[-80:]), "UTC")
    context = imported_logs.Context(HOST, BEGIN_US)
    for name in ("first", "second"):  # the second is paired with the first
        file = logs.LogFile(_file(folder, name, data), "UTC")
        imported_logs.store_file(folder / "home", module, file, context, RULES)
        context = dataclasses.replace(context, boot_us=None, boots=[BEGIN_US])


def _read_names(symbols: table.SymbolTable) -> None:
    # Few addresses: atheris 3.0.0 leaks the result of every comparison of arrays.
    symbols.find(np.arange(0, 1 << 14, 1 << 10, dtype=np.uint64))
    for index in range(min(len(symbols), 200)):
        symbols.name(index)


def _read_ring(folder: pathlib.Path, name: str, data: bytes) -> None:
    host = layout.host_folder(folder, HOST)
    _file(host, "host", HOST.encode())
    _file(host, name, data)
    ring = ring_reader.Reader(folder)
    ring.extent(HOST)
    ring.stretches(HOST)
    for signal in ring.signals(HOST, -EVER, EVER):
        for frame in ring.numbers(HOST, signal, -EVER, EVER):
            for key in frame.keys:
                for column in frame.columns:
                    frame.series(key, column)
        ring.facts(HOST, signal, BEGIN_US, EVER)
    for _, recorded in ring.recorded_facts(HOST, -EVER, EVER):
        for fact in recorded.changed.values():
            fact.get("core")
    for event in ring.events(-EVER, EVER):
        json.dumps(event.as_json())
        times.format_instant(event.time_us)
        times.format_instant(event.until_us + 2 * event.skew_us)
    for gap in ring.gaps(HOST):
        times.format_instant(gap.begin_us)
        times.format_instant(gap.end_us)
    ring.pins(HOST)
    ring_check.check(folder)


def _read_load(folder: pathlib.Path, data: bytes) -> None:
    _file(folder / "loads" / HOST, f"{BEGIN_US}-0123abcd.jsonl", data)
    for load in loads.read_loads(folder):
        list(loads.read_seconds(folder, load))
        loads.copy_loads(folder, folder / "copy", load.host, -EVER, EVER)


def _read_snapshot(folder: pathlib.Path, data: bytes) -> None:
    taken = snapshots.load(_file(folder, "snapshot.json", data))
    snapshot.compare(taken, snapshots.cleaned(taken))
    json.dumps(taken.as_json())


def _read_hour(folder: pathlib.Path, data: bytes) -> None:
    path = _file(folder, "498534.hour", data)
    for mode in segments.MODES:
        plane = hours.read(path, mode)
        for name in plane.hour.entries if plane else ():
            assert plane is not None
            plane.of(name)


def store_segment(home: pathlib.Path, contents: dict[str, bytes], **description: object) -> None:
    """Store a segment as a hostile bundle may: the files are whatever they are, the checksums match."""
    span = {"begin_us": BEGIN_US, "end_us": BEGIN_US + 2_000_000}
    plain: dict[str, Any] = {
        "format": segments.FORMAT, "host": HOST, **span, "frequency": 97, "cores": [0, 1],
        "events": ["cpu-clock"], "samples": 6, "idle": 2, "lost": 0, "timed": True, "gaps": [],
        "notes": [], "source": "test", **description,
    }  # fmt: skip
    begin, end = (plain[name] if isinstance(plain[name], int) else span[name] for name in span)
    day = segments.host_folder(home, HOST) / segments.day_folder(begin, end)
    folder = day / f"{begin}-{end}-0123abcd"
    for name, content in contents.items():
        _file(folder, name, content)
    if "files" not in plain:
        plain["files"] = {name: segments.measure_file(folder / name) for name in contents}
        plain["crc32"] = {name: segments.sum_file(folder / name) for name in contents}
    digest = segments.description_digest(plain)
    _file(folder, "segment.json", json.dumps({**plain, "digest": digest}).encode())


def ask_everything(home: pathlib.Path) -> None:
    """Ask all queries about all segments, each on its own: one refusal must not hide another's bug."""
    catalogue = segments.Catalogue(home)
    refused: list[errors.OvernightError] = []

    def ask(query: Callable[[], object]) -> None:
        try:
            query()
        except errors.OvernightError as error:
            refused.append(error)

    source = reader.Reader(catalogue)
    part = Window(BEGIN_US + 1, BEGIN_US + 1_500_000)
    for window in (Window(BEGIN_US, BEGIN_US + 2_000_000), part):
        ask(lambda w=window: flame.flame(source, w))  # type: ignore[misc]
        ask(lambda w=window: top.top(source, w))  # type: ignore[misc]
        ask(lambda w=window: heatmap.by_core(source, w))  # type: ignore[misc]
        ask(lambda w=window: heatmap.by_offset(source, w))  # type: ignore[misc]
        ask(lambda w=window: samples.read_window(source, HOST, w))  # type: ignore[misc]
        ask(lambda w=window: processes.describe(source, [HOST], w))  # type: ignore[misc]
        ask(lambda w=window: processes.count_spawns(source, HOST, w))  # type: ignore[misc]
    chosen = Selection(process="a", function="a")
    ask(lambda: flame.flame(source, part, chosen))
    ask(lambda: heatmap.by_core(source, part, chosen=chosen))
    ask(lambda: top.top(source, part, kind="functions"))
    ask(lambda: consumers.count_functions(source, HOST, [part]))
    ask(lambda: view.view(source, part, HOST))
    ask(lambda: diff.diff(source, part, Window(BEGIN_US, BEGIN_US + 1)))
    ask(lambda: check.check(catalogue))
    if refused:
        raise refused[0]


def encode_tables(home: pathlib.Path, stored: dict[str, Any]) -> dict[str, bytes]:
    """Return the files of a segment with these columns; numbers wrap to the column's type."""
    files = {}
    home.mkdir(parents=True, exist_ok=True)
    for name, kinds in TABLES.items():
        rows = {key: list(values) for key, values in stored[name].items()}
        count = max(map(len, rows.values()), default=0)
        path = home / f"{name}.parquet"
        parquet_writer.write(
            path,
            {
                key: [str(text) for text in rows[key]][:count]
                if kind == "U"
                else np.array([int(n) & (1 << 64) - 1 for n in rows[key]], "u8").astype(kind)
                for key, kind in kinds.items()
            },
        )
        files[path.name] = path.read_bytes()
        path.unlink()
    return {**files, "seconds.npy": bytes(segments.NPY_HEADER + 4 * 2 * 2 * 2)}


@functools.cache
def _valid_tables() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        return encode_tables(pathlib.Path(folder), VALID)


def _read_segment(folder: pathlib.Path, data: bytes) -> None:
    """Read a segment whose columns and description are in JSON: every file is valid in itself."""
    try:
        stored = json.loads(data)
        files = encode_tables(folder, stored)
        store_segment(folder, files, **stored["description"])
    except Exception:
        return  # nothing could write such a segment
    ask_everything(folder)


def _read_parquet(folder: pathlib.Path, data: bytes) -> None:
    """Read a segment with one table of other bytes; the first byte chooses the table."""
    name = tuple(TABLES)[data[0] % len(TABLES) if data else 0]
    files = _valid_tables() | {f"{name}.parquet": data[1:]}
    store_segment(folder, files)
    (path,) = folder.rglob(f"{name}.parquet")
    if not parquet.find_excess(path, sum(map(len, files.values()))):
        ask_everything(folder)


def _read_rules(folder: pathlib.Path, data: bytes) -> None:
    found = rulefiles.parse_rules(_text(data), "fuzzed.toml")
    tried = matcher.Matcher(found)
    for rule in found:
        long = (letter * matcher.LINE for letter in set(rule.regex))
        for line in (*long, *rule.needles, *(sample.line for sample in rule.matches)):
            tried.wanted(line.encode("utf-8", "surrogateescape"))
            tried.match(line)


def _read_log(folder: pathlib.Path, data: bytes) -> None:
    for line in data.splitlines():
        BUILT_IN.wanted(line)
    for text in app_rules._messages(data):
        BUILT_IN.match(text)


def _read_npd(folder: pathlib.Path, data: bytes) -> None:
    imported = npd.parse_npd(_text(data), "fuzzed.json")
    written = npd.as_toml(imported.rules, "from the fuzzer").encode()
    read = rulefiles.parse_rules(written.decode(), "written.toml")
    assert [(rule.name, rule.regex) for rule in read] == [
        (rule.name, rule.regex) for rule in imported.rules
    ]


def _read_unit(folder: pathlib.Path, data: bytes) -> None:
    text = _text(data)
    for setting in unitfile.parse_unit(text):
        unitfile.parse_span(setting.value)
        unitfile.split_words(setting.value)
        unitfile.parse_command(setting.value)
    for rule in presets.parse_presets(text):
        presets.fits(rule, "ssh.service")
    inventory.parse_dpkg(text)
    inventory.parse_mounts(text)


DAMAGED, CANNOT, USAGE = errors.DamagedFileError, errors.CannotError, errors.UsageError
READERS = {
    "perfdata": Reader(_read_perfdata, (DAMAGED,)),
    "perfscript": Reader(
        lambda at, data: perfscript.read(_file(at, "input", data), ""), (DAMAGED,)
    ),
    "collapsed": Reader(lambda at, data: collapsed.read(_file(at, "input", data), ""), (DAMAGED,)),
    "pprof": Reader(lambda at, data: pprof.read(_file(at, "input", data), ""), (DAMAGED,)),
    **{
        module.NAME: Reader(functools.partial(_import_log, module), (DAMAGED, USAGE, CANNOT))
        for module in (dmesg, journal, sadf, sysstat)
    },
    "elf": Reader(
        lambda _, data: _read_names(elf.read_elf_symbols(data, debug_dirs=())), (DAMAGED,)
    ),
    "perfmap": Reader(lambda _, data: _read_names(perfmap.parse_perf_map(data))),
    "kallsyms": Reader(lambda _, data: _read_names(kallsyms.parse_kallsyms(data).functions)),
    "symbol": Reader(lambda _, data: demangle.readable(_text(data))),
    "ring": Reader(lambda at, data: _read_ring(at, f"{BEGIN_US}-1a2b3c4d.ring", data)),
    "open-block": Reader(lambda at, data: _read_ring(at, f"{BEGIN_US}-1a2b3c4d.open", data)),
    "events": Reader(lambda at, data: _read_ring(at, "events-202611.jsonl", data)),
    "gaps": Reader(lambda at, data: _read_ring(at, "gaps.jsonl", data)),
    "pin": Reader(lambda at, data: _read_ring(at, "pins/reset.json", data)),
    "load": Reader(_read_load),
    "snapshot": Reader(_read_snapshot, (CANNOT,)),
    "bundle": Reader(
        lambda at, data: unpacker.open_into(_file(at, "bundle", data), at / "into"), (CANNOT,)
    ),
    "hour": Reader(_read_hour),
    "segment": Reader(_read_segment, (CANNOT,)),
    "parquet": Reader(_read_parquet, (CANNOT,)),
    "rules": Reader(_read_rules, (USAGE,)),
    "npd": Reader(_read_npd, (USAGE,)),
    "kernel-log": Reader(_read_log),
    "knowledge": Reader(
        lambda _, data: knowledge.parse_knowledge(_text(data), "fuzzed.toml", knowledge.known()),
        (USAGE,),
    ),
    "unit": Reader(_read_unit),
}


def read(name: str, folder: pathlib.Path, data: bytes) -> bool:
    """Feed one input to a reader, in an empty folder; return whether it answered. Its bugs are raised."""
    if folder.exists():
        shutil.rmtree(folder)
    try:
        READERS[name].read(folder, data)
    except READERS[name].refuses as error:
        if not (error.what and error.why and error.todo) or getattr(error, "offset", 0) < 0:
            raise
        return False
    return True
