"""Answers about profiles as files: the viewer page, its marks, and stacks for other formats."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from overnight import errors
from overnight.app import viewer_page
from overnight.model import times
from overnight.model.event import Event
from overnight.model.severity import Severity
from overnight.queries import top
from overnight.reports import html
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    from overnight.app import windows
    from overnight.model.selection import Window

Writer: TypeAlias = Callable[[BinaryIO], None]

MAX_EVENTS = 40  # beyond, marks would hide what they point at
# Filters that need whole samples: sums over segments know only process and stack.
NEEDS_SAMPLES = ("core", "thread", "unit")


def find_marks(
    home: pathlib.Path,
    hosts: tuple[str, ...],
    window: Window,
    recorded: Window,
    marks: tuple[str, ...],
) -> tuple[Event, ...]:
    """Return the instants of `marks` (`TIME[=TEXT]`) and the worst recorded events of the window."""
    events = _worst_events(home, hosts, window)
    for mark in marks:
        instant, _, text = mark.partition("=")
        now_us, origin = times.now_us(), recorded.begin_us
        time_us = times.parse_instant(instant, now_us=now_us, origin_us=origin)
        events.append(Event(time_us, "mark", text))
    return tuple(sorted(events, key=lambda event: event.time_us))


def _worst_events(home: pathlib.Path, hosts: tuple[str, ...], window: Window) -> list[Event]:
    events = rings.Reader(home).events(window.begin_us, window.end_us, hosts)
    serious = [event for event in events if Severity.of(event.severity).rank]
    serious.sort(key=lambda event: (-Severity.of(event.severity).rank, event.time_us))
    return serious[:MAX_EVENTS]


def make_page(
    samples: windows.Samples,
    marks: tuple[str, ...],
    *,
    title: str = "",
    selected: bool = True,
    baseline: Window | None = None,
    **opening: Any,
) -> Writer:
    """Return the viewer page of one host; `opening` holds further fields of `reports.html.Opening`."""
    if len(samples.hosts) != 1:
        raise errors.UsageError(
            f"a page cannot show {len(samples.hosts)} hosts",
            why="a page shows the cores of one host",
            todo=f"choose one: --host {samples.hosts[0]}",
        )
    query = samples.query
    if query.perf_event:
        raise errors.UsageError(
            "a page cannot show one perf event among several",
            why="a page holds the first event that each capture sampled",
            todo="use -O svg, or leave --perf-event out",
        )
    needs = [name for name in NEEDS_SAMPLES if name in query.filters()]
    needs += [table for table in (opening.get("top"),) if table in ("threads", "units")]
    view = viewer_page.page_view(
        samples.reader,
        samples.hosts[0],
        (samples.window, *([baseline] if baseline else [])),
        samples.selection,
        marks=find_marks(*samples.place, marks),
        title=f"{samples.title}{title}",
        needs=tuple(needs),
    )
    if query.filters() or not len(view.arrays["row_stack"]):
        empty = samples.explain(samples.ask(top.top, limit=1).coverage).empty
        view = dataclasses.replace(view, notes=(*([str(empty)] if empty else []), *view.notes))
    opened = html.Opening(
        window=samples.window if selected else None,
        baseline=baseline,
        process=query.process,
        thread=query.thread,
        unit=query.unit,
        cores=query.core,
        idle=query.idle,
        **opening,
    )
    return lambda out: html.write_view(view, out, opened)
