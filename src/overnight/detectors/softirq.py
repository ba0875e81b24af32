"""A core saturated by the network's softirqs: more packets than it can take in.

Ordinary load has softirqs, too. A storm is a core that spends half of its time in them, far more than in
the baseline, with a sign that they are the network's: packets, polls that ran out of time, or stacks.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from overnight.detectors import _base, _event_location, _saturation
from overnight.model.finding import Answer, Evidence, Finding, Need, Subject
from overnight.model.selection import Selection, Window

if TYPE_CHECKING:
    from overnight.queries import case as cases
    from overnight.queries import signals

__all__ = ["DETECTORS", "KIND", "SoftirqStorm"]

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
MAX_FINDINGS = 3


@dataclasses.dataclass(frozen=True)
class _Storm:
    core: int
    window: Window
    percent: float  # of the core's time in softirqs
    baseline: float  # not exceeded in nine of ten seconds of the baseline


class SoftirqStorm(_base.BaseDetector):
    """Each core's softirq seconds against its own baseline."""

    name = "softirq"
    needs = (Need.CPU, Need.PROFILES, Need.SOFTIRQS, Need.SOFTNET, Need.INTERFACES)

    def examine(self, case: cases.Case) -> Answer:
        series = _saturation.read_series(case, case.window)
        if series is None:
            raise _base.MissingError(
                "core usage was not recorded around the event: neither the cpu signal nor samples",
                Need.CPU,
                Need.PROFILES,
            )
        storms, ordinary = _find_storms(case, series)
        findings, doubts = [], []
        for storm in storms:
            signs, packets = _find_signs(case, storm)
            if signs:
                findings.append(_finding(case, series, storm, signs, packets))
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
        doubt = "; ".join(doubts)
        return self.answer(findings[:MAX_FINDINGS], clear=doubt or clear, remark=doubt)


def _find_storms(case: cases.Case, series: _saturation.Series) -> tuple[list[_Storm], int]:
    """Find the storms, the event's core first, and count those that are as in the baseline."""
    baselines = _baseline_percents(_saturation.read_series(case, case.baseline))
    storms, ordinary = [], 0
    for column, core in enumerate(series.cores):
        softirq = series.softirq[:, column]
        baseline = baselines.get(core, 0.0)
        for rows in _saturation.split_runs(series, softirq >= PERCENT, SECONDS):
            begin, end = int(series.begin_us[rows.start]), int(series.end_us[rows.stop - 1])
            if begin > case.event.time_us + _saturation.AFTER_US:
                continue
            percent = float(np.nanmean(softirq[rows]))
            if percent < baseline + POINTS:
                ordinary += 1
            else:
                storms.append(_Storm(core, Window(begin, end), percent, baseline))
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


def _find_signs(case: cases.Case, storm: _Storm) -> tuple[list[Evidence], float]:
    """Find the signs of the network, and the packets a second; 0 where these were not recorded."""
    key = str(storm.core)
    signs, packets = [], 0.0
    for signal, column, counted in (
        ("softirqs", "NET_RX", "receive softirqs"),
        ("softnet", "processed", "packets"),
    ):
        now, before = (
            _rate(case, signal, column, window, key) for window in (storm.window, case.baseline)
        )
        if column == "processed":
            packets = now
        if now > 0 and now >= TIMES * before:
            signs.append(
                Evidence(
                    f"core {key} had {now:.0f} {counted} a second; {before:.0f} in the baseline"
                    f" ({case.baseline_text})",
                    signal,
                    {"per_second": round(now, 1), "baseline_per_second": round(before, 1)},
                    storm.window,
                )
            )
    squeezed = _rate(case, "softnet", "squeezed", storm.window, key)
    if squeezed >= SQUEEZES:
        signs.append(
            Evidence(
                f"core {key} deferred received packets {squeezed:.0f} times a second (softnet"
                " time_squeeze)",
                "softnet",
                {"squeezed_per_second": round(squeezed, 1)},
                storm.window,
            )
        )
    interface = _interface_evidence(case, storm)
    if interface is not None:
        signs.append(interface)
        packets = packets or float(interface.values["packets_per_second"])
    stacks = _stack_evidence(case, storm)
    if stacks is not None:
        signs.append(stacks)
    return signs, packets


def _interface_evidence(case: cases.Case, storm: _Storm) -> Evidence | None:
    """Find the interface whose received packets rose most against its own baseline."""
    now, before = (
        _mean_rates(case.rates("interfaces", window, columns=("rx_packets",)), "rx_packets")
        for window in (storm.window, case.baseline)
    )
    rises = {name: rate - before.get(name, 0.0) for name, rate in now.items()}
    if not rises:
        return None
    name = max(rises, key=lambda interface: rises[interface])
    baseline = before.get(name, 0.0)
    if now[name] < TIMES * baseline or rises[name] <= 0:
        return None
    return Evidence(
        f"{name} received {now[name]:.0f} packets a second; {baseline:.0f} in the baseline"
        f" ({case.baseline_text})",
        "interfaces",
        {
            "interface": name,
            "packets_per_second": round(now[name], 1),
            "baseline_packets_per_second": round(baseline, 1),
        },
        storm.window,
    )


def _stack_evidence(case: cases.Case, storm: _Storm) -> Evidence | None:
    if not case.has_profile(storm.window):
        return None
    cores = (storm.core,)
    consumers, _ = case.ran((storm.window,), Selection(cores=cores))
    softirq = sum(consumer.softirq for consumer in consumers)
    names = "|".join(NET)
    polls = case.flame(storm.window, Selection(cores=cores, function=f"^({names})$")).coverage
    if not softirq or polls.samples < STACK_SHARE * softirq:
        return None
    return Evidence(
        f"{polls.samples} of {softirq} softirq samples of core {storm.core} are in network polls;"
        f" {polls.lost} samples were lost",
        "profiles",
        {"network_samples": polls.samples, "softirq_samples": softirq, "lost_samples": polls.lost},
        storm.window,
        _base.command("flame", storm.window, case.host, "--core", str(storm.core)),
    )


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


def _finding(
    case: cases.Case,
    series: _saturation.Series,
    storm: _Storm,
    signs: list[Evidence],
    packets: float,
) -> Finding:
    seconds = storm.window.seconds
    share = Evidence(
        f"core {storm.core} spent {storm.percent:.0f} % of its time in softirqs for {seconds:.0f} s;"
        f" at most {storm.baseline:.0f} % in nine of ten seconds of the baseline",
        series.source,
        {
            "softirq_percent_of_core_time": round(storm.percent, 1),
            "baseline_p90_percent_of_core_time": round(storm.baseline, 1),
        },
        storm.window,
    )
    return _base.make(
        "softirq",
        KIND,
        Subject(host=case.host, core=storm.core),
        storm.window,
        min(0.95, 0.6 + 0.1 * len(signs)),
        f"network softirqs took {storm.percent:.0f} % of core {storm.core} for {seconds:.0f} s",
        [share, *signs],
        {
            "softirq_percent": storm.percent,
            "seconds": seconds,
            # Packets are recorded every half minute: a short recording has none.
            **({"packets_per_second": packets} if packets else {}),
        },
    )


DETECTORS = (SoftirqStorm(),)
