"""A report: what it holds, and its body."""

from __future__ import annotations

import contextlib
import itertools
import json
import pathlib
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from overnight.agent.uplink import event_tail, rollup_spool, rollups, windows
from overnight.model import protocol, times

INVENTORY = ("labels", "snapshot", "audit")  # each in a file of its name
PIECE = 64 << 10


class Batch(NamedTuple):
    """What a report holds, and the places behind it."""

    event_places: event_tail.Places
    line_place: rollup_spool.Place
    events: Sequence[event_tail.Event] = ()
    lines: Sequence[bytes] = ()  # of the spool of rollups
    lost: Mapping[str, int] = {}
    offers: Sequence[windows.Offer] = ()
    inventory: Mapping[str, str] = {}  # versions of what is sent of INVENTORY
    history: Sequence[rollups.Document] = ()  # observed time before this process

    @property
    def is_bare(self) -> bool:
        return not (self.events or self.lines or self.offers or self.inventory or self.history)


def encode(batch: Batch, boot: str, folder: pathlib.Path) -> bytes:
    """Return the compressed body of a report; the inventory is read from the folder in pieces."""
    spells = list(batch.history)
    found: list[bytes] = []  # as JSON: parsed they take five times as much
    for line in batch.lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):  # cut off by a crash
            document = json.loads(line)
            for spell in document["spells"]:
                rollups.extend(spells, spell)
            if "rollup" in document:
                found.append(_dump(document["rollup"]))
    report: dict[str, Any] = {
        "version": protocol.VERSION,
        "sent_us": times.now_us(),
        "boot": boot,
        "uptime_us": time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000,
        "spells": spells,
        "events": batch.events,
        "windows": batch.offers,
        "lost": batch.lost,
    }
    pieces: list[Iterable[bytes]] = [[_dump(report)[:-1], b',"rollups":[', b",".join(found), b"]"]]
    for name in batch.inventory:
        pieces += ([b',"%s":' % name.encode()], _read_pieces(folder / f"{name}.json"))
    return compress(itertools.chain(*pieces, [b"}"]))


def _dump(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def compress(pieces: Iterable[bytes]) -> bytes:
    """Return a gzip body; only the compressed bytes are held in memory."""
    packer = zlib.compressobj(6, wbits=16 + 13, memLevel=6)  # 64 KB of memory
    return b"".join([*map(packer.compress, pieces), packer.flush()])


def _read_pieces(path: pathlib.Path) -> Iterator[bytes]:
    """Read a file in pieces: a snapshot has megabytes."""
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece
