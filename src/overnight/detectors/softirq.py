"""A core filled by the network's soft interrupts: more packets than it can take in.

Ordinary load has soft interrupts, too. A storm is a core that spends half of its time in them, far more
than it did before, and something says that it is the network's: packets, polls that ran out of time, or stacks.
"""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from overnight.detectors import _event_location as place
from overnight.detectors import _saturation as saturation
from overnight.model import times
from overnight.model.finding import Answer, Evidence, Finding, Status, Subject, finding_id
from overnight.model.selection import Selection, Window

if TYPE_CHECKING:
    from overnight.queries import case as cases
    from overnight.queries import signals

__all__ = ["DETECTORS", "KIND", "SoftirqStorm"]

KIND = "net.softirq_storm"
# Half of a core: what runs there otherwise has no more than the other half.
PERCENT = 50.0
SECONDS = 2.0
# Above the baseline of the same core by so many points, or it is what this core always does.
POINTS = 30.0
# Packets and soft interrupts against the baseline. A core that polls without pause counts fewer of
# them, not more, so each one of the signs is enough.
TIMES = 2.0
SQUEEZES = 100.0  # a second: the limit of the watch
NET = ("net_rx_action", "napi_poll", "__napi_poll", "process_backlog", "net_tx_action")
STACK_SHARE = 0.5  # of the soft interrupts' samples
MOST_FINDINGS = 3


@dataclasses.dataclass(frozen=True)
class _Storm:
    core: int
    window: Window
    percent: float
    usual: float

    @property
    def seconds(self) -> float:
        return self.window.seconds


class SoftirqStorm:
    """Each core's softirq seconds against its own baseline."""

    name = "softirq"
    needs = ("cpu", "softirqs", "softnet", "interfaces")

    def look(self, case: cases.Case) -> Answer:
        """Cores that soft interrupts filled from before the event on."""
        told = saturation.series(case, case.window)
        if told is None:
            return Answer(
                self.name,
                Status.NO_DATA,
                why="neither the seconds of the cores (signal cpu) nor samples were recorded around the event",
            )
        storms, ordinary = _storms(case, told)
        findings, doubts = [], []
        for storm in storms:
            signs, packets = _signs(case, storm)
            if signs:
                findings.append(_finding(case, told, storm, signs, packets))
            else:
                doubts.append(
                    f"core {storm.core} spent {storm.percent:.0f} % in soft interrupts, but nothing says that they were"
                    " the network's"
                )
        if findings:
            return Answer(
                self.name,
                Status.FOUND,
                tuple(findings[:MOST_FINDINGS]),
                "; ".join(doubts),
            )
        most = float(np.nanmax(told.softirq)) if np.isfinite(told.softirq).any() else 0.0
        why = f"no core spent {PERCENT:.0f} % of {SECONDS:.0f} s in soft interrupts; the most was {most:.0f} %"
        if ordinary:
            why = f"{ordinary} cores did, as they did in the {case.usual}"
        return Answer(self.name, Status.CLEAR, why="; ".join(doubts) or why)


def _storms(case: cases.Case, told: saturation.Series) -> tuple[list[_Storm], int]:
    before = saturation.series(case, case.baseline)
    usual = _usual(before)
    found, ordinary = [], 0
    for n, core in enumerate(told.cores):
        rows = np.flatnonzero(told.softirq[:, n] >= PERCENT)
        if not len(rows):
            continue
        breaks = np.flatnonzero(
            told.begin_us[rows[1:]] - told.end_us[rows[:-1]] > saturation.BREATH_US
        )
        for run in np.split(rows, breaks + 1):
            begin, end = int(told.begin_us[run[0]]), int(told.end_us[run[-1]])
            if (told.end_us[run] - told.begin_us[run]).sum() < (SECONDS - 0.2) * 1e6:
                continue
            if begin > case.event.time_us + saturation.AFTER_US:
                continue
            percent = float(np.nanmean(told.softirq[run[0] : run[-1] + 1, n]))
            if percent < usual.get(core, 0.0) + POINTS:
                ordinary += 1
                continue
            window = Window(begin, end)
            found.append(_Storm(core, window, percent, usual.get(core, 0.0)))
    own = place.event_place(case).core
    found.sort(key=lambda one: (one.core != own, -one.seconds))
    return found, ordinary


def _usual(told: saturation.Series | None) -> dict[int, float]:
    """The nine-in-ten second of each core: a busy evening's, not the mean's."""
    if told is None:
        return {}
    return {
        core: float(np.nanpercentile(told.softirq[:, n], 90))
        for n, core in enumerate(told.cores)
        if np.isfinite(told.softirq[:, n]).any()
    }


