"""`overnight events`: what the flight recorder recorded, listed or followed. No numpy."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from overnight import errors
from overnight.app import windows
from overnight.model import times
from overnight.model.emptiness import Empty, Reason
from overnight.model.selection import Window
from overnight.model.severity import Severity
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    import threading

    from overnight.model.event import Event

SCHEMA = "overnight.events/1"
POLL_SECONDS = 0.5
EVER = 1 << 62
LAST = "last"  # instead of an id: the last serious event
MAX_KNOWN = 5


@dataclasses.dataclass(frozen=True)
class Request:
    """Which events; what is empty selects everything. Times and cores are as users write them."""

    home: pathlib.Path
    event_id: str = ""
    begin: str = ""
    end: str = ""
    hosts: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()  # a kind, or a prefix that ends with a dot
    severity: str = Severity.INFO  # at least
    core: str = ""
    labels: tuple[str, ...] = ()  # NAME=VALUE; an event has all of them


@dataclasses.dataclass(frozen=True)
class Gap:
    """A time in which nothing was recorded on a host."""

    host: str
    begin_us: int
    end_us: int
    why: str


@dataclasses.dataclass(frozen=True)
class Listing:
    """Events by time, gaps in the same window, and files that could not be read."""

    begin_us: int
    end_us: int
    hosts: tuple[str, ...]
    events: tuple[Event, ...]
    gaps: tuple[Gap, ...]
    problems: tuple[str, ...]
    empty: Empty | None = None  # why there are no events

    def as_json(self) -> dict[str, object]:
        listing = dataclasses.asdict(dataclasses.replace(self, events=()))
        return {"schema": SCHEMA, **listing, "events": [event.as_json() for event in self.events]}


def make_filter(request: Request) -> Callable[[Event], bool]:
    """Return the parts of a request that the reader does not apply itself."""
    from overnight.app import added_events  # which imports this module

    if request.severity not in tuple(Severity):
        raise errors.UsageError(
            f"no severity {request.severity!r}",
            why="it is not one of the three severities",
            todo=f"one of {', '.join(Severity)}",
        )
    rank = Severity(request.severity).rank
    cores = windows.parse_cores(request.core)
    labels = dict(map(added_events.parse_label, request.labels)).items()
    return lambda event: (
        Severity.of(event.severity).rank >= rank
        and (not cores or event.core in cores)
        and all(str(event.fields.get(name)) == value for name, value in labels)
        and (not request.event_id or event.id == request.event_id)
    )


def list_events(request: Request) -> Listing:
    """Return the stored events; raise CannotError where an event or host that was named is missing."""
    hosts = resolve_hosts(request.home, request.hosts)
    if request.event_id:
        found = find_event(request.home, request.event_id, hosts)
        request = dataclasses.replace(request, event_id=found.id)
    accepts = make_filter(request)
    ring = rings.Reader(request.home)
    extents = [extent for host in hosts if (extent := ring.extent(host))]
    everything = Window(0, times.now_us() + times.SECOND_US)
    recorded = (
        Window(min(b for b, _ in extents), max(e for _, e in extents)) if extents else everything
    )
    window = windows.parse_window(request.begin, request.end, everything, recorded)
    stored = ring.events(window.begin_us, window.end_us, hosts, request.kinds or None)
    events = tuple(filter(accepts, stored))
    if request.event_id and not events:
        raise _no_event(request.event_id)
    gaps = tuple(
        Gap(host, gap.begin_us, gap.end_us, gap.why)
        for host in hosts
        for gap in ring.gaps(host, window.begin_us, window.end_us)
    )
    empty = None
    if not events:
        every = ring.events(window.begin_us, window.end_us, hosts)
        empty = _explain_empty(request, extents, window, every, stored)
    return Listing(window.begin_us, window.end_us, hosts, events, gaps, tuple(ring.problems), empty)


def _explain_empty(
    request: Request,
    extents: list[tuple[int, int]],
    window: Window,
    every: tuple[Event, ...],
    of_kind: tuple[Event, ...],
) -> Empty:
    spans = tuple(" to ".join(map(times.format_instant, extent)) for extent in extents)
    if not any(first < window.end_us and last >= window.begin_us for first, last in extents):
        return Empty(Reason.NOT_RECORDED, "", "", spans, "recorded")
    if not every:
        return Empty(Reason.NONE, "events", "", spans, "recorded")
    alone = (
        Request(request.home, severity=request.severity),
        Request(request.home, core=request.core),
        Request(request.home, labels=request.labels),
    )
    severe, there, labelled = (tuple(filter(make_filter(filters), every)) for filters in alone)
    values = {
        "kind": " ".join(request.kinds), "severity": request.severity, "core": request.core,
        "label": " --label ".join(request.labels),
    }  # fmt: skip
    found = dict(zip(values, (of_kind, severe, there, labelled), strict=True))
    for name, wanted in values.items():
        if not found[name]:
            counts = collections.Counter(value for event in every for value in _values(event, name))
            known = tuple(value for value, _ in counts.most_common(MAX_KNOWN) if value != "-1")
            return Empty(Reason.NO_MATCH, "event", f"--{name} {wanted}", known, "most events")
    used = (name for name in values if len(found[name]) < len(every))
    return Empty(Reason.NO_COMBINATION, "", " ".join(f"--{name} {values[name]}" for name in used))


def _values(event: Event, name: str) -> list[str]:
    if name != "label":
        return [str(getattr(event, name))]
    return [f"{label}={value}" for label, value in event.fields.items()]


def follow(request: Request, stop: threading.Event) -> Iterator[tuple[Event, Event | None]]:
    """Yield each event until `stop` is set, and again when it changes, with what it was before."""
    accepts = make_filter(request)
    ring = rings.Reader(request.home)
    hosts = resolve_hosts(request.home, request.hosts)

    def read(window: Window) -> Iterable[Event]:
        stored = ring.events(window.begin_us, window.end_us, hosts, request.kinds or None)
        return filter(accepts, stored)

    return poll(read, stop, POLL_SECONDS)


def poll(
    read: Callable[[Window], Iterable[Event]], stop: threading.Event, seconds: float
) -> Iterator[tuple[Event, Event | None]]:
    """Yield the events since now that are new or changed, as `follow` does."""
    begin = times.now_us()
    seen: dict[str, Event] = {}
    while not stop.is_set():
        # The clock may be set back.
        for event in read(Window(begin, max(begin, times.now_us()) + times.SECOND_US)):
            before = seen.get(event.id)
            if event != before:
                seen[event.id] = event
                yield event, before
        stop.wait(seconds)


def find_event(home: pathlib.Path, event_id: str, hosts: tuple[str, ...] | None = None) -> Event:
    """Return the event of that id, short id, or a prefix of either that only one event has."""
    found: dict[str, Event] = {}
    for event in rings.Reader(home).events(-EVER, EVER, hosts):
        if event.id == event_id and event_id:
            return event
        if event_id and (event.id.startswith(event_id) or event.short_id.startswith(event_id)):
            found[event.id] = event
    if len(found) > 1:
        raise errors.UsageError(
            f"{event_id!r} matches {len(found)} events",
            why=", ".join([*found][:5]) + (", …" if len(found) > 5 else ""),
            todo="write more of the id; `overnight events` lists the ids",
        )
    for event in found.values():
        return event
    raise _no_event(event_id)


def _no_event(event_id: str) -> errors.CannotError:
    return errors.CannotError(
        f"no event {event_id!r} is stored",
        why="it was not recorded, or is older than what is kept",
        todo="`overnight events` lists the ids of stored events",
    )


def resolve_hosts(home: pathlib.Path, hosts: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return these hosts, or all that are recorded; raise CannotError where one has no signals."""
    known = rings.Reader(home).hosts()
    if not known:
        raise errors.CannotError(
            f"no signals are recorded under {home}",
            why="no recorder has run with this data home",
            todo="`overnight record --for 12h`, `overnight record --signals-only --for 10m`, or `overnight diagnose BUNDLE`",
        )
    for name in hosts:
        if name not in known:
            raise errors.CannotError(
                f"no signals of host {name!r} are recorded",
                why=f"recorded hosts: {', '.join(known)}",
                todo="choose one of these with --host",
            )
    return hosts or known
