"""`overnight bundle`: the evidence of one event as a file, and such a file as a data home."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import overnight
from overnight import errors, sources
from overnight.agent import signals as known_signals
from overnight.app import reader_process
from overnight.app import snapshot as snapshots
from overnight.model import stop_signals, times
from overnight.model.text import plural
from overnight.model.times import HOUR_US, MINUTE_US, SECOND_US
from overnight.queries import case, signals
from overnight.store import loads, readings, segments
from overnight.store.bundle import header, packer, profiles, scrubber, unpacker
from overnight.store.bundle import signals as copying
from overnight.store.ring import reader

if TYPE_CHECKING:
    from overnight.model.event import Event

SCHEMA = "overnight.bundle/1"
SUFFIX = ".overnight"
# Diagnosis reads the 11.5 minutes before the event (queries.case); this leaves some margin.
BEFORE_S = 15 * 60.0
AFTER_S = 2 * 60.0
# An event may last for days; its window does not.
MAX_US = 10 * MINUTE_US
# Rates need the poll before a window and the one after it.
MARGIN_US = signals.MARGIN_US + 30 * SECOND_US
# Signals polled at most this often are kept for all stored time: slopes need hours, and they are small.
SELDOM_S = 30.0
# These are polled more often, and are kept for a day before the event, to match births with a slope.
DENSE = ("cgroup-births", "limits", "memory")
DENSE_US = 25 * HOUR_US
EVER = 1 << 62

Progress = Callable[[str, float], None]  # step, and share of it that is done


@dataclasses.dataclass(frozen=True)
class Bundle:
    file: pathlib.Path
    bytes: int
    header: header.Header
    home: pathlib.Path | None = None  # where it was opened

    def as_json(self) -> dict[str, object]:
        """Return the document; docs/schemas/bundle-1.json describes it."""
        return {
            "schema": SCHEMA,
            "file": str(self.file),
            "bytes": self.bytes,
            "home": None if self.home is None else str(self.home),
            "version": header.VERSION,
            **dataclasses.asdict(self.header),
        }


def default_file(event: Event) -> pathlib.Path:
    """Return a file in the current folder, named after the event."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", event.id).lstrip(".") or "event"
    return pathlib.Path(name[:120] + SUFFIX)


def create(
    home: pathlib.Path,
    event: Event,
    file: pathlib.Path,
    *,
    before_s: float = BEFORE_S,
    after_s: float = AFTER_S,
    all_recurrences: bool = False,
    hide: Sequence[str] = (),
    now_us: int | None = None,
    progress: Progress = lambda _what, _share: None,
) -> Bundle:
    """Write the bundle of an event; the same home gives the same bytes, except for the time."""
    source = reader.Reader(home)
    evidence = case.Case(home, event)
    others = evidence.recurrences
    chosen = (event, *(others if all_recurrences else ()))
    spans = _spans(chosen, before_s, after_s)
    if evidence.compared.moved:  # the baseline lies before an earlier event, maybe hours back
        windows = (*spans[event.host], (evidence.baseline.begin_us, evidence.baseline.end_us))
        spans[event.host] = copying.merge_spans(windows)
    hosts = tuple(sorted({*source.hosts(), *spans}))
    masks = scrubber.Scrubber(hide)
    with _staging(file) as stage:
        notes: list[str] = []
        for n, host in enumerate(hosts):

            def show_share(share: float, n: int = n) -> None:
                progress("signals", (n + share) / len(hosts))

            wanted = _wanted(spans.get(host, ()), event)
            copying.copy_signals(source, stage, host, wanted, masks, show_share)
        notes += _copy_profiles(home, stage, spans, masks, progress)
        notes += _copy_snapshots(home, stage, hosts, event.time_us, masks)
        for host, stretches in spans.items():
            for begin, end in stretches:
                loads.copy_loads(
                    home, stage, host, begin, end, lambda text: masks.text("loads", text)
                )
                readings.copy_readings(
                    home, stage, host, begin, end, lambda text: masks.text("instruments", text)
                )
        notes += [f"left out, damaged: {problem}" for problem in source.problems]
        if len(others) > len(chosen) - 1:
            notes.append(
                f"{plural(len(others), 'other event')} of this kind not in the bundle; use --all-recurrences"
            )
        bundle_header = header.Header(
            overnight=overnight.__version__,
            created_us=times.now_us() if now_us is None else now_us,
            event=event.id,
            kind=event.kind,
            host=event.host,
            time_us=event.time_us,
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
        written = packer.pack(
            stage, file, bundle_header, lambda done, of: progress("packing", done / of)
        )
    return Bundle(file, file.stat().st_size, written)


def open_into(
    file: pathlib.Path, target: pathlib.Path, progress: Progress = lambda _what, _share: None
) -> Bundle:
    """Open a bundle as a data home at `target`, which must not exist."""
    with reader_process.limit_memory(file):
        opened_header = unpacker.open_into(
            file, target, lambda done, of: progress("unpacking", done / of)
        )
    return Bundle(file, file.stat().st_size, opened_header, target)


@contextlib.contextmanager
def open_temporarily(file: pathlib.Path) -> Iterator[Bundle]:
    """Open a bundle as a temporary data home (`home`); memory is limited until it is closed."""
    with reader_process.limit_memory(file), unpacker.opened(file) as (home, opened_header):
        yield Bundle(file, file.stat().st_size, opened_header, home)


def _spans(
    chosen: tuple[Event, ...], before_s: float, after_s: float
) -> dict[str, tuple[copying.Span, ...]]:
    by_host: dict[str, list[copying.Span]] = {}
    for event in chosen:
        end = max(event.time_us, min(event.until_us, event.time_us + MAX_US))
        by_host.setdefault(event.host, []).append(
            (event.time_us - round(before_s * SECOND_US), end + round(after_s * SECOND_US))
        )
    return {host: copying.merge_spans(spans) for host, spans in by_host.items()}


def _wanted(spans: tuple[copying.Span, ...], event: Event) -> copying.Wanted:
    wider = copying.merge_spans((begin - MARGIN_US, end + MARGIN_US) for begin, end in spans)
    history = {
        signal.name: -EVER
        for signal in known_signals.discover_signals()
        if isinstance(signal, sources.Signal) and signal.every >= SELDOM_S
    }
    return copying.Wanted(wider, history | dict.fromkeys(DENSE, event.time_us - DENSE_US))


@contextlib.contextmanager
def _staging(file: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a temporary folder beside the file, on the disk that needs the room anyway."""
    parent = file.absolute().parent
    try:
        with (
            stop_signals.interrupt_on_signals(),
            tempfile.TemporaryDirectory(
                prefix=".overnight-bundle-", dir=parent, ignore_cleanup_errors=True
            ) as folder,
        ):
            yield pathlib.Path(folder)
    except (OSError, errors.CannotError) as error:
        problem = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(problem, OSError):
            raise
        problem.filename = str(file)  # the folder is gone
        raise errors.unwritable(file, problem, "choose another file with -o FILE") from error


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
    """Copy the last snapshot of each host before the event, and the first after it."""
    taken: dict[str, list[tuple[int, pathlib.Path]]] = {}
    for path in sorted((home / "snapshots").glob("*/*.json")):
        try:
            snapshot_header = snapshots.load(path).header
            moment = datetime.datetime.fromisoformat(str(snapshot_header["taken_at"]))
            taken.setdefault(str(snapshot_header["host"]), []).append(
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
            snapshots.save(after, stage / path.relative_to(home), parents=True)
        if not earlier and known == []:
            yield f"no snapshot of {host}"
