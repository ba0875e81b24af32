"""What assistants ask about the evidence of one host: a diagnosis, CPU time, top consumers, memory cgroups.

Each takes a data home, or the opened bundle of an event, and options that are plain JSON; the answer is the document of
the command of the same name.
"""

from __future__ import annotations

import io
import json
import pathlib
import platform
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from overnight import errors, sources
from overnight.app import windows
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.app import diagnose
    from overnight.model.event import Event

DIAGNOSE, CPU, TOP, CENSUS = "diagnose", "cpu", "top", "census"
Options = Mapping[str, Any]
Study = Callable[[windows.Evidence, Options], dict[str, Any]]


def run(
    name: str,
    found: windows.Evidence,
    options: Options,
    ask_fleet: diagnose.AskFleet | None = None,
) -> dict[str, Any]:
    """Answer from the evidence of an event, or of a window; `ask_fleet` is for a diagnosis."""
    if name == DIAGNOSE:
        return _diagnose(found, options, ask_fleet)
    answer = {CPU: _cpu, TOP: _top, CENSUS: _census}[name](found, options)
    # Tuples are lists, as in a bundle's answer.
    document: dict[str, Any] = json.loads(json.dumps(answer))
    return document


def _diagnose(
    found: windows.Evidence, options: Options, ask_fleet: diagnose.AskFleet | None
) -> dict[str, Any]:
    from overnight.app import diagnose

    chosen, out = found.event_id or diagnose.LAST, io.BytesIO()
    request = diagnose.Request(found.home, event_id=chosen, host=options.get("host", ""), ask_fleet=ask_fleet)  # fmt: skip
    diagnose.diagnose(request).write("json", out)
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


def _cpu(found: windows.Evidence, options: Options) -> dict[str, object]:
    from overnight.app import cpu

    every = options.get("every_seconds")
    request = cpu.Request(
        found.home,
        event=found.event_id or None,
        begin=found.begin,
        end=found.end,
        host=options.get("host") or None,
        core=options.get("core", ""),
        every_us=None if every is None else round(every * SECOND_US),
        worst=True,
    )
    return cpu.read_cpu(request).as_json()


def _top(found: windows.Evidence, options: Options) -> dict[str, object]:
    from overnight.app import top

    begin, end, host = found.begin, found.end, options.get("host", "")
    if found.event_id:
        from overnight.queries import case

        event = _find_event(found, host)
        window = case.Case(found.home, event).window
        host = event.host
        begin, end = map(windows.exact_text, (window.begin_us, window.end_us))
    query = windows.Query(begin, end, (host,) if host else (), options.get("core", ""))
    limit = options.get("limit", 20)
    return top.rank(top.Request(found.home, query, kind=options["kind"], limit=limit)).as_json()


def _census(found: windows.Evidence, options: Options) -> dict[str, object]:
    from overnight.app import census, events
    from overnight.store.ring import reader

    if found.event_id:
        event = _find_event(found, options.get("host", ""))
        return census.read_recorded(found.home, event.host, event.time_us + SECOND_US).as_json()
    [host, *_] = events.resolve_hosts(found.home, tuple(filter(None, (options.get("host"),))))
    extent = reader.Reader(found.home).extent(host)
    return census.read_recorded(found.home, host, extent[1] + 1 if extent else 0).as_json()


def _find_event(found: windows.Evidence, host: str) -> Event:
    from overnight.app import events

    return events.find_event(found.home, found.event_id, (host,) if host else None)


def take_census() -> dict[str, Any]:
    """Count the memory cgroups of this machine for a second."""
    from overnight.app import census

    return census.take(seconds=1.0).as_json()


def audit(host: str = "", root: pathlib.Path = sources.ROOT) -> dict[str, Any]:
    """Examine the units of this machine; raise CannotError for another host."""
    from overnight.app import audit

    if host not in ("", platform.node()):
        raise errors.CannotError(
            f"the units of {host} cannot be audited from here",
            why="without a server, only this machine is examined",
            todo="`overnight mcp --server URL`, or `overnight audit` on the host",
        )
    return audit.examine(root).as_json()
