"""Evidence bundles: one event's evidence as a file, and such a file as a data home."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import pathlib
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import overnight
from overnight import errors, sources
from overnight.agent import signals as known_signals
from overnight.app import snapshot as snapshots
from overnight.model import times
from overnight.model.times import HOUR_US, MINUTE_US, SECOND_US
from overnight.queries import case, signals
from overnight.store import loads, segments
from overnight.store.bundle import header, packer, profiles, scrubber, unpacker
from overnight.store.bundle import signals as copying
from overnight.store.ring import reader

if TYPE_CHECKING:
    from overnight.model.event import Event

__all__ = [
    "AFTER_S",
    "BEFORE_S",
    "SCHEMA",
    "SUFFIX",
    "Made",
    "create",
    "default_file",
    "find_event",
    "open_into",
    "opened",
]

SCHEMA = "overnight.bundle/1"
SUFFIX = ".overnight"
# Diagnosis reads from 11.5 minutes before the event on (queries.case); this leaves a margin.
BEFORE_S = 15 * 60.0
AFTER_S = 2 * 60.0
# An event may last for days; its window is limited.
LONGEST_US = 10 * MINUTE_US
# Rates need the reading before a window and the one after it.
MARGIN_US = signals.MARGIN_US + 30 * SECOND_US
# Signals read this seldom are copied for all stored time: slopes need hours, and they are small.
SELDOM_S = 30.0
# Read more often, and copied for a day before the event: cgroup births are matched with a slope.
DENSE = ("cgroup-births", "limits", "memory")
DENSE_US = 25 * HOUR_US
EVER = 1 << 62

Progress = Callable[[str, float], None]  # the step, and the share of it that is done


@dataclasses.dataclass(frozen=True)
class Made:
    """A bundle that was written or opened."""

    file: pathlib.Path
    bytes: int
    header: header.Header
    home: pathlib.Path | None = None  # where it was opened

    def as_json(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "file": str(self.file),
            "bytes": self.bytes,
            "home": None if self.home is None else str(self.home),
            "version": header.VERSION,
            **dataclasses.asdict(self.header),
        }


def default_file(event: Event) -> pathlib.Path:
    """Return a file in the current folder that is named after the event's id."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", event.id).lstrip(".") or "event"
    return pathlib.Path(name[:120] + SUFFIX)


def find_event(home: pathlib.Path, event_id: str) -> Event:
    """Return the event of that id; raise CannotError."""
    for event in reader.Reader(home).events(-EVER, EVER):
        if event.id == event_id and event_id:
            return event
    raise errors.CannotError(
        f"event {event_id!r} is not stored",
        why="it was not detected, or is older than the stored events",
        todo="overnight events   lists the events; their ids are in -O json",
    )


def create(
    home: pathlib.Path,
    told: Event,
    file: pathlib.Path,
    *,
    before_s: float = BEFORE_S,
    after_s: float = AFTER_S,
    all_recurrences: bool = False,
    hide: Sequence[str] = (),
    now_us: int | None = None,
    progress: Progress = lambda _what, _share: None,
) -> Made:
    """Write the bundle of an event. The same home gives the same bytes, except for the creation time."""
    source = reader.Reader(home)
    asked = case.Case(home, told)
    others = asked.recurrences
    chosen = (told, *(others if all_recurrences else ()))
    spans = _spans(chosen, before_s, after_s)
    if asked.compared.moved:  # before an earlier event, maybe hours back
        with_it = (*spans[told.host], (asked.baseline.begin_us, asked.baseline.end_us))
        spans[told.host] = copying.merge_spans(with_it)
    hosts = tuple(sorted({*source.hosts(), *spans}))
    masks = scrubber.Scrubber(hide)
    with _staging(file) as stage:
        notes: list[str] = []
        for n, host in enumerate(hosts):

            def tell(share: float, n: int = n) -> None:
                progress("signals", (n + share) / len(hosts))

            wanted = _wanted(spans.get(host, ()), told)
            copying.copy_signals(source, stage, host, wanted, masks, tell)
        notes += _copy_profiles(home, stage, spans, masks, progress)
        notes += _copy_snapshots(home, stage, hosts, told.time_us, masks)
        for host, stretches in spans.items():
            for begin, end in stretches:
                loads.copy_loads(
                    home, stage, host, begin, end, lambda text: masks.text("loads", text)
                )
        notes += [f"left out, because it is damaged: {problem}" for problem in source.problems]
        if len(others) > len(chosen) - 1:
            notes.append(
                f"{len(others)} other events of this kind are not included: use --all-recurrences"
            )
        said = header.Header(
            overnight=overnight.__version__,
            created_us=time.time_ns() // 1000 if now_us is None else now_us,
            event=told.id,
            kind=told.kind,
            host=told.host,
            time_us=told.time_us,
            hosts=hosts,
            windows=tuple(
                header.Span(host, begin, end)
                for host in sorted(spans)
                for begin, end in spans[host]
            ),
            recurrences=len(chosen) - 1,
            left_out=len(others) - len(chosen) + 1,
            masked=masks.masked,
            notes=tuple(masks.text("notes", note) for note in notes),
        )
        written = packer.pack(stage, file, said, lambda done, of: progress("packing", done / of))
    return Made(file, file.stat().st_size, written)


