"""`overnight diff`: what changed in a window against a baseline."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

from overnight import errors
from overnight.app import folded_stacks, windows
from overnight.model.selection import Window
from overnight.model.times import MINUTE_US
from overnight.queries import diff

if TYPE_CHECKING:
    from overnight.app import pages

Difference: TypeAlias = diff.Difference

BASELINE_US = 10 * MINUTE_US


@dataclasses.dataclass(frozen=True)
class Request(windows.Request):
    """`baseline` and `baseline_end` are times as users write them; by default the 10 minutes before."""

    baseline: str = ""
    baseline_end: str = ""
    baseline_hosts: tuple[str, ...] = ()  # empty: the hosts of the query
    limit: int = 25


def compare(request: Request) -> Difference:
    samples, hosts, baseline = _resolve(request)
    compared = diff.diff(
        samples.reader,
        samples.window,
        baseline,
        samples.selection,
        hosts=samples.hosts,
        baseline_hosts=hosts,
        limit=request.limit,
    )
    return dataclasses.replace(
        compared,
        coverage=samples.explain(compared.coverage),
        baseline=samples.explain(compared.baseline),
    )


def draw_svg(request: Request) -> pages.Writer:
    """Return a picture of both flame graphs, one above the other."""
    from overnight.queries import flame
    from overnight.reports.pictures import difference

    samples, hosts, baseline = _resolve(request)
    now = samples.ask(flame.flame)
    before = flame.flame(samples.reader, baseline, samples.selection, hosts=hosts)
    filters = samples.query.filters_text()
    compared = difference.Compared(
        folded_stacks.fold(samples.reader, now, samples.title),
        folded_stacks.fold(samples.reader, before, samples.title),
        now.coverage.capacity,
        before.coverage.capacity,
        f"only {filters}" if filters else "",
    )
    return lambda out: difference.write_difference(compared, out)


def make_page(request: Request) -> pages.Writer:
    """Return the viewer page, opened on the comparison."""
    from overnight.app import pages

    samples, hosts, baseline = _resolve(request)
    if hosts != samples.hosts:
        raise errors.UsageError(
            "a page cannot compare hosts",
            why="a page shows the cores of one host",
            todo="use -O text, json or svg; or leave --baseline-host out",
        )
    return pages.make_page(
        samples,
        request.marks,
        title=", what changed",
        baseline=baseline,
        rank="total",
        limit=request.limit,
    )


def _resolve(request: Request) -> tuple[windows.Samples, tuple[str, ...], Window]:
    """Return the samples, and hosts and window of the baseline."""
    samples = windows.open_samples(request)
    reader, window = samples.reader, samples.window
    hosts = reader.hosts(request.baseline_hosts) if request.baseline_hosts else samples.hosts
    extent = reader.extent(hosts)
    if request.baseline:
        end = request.baseline_end or str(window.begin_us / 1e6)
        return samples, hosts, windows.resolve_window(extent, request.baseline, end)
    first = max(extent.begin_us, window.begin_us - BASELINE_US)
    if first >= window.begin_us:
        raise errors.UsageError(
            "there is no baseline before the window",
            why="the window begins with the recording",
            todo="name a baseline: --baseline TIME --baseline-end TIME",
        )
    return samples, hosts, Window(first, window.begin_us)
