"""A core saturated by the network's softirqs: more packets than it can take in.

A storm takes half of a core, far more than in the baseline, with a sign that the softirqs are the network's.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from overnight.detectors import _base, _event_location, _instruments, _saturation
from overnight.model.finding import Answer, Need, Subject
from overnight.model.selection import Selection, Window

if TYPE_CHECKING:
    from overnight.queries import case as cases
    from overnight.queries import signals

KIND = "net.softirq_storm"
# Half of a core: everything else there has at most the other half.
PERCENT = 50.0
SECONDS = 2.0
# Points above the baseline of the same core; less is what this core always does.
POINTS = 30.0
# Packets and softirqs against the baseline. A core that polls without pause counts fewer of them, not
# more, so any one of the signs is enough.
TIMES = 2.0
SQUEEZES = 100.0  # a second: the limit of the watch
NET = ("net_rx_action", "napi_poll", "__napi_poll", "process_backlog", "net_tx_action")
STACK_SHARE = 0.5  # of the softirq samples
SOFTIRQS = ("NET_RX", "NET_TX")
SENT = 0.4  # confidence where a process of this host sends the packets


@dataclasses.dataclass(frozen=True)
class _Storm:
    core: int
    window: Window
    percent: float  # of the core's time in softirqs
    baseline: float  # not exceeded in nine of ten seconds of the baseline


class SoftirqStorm(_base.Detector):
    """Each core's softirq seconds against its own baseline."""

    name = "softirq"
    needs = (Need.CPU, Need.PROFILES, Need.SOFTIRQS, Need.SOFTNET, Need.INTERFACES)
    clears_by = ((Need.CPU, Need.PROFILES),)
    max_findings = 3

    def examine(self, case: cases.Case) -> Answer:
        series = _saturation.require_series(case)
        columns = case.recorded(case.window)
        if "softirq" not in columns.get(Need.CPU, ("softirq",)):  # sar shows them with -u ALL
            _base.require_imported(case, Need.SOFTIRQS, "softirq time of the cores")
        storms, ordinary = _find_storms(case, series)
        drafts, doubts = [], []
        for storm in storms:
            draft = _draft(case, series, storm)
            if len(draft.evidence) > 1:
                drafts.append(draft)
            else:
                doubts.append(
                    f"core {storm.core} spent {storm.percent:.0f} % of its time in softirqs, but"
                    " nothing shows that they were the network's"
                )
        most = float(np.nanmax(series.softirq)) if np.isfinite(series.softirq).any() else 0.0
        clear = f"no core spent {PERCENT:.0f} % of {SECONDS:.0f} s in softirqs; the most was {most:.0f} %"
        if ordinary:
            clear = (
                f"{ordinary} cores spent {PERCENT:.0f} % of {SECONDS:.0f} s in softirqs, as in the"
                f" baseline ({case.baseline_text})"
            )
        if doubts and not drafts:
            _base.require_imported(case, Need.SOFTIRQS, "softirqs by kind")
        doubt = "; ".join(doubts)
        return self.answer(drafts, clear=doubt or clear, remark=doubt)


def _find_storms(case: cases.Case, series: _saturation.Series) -> tuple[list[_Storm], int]:
    """Find the storms, the event's core first, and count those that are as in the baseline."""
    baselines = _baseline_percents(_saturation.read_series(case, case.baseline))
    storms, ordinary = [], 0
    for column, core in enumerate(series.cores):
        softirq = series.softirq[:, column]
        baseline = baselines.get(core, 0.0)
        for rows, window in _saturation.split_runs(series, softirq >= PERCENT, SECONDS):
            if window.begin_us > case.event.time_us + _saturation.AFTER_US:
                continue
            percent = float(np.nanmean(softirq[rows]))
            if percent < baseline + POINTS:
                ordinary += 1
            else:
                storms.append(_Storm(core, window, percent, baseline))
    event_core = _event_location.find_location(case).core
    storms.sort(key=lambda storm: (storm.core != event_core, -storm.window.seconds))
    return storms, ordinary


def _baseline_percents(series: _saturation.Series | None) -> dict[int, float]:
    """Return the 90th percentile of each core: a mean would hide a busy evening's seconds."""
    if series is None:
        return {}
    return {
        core: float(np.nanpercentile(series.softirq[:, column], 90))
        for column, core in enumerate(series.cores)
        if np.isfinite(series.softirq[:, column]).any()
    }