def open_into(
    file: pathlib.Path, target: pathlib.Path, progress: Progress = lambda _what, _share: None
) -> Made:
    """Unpack a bundle as a data home at `target`, which does not exist yet."""
    said = unpacker.open_into(file, target, lambda done, of: progress("unpacking", done / of))
    return Made(file, file.stat().st_size, said, target)


@contextlib.contextmanager
def opened(file: pathlib.Path, progress: Progress = lambda _what, _share: None) -> Iterator[Made]:
    """Unpack a bundle into a temporary data home (`home`), removed at the end of the block."""
    with unpacker.opened(file, lambda done, of: progress("unpacking", done / of)) as (home, said):
        yield Made(file, file.stat().st_size, said, home)


def _spans(
    chosen: tuple[Event, ...], before_s: float, after_s: float
) -> dict[str, tuple[copying.Span, ...]]:
    """Return the windows of these events by host."""
    found: dict[str, list[copying.Span]] = {}
    for one in chosen:
        end = max(one.time_us, min(one.until_us, one.time_us + LONGEST_US))
        found.setdefault(one.host, []).append(
            (one.time_us - round(before_s * SECOND_US), end + round(after_s * SECOND_US))
        )
    return {host: copying.merge_spans(spans) for host, spans in found.items()}


def _wanted(spans: tuple[copying.Span, ...], told: Event) -> copying.Wanted:
    wider = copying.merge_spans((begin - MARGIN_US, end + MARGIN_US) for begin, end in spans)
    history = {
        signal.name: -EVER
        for signal in known_signals.discover_signals()
        if isinstance(signal, sources.Signal) and signal.every >= SELDOM_S
    }
    return copying.Wanted(wider, history | dict.fromkeys(DENSE, told.time_us - DENSE_US))


@contextlib.contextmanager
def _staging(file: pathlib.Path) -> Iterator[pathlib.Path]:
    """Create a temporary folder beside the file, on the disk that must hold the bundle anyway."""
    try:
        made = tempfile.mkdtemp(prefix=".overnight-bundle-", dir=file.absolute().parent)
    except OSError as error:
        raise _unwritable(file, error) from error
    try:
        yield pathlib.Path(made)
    except OSError as error:
        raise _unwritable(file, error) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _unwritable(file: pathlib.Path, error: OSError) -> errors.CannotError:
    return errors.CannotError(
        f"{file} cannot be written",
        why=error.strerror or str(error),
        todo="choose another file with -o FILE",
    )


def _copy_profiles(
    home: pathlib.Path,
    stage: pathlib.Path,
    spans: dict[str, tuple[copying.Span, ...]],
    masks: scrubber.Scrubber,
    progress: Progress,
) -> Iterator[str]:
    catalogue = segments.Catalogue(home)
    found = {
        segment.path: segment
        for host in sorted(spans)
        for begin, end in spans[host]
        for segment in catalogue.segments(host, begin, end)
    }
    for n, segment in enumerate(found.values()):
        progress("profiles", n / len(found))
        if problem := profiles.copy_segment(segment, home, stage, masks):
            yield problem
    for host in sorted(spans):
        if not any(segment.host == host for segment in found.values()):
            yield f"no stacks were recorded in the windows of {host}"


def _copy_snapshots(
    home: pathlib.Path,
    stage: pathlib.Path,
    hosts: tuple[str, ...],
    time_us: int,
    masks: scrubber.Scrubber,
) -> Iterator[str]:
    """Copy the newest snapshot before the event and the first after it, of each host."""
    taken: dict[str, list[tuple[int, pathlib.Path]]] = {}
    for path in sorted((home / "snapshots").glob("*/*.json")):
        try:
            said = snapshots.load(path).header
            moment = datetime.datetime.fromisoformat(str(said["taken_at"]))
            taken.setdefault(str(said["host"]), []).append(
                (times.parse_instant(moment.isoformat(), now_us=0, origin_us=0), path)
            )
        except (errors.OvernightError, KeyError, ValueError) as error:
            yield f"snapshot {path.name} is left out: {error}"
    for host in hosts:
        known = sorted(taken.get(host, ()))
        earlier = [path for moment, path in known if moment <= time_us][-1:]
        later = [path for moment, path in known if moment > time_us][:1]
        for path in (*earlier, *later):
            before = snapshots.load(path)
            after = snapshots.cleaned(before)
            for name, part in after.parts.items():
                for key in part.keys() - before.parts[name].keys():
                    masks.note("snapshots", f"{name} {key}")
                for key, value in part.items():
                    if before.parts[name].get(key, value) != value:
                        masks.note("snapshots", f"{name} {key}")
            snapshots.save(after, stage / path.relative_to(home))
        if not earlier and known == []:
            yield f"there is no snapshot of {host}"
