"""pprof's profile.proto, gzipped, for `go tool pprof`, Parca, Pyroscope and others."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from typing import BinaryIO

from overnight.model.flame import Folded, Frame, FrameKind, Sample

# An address marks a kernel frame even if it has no module.
KERNEL_BASE = 0xFFFF_8000_0000_0000
KERNEL_MODULE = "[kernel.kallsyms]"  # the name that perf and all readers of pprof use


def write(folded: Folded, file: BinaryIO) -> None:
    """Write samples as counts, and as CPU time if the sampled event measures it."""
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        packed.write(_profile(folded))


def _profile(folded: Folded) -> bytes:
    strings: dict[str, int] = {"": 0}
    each = folded.nanoseconds

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings))

    def measure(kind: str, unit: str) -> bytes:
        return _number(1, text(kind)) + _number(2, text(unit))

    out = bytearray(_bytes(1, measure("samples", "count")))
    if each:
        out += _bytes(1, measure("cpu", "nanoseconds"))
    frames = folded.frames
    stacks: dict[tuple[int, ...], bytes] = {}
    labels: dict[tuple[tuple[str, str], ...], bytes] = {}
    unlabelled = (Sample(path, (), count) for path, count in folded.stacks())
    for path, who, count in folded.samples or unlabelled:
        if who not in labels:
            # Numbers are texts, too: readers drop a number that is 0, such as core 0.
            labels[who] = b"".join(
                _bytes(3, _number(1, text(key)) + _number(2, text(value))) for key, value in who
            )
        if path not in stacks:
            stacks[path] = _packed(1, (frame + 1 for frame in reversed(path)))
        values = [count, count * each] if each else [count]
        out += _bytes(2, stacks[path] + _packed(2, values) + labels[who])
    modules = dict.fromkeys(filter(None, map(_module, frames)))
    mappings = {module: number for number, module in enumerate(modules, 1)}
    for module, number in mappings.items():
        # Field 7: the names are included, so a viewer does not look for the binary.
        out += _bytes(3, _number(1, number) + _number(5, text(module)) + _number(7, 1))
    for number, frame in enumerate(frames, 1):
        address = KERNEL_BASE + number if frame.kind == FrameKind.KERNEL else 0
        mapping = mappings.get(_module(frame), 0)
        line = _bytes(4, _number(1, number))
        out += _bytes(4, _number(1, number) + _number(2, mapping) + _number(3, address) + line)
    for number, frame in enumerate(frames, 1):
        name = text(frame.name)
        out += _bytes(5, _number(1, number) + _number(2, name) + _number(3, name))
    notes = [folded.title, f"host {folded.host}", f"event {folded.event}", *folded.notes]
    if folded.lost:
        notes.append(f"{folded.lost} samples lost")
    comments = [text(note) for note in notes if note]
    period = _bytes(11, measure("cpu", "nanoseconds")) + _number(12, each) if each else b""
    if folded.event and not each:
        period = _bytes(11, measure(folded.event, "count"))
    for string in strings:
        out += _bytes(6, string.encode("utf-8", "replace"))
    out += _number(9, folded.begin_ns)
    out += _number(10, max(0, folded.end_ns - folded.begin_ns))
    out += period + _packed(13, comments)
    return bytes(out)


def _module(frame: Frame) -> str:
    return KERNEL_MODULE if frame.module == "[kernel]" else frame.module


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _bytes(field, b"".join(map(_varint, values)))
