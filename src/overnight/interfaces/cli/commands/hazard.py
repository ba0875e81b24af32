from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.interfaces.cli import fleet_view, profile_options, session
from overnight.model import times
from overnight.model.text import rounded

if TYPE_CHECKING:
    from overnight.app import fleet_questions

ORDER = 35
HEADINGS = ("uptime", "events", "host days", "per host week", "95 % interval")
INTERVAL = (
    "95 % interval: rates with which the counted events are plausible; it is wide where a band has few events or "
    "little watched time"
)


def hazard(
    current: session.Session,
    kind: fleet_view.KindOption = "",
    begin: profile_options.BeginOption = "",
    end: profile_options.EndOption = "",
) -> None:
    """Find whether events of a kind depend on uptime.

    A rate that rises with uptime, and falls after a reboot, points to a state that accumulates.
    """
    from overnight.app import fleet_questions

    request = fleet_questions.KindRequest(kind, begin, end)
    result = current.ask(fleet_questions.HAZARD, request)
    rows = [
        (
            _name(band),
            str(band.events),
            f"{band.host_days:,.1f}",
            rounded(band.rate),
            f"{rounded(band.rate_low)} to {rounded(band.rate_high)}",
        )
        for band in result.bands
    ]
    fleet_view.show(current, result, HEADINGS, rows, INTERVAL)


def _name(band: fleet_questions.Band) -> str:
    low = times.format_duration(band.from_hours * 3600)
    if band.to_hours is None:
        return f"{low} or more"
    return f"{low} to {times.format_duration(band.to_hours * 3600)}"


register = session.command(
    hazard, "In the morning", "hazard --kind net.driver_reset", scope=session.Scope.SERVER
)