def _draft(case: cases.Case, series: _saturation.Series, storm: _Storm) -> _base.Draft:
    """Draft the finding; it has no more than one piece of evidence if nothing shows the network."""
    key, seconds = str(storm.core), storm.window.seconds
    draft = _base.Draft(
        KIND,
        Subject(host=case.host, core=storm.core),
        storm.window,
        0.0,
        f"network softirqs took {storm.percent:.0f} % of core {key} for {seconds:.0f} s",
        magnitude={"softirq_percent": storm.percent, "seconds": seconds},
    )
    draft.support(
        f"core {key} spent {storm.percent:.0f} % of its time in softirqs for {seconds:.0f} s;"
        f" at most {storm.baseline:.0f} % in nine of ten seconds of the baseline",
        series.source,
        softirq_percent_of_core_time=round(storm.percent, 1),
        baseline_p90_percent_of_core_time=round(storm.baseline, 1),
    )
    packets = _rate(case, "softnet", "processed", storm.window, key)
    softirqs = _rate(case, "softirqs", "NET_RX", storm.window, key)
    for signal, column, counted, now in (
        ("softirqs", "NET_RX", "receive softirqs", softirqs),
        ("softnet", "processed", "packets", packets),
    ):
        before = _rate(case, signal, column, case.baseline, key)
        if now > 0 and now >= TIMES * before:
            draft.support(
                f"core {key} had {now:,.0f} {counted} a second; {before:,.0f} in the baseline"
                f" ({case.baseline_text})",
                signal,
                per_second=round(now, 1),
                baseline_per_second=round(before, 1),
            )
    squeezed = _rate(case, "softnet", "squeezed", storm.window, key)
    if squeezed >= SQUEEZES:
        text = f"core {key} deferred received packets {squeezed:,.0f} times a second (softnet time_squeeze)"
        draft.support(text, "softnet", squeezed_per_second=round(squeezed, 1))
    received = _support_by_interface(case, draft)
    factor = _weigh_stacks(case, draft) * _instruments.weigh_softirqs(case, draft, SOFTIRQS)
    draft.confidence = min(0.95, 0.6 + 0.1 * (len(draft.evidence) - 1)) * factor
    if packets or received:  # recorded every half minute: a short recording has none
        draft.magnitude["packets_per_second"] = packets or received
    return draft


def _support_by_interface(case: cases.Case, draft: _base.Draft) -> float:
    """Add the interface whose received packets rose most, and return its packets a second; 0: none rose."""
    now, before = (
        _mean_rates(case.rates("interfaces", window, columns=("rx_packets",)), "rx_packets")
        for window in (draft.window, case.baseline)
    )
    rises = {name: rate - before.get(name, 0.0) for name, rate in now.items()}
    name = max(rises, key=lambda interface: rises[interface], default="")
    baseline = before.get(name, 0.0)
    if not name or now[name] < TIMES * baseline or rises[name] <= 0:
        return 0.0
    packets = round(now[name], 1)
    draft.support(
        f"{name} received {now[name]:,.0f} packets a second; {baseline:,.0f} in the baseline"
        f" ({case.baseline_text})",
        "interfaces",
        interface=name,
        packets_per_second=packets,
        baseline_packets_per_second=round(baseline, 1),
    )
    return packets


def _weigh_stacks(case: cases.Case, draft: _base.Draft) -> float:
    """Add the samples in network polls, and return the factor of the confidence."""
    core = draft.subject.core
    if core is None or not case.has_profile(draft.window):
        return 1.0
    consumers, _ = case.ran((draft.window,), Selection(cores=(core,)))
    softirq = sum(consumer.softirq for consumer in consumers)
    selection = Selection(cores=(core,), function=f"^({'|'.join(NET)})$")
    polls = case.flame(draft.window, selection).coverage
    if softirq < STACK_SHARE * polls.samples:
        draft.oppose(
            f"{polls.samples - softirq} of {polls.samples} samples of core {core} in network polls are of"
            " packets that a process sends to this host itself",
            "profiles",
            network_samples=polls.samples,
            softirq_samples=softirq,
        )
        return SENT
    if softirq and polls.samples >= STACK_SHARE * softirq:
        draft.support(
            f"{polls.samples} of {softirq} softirq samples of core {core} are in network polls;"
            f" {polls.lost} samples were lost",
            "profiles",
            look=_base.command("flame", draft.window, case.host, "--core", str(core)),
            network_samples=polls.samples,
            softirq_samples=softirq,
            lost_samples=polls.lost,
        )
    return 1.0


def _rate(case: cases.Case, signal: str, column: str, window: Window, key: str) -> float:
    rates = case.rates(signal, window, keys=(key,), columns=(column,))
    return _mean_rates(rates, column).get(key, 0.0)


def _mean_rates(rates: signals.Rates, column: str) -> dict[str, float]:
    """Return each key's rate over the intervals that touch the window."""
    if column not in rates.values or not len(rates.seconds):
        return {}
    values: npt.NDArray[np.float64] = rates.values[column]
    total = np.nansum(values * rates.seconds[:, None], axis=0)
    seconds = (np.isfinite(values) * rates.seconds[:, None]).sum(axis=0)
    return {key: float(total[n] / seconds[n]) for n, key in enumerate(rates.keys) if seconds[n] > 0}


DETECTORS = (SoftirqStorm(),)
