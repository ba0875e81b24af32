"""Cores that were saturated around the event while the mean over all cores shows an idle host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _base, _instruments, _saturation
from overnight.model import times
from overnight.model.finding import Answer, Evidence, Need, Subject

if TYPE_CHECKING:
    from overnight.model.event import Value
    from overnight.queries import case as cases

KIND = "cpu.core_saturated"
MAX_FINDINGS = 8
# Without a baseline it is not known whether this is ordinary.
NO_BASELINE = 0.7
# From here on the whole host was saturated, and the one core stands out less.
ALL_SATURATED, ALL_SATURATED_FACTOR = 85.0, 0.8
# A core that was saturated in the baseline had no room; at least this much counts as added.
MIN_ROOM = 0.1


class CoreSaturation(_base.Detector):
    """Saturation of at least two seconds on one core that began before the event."""

    name = "core-saturation"
    needs = (Need.CPU, Need.PROFILES)
    clears_by = ((Need.CPU, Need.PROFILES),)

    def examine(self, case: cases.Case) -> Answer:
        saturation = _saturation.find_saturation(case)
        drafts = [
            _draft(case, saturation, stretch) for stretch in saturation.stretches[:MAX_FINDINGS]
        ]
        more = len(saturation.stretches) - len(drafts)
        remark = f"more saturated cores: {more}" if more else ""
        return self.answer(drafts, clear=_why_clear(case, saturation), remark=remark)


def _why_clear(case: cases.Case, saturation: _saturation.Saturation) -> str:
    percent = saturation.series.mean_percent
    mean = f"the mean over {len(saturation.series.cores)} cores was {percent:.0f} %"
    if saturation.ordinary:
        return (
            f"saturated cores: {saturation.ordinary}, as often and as long as in the baseline"
            f" ({case.baseline_text}); {mean}"
        )
    if percent >= _saturation.OTHERS:
        return f"the whole host was busy, and no core stood out in the kernel: {mean}"
    return (
        f"no core was saturated for {_saturation.SECONDS:.0f} s while the others had room; {mean}"
    )


def _draft(
    case: cases.Case, saturation: _saturation.Saturation, stretch: _saturation.Stretch
) -> _base.Draft:
    series, location, base = saturation.series, saturation.location, saturation.baseline
    is_event_core = location.core == stretch.core
    draft = _base.Draft(
        KIND,
        Subject(host=case.host, core=stretch.core),
        stretch.window,
        0.95 if is_event_core else 0.8 if location.core is None else 0.5,
        f"core {stretch.core} was {stretch.busy_percent:.0f} % busy for {stretch.seconds:.0f} s"
        f" ({stretch.kernel_percent:.0f} % in the kernel) while the mean over all cores was"
        f" {stretch.mean_percent:.0f} %",
        magnitude={
            "seconds": stretch.seconds,
            "busy_percent": stretch.busy_percent,
            "kernel_percent": stretch.kernel_percent,
            "others_percent": stretch.others_percent,
            "cores_burnt": stretch.busy_percent / 100,
        },
    )
    baseline = base.core_percent(stretch.core) if base else None
    was = ""
    if baseline is not None:
        was = f"; it was {baseline:.0f} % busy in the baseline ({case.baseline_text})"
        # The room that the core had in the baseline: that much had to be added to saturate it.
        added = max(MIN_ROOM, (stretch.busy_percent - baseline) / 100)
        draft.magnitude.update(cores_before=baseline / 100, cores_added=added)
    window = stretch.window
    begin, end = times.format_instant(window.begin_us), times.format_instant(window.end_us)
    draft.support(
        f"core {stretch.core} was {stretch.busy_percent:.0f} % busy, {stretch.kernel_percent:.0f} % of its"
        f" time in the kernel, from {begin} to {end}; the other cores averaged"
        f" {stretch.others_percent:.0f} %{was}",
        series.source,
        look=_base.command("heatmap", window, case.host),
        busy_percent_of_core_time=round(stretch.busy_percent, 1),
        kernel_percent_of_core_time=round(stretch.kernel_percent, 1),
        softirq_percent_of_core_time=round(stretch.softirq_percent, 1),
        others_percent_of_their_time=round(stretch.others_percent, 1),
        usual_percent_of_core_time=None if baseline is None else round(baseline, 1),
    )
    draft.support(
        f"the mean over all {len(series.cores)} cores was {stretch.mean_percent:.0f} % in those"
        f" seconds and {series.mean_percent:.0f} % over the incident window"
        + (": an average hides it" if stretch.is_hidden else ""),
        series.source,
        window=case.window,
        mean_percent_of_all_cores=round(stretch.mean_percent, 1),
        window_mean_percent_of_all_cores=round(series.mean_percent, 1),
        cores=len(series.cores),
    )
    lead = (case.event.time_us - window.begin_us) / 1e6
    values: dict[str, Value] = {"seconds_before_event": round(lead, 1)}
    relation = "the core of the event is not known"
    if location.core is not None:
        values["event_core"] = location.core
        relation = f"the event is on another core: {location.core}"
    if is_event_core:
        relation = "the event is on this core"
    text = f"the saturation began {lead:.1f} s before the event; {relation}"
    draft.evidence.append(Evidence(text, location.source, values))
    if series.source != "cpu":
        draft.confidence *= 0.8
    if base is None or not base.covered_seconds:
        draft.confidence *= NO_BASELINE
    expected = saturation.expected(stretch, case.window.seconds, same_core=is_event_core)
    if base is not None and expected >= _saturation.ORDINARY:
        values = {
            "expected_in_window": round(expected, 2),
            "baseline_seconds": round(base.covered_seconds),
        }
        text = (
            "this is ordinary: by the baseline, a window of this length has this core saturated for as"
            f" long {expected:.1f} times"
        )
        ordinary = Evidence(text, series.source, values, case.baseline)
        draft.weigh(ordinary, supports=False, factor=0.5)
    if stretch.stands_out and not stretch.is_hidden:
        draft.support(
            f"the core was in the kernel for {stretch.kernel_percent:.0f} % of its time, and the median of the"
            f" other cores for {stretch.others_kernel_percent:.0f} %",
            series.source,
            kernel_percent_of_core_time=round(stretch.kernel_percent, 1),
            others_kernel_percent_of_their_time=round(stretch.others_kernel_percent, 1),
        )
    elif not stretch.is_hidden:
        draft.oppose(
            f"the other cores were busy, too: {stretch.others_percent:.0f} % of their time",
            series.source,
            factor=ALL_SATURATED_FACTOR if stretch.others_percent >= ALL_SATURATED else 1.0,
            others_percent_of_their_time=round(stretch.others_percent, 1),
        )
    _instruments.support_waits(case, draft)
    return draft


DETECTORS = (CoreSaturation(),)
