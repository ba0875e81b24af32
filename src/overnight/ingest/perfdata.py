"""Turns perf.data files into captures: decodes records, names addresses, converts times to the wall clock."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from overnight import errors
from overnight.ingest import actors, identities, logs, losses
from overnight.ingest.symbols import files, kallsyms, resolver
from overnight.model import unknown
from overnight.model.flame import UNKNOWN, FrameKind
from overnight.model.times import SECOND_NS
from overnight.model.unknown import Why
from overnight.sources.perf import compressed, decode, perfdata
from overnight.store import capture

if TYPE_CHECKING:
    import numpy.typing as npt

# 20260301T030000Z, 2026-03-01_03-00-00, 2026-03-01T03:00:00+01:00, 20260301-0300; perf's own 2026030103000042
TIME_IN_NAME = re.compile(
    r"(?<!\d)(?P<year>20\d\d)[-_.]?(?P<month>\d\d)[-_.]?(?P<day>\d\d)[-T_.]?(?P<hour>\d\d)[-:_.]?(?P<minute>\d\d)"
    r"(?:[-:_.]?(?P<second>\d\d)(?P<hundredths>\d\d)?)?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?(?!\d)",
    re.ASCII,
)
EPOCH_IN_NAME = re.compile(r"(?<!\d)(1[5-9]\d{8})(?!\d)", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Symbols:
    """The sources of names; tables that were read stay in memory for the next segment."""

    has_kernel: bool
    base: int | None  # of the kernel, as `kernel_base` returns it
    find: resolver.Resolver
    registry: identities.Registry | None = None  # of the processes; None: of another host

    def fits(self, base: int | None) -> bool:
        """Return whether kallsyms is of the boot with `_text` at `base`: KASLR moves it."""
        return self.has_kernel and (base is None or self.base in (None, base))


def live_symbols(registry: identities.Registry | None = None) -> Symbols:
    text = kallsyms.read_kallsyms()
    live = files.LiveFiles()
    find = resolver.Resolver(text, live.find, files.read_vdso(), live.perf_map)
    return Symbols(text is not None, kernel_base(text), find, registry)


def foreign_symbols(text: bytes | None, root: pathlib.Path) -> Symbols:
    """Use the names from a copy of another host's kallsyms and a folder with its files."""
    copied = files.LiveFiles(root)
    find = resolver.Resolver(text, copied.find, None, copied.perf_map)
    return Symbols(text is not None, kernel_base(text), find)


def kernel_base(text: bytes | None) -> int | None:
    """Return the address of `_text` in kallsyms; None where addresses are hidden."""
    at = text.find(b" T _text\n") if text else -1
    if text is None or at < 16:
        return None
    return int(text[at - 16 : at], 16) or None


@dataclasses.dataclass(frozen=True)
class Wall:
    """When the first sample was taken, or the last (`is_end`), in ns since the epoch.

    A given time replaces the file's own clock. A time from the file's name is used only without such a clock.
    """

    ns: int
    is_given: bool = False
    is_end: bool = False


def parse_name(name: str, zone: str | None) -> Wall | None:
    """Return the time in the name of a file; None where it has none, or one whose zone is unknown.

    >>> parse_name("perf-db-7-20260301T030000Z-120s.data", None)
    Wall(ns=1772334000000000000, is_given=False, is_end=False)
    """
    if (epoch := EPOCH_IN_NAME.search(name)) is not None:
        return Wall(int(epoch[1]) * SECOND_NS)
    match = TIME_IN_NAME.search(name)
    if match is None or not (match["zone"] or zone):
        return None
    digits = "".join(match[part] or "00" for part in ("year", "month", "day", "hour", "minute", "second"))  # fmt: skip
    own = match["zone"].replace("Z", "UTC") if match["zone"] else None
    try:
        us = logs.parse_local(logs.parse_naive(digits, "%Y%m%d%H%M%S"), own or str(zone))
    except ValueError:
        return None
    # perf record --switch-output and --timestamp-filename name a file when they close it.
    return Wall(us * 1000, is_end=match["hundredths"] is not None)


