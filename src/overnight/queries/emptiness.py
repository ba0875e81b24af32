"""Find out why no sample of a window passes the filters; runs only for an empty answer."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from overnight.model import times
from overnight.model.cpu import format_cores
from overnight.model.emptiness import Empty, Reason
from overnight.queries import reader, top

if TYPE_CHECKING:
    from overnight.model.selection import Coverage, Selection

KINDS = {"process": "processes", "thread": "threads", "unit": "units", "function": "functions"}
MAX_KNOWN = 5


def explained(
    coverage: Coverage, source: reader.Reader, chosen: Selection, mode: str = "busy"
) -> Coverage:
    """Return the coverage of an answer, with the reason if it has no samples."""
    if coverage.samples:
        return coverage
    return dataclasses.replace(coverage, empty=_explain(coverage, source, chosen, mode))


def _explain(coverage: Coverage, source: reader.Reader, chosen: Selection, mode: str) -> Empty:
    hosts, window = coverage.hosts, coverage.window
    metas = source.metas(hosts, window).values()
    if not metas and coverage.damaged:
        return Empty(Reason.DAMAGED)
    events = tuple(dict.fromkeys(name for meta in metas for name in meta.events))
    if metas and isinstance(chosen.event, int) and chosen.event >= len(events):
        wanted = str(chosen.event)
        return Empty(Reason.NO_PERF_EVENT, "perf event", wanted, events, "recorded events")
    if not coverage.recorded_seconds:
        stored = [each for host in hosts for each in source.catalogue.segments(host)]
        before = max((s.end_us for s in stored if s.end_us <= window.begin_us), default=None)
        after = min((s.begin_us for s in stored if s.begin_us >= window.end_us), default=None)
        known = tuple(
            f"{word} {times.format_instant(us)}"
            for word, us in (("until", before), ("from", after))
            if us is not None
        )
        return Empty(Reason.NOT_RECORDED, "", "", known, "recorded")
    cores = {core for meta in metas for core in meta.cores if core >= 0}
    if chosen.cores and not cores.intersection(chosen.cores):
        wanted = format_cores(chosen.cores)
        return Empty(Reason.NO_CORE, "core", wanted, (format_cores(cores),), "recorded cores")
    plain = dataclasses.replace(chosen, process="", thread="", unit="", function="", side="")

    def rank(chosen: Selection, kind: str = "processes") -> top.Top:
        return top.top(source, window, chosen, hosts=hosts, kind=kind, limit=MAX_KNOWN)

    samples = rank(plain).coverage.samples
    if not samples:
        return Empty(Reason.IDLE)
    filters = {name: getattr(chosen, name) for name in (*KINDS, "side") if getattr(chosen, name)}
    for name, wanted in filters.items():
        alone = dataclasses.replace(plain, **{name: wanted})
        if not rank(alone).coverage.samples:
            rows = rank(plain, KINDS[name]).rows if name in KINDS else ()
            known = tuple(row.name for row in rows if row.name != top.NO_UNIT)
            return Empty(Reason.NO_MATCH, name, wanted, known, "most samples")
    if mode != "busy":
        return Empty(Reason.NONE, f"{mode} samples", "", (f"{samples:,}",), "busy samples")
    wanted = " ".join(f"--{name} {value}" for name, value in filters.items())
    return Empty(Reason.NO_COMBINATION, "", wanted)
