"""Which samples of a data home a question is about: hosts, a window, filters.

Importing this is cheap; only `open_samples` and `open_reader` import numpy and DuckDB.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from overnight import errors, sources
from overnight.app import open_segment
from overnight.model import times
from overnight.model.selection import Selection, Window, parse_event

if TYPE_CHECKING:
    from overnight.model.selection import Coverage
    from overnight.queries import reader

PLACE = ("begin", "end", "host")
_Answer = TypeVar("_Answer")


@dataclasses.dataclass(frozen=True)
class Query:
    """A window and filters as a user writes them; what is empty selects everything.

    A new filter is a field here and a field of the same name in `model.selection.Selection`.
    """

    begin: str = ""
    end: str = ""
    host: tuple[str, ...] = ()
    core: str = ""
    process: str = ""
    thread: str = ""
    function: str = ""
    unit: str = ""
    side: str = ""
    idle: bool = False
    perf_event: str = ""

    def filters(self) -> dict[str, str | bool]:
        """Return the filters that are set, by field name."""
        values = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return {name: value for name, value in values if value and name not in PLACE}

    def filters_text(self) -> str:
        """Return the filters as command-line options: `--core 39 --process dd`."""
        return " ".join(
            (f"--{name}" if value is True else f"--{name} {value}").replace("_", "-", 1)
            for name, value in self.filters().items()
        )


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The data home that holds the evidence of an event or a window: a user's own, or an opened bundle.

    `until_us`: the end of a bundle's window; 0: unknown.

    Times are as users write them; those of a bundle are absolute, because its recording begins elsewhere.
    """

    home: pathlib.Path
    event_id: str = ""
    begin: str = ""
    end: str = ""
    at: str = ""  # of an incident that is not an event
    until_us: int = 0


@dataclasses.dataclass(frozen=True)
class Request:
    """A question about profiles; each use case adds its options."""

    home: pathlib.Path
    query: Query
    marks: tuple[str, ...] = ()  # TIME[=TEXT], for a page


@dataclasses.dataclass(frozen=True)
class Samples:
    """A query resolved against the profiles of a data home."""

    reader: reader.Reader
    hosts: tuple[str, ...]
    window: Window
    selection: Selection
    query: Query

    @property
    def title(self) -> str:
        return f"{', '.join(self.hosts)}, {times.format_instant(self.window.begin_us)}"

    @property
    def place(self) -> tuple[pathlib.Path, tuple[str, ...], Window, Window]:
        """Data home, hosts, window, and all that is recorded of them."""
        recorded = self.reader.extent(self.hosts)
        return self.reader.catalogue.home, self.hosts, self.window, recorded

    def ask(self, query: Callable[..., _Answer], **options: object) -> _Answer:
        """Run a function of `queries` on these samples."""
        return query(self.reader, self.window, self.selection, hosts=self.hosts, **options)

    def explain(self, coverage: Coverage, mode: str = "busy") -> Coverage:
        """Return the coverage of an answer, with the reason if it has no samples."""
        from overnight.queries import emptiness

        return emptiness.explained(coverage, self.reader, self.selection, mode)


def exact_text(us: int) -> str:
    """Return an instant as a text that means the same in every data home.

    >>> exact_text(1_794_712_447_250_000)
    '1794712447.250000'
    """
    return f"{us // times.SECOND_US}.{us % times.SECOND_US:06}"


def open_reader(home: pathlib.Path) -> reader.Reader:
    from overnight.queries import reader
    from overnight.store import segments

    return reader.Reader(segments.Catalogue(home))


def open_samples(request: Request) -> Samples:
    """Resolve a query; raises UsageError or CannotError where it selects nothing that exists."""
    query = request.query
    filters: dict[str, Any] = query.filters()
    cores = parse_cores(filters.pop("core", ""))
    event = parse_event(filters.pop("perf_event", "0"))
    selection = Selection(cores=cores, event=event, **filters)
    reader, recorded = open_reader(request.home), None
    try:
        hosts = reader.hosts(query.host)
        recorded = reader.extent(hosts)
        window = resolve_window(recorded, query.begin, query.end)
    except errors.CannotError as error:
        if (writing := open_segment.read_open(request.home)) is None:
            raise
        recorded = Window((recorded or writing).begin_us, writing.end_us)
        asked = parse_window(query.begin, query.end, recorded, recorded)
        if not writing.holds(asked, query.host):
            raise
        todo = "run this command again then; `overnight cpu` and `overnight events` show what is recorded until now"
        raise errors.CannotError(error.what, why=str(writing), todo=todo) from error
    return Samples(reader, hosts, window, selection, query)


def resolve_window(extent: Window, begin: str, end: str) -> Window:
    """Return the window between two texts; an empty one means the begin or end of `extent`."""
    window = parse_window(begin, end, extent, extent)
    if window.end_us <= extent.begin_us or window.begin_us >= extent.end_us:
        show = times.format_instant
        raise errors.CannotError(
            f"nothing was recorded between {show(window.begin_us)} and {show(window.end_us)}",
            why=f"the recording covers {show(extent.begin_us)} to {show(extent.end_us)}",
            todo="choose -b and -e within the recording",
        )
    return window


def parse_window(begin: str, end: str, default: Window, recorded: Window) -> Window:
    """Parse two instants: `22:41` is the last one until the recording ended, `5s` is 5 s after it began, and
    an end of `+5s` is 5 s after the begin.
    """
    now = times.now_us()
    first, last, origin_us = default.begin_us, default.end_us, recorded.begin_us
    before = min(now, recorded.end_us)
    if begin:
        first = times.parse_instant(begin, now_us=now, origin_us=origin_us, before_us=before)
    if end:
        origin_us = first if end.startswith("+") else origin_us
        # -b 'yesterday 03:00' -e 03:10 ends on the same day.
        begin_us = first if begin else None
        last = times.parse_instant(
            end, now_us=now, origin_us=origin_us, before_us=before, begin_us=begin_us
        )
    return Window(first, last)


def parse_cores(text: str) -> tuple[int, ...]:
    """Read a list of cores: `39`, `0-3,8`."""
    try:
        return sources.parse_cpu_list(text)
    except ValueError as error:
        raise errors.UsageError(
            f"{text!r} is not a list of cores", why=str(error), todo="write it as 39 or 0-3,8"
        ) from error
