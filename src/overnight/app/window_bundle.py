"""Make the bundle of a window for the uplink, at low priority, in a process of its own: it needs numpy and DuckDB.

    python -m overnight.app.window_bundle HOME HOST NAME --event ID | --window BEGIN_US END_US [--final]

Writes HOME/uplink/windows/NAME.overnight, then NAME.json. Exits with 75 while stacks of the window are still to be
stored, unless --final is given.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import pathlib
import sys
import time

from overnight import errors
from overnight.agent import task_runner
from overnight.agent.uplink import windows
from overnight.app import bundles, events, low_priority, spool_paths
from overnight.model import data_home, files
from overnight.model.event import Event
from overnight.model.times import SECOND_US
from overnight.sources import perf
from overnight.store import segments

REQUESTED = "window.requested"  # the kind of the event that a window without one is named after


@dataclasses.dataclass(frozen=True)
class Request:
    home: pathlib.Path
    host: str
    name: str
    event: str = ""
    window: tuple[int, int] = (0, 0)
    final: bool = False


def make(request: Request) -> bool:
    """Write the bundle; return False where its stacks are not stored yet."""
    data_home.prepare(request.home)
    folder = request.home / "uplink" / "windows"
    files.make_folder(folder)
    if request.event:
        event = events.find_event(request.home, request.event, (request.host,))
        before_s, after_s = bundles.BEFORE_S, bundles.AFTER_S
    else:
        begin_us, end_us = request.window
        name = f"{REQUESTED}-{begin_us}-{end_us}"
        event = Event(begin_us, REQUESTED, host=request.host, severity="info", id=name)
        before_s, after_s = 0.0, (end_us - begin_us) / SECOND_US
    end_us = max(event.time_us, min(event.until_us, event.time_us + bundles.MAX_US))
    end_us += round(after_s * SECOND_US)
    if not request.final and _is_pending(request.home, request.host, end_us):
        return False
    file = folder / (request.name + windows.BUNDLE)
    part = folder / f".{request.name}.part"
    try:
        bundle = bundles.create(request.home, event, part, before_s=before_s, after_s=after_s)
        with part.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        files.publish(part, file)
    finally:
        part.unlink(missing_ok=True)
    offer = {
        "event": request.event,
        "sha256": digest,
        "bytes": bundle.bytes,
        "begin_us": event.time_us - round(before_s * SECOND_US),
        "end_us": end_us,
    }
    files.write_atomically(folder / (request.name + windows.OFFER), json.dumps(offer))
    return True


def _is_pending(home: pathlib.Path, host: str, end_us: int) -> bool:
    """Return whether a segment with samples of the window is still recorded, or waits to be ingested."""
    spool = spool_paths.spool_folder(home)
    if not spool.is_dir() or not any(spool.glob(f"*{perf.WRITING}")):
        return False  # no profiler
    if time.time_ns() // 1000 < end_us:
        return True
    catalogue = segments.Catalogue(home)
    stored = catalogue.segments(host, end_us - 1, 1 << 62) if host in catalogue.hosts() else ()
    return not any(True for _ in stored)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m overnight.app.window_bundle")
    parser.add_argument("home", type=pathlib.Path)
    parser.add_argument("host")
    parser.add_argument("name")
    parser.add_argument("--event", default="")
    parser.add_argument("--window", type=int, nargs=2, default=(0, 0))
    parser.add_argument("--final", action="store_true")
    given = vars(parser.parse_args(words))
    low_priority.yield_to_others()
    try:
        made = make(Request(**{**given, "window": tuple(given["window"])}))
    except errors.OvernightError as error:
        sys.stderr.write(f"{error.what}: {error.why}\n")
        return error.exit_code
    return 0 if made else task_runner.NOT_READY


if __name__ == "__main__":
    sys.exit(main())