def _signs(case: cases.Case, storm: _Storm) -> tuple[list[Evidence], float]:
    """What says that it was the network, and the packets a second, 0 where nobody counted them."""
    key = str(storm.core)
    signs, packets = [], 0.0
    for signal, column, what in (
        ("softirqs", "NET_RX", "receive soft interrupts"),
        ("softnet", "processed", "packets"),
    ):
        now, then = (
            _rate(case, signal, column, window, key) for window in (storm.window, case.baseline)
        )
        if column == "processed":
            packets = now
        if now > 0 and now >= TIMES * then:
            signs.append(
                Evidence(
                    f"core {key} had {now:.0f} {what} a second, {then:.0f} in the {case.usual}",
                    signal,
                    {"per_second": round(now, 1), "baseline_per_second": round(then, 1)},
                    storm.window,
                )
            )
    squeezed = _rate(case, "softnet", "squeezed", storm.window, key)
    if squeezed >= SQUEEZES:
        signs.append(
            Evidence(
                f"core {key} left packets for later {squeezed:.0f} times a second",
                "softnet",
                {"squeezed_per_second": round(squeezed, 1)},
                storm.window,
            )
        )
    sender = _sender(case, storm)
    if sender is not None:
        signs.append(sender)
        packets = packets or float(sender.values["packets_per_second"])
    stacks = _stacks(case, storm)
    if stacks is not None:
        signs.append(stacks)
    return signs, packets


def _sender(case: cases.Case, storm: _Storm) -> Evidence | None:
    """The interface whose received packets rose most against its own baseline."""
    now, then = (
        _means(case.rates("interfaces", window, columns=("rx_packets",)), "rx_packets")
        for window in (storm.window, case.baseline)
    )
    rose = {name: rate - then.get(name, 0.0) for name, rate in now.items()}
    if not rose:
        return None
    name = max(rose, key=lambda one: rose[one])
    if now[name] < TIMES * then.get(name, 0.0) or rose[name] <= 0:
        return None
    return Evidence(
        f"they came in through {name}: {now[name]:.0f} packets a second, {then.get(name, 0.0):.0f} in the"
        f" {case.usual}",
        "interfaces",
        {
            "interface": name,
            "packets_per_second": round(now[name], 1),
            "baseline_packets_per_second": round(then.get(name, 0.0), 1),
        },
        storm.window,
    )


def _stacks(case: cases.Case, storm: _Storm) -> Evidence | None:
    if not case.has_profile(storm.window):
        return None
    cores = (storm.core,)
    ran, _ = case.ran((storm.window,), Selection(cores=cores))
    soft = sum(one.softirq for one in ran)
    names = "|".join(NET)
    net = case.flame(storm.window, Selection(cores=cores, function=f"^({names})$")).coverage
    if not soft or net.samples < STACK_SHARE * soft:
        return None
    begin, end = (times.format_instant(us) for us in (storm.window.begin_us, storm.window.end_us))
    return Evidence(
        f"{net.samples} samples of core {storm.core} are in the network's polls, of {soft} in soft interrupts;"
        f" {net.lost} were lost",
        "profiles",
        {"network_samples": net.samples, "softirq_samples": soft, "lost_samples": net.lost},
        storm.window,
        f"overnight flame -b {begin} -e {end} --host {shlex.quote(case.host)} --core {storm.core}",
    )


def _rate(case: cases.Case, signal: str, column: str, window: Window, key: str) -> float:
    return _means(case.rates(signal, window, keys=(key,), columns=(column,)), column).get(key, 0.0)


def _means(rates: signals.Rates, column: str) -> dict[str, float]:
    """Each key's rate over the intervals that touch the window."""
    if column not in rates.values or not len(rates.seconds):
        return {}
    values: npt.NDArray[np.float64] = rates.values[column]
    known = np.isfinite(values)
    total = np.nansum(values * rates.seconds[:, None], axis=0)
    seconds = (known * rates.seconds[:, None]).sum(axis=0)
    return {key: float(total[n] / seconds[n]) for n, key in enumerate(rates.keys) if seconds[n] > 0}


def _finding(
    case: cases.Case,
    told: saturation.Series,
    storm: _Storm,
    signs: list[Evidence],
    packets: float,
) -> Finding:
    subject = Subject(host=case.host, core=storm.core)
    share = Evidence(
        f"core {storm.core} spent {storm.percent:.0f} % of its time in soft interrupts for {storm.seconds:.0f} s; in nine"
        f" of ten seconds before it was {storm.usual:.0f} % at most",
        told.source,
        {
            "softirq_percent_of_core_time": round(storm.percent, 1),
            "baseline_p90_percent_of_core_time": round(storm.usual, 1),
        },
        storm.window,
    )
    return Finding(
        id=finding_id("softirq", KIND, subject, storm.window.begin_us),
        detector="softirq",
        kind=KIND,
        subject=subject,
        window=storm.window,
        confidence=min(0.95, 0.6 + 0.1 * len(signs)),
        summary=(
            f"soft interrupts of the network took {storm.percent:.0f} % of core {storm.core} for {storm.seconds:.0f} s"
        ),
        evidence=(share, *signs),
        magnitude={
            "softirq_percent": round(storm.percent, 2),
            "seconds": round(storm.seconds, 3),
            # Packets are kept by the half minute: in a short recording nobody counted them.
            **({"packets_per_second": round(packets, 1)} if packets else {}),
        },
    )


DETECTORS = (SoftirqStorm(),)
