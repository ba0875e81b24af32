"""The viewer page from the command line: opened on what was asked, with the events to mark on it."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeAlias

import typer

from overnight import errors
from overnight.interfaces.cli import files

if TYPE_CHECKING:
    from overnight.interfaces.cli import profile_options
    from overnight.model.event import Event
    from overnight.model.flame import Folded
    from overnight.model.selection import Window
    from overnight.queries import flame as query

__all__ = ["MarkOption", "Write", "deliver_page", "folded", "parse_marks"]

MOST_EVENTS = 40  # beyond, marks would hide what they point at

Write: TypeAlias = Callable[[BinaryIO], None]

MarkOption = Annotated[
    list[str] | None,
    typer.Option("--mark", metavar="TIME[=TEXT]", help="Mark an instant; again for more."),
]

# What a page finds out only from whole samples: sums over segments know process and stack alone.
NEEDS_SAMPLES = ("core", "thread", "unit")


def parse_marks(chosen: profile_options.Chosen, marks: list[str] | None) -> tuple[Event, ...]:
    """The instants that --mark names, and the recorded events of the window that matter most."""
    from overnight.model import times
    from overnight.model.event import Event

    found = _recorded(chosen)
    for mark in marks or []:
        when, _, text = mark.partition("=")
        instant = times.parse_instant(
            when,
            now_us=time.time_ns() // 1000,
            origin_us=chosen.reader.extent(chosen.hosts).begin_us,
        )
        found.append(Event(instant, "mark", text))
    return tuple(sorted(found, key=lambda one: one.time_us))


def _recorded(chosen: profile_options.Chosen) -> list[Event]:
    from overnight.store.ring import reader

    told = reader.Reader(chosen.reader.catalogue.home).events(
        chosen.window.begin_us, chosen.window.end_us, chosen.hosts
    )
    worth = {"critical": 0, "warning": 1}
    worst = sorted(
        (one for one in told if one.severity in worth),
        key=lambda one: (worth[one.severity], one.time_us),
    )
    return worst[:MOST_EVENTS]


def folded(tree: query.FlameTree, chosen: profile_options.Chosen, *, title: str = "") -> Folded:
    """The value that the writers of formats take."""
    from overnight.app import folded_stacks

    covered = tree.coverage
    touched = chosen.reader.touched(covered.hosts, covered.window)
    meta = touched[0].meta() if touched else None
    return folded_stacks.fold(
        tree,
        title or chosen.title,
        event=meta.events[0] if meta and meta.events else "",
        frequency=meta.frequency if meta else 0,
    )


def deliver_page(
    chosen: profile_options.Chosen,
    marks: tuple[Event, ...],
    file: pathlib.Path | None,
    *,
    title: str = "",
    selected: bool = True,
    baseline: Window | None = None,
    **opening: Any,
) -> None:
    """The viewer page for one host, with the window selected and the filters set.

    `opening` is what else `reports.html.Opening` says.
    """
    from overnight.app import viewer_page
    from overnight.reports import html

    if len(chosen.hosts) != 1:
        raise errors.UsageError(
            f"a page of {len(chosen.hosts)} hosts",
            why="a page shows the cores of one",
            todo=f"choose one: --host {chosen.hosts[0]}",
        )
    asked = chosen.asked
    if asked.perf_event:
        raise errors.UsageError(
            "a page of one perf event among several",
            why="a page holds the first that each capture sampled",
            todo="-O svg, or leave --perf-event out",
        )
    needs = [name for name in NEEDS_SAMPLES if name in asked.filters()]
    needs += [what for what in (opening.get("top"),) if what in ("threads", "units")]
    shown = viewer_page.page_view(
        chosen.reader,
        chosen.hosts[0],
        (chosen.window, *([baseline] if baseline else [])),
        chosen.selection,
        marks=marks,
        title=f"{chosen.title}{title}",
        needs=tuple(needs),
    )
    opened = html.Opening(
        window=chosen.window if selected else None,
        baseline=baseline,
        process=asked.process,
        thread=asked.thread,
        unit=asked.unit,
        cores=asked.core,
        idle=asked.idle,
        **opening,
    )
    files.deliver(lambda out: html.write_view(shown, out, opened), file, binary=False)
