"""The viewer page: one HTML file that works offline, with a night's heatmap and stacks inside."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import importlib.resources
import json
from typing import TYPE_CHECKING, BinaryIO

from overnight import errors
from overnight.model import times

if TYPE_CHECKING:
    from overnight.model.selection import Window
    from overnight.queries import view

SCHEMA = "overnight.view/1"
MARKER = "<!--NIGHT-->"
COPIED = ("title", "host", "frequency", "cores", "lost", "notes", "strings")  # of queries.view.View
TYPES = {"|u1": "u8", "<u2": "u16", "<u4": "u32", "<i4": "i32"}


@dataclasses.dataclass(frozen=True)
class Opening:
    """What the page shows first; a reader can change all of it."""

    window: Window | None  # None: nothing is selected
    baseline: Window | None = None
    map: str = "cores"  # or subsecond
    measure: str = "busy"  # or kernel: time shown in the map of cores
    top: str = "functions"  # the table: processes, threads, units or functions
    rank: str = "self"  # order of differences: self or total
    limit: int = 20  # rows of a table
    tables_first: bool = False
    callers: bool = False
    idle: bool = False
    process: str = ""  # regular expressions
    thread: str = ""
    unit: str = ""
    cores: str = ""  # a list, as in 0-3,8


def write_view(shown: view.View, file: BinaryIO, opening: Opening | None = None) -> None:
    before, marker, after = _template().partition(MARKER)
    if not marker:
        raise ValueError("the built viewer has no place for the data")
    file.write(before.encode())
    file.write(b'<script type="application/octet-stream" id="night">')
    file.write(base64.b64encode(payload(shown, opening)))
    file.write(b"</script>")
    file.write(after.encode())


def _template() -> str:
    viewer = importlib.resources.files("overnight.reports") / "viewer.html"
    try:
        return viewer.read_text("utf-8")
    except FileNotFoundError as error:
        raise errors.MissingToolError(
            "the viewer was not built into this installation",
            why="npm builds it from web/ when overnight is set up or its wheel is built",
            todo="in the checkout: make setup   (needs Node.js; `overnight doctor` shows how to get it)",
        ) from error


def payload(shown: view.View, opening: Opening | None = None) -> bytes:
    """Return header and arrays, each aligned to eight bytes, gzipped."""
    places: dict[str, dict[str, object]] = {}
    body = bytearray()
    for name, array in shown.arrays.items():
        column = array.astype(array.dtype.newbyteorder("<"), copy=False)
        places[name] = {"type": TYPES[column.dtype.str], "offset": len(body), "length": len(column)}
        body += column.tobytes()
        body += bytes(-len(body) % 8)
    described = _header(shown, places)
    if opening:
        described["open"] = dataclasses.asdict(opening)
    header = json.dumps(described, separators=(",", ":")).encode()
    header += b" " * (-(len(header) + 4) % 8)
    return gzip.compress(len(header).to_bytes(4, "little") + header + bytes(body), 6, mtime=0)


def _header(shown: view.View, places: dict[str, dict[str, object]]) -> dict[str, object]:
    window = shown.window
    return {
        "schema": SCHEMA,
        **{name: getattr(shown, name) for name in COPIED},
        "generated": times.format_instant(times.now_us()),
        "begin_us": window.begin_us,
        "end_us": window.end_us,
        "events": [
            {
                "time_us": event.time_us,
                "kind": event.kind,
                "text": event.text,
                "core": event.known_core,
                "severity": event.severity,
            }
            for event in shown.events
        ],
        "gaps": [{"begin_us": a, "end_us": b, "why": why} for a, b, why in shown.gaps],
        "heat": {
            "begin_us": window.begin_us,
            "step_us": shown.heat_step_us,
            "columns": (window.end_us - window.begin_us) // shown.heat_step_us,
        },
        "detail": [dataclasses.asdict(detail) for detail in shown.detail],
        "arrays": places,
    }
