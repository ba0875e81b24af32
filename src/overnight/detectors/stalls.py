"""What the kernel itself complains of: cores that stand still, memory that ran out, disks, limits.

The event that is diagnosed is never its own explanation: it is left out of what is looked at here.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import _answering
from overnight.model.finding import Evidence, Finding, Subject
from overnight.model.selection import Window
from overnight.queries import signals

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.queries import case as cases

__all__ = ["DETECTORS", "Limits", "OutOfMemory", "Stalls", "Storage"]

SECOND_US = 1_000_000
# The kernel complains late: of a soft lockup after 20 s, of a hung task or a silent disk after minutes.
EARLIER_US = 180 * SECOND_US
# How sure it is that a core stood still. Hung tasks wait, often for a disk: no core is taken by them.
STALLS = {
    "cpu.hard_lockup": 0.95,
    "cpu.soft_lockup": 0.95,
    "rcu.stall": 0.85,
    "workqueue.lockup": 0.85,
    "task.hung": 0.6,
}
OOM = ("memory.oom_kill", "memory.allocation_failure")
FAULTS = {
    "storage.io_error": 0.9,
    "storage.filesystem_error": 0.9,
    "storage.readonly": 0.95,
    "storage.timeout": 0.9,
    "storage.device_lost": 0.95,
    "task.blocked": 0.5,
}
# Percent of the time in which some task waited for a disk, three seconds in a row, as the watch has it; and
# three times the baseline, for a host that reads all night waits all night.
IO_SOME = 50.0
IO_FACTOR = 3.0
IO_SECONDS = 3
# A disk is what fails; its namespaces and partitions fail with it. What is made of several names none.
DISK = re.compile(r"nvme\d+|mmcblk\d+|(?:sd|vd|xvd|hd)[a-z]+")
# As the watch has it. From here on a burst reaches the limit.
SHARES = {"conntrack": 0.75}
SHARE = 0.70
FULL = 0.95
MOST = 8


def _around(case: cases.Case) -> Window:
    return Window(case.window.begin_us - EARLIER_US, case.window.end_us)


def _told(case: cases.Case, kinds: Iterable[str]) -> list[Event]:
    """Events around this one, itself left out."""
    return [one for one in case.events(_around(case), *kinds) if one.id != case.event.id]


def _recorded(case: cases.Case) -> None:
    """Nothing told means nothing happened only where somebody listened."""
    if not case.has_signals(case.window):
        raise _answering.MissingError("the flight recorder did not run around the event")


def _evidence(one: Event) -> Evidence:
    end = max(one.until_us, one.time_us) + 1
    return Evidence(
        one.text or one.kind,
        f"event {one.id}",
        {**dict(one.fields), "lines_or_sightings": one.count},
        Window(one.time_us, end),
        f"overnight events {one.id}",
    )


def _spanned(told: list[Event]) -> Window:
    begin = min(one.time_us for one in told)
    return Window(begin, max(max(one.until_us, one.time_us) for one in told) + 1)


def _late(case: cases.Case, told: list[Event]) -> float:
    """What was told only after the event is less likely its cause."""
    return 1.0 if min(one.time_us for one in told) <= case.event.time_us else 0.7


class Stalls(_answering.Asking):
    """Soft and hard lockups, RCU stalls, workqueues that stand still, hung tasks."""

    name = "stalls"
    needs = ("events",)

    def examine(self, case: cases.Case) -> tuple[list[Finding], str]:
        """One finding a kind and core."""
        _recorded(case)
        groups: dict[tuple[str, int, str], list[Event]] = collections.defaultdict(list)
        for one in _told(case, STALLS):
            groups[one.kind, one.core, one.process].append(one)
        found = []
        for (kind, core, process), told in groups.items():
            seconds = max((_number(one, "s") for one in told), default=0.0)
            found.append(
                _answering.make(
                    self.name,
                    "cpu.stall",
                    Subject(host=case.host, core=core, process=process, unit=told[0].unit),
                    _spanned(told),
                    STALLS[kind] * _late(case, told),
                    told[0].text,
                    [_evidence(one) for one in told],
                    {"stalled_seconds": seconds, "count": float(sum(one.count for one in told))},
                )
            )
        found.sort(key=lambda made: -made.confidence)
        return found[:MOST], "the kernel told of no lockup, stall or hung task around the event"


def _number(one: Event, *names: str) -> float:
    for name in names:
        value = one.fields.get(name)
        if isinstance(value, (int, float)):
            return float(value)
    return 0.0


class OutOfMemory(_answering.Asking):
    """Kills for want of memory: the kernel log's lines, and the counter that never lies."""

    name = "oom"
    needs = ("events", "vmstat")

    def examine(self, case: cases.Case) -> tuple[list[Finding], str]:
        """Who was killed, of which unit."""
        _recorded(case)
        around = _around(case)
        told = _told(case, OOM)
        kills, when = self._counted(case, around)
        found = []
        groups: dict[tuple[str, str, str], list[Event]] = collections.defaultdict(list)
        for one in told:
            groups[one.kind, one.process, one.unit].append(one)
        named = [key for key in groups if key[1]]
        for (kind, process, unit), mine in groups.items():
            # The counter tells of the same kills without names.
            if not process and named and kind == "memory.oom_kill":
                continue
            evidence = [_evidence(one) for one in mine]
            if kills:
                evidence.append(_kills(kills, around))
            cgroup = next((str(one.fields["cgroup"]) for one in mine if "cgroup" in one.fields), "")
            found.append(
                _answering.make(
                    self.name,
                    "memory.oom",
                    Subject(host=case.host, process=process, unit=unit, cgroup=cgroup),
                    _spanned(mine),
                    (0.95 if kind == "memory.oom_kill" else 0.6) * _late(case, mine),
                    mine[0].text,
                    evidence,
                    {"kills": max(kills, float(len(mine))) if kind == "memory.oom_kill" else 0.0},
                )
            )
        # Where the event itself is the kill, the counter tells of nothing else.
        if not found and kills and case.event.kind not in OOM:
            found.append(
                _answering.make(
                    self.name,
                    "memory.oom",
                    Subject(host=case.host),
                    when or around,
                    0.9,
                    f"the kernel killed {kills:.0f} processes for memory; the log does not say which",
                    [_kills(kills, around)],
                    {"kills": kills},
                )
            )
        return found[:MOST], "nothing was killed for memory around the event"

    @staticmethod
    def _counted(case: cases.Case, around: Window) -> tuple[float, Window | None]:
        rates = signals.counter_rate(case.ring, case.host, "vmstat", around, columns=("oom_kill",))
        column = rates.values.get("oom_kill")
        if column is None or not column.size:
            return 0.0, None
        rose = np.nan_to_num(column[:, 0] * rates.seconds)
        places = np.flatnonzero(rose > 0)
        if not len(places):
            return 0.0, None
        window = Window(int(rates.begin_us[places[0]]), int(rates.end_us[places[-1]]))
        return float(rose.sum()), window


