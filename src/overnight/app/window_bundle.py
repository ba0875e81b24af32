"""Make the bundle of a window for the uplink, at low priority, in a process of its own: it needs numpy and DuckDB.

    python -m overnight.app.window_bundle HOME HOST NAME --event ID | --window BEGIN_US END_US

Waits until the stacks of the window are stored, as far as it has passed, then writes HOME/uplink/windows/NAME.overnight and
NAME.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import sys
import time
from collections.abc import Sequence

from overnight import errors
from overnight.agent import spool
from overnight.agent.uplink import windows
from overnight.app import events, low_priority, spool_paths
from overnight.model import data_home, files, times
from overnight.model.event import Event
from overnight.model.times import SECOND_NS, SECOND_US
from overnight.sources import perf

REQUESTED = "window.requested"  # the kind of the event that a window without one is named after
WAIT_SECONDS, POLL_SECONDS = 600.0, 0.5  # for the segment that is being written, and its ingest


def make(
    home: pathlib.Path, host: str, name: str, event: str = "", window: Sequence[int] = (0, 0)
) -> None:
    """Write the bundle of an event, or of a window: its begin and end in µs."""
    data_home.prepare(home)
    folder = home / "uplink" / "windows"
    files.make_folder(folder)
    chosen, begin_us, end_us = _find_window(home, host, event, *window)
    end_us = min(end_us, times.now_us())
    deadline = time.monotonic() + WAIT_SECONDS
    if is_pending(home, end_us):
        spool.want_segment(spool_paths.spool_folder(home))
    while is_pending(home, end_us) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    from overnight.app import bundles  # after the wait: numpy and DuckDB take 60 MB

    part = folder / f".{name}.part"
    before_s, after_s = bundles.BEFORE_S, bundles.AFTER_S
    if not event:
        before_s, after_s = 0.0, (end_us - begin_us) / SECOND_US
    else:
        whole_end_us = windows.find_whole_end(chosen.time_us, chosen.until_us)
        after_s = max(0.0, after_s - (whole_end_us - end_us) / SECOND_US)
    try:
        bundle = bundles.create(home, chosen, part, before_s=before_s, after_s=after_s)
        with part.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        files.publish(part, folder / (name + windows.BUNDLE))
    finally:
        part.unlink(missing_ok=True)
    offer = {"event": event, "sha256": digest, "bytes": bundle.bytes, "begin_us": begin_us, "end_us": end_us}  # fmt: skip
    files.write_atomically(folder / (name + windows.OFFER), json.dumps(offer))


def _find_window(
    home: pathlib.Path, host: str, event_id: str, begin_us: int, end_us: int
) -> tuple[Event, int, int]:
    """Return an event, and the times that its bundle covers."""
    if not event_id:
        name = f"{REQUESTED}-{begin_us}-{end_us}"
        event = Event(begin_us, REQUESTED, host=host, severity="info", id=name)
        return event, begin_us, end_us
    event = events.find_event(home, event_id, (host,))
    return (
        event,
        event.time_us - windows.BEFORE_US,
        windows.find_whole_end(event.time_us, event.until_us),
    )


def is_pending(home: pathlib.Path, end_us: int) -> bool:
    """Return whether samples until then are still being recorded, or wait to be ingested."""
    folder, end_ns = spool_paths.spool_folder(home), end_us * 1000
    if not any(folder.glob(f"*{perf.WRITING}")):
        return False  # no profiler
    segments = spool.Spool(folder, 0, 0).segments()
    if not any(segment.end_ns >= end_ns for segment in segments):
        return True
    ingested = spool_paths.read_ingested(folder)
    return any(
        segment.begin_ns < end_ns + SECOND_NS and segment.path.name not in ingested
        for segment in segments
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m overnight.app.window_bundle")
    parser.add_argument("home", type=pathlib.Path)
    parser.add_argument("host")
    parser.add_argument("name")
    parser.add_argument("--event", default="")
    parser.add_argument("--window", type=int, nargs=2, default=(0, 0))
    low_priority.yield_to_others()
    try:
        make(**vars(parser.parse_args()))
    except errors.OvernightError as error:
        sys.stderr.write(f"{error.what}: {error.why}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
