"""How much of a window was recorded, from the descriptions of its segments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from overnight.model.selection import Coverage, Damage, Selection, Window, match_event
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.store import segments

Metas: TypeAlias = "dict[segments.Segment, segments.Meta]"


def recorded_seconds(segment: segments.Segment, meta: segments.Meta, window: Window) -> float:
    """Return how much of the window a segment covers, its gaps excluded."""
    at, end = max(segment.begin_us, window.begin_us), min(segment.end_us, window.end_us)
    recorded = 0
    for begin, until, _ in sorted(meta.gaps):
        recorded += max(0, min(begin, end) - at)
        at = max(at, until)
    return (recorded + max(0, end - at)) / 1e6


def _find_missing(
    hosts: tuple[str, ...], window: Window, stored: Iterable[tuple[str, int, int]]
) -> Iterator[tuple[int, int, str]]:
    """Yield the spans of at least a second of which nothing is stored, by host."""
    spans: dict[str, list[tuple[int, int]]] = {host: [] for host in hosts}
    for host, begin, end in stored:
        spans[host].append((begin, end))
    for host, known in spans.items():
        why = f"nothing is stored of {host}" if len(hosts) > 1 else "nothing is stored"
        at = window.begin_us
        for begin, end in (*sorted(known), (window.end_us, window.end_us)):
            if begin - at >= SECOND_US:
                yield at, begin, why
            at = max(at, end)


def _lost(metas: Metas, window: Window) -> tuple[int, bool]:
    """Return the samples lost in the window, and whether that is only an upper bound."""
    lost, bounded = 0, False
    for segment, meta in metas.items():
        if window.begin_us <= segment.begin_us and segment.end_us <= window.end_us:
            lost += meta.lost
            continue
        # Without times, a segment may have lost them at any moment.
        for begin, end, count in meta.losses or ((segment.begin_us, segment.end_us, meta.lost),):
            if begin < window.end_us and end > window.begin_us and count:
                lost += count
                bounded = bounded or begin < window.begin_us or end > window.end_us
    return lost, bounded


def resolve_event(chosen: Selection, metas: Metas, window: Window) -> Selection:
    """Return the selection of one event: samples of different events do not add up.

    The first letters of a name are completed. An index becomes the name of the event that covers most of
    the window where the captures do not agree on its name.
    """
    if isinstance(chosen.event, str):
        names = (name for meta in metas.values() for name in meta.events)
        return (
            dataclasses.replace(chosen, event=match_event(chosen.event, names)) if metas else chosen
        )
    seconds: dict[str, float] = {}
    for segment, meta in metas.items():
        for name in meta.events[chosen.event : chosen.event + 1]:
            seconds[name] = seconds.get(name, 0.0) + recorded_seconds(segment, meta, window)
    if len(seconds) < 2:
        return chosen
    return dataclasses.replace(chosen, event=max(seconds, key=lambda name: seconds[name]))


def measure(
    hosts: tuple[str, ...],
    window: Window,
    metas: Metas,
    chosen: Selection,
    damaged: tuple[Damage, ...],
    *,
    samples: int,
    idle: int = 0,
) -> Coverage:
    seconds = core_seconds = capacity = 0.0
    gaps = dict.fromkeys((each.begin_us, each.end_us, "damaged segment") for each in damaged)
    notes = dict.fromkeys(map(str, damaged))
    events: dict[str, None] = {}
    without: list[segments.Meta] = []
    for segment, meta in metas.items():
        event = chosen.event_in(meta.events)
        if event < 0:
            without.append(meta)
            continue
        known = {core for core in meta.cores if core >= 0}
        cores = len(known & set(chosen.cores) if chosen.cores else known)
        each = recorded_seconds(segment, meta, window)
        seconds += each
        core_seconds += each * cores
        capacity += each * cores * meta.frequency
        gaps.update((g, None) for g in meta.gaps if g[0] < window.end_us and g[1] > window.begin_us)
        notes.update(dict.fromkeys(meta.notes))
        events.update(dict.fromkeys(meta.events[event : event + 1]))
    if without:
        others = ", ".join(dict.fromkeys(name for meta in without for name in meta.events))
        notes[
            f"{chosen.event} was not recorded in {len(without)} of {len(metas)} segments: they have {others},"
            " which is not added up (--perf-event)"
        ] = None
    stored = [(segment.host, segment.begin_us, segment.end_us) for segment in metas]
    stored += [(each.host, each.begin_us, each.end_us) for each in damaged]
    gaps.update((gap, None) for gap in _find_missing(hosts, window, stored))
    lost, bounded = _lost(metas, window)
    if bounded:
        notes[
            f"at most {lost:,} samples were lost in this window: the exact time of some is unknown"
        ] = None
    return Coverage(
        hosts=hosts,
        window=window,
        recorded_seconds=round(seconds, 6),
        core_seconds=core_seconds,
        capacity=capacity,
        samples=samples,
        idle=idle,
        lost=lost,
        segments=len(metas),
        gaps=tuple(sorted(gaps)),
        notes=tuple(notes),
        damaged=damaged,
        event=next(iter(events), ""),
    )