def _kills(kills: float, window: Window) -> Evidence:
    return Evidence(
        f"oom_kill rose by {kills:.0f} around the event", "vmstat", {"kills": kills}, window
    )


def _disk(one: Event) -> str:
    """The disk that an event is of, without its partition; '' where it names none, or one made of others."""
    named = str(one.fields.get("device", one.fields.get("disk", "")))
    found = DISK.match(named or one.process.removeprefix("jbd2/"))
    return found[0] if found else ""


class Storage(_answering.Asking):
    """Disks that fail or do not answer, and tasks that wait for them."""

    name = "storage"
    needs = ("events", "pressure")

    def examine(self, case: cases.Case) -> tuple[list[Finding], str]:
        """The kernel's complaints by device; waiting alone is a weak finding."""
        _recorded(case)
        waited = self._waited(case)
        groups: dict[str, list[Event]] = collections.defaultdict(list)
        own, others = _disk(case.event), set()
        for one in _told(case, FAULTS):
            device = one.fields.get("device", one.fields.get("disk", ""))
            if own and _disk(one) not in ("", own):
                others.add(str(device))  # that somebody else's disk failed as well explains nothing
                continue
            groups[str(device) or one.process].append(one)
        found = []
        for device, told in groups.items():
            kinds = {one.kind for one in told}
            evidence = [_evidence(one) for one in told[:MOST]]
            if waited is not None:
                evidence.append(waited[2])
            confidence = max(FAULTS[kind] for kind in kinds) * _late(case, told)
            found.append(
                _answering.make(
                    self.name,
                    "storage.fault",
                    Subject(
                        host=case.host, process=next((o.process for o in told if o.process), "")
                    ),
                    _spanned(told),
                    confidence,
                    f"{device}: {told[0].text}" if device else told[0].text,
                    evidence,
                    {
                        "faults": float(sum(one.count for one in told)),
                        "io_wait_percent": waited[1] if waited else 0.0,
                    },
                )
            )
        if not found and waited is not None:
            window, percent, evidence_of = waited
            found.append(
                _answering.make(
                    self.name,
                    "storage.fault",
                    Subject(host=case.host),
                    window,
                    0.5,
                    f"tasks waited for disks {percent:.0f} % of the time for {window.seconds:.0f} s;"
                    " no disk complained",
                    [evidence_of],
                    {"io_wait_percent": percent},
                )
            )
        if others:
            return found[
                :MOST
            ], f"the event is of {own}, and {', '.join(sorted(others))} complained"
        return found[:MOST], "no disk complained, and no task waited long for one"

    @staticmethod
    def _waited(
        case: cases.Case,
    ) -> tuple[Window, float, Evidence] | None:
        """The longest run of seconds in which tasks waited for disks: when, and percent of the time."""
        now, before = (
            signals.counter_rate(
                case.ring, case.host, "pressure", window, keys=("io",), columns=("some",)
            )
            for window in (case.window, case.baseline)
        )
        column = now.values.get("some")
        if column is None or not column.size:
            return None
        some = np.nan_to_num(column[:, 0]) / 1e4
        base = before.values.get("some")
        usual = float(np.nanmean(base)) / 1e4 if base is not None and base.size else 0.0
        least = max(IO_SOME, min(90.0, IO_FACTOR * usual))
        runs: list[list[int]] = [[]]
        for n, percent in enumerate(some.tolist()):
            if percent >= least:
                runs[-1].append(n)
            elif runs[-1]:
                runs.append([])
        best = max(runs, key=len)
        if len(best) < IO_SECONDS:
            return None
        window = Window(int(now.begin_us[best[0]]), int(now.end_us[best[-1]]))
        percent = float(some[best].mean())
        made = Evidence(
            f"tasks waited for disks {percent:.0f} % of the time, against {usual:.0f} % before",
            "pressure",
            {"some_percent_of_time": round(percent, 1), "baseline_percent": round(usual, 1)},
            window,
            _answering.command("events", window, case.host, "--kind", "pressure."),
        )
        return window, percent, made


