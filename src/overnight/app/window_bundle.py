"""Make the bundle of a window for the uplink, at low priority, in a process of its own: it needs numpy and DuckDB.

    python -m overnight.app.window_bundle HOME HOST NAME --event ID | --window BEGIN_US END_US

Waits until the stacks of the window are stored, then writes HOME/uplink/windows/NAME.overnight and NAME.json.
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
from overnight.agent.uplink import windows
from overnight.app import low_priority, spool_paths
from overnight.model import data_home, files
from overnight.model.event import Event
from overnight.model.times import SECOND_NS, SECOND_US
from overnight.sources import perf
from overnight.store.ring import reader

REQUESTED = "window.requested"  # the kind of the event that a window without one is named after
WAIT_SECONDS, POLL_SECONDS = 600.0, 5.0  # for a segment of two minutes, and its ingest
EVER = 1 << 62


@dataclasses.dataclass(frozen=True)
class Request:
    home: pathlib.Path
    host: str
    name: str
    event: str = ""
    window: tuple[int, int] = (0, 0)


def make(request: Request) -> None:
    data_home.prepare(request.home)
    folder = request.home / "uplink" / "windows"
    files.make_folder(folder)
    event, begin_us, end_us = _find_window(request)
    deadline = time.monotonic() + WAIT_SECONDS
    while is_pending(request.home, end_us) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    from overnight.app import bundles  # after the wait: numpy and DuckDB take 60 MB

    part = folder / f".{request.name}.part"
    before_s, after_s = bundles.BEFORE_S, bundles.AFTER_S
    if not request.event:
        before_s, after_s = 0.0, (end_us - begin_us) / SECOND_US
    try:
        bundle = bundles.create(request.home, event, part, before_s=before_s, after_s=after_s)
        with part.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        files.publish(part, folder / (request.name + windows.BUNDLE))
    finally:
        part.unlink(missing_ok=True)
    offer = {"event": request.event, "sha256": digest, "bytes": bundle.bytes, "begin_us": begin_us, "end_us": end_us}  # fmt: skip
    files.write_atomically(folder / (request.name + windows.OFFER), json.dumps(offer))


def _find_window(request: Request) -> tuple[Event, int, int]:
    """Return an event, and the times that its bundle covers."""
    if not request.event:
        begin_us, end_us = request.window
        name = f"{REQUESTED}-{begin_us}-{end_us}"
        event = Event(begin_us, REQUESTED, host=request.host, severity="info", id=name)
        return event, begin_us, end_us
    for event in reader.Reader(request.home).events(-EVER, EVER, (request.host,)):
        if event.id == request.event:
            until_us = max(event.time_us, min(event.until_us, event.time_us + windows.MAX_EVENT_US))
            return event, event.time_us - windows.BEFORE_US, until_us + windows.AFTER_US
    raise errors.CannotError(
        f"no event {request.event!r} is stored",
        why="it was not recorded, or is older than what is kept",
        todo="overnight events   lists the ids of stored events",
    )


def is_pending(home: pathlib.Path, end_us: int) -> bool:
    """Return whether samples until then are still being recorded, or wait to be ingested."""
    spool = spool_paths.spool_folder(home)
    if not any(spool.glob(f"*{perf.WRITING}")):
        return False  # no profiler
    try:
        done = set((spool / spool_paths.DONE).read_text(errors="replace").split("\n"))
    except OSError:
        done = set()
    segments = [path for path in spool.iterdir() if perf.parse_segment_name(path.name)]
    if not any(path.stat().st_mtime_ns >= end_us * 1000 for path in segments):
        return True
    starts = {path.name: perf.parse_segment_name(path.name) for path in segments}
    return any(
        start is not None and start.start_ns < end_us * 1000 + SECOND_NS and name not in done
        for name, start in starts.items()
    )


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m overnight.app.window_bundle")
    parser.add_argument("home", type=pathlib.Path)
    parser.add_argument("host")
    parser.add_argument("name")
    parser.add_argument("--event", default="")
    parser.add_argument("--window", type=int, nargs=2, default=(0, 0))
    given = vars(parser.parse_args(words))
    low_priority.yield_to_others()
    try:
        make(Request(**{**given, "window": tuple(given["window"])}))
    except errors.OvernightError as error:
        sys.stderr.write(f"{error.what}: {error.why}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
