"""`overnight top`: the processes, threads, units or functions that used the cores."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

from overnight.app import windows
from overnight.queries import top

if TYPE_CHECKING:
    from overnight.app import pages

Top: TypeAlias = top.Top


@dataclasses.dataclass(frozen=True)
class Request(windows.Request):
    kind: str = "processes"
    limit: int = 20
    who: bool = False  # the processes behind each name


def rank(request: Request) -> Top:
    samples = windows.open_samples(request)
    ranked = samples.ask(top.top, kind=request.kind, limit=request.limit, who=request.who)
    return dataclasses.replace(ranked, coverage=samples.explain(ranked.coverage))


def make_page(request: Request) -> pages.Writer:
    """Return the viewer page, opened on the table."""
    from overnight.app import pages

    top.check_kind(request.kind)
    return pages.make_page(
        windows.open_samples(request),
        request.marks,
        title=f", top {request.kind}",
        top=request.kind,
        limit=request.limit,
        rank="total",
        tables_first=True,
    )
