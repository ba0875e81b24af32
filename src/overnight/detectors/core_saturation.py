"""Cores that were saturated around the event while the mean over all cores shows an idle host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _base, _saturation
from overnight.model import times
from overnight.model.finding import Answer, Evidence, Finding, Need, Subject

if TYPE_CHECKING:
    from overnight.queries import case as cases

__all__ = ["DETECTORS", "KIND", "CoreSaturation"]

KIND = "cpu.core_saturated"
MAX_FINDINGS = 8
# Without a baseline it is not known whether this is ordinary.
NO_BASELINE = 0.7
# From here on the whole host was saturated, and the one core stands out less.
ALL_SATURATED, ALL_SATURATED_FACTOR = 85.0, 0.8
# A core that was saturated in the baseline had no room; at least this much counts as added.
MIN_ROOM = 0.1


class CoreSaturation(_base.BaseDetector):
    """Saturation of at least two seconds on one core that began before the event."""

    name = "core-saturation"
    needs = (Need.CPU, Need.PROFILES)

    def examine(self, case: cases.Case) -> Answer:
        found = _saturation.find_saturation(case)
        findings = [_finding(case, found, stretch) for stretch in found.stretches[:MAX_FINDINGS]]
        more = len(found.stretches) - len(findings)
        remark = f"{more} more cores were saturated" if more else ""
        return self.answer(findings, clear=_why_clear(case, found), remark=remark)


def _why_clear(case: cases.Case, found: _saturation.Saturation) -> str:
    mean = f"the mean over {len(found.series.cores)} cores was {found.series.mean_percent:.0f} %"
    if found.ordinary:
        return (
            f"{found.ordinary} cores were saturated, as often and as long as in the baseline"
            f" ({case.baseline_text}); {mean}"
        )
    if found.series.mean_percent >= _saturation.OTHERS:
        return f"the whole host was busy, so no core stood out: {mean}"
    return (
        f"no core was saturated for {_saturation.SECONDS:.0f} s while the others had room; {mean}"
    )


def _finding(
    case: cases.Case, found: _saturation.Saturation, stretch: _saturation.Stretch
) -> Finding:
    series, location = found.series, found.location
    is_event_core = location.core == stretch.core
    expected = found.expected(stretch, case.window.seconds, same_core=is_event_core)
    confidence = 0.95 if is_event_core else 0.8 if location.core is None else 0.5
    if series.source != "cpu":
        confidence *= 0.8
    if not found.baseline_seconds:
        confidence *= NO_BASELINE
    against = []
    if expected >= _saturation.ORDINARY:
        confidence *= 0.5
        against.append(
            Evidence(
                f"this is ordinary: from the baseline, {expected:.1f} times as long on this core are"
                " expected in a window of this length",
                series.source,
                {
                    "expected_in_window": round(expected, 2),
                    "baseline_seconds": round(found.baseline_seconds),
                },
                case.baseline,
            )
        )
    if stretch.others_percent >= _saturation.OTHERS:
        if stretch.others_percent >= ALL_SATURATED:
            confidence *= ALL_SATURATED_FACTOR
        against.append(
            Evidence(
                f"the other cores were busy, too: {stretch.others_percent:.0f} % of their time",
                series.source,
                {"others_percent_of_their_time": round(stretch.others_percent, 1)},
                stretch.window,
            )
        )
    baseline = _saturation.baseline_percent(case, stretch.core)
    return _base.make(
        "core-saturation",
        KIND,
        Subject(host=case.host, core=stretch.core),
        stretch.window,
        confidence,
        f"core {stretch.core} was {stretch.busy_percent:.0f} % busy for {stretch.seconds:.0f} s"
        f" ({stretch.kernel_percent:.0f} % in the kernel) while the mean over all cores was"
        f" {stretch.mean_percent:.0f} %",
        _evidence(case, found, stretch, baseline),
        {
            "seconds": stretch.seconds,
            "busy_percent": stretch.busy_percent,
            "kernel_percent": stretch.kernel_percent,
            "others_percent": stretch.others_percent,
            "cores_burnt": stretch.busy_percent / 100,
            **_added(stretch.busy_percent, baseline),
        },
        against,
    )


def _evidence(
    case: cases.Case,
    found: _saturation.Saturation,
    stretch: _saturation.Stretch,
    baseline: float | None,
) -> list[Evidence]:
    series, event_core = found.series, found.location.core
    begin, end = times.format_instant(stretch.begin_us), times.format_instant(stretch.end_us)
    was = f"; it was {baseline:.0f} % busy in the baseline ({case.baseline_text})" if baseline is not None else ""  # fmt: skip
    lead = (case.event.time_us - stretch.begin_us) / 1e6
    if event_core is None:
        relation = "the core of the event is not known"
    elif event_core == stretch.core:
        relation = "it is the core of the event"
    else:
        relation = f"the event is on another core: {event_core}"
    is_hidden = stretch.others_percent < _saturation.OTHERS
    return [
        Evidence(
            f"core {stretch.core} was {stretch.busy_percent:.0f} % busy, {stretch.kernel_percent:.0f} % of its"
            f" time in the kernel, from {begin} to {end}; the other cores averaged"
            f" {stretch.others_percent:.0f} %{was}",
            series.source,
            {
                "busy_percent_of_core_time": round(stretch.busy_percent, 1),
                "kernel_percent_of_core_time": round(stretch.kernel_percent, 1),
                "softirq_percent_of_core_time": round(stretch.softirq_percent, 1),
                "others_percent_of_their_time": round(stretch.others_percent, 1),
                **({} if baseline is None else {"usual_percent_of_core_time": round(baseline, 1)}),
            },
            stretch.window,
            _base.command("heatmap", stretch.window, case.host),
        ),
        Evidence(
            f"the mean over all {len(series.cores)} cores was {stretch.mean_percent:.0f} % in those"
            f" seconds and {series.mean_percent:.0f} % over the incident window"
            + (": an average hides it" if is_hidden else ""),
            series.source,
            {
                "mean_percent_of_all_cores": round(stretch.mean_percent, 1),
                "window_mean_percent_of_all_cores": round(series.mean_percent, 1),
                "cores": len(series.cores),
            },
            case.window,
        ),
        Evidence(
            f"it began {lead:.1f} s before the event; {relation}",
            found.location.source,
            {
                "seconds_before_event": round(lead, 1),
                **({} if event_core is None else {"event_core": event_core}),
            },
        ),
    ]


def _added(busy_percent: float, baseline: float | None) -> dict[str, float]:
    """Return the room that the core had in the baseline: that much had to be added to saturate it."""
    if baseline is None:
        return {}
    added = max(MIN_ROOM, (busy_percent - baseline) / 100)
    return {"cores_before": baseline / 100, "cores_added": added}


DETECTORS = (CoreSaturation(),)