class Limits(_answering.Asking):
    """Tables of the kernel that are nearly full."""

    name = "limits"
    needs = ("limits", "events")

    def examine(self, case: cases.Case) -> tuple[list[Finding], str]:
        """The fullest that each was around the event."""
        window = _around(case)
        most: dict[str, tuple[float, int, int]] = {}
        looked = False
        for frame in case.ring.numbers(case.host, "limits", window.begin_us, window.end_us):
            looked = True
            for key in frame.keys:
                _, used = frame.series(key, "used")
                _, maximum = frame.series(key, "maximum")
                for one, top in zip(used, maximum, strict=True):
                    if top > 0:
                        most[key] = max(most.get(key, (0.0, 0, 0)), (one / top, one, top))
        if not looked:
            raise _answering.MissingError("limits of the kernel were not recorded around the event")
        found = []
        own = case.event.text.partition(":")[0] if case.event.kind == "limit.near" else ""
        for name, (share, one, top) in most.items():
            if share < SHARES.get(name, SHARE) or (own in most and name != own):
                continue  # an event that names its limit is of no other
            text = f"{name}: {one} of {top} used ({share:.0%})"
            made = Evidence(
                text, "limits", {"used": one, "maximum": top}, window,
                _answering.command("events", window, case.host, "--kind", "limit.near"),
            )  # fmt: skip
            found.append(
                _answering.make(
                    self.name,
                    "limit.near",
                    Subject(host=case.host, function=name),
                    window,
                    0.9 if share >= FULL else 0.6,
                    text,
                    [made],
                    {"used": float(one), "maximum": float(top), "used_share": share},
                )
            )
        found.sort(key=lambda made: -made.magnitude["used_share"])
        fullest = max((share for share, *_ in most.values()), default=0.0)
        return found, f"the fullest of {len(most)} limits was used to {fullest:.0%}"


DETECTORS = (Stalls(), OutOfMemory(), Storage(), Limits())