def read(
    path: pathlib.Path,
    symbols: Symbols,
    *,
    host: str = "",
    begin: int | None = None,
    wall: Wall | None = None,
) -> capture.Capture:
    """Read a perf.data file; `begin` is that of the recording in ns since the epoch, else the first sample.

    The time is the given one (`wall`), that of the file's own clock, that of its name, or its modification time.
    """
    with perfdata.open_perfdata(path, _zstd) as file:
        columns, tasks, stacks, frames, strings, modules, processes, lost = file.decode()
        notes = [] if file.finished else ["the recorder was killed: the last moments are missing"]
        own = np.frombuffer(columns[0], "<u8")
        first, last = (int(own[0]), int(own[-1])) if len(own) else (0, 0)
        if wall is not None and wall.is_given:
            shift = wall.ns - first
        elif file.clock is not None:
            shift = file.clock.wall - file.clock.samples
        elif wall is not None:
            shift = wall.ns - (last if wall.is_end else first)
            notes.append("the file has no wall clock: the time is that of its name")
        else:
            shift = path.stat().st_mtime_ns - last
            notes.append(
                "the file has no wall clock: the last sample is set to the file's modification time; "
                "--begin TIME sets the first"
            )
        if first + shift < 0 or last + shift >= losses.LATEST_NS or lost >= 2**63:
            why = "impossible times or losses in the records"
            raise errors.DamagedFileError(str(path), file.stream_offset or 0, why)
        time = own.astype(np.int64) + shift
        start = first + shift if begin is None else begin
        registry = symbols.registry
        recorded = actors.Recording(
            processes,
            tasks,
            strings,
            shift,
            start - shift,
            registry if registry and registry.is_of_this_boot(shift) else None,
        )
        named = actors.name_tasks(recorded)
        with_kernel = symbols.fits(_recorded_base(file.stream))
        if not with_kernel:
            notes.append("kernel functions have no names: kallsyms of that boot is not available")
        table, numbers = _name_frames(frames, modules, recorded.text, symbols, with_kernel)
        offset = np.concatenate([[0], np.frombuffer(stacks[0], "<u4")]).astype(np.uint32)
        paths = capture.Stacks(offset, numbers[np.frombuffer(stacks[1], "<u4")])
        stack = np.frombuffer(columns[3], "<u4")
        task = np.frombuffer(columns[2], "<u4")
        split, task = actors.split_workers(named.tasks, task, paths, stack, table)
        frequency = file.events[0].frequency
        cpu = np.frombuffer(columns[1], "<i4")
        period = SECOND_NS // frequency if frequency else 0
        return capture.Capture(
            host=host or file.hostname or "unknown",
            begin=start,
            end=last + shift + period + 1,
            frequency=frequency,
            cores=_cores(file.cores, cpu),
            events=tuple(event.name for event in file.events),
            time=time,
            cpu=cpu,
            task=task,
            stack=stack,
            event=np.frombuffer(columns[4], "<u1"),
            count=np.ones(len(time), np.uint32),
            period=np.frombuffer(columns[5], "<u8"),
            tasks=split,
            stacks=paths,
            frames=table,
            processes=named.processes,
            spawns=named.spawns,
            lost=lost,
            losses=losses.find_losses(file, lost, time, cpu, shift),
            notes=tuple(notes),
            unknown=_explain_unknown(table, symbols.find.problems),
        )


def _explain_unknown(frames: capture.Frames, problems: Mapping[str, Why]) -> dict[str, Why]:
    """Return why functions have no name, by module."""
    rows = zip(frames.name, frames.module, frames.kind.tolist(), strict=True)
    return {
        module: unknown.find_why(module, kernel=kind == FrameKind.KERNEL, stored=problems.get(module), otherwise=Why.STRIPPED)
        for name, module, kind in rows
        if name == UNKNOWN
    }  # fmt: skip


def _zstd() -> compressed.Decompress:
    import zstandard  # few files are compressed

    return zstandard.ZstdDecompressor().decompressobj().decompress


def _recorded_base(stream: memoryview) -> int | None:
    """Return the address of `_text` at recording time, from perf's first records."""
    offset = 0
    for _ in range(16):
        if offset + decode.RECORD.size > len(stream):
            return None
        kind, _, size = decode.RECORD.unpack_from(stream, offset)
        name = bytes(stream[offset + 40 : offset + size])
        if kind == decode.MMAP and name.startswith(b"[kernel.kallsyms]"):
            return int.from_bytes(stream[offset + 32 : offset + 40], "little") or None
        if size < decode.RECORD.size:
            return None
        offset += size
    return None


def _cores(online: int, cpu: npt.NDArray[np.int32]) -> tuple[int, ...]:
    """List the recorded cores: the file has their number; with higher core numbers, those seen."""
    if online and (not len(cpu) or int(cpu.max()) < online):
        return tuple(range(online))
    return tuple(np.unique(cpu).tolist())


def _name_frames(
    columns: tuple[bytes, bytes],
    modules: list[tuple[int, int, bytes]],
    text: list[str],
    symbols: Symbols,
    with_kernel: bool,
) -> tuple[capture.Frames, npt.NDArray[np.uint32]]:
    """Name (module, address) pairs: return the table of functions, and each pair's index in it."""
    module = np.frombuffer(columns[0], "<u4")
    address = np.frombuffer(columns[1], "<u8")
    numbers: dict[tuple[str, str, int], int] = {}
    frame_of = np.zeros(len(module), np.uint32)
    order = np.argsort(module, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(module[order])) + 1):
        if not len(rows):
            continue
        module_number = int(module[rows[0]])
        name, pid, build_id = modules[module_number]
        kind = FrameKind.KERNEL if module_number == decode.KERNEL_MODULE else FrameKind.USER
        if module_number == decode.KERNEL_MODULE and with_kernel:
            named = symbols.find.resolve_kernel(address[rows])
        else:
            named = symbols.find.resolve(text[name], address[rows], pid, build_id.hex())
        function_numbers = [
            numbers.setdefault((function, owner, kind), len(numbers))
            for function, owner in zip(named.names, named.modules, strict=True)
        ]
        frame_of[rows] = np.array(function_numbers, np.uint32)[named.which]
    kinds = np.array([kind for _, _, kind in numbers], np.uint8)
    names, owners = [key[0] for key in numbers], [key[1] for key in numbers]
    return capture.Frames(names, owners, kinds), frame_of
