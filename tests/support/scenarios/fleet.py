"""Many hosts in one data home: labels, uptimes, snapshots and events, without profiles."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import random
import uuid
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from overnight.agent import event_tracker, watches
from overnight.model import clock
from overnight.store.ring import reader, writer
from scenarios import host_setup, inventory, nights, truth

if TYPE_CHECKING:
    from overnight.model.snapshot import Part

DAY = 86400.0
CENSUS = ("tracked", "in_use", "dying", "stat_read", "stat_reads")
VALUES = {
    "zone": ("us-east-1a", "us-east-1b", "us-east-1d"),
    "image": ("ami-0aa11", "ami-0bb22", "ami-0cc33"),
    "kernel": ("5.4.0-1103-aws", "5.4.0-1110-aws", "5.10.0-33-aws"),
    "instance_type": ("g5.4xlarge", "g5.48xlarge", "p4d.24xlarge"),
}

ERROR = "('scripts_user', RuntimeError('Runparts: 1 failures (part-001) in 1 attempted commands'))"


@dataclasses.dataclass(frozen=True)
class Plan:
    """Event rate: `a_day` events a day on a host of the cohort, once it has been up for `onset` days."""

    label: str
    value: str
    a_day: float
    ratio: float
    onset: float

    def rate(self, host: nights.Host, uptime: float) -> float:
        """Return the events a day at an uptime in seconds."""
        if uptime < self.onset * DAY:
            return 0.0
        in_cohort = not self.label or getattr(host, self.label) == self.value
        return self.a_day if in_cohort else self.a_day / self.ratio


def build_fleet(
    home: pathlib.Path,
    seed: int,
    *,
    hosts: int = 30,
    days: float = 14.0,
    label: str = "zone",
    ratio: float = 8.0,
    onset_days: float = 6.0,
    events_per_day: float = 0.6,
    snapshots: bool = True,
) -> truth.Truth:
    """Write resets that are skewed to one cohort and to hosts with a long uptime, so that a reboot cures them.

    With `label` "" there is no skew; with `onset_days` 0 the hazard does not depend on uptime.
    `facts` has label, value, ratio, onset_days, unit (on the cohort's hosts alone), events by host.
    """
    chance = random.Random(f"fleet {seed}")
    value = chance.choice(VALUES[label]) if label else ""
    plan = Plan(label, value, events_per_day, ratio, onset_days)
    unit = chance.choice(("ecs.service", f"{chance.choice(host_setup.WORDS)}-agent.service"))
    begin_us = host_setup.NIGHT_US - round(days * DAY * 1e6)
    event_counts: dict[str, int] = {}
    last = (0, "")
    for number in range(hosts):
        host = _host(chance, number)
        in_cohort = bool(label) and getattr(host, label) == value
        times_us = []
        for boot in _boots(chance, host, begin_us, days):
            times_us += _record(chance, home, boot, plan, leaks=in_cohort or not label)
        event_counts[host.name] = len(times_us)
        last = max([last, *((when, host.name) for when in times_us)])
        if snapshots:
            _snapshot(chance, home, host, unit if in_cohort else "")
    event = truth.find_event(home, last[1], "net.driver_reset", last[0]) if last[1] else None
    facts = {
        "label": label, "value": value, "ratio": ratio, "onset_days": onset_days,
        "accumulating": onset_days > 0, "unit": unit if label else "", "events": event_counts,
    }  # fmt: skip
    chain: tuple[truth.Expected, ...] = (("net.driver_reset", {}),) if event else ()
    status = truth.OPEN if event else truth.NONE
    return truth.Truth("fleet", home, last[1], event, chain, frozenset(), status, facts=facts)


def build_failed_bootstrap(home: pathlib.Path, seed: int, *, old: int = 0) -> truth.Truth:
    """Write 12 hosts of 3 zones: a unit is enabled on all, and runs in one zone, where the resets are.

    In the other zones the bootstrap script failed before it could start the unit. `facts` has the unit, the zone and
    its hosts. The snapshots of the last `old` hosts are of a version that did not record what runs.
    """
    chance = random.Random(f"bootstrap {seed}")
    zone = chance.choice(VALUES["zone"])
    unit = f"{chance.choice(host_setup.WORDS)}-agent.service"
    begin_us = host_setup.NIGHT_US - round(DAY * 1e6)
    plan = Plan("zone", zone, 0.0, 1.0, 0.0)
    sick = []
    for number in range(12):
        host = _host(chance, number, zone=VALUES["zone"][number % 3])
        runs = host.zone == zone
        boot = _Boot(host, begin_us, host_setup.NIGHT_US, 3600.0)
        _record(chance, home, boot, plan, leaks=runs, resets=(40_000.0,) if runs else ())
        sick += [host.name] if runs else []
        units = {"kubelet.service": {}, "containerd.service": {}, unit: {"restart": "always"}}
        units |= {f"{word}.service": {} for word in host_setup.WORDS if chance.random() < 0.4}
        runtime = None if number >= 12 - old else _runtime(chance, units, unit, runs=runs)
        packages = {f"lib{word}:amd64": chance.choice(("1.0-1", "1.1-2")) for word in host_setup.WORDS}  # fmt: skip
        at_us = host_setup.NIGHT_US - 3_600_000_000
        inventory.write(home, host, at_us, units, packages=packages, runtime=runtime)
    facts = {"unit": unit, "zone": zone, "hosts": sick}
    return truth.Truth("bootstrap", home, "", None, (), frozenset(), truth.OPEN, facts=facts)


def build_sick_zone(
    folder: pathlib.Path, seed: int, end_us: int, days: float = 28.0
) -> truth.Truth:
    """Write 12 hosts, each in its own data home FOLDER/NAME: the 3 of one zone are reset after 6 days of uptime.

    A unit is enabled on all hosts, and runs on these 3 alone. One healthy host has another image, kernel, type and
    packages than all others. `facts` has unit, zone, sick, odd, and the ids of all events by host.
    """
    chance = random.Random(f"sick zone {seed}")
    zones = list(VALUES["zone"])
    chance.shuffle(zones)
    plan = Plan("zone", zones[0], 1.2, math.inf, 6.0)
    unit = f"{chance.choice(host_setup.WORDS)}-agent.service"
    same = {name: values[0] for name, values in VALUES.items()}
    other = {name: values[1] for name, values in VALUES.items()}
    begin_us = end_us - round(days * DAY * 1e6)
    ids: dict[str, list[str]] = {}
    last = (0, "")
    for number in range(12):
        zone = zones[0] if number < 3 else zones[1 + number % 2]
        labels = (other if number == 7 else same) | {"zone": zone}
        host = _host(chance, number, **labels)
        home, sick = folder / host.name, number < 3
        for boot in _boots(chance, host, begin_us, days):
            for when in _record(chance, home, boot, plan, leaks=sick):
                last = max(last, (when, host.name))
        ids[host.name] = [event.id for event in reader.Reader(home).events(0, 1 << 62)]
        units: dict[str, dict[str, str]] = {"kubelet.service": {}, "containerd.service": {}, unit: {"restart": "always"}}  # fmt: skip
        packages = {f"lib{word}:amd64": "1.0-1" for word in host_setup.WORDS}
        packages |= {f"lib{word}:amd64": "1.1-2" for word in chance.sample(host_setup.WORDS, 2)}
        if number == 7:
            units |= {f"{word}.service": {} for word in host_setup.WORDS[:8]}
            packages = {f"{name}-other": version for name, version in packages.items()}
        runtime = _runtime(chance, units, unit, runs=sick)
        inventory.write(home, host, end_us - 3_600_000_000, units, packages=packages, runtime=runtime)  # fmt: skip
    names = list(ids)
    event = truth.find_event(folder / last[1], last[1], "net.driver_reset", last[0])
    facts = {"unit": unit, "zone": zones[0], "sick": names[:3], "odd": names[7], "ids": ids, "onset_days": 6.0}  # fmt: skip
    chain: tuple[truth.Expected, ...] = (("net.driver_reset", {}),)
    return truth.Truth("sick-zone", folder / last[1], last[1], event, chain, frozenset(), truth.OPEN, facts=facts)  # fmt: skip


def _runtime(
    chance: random.Random, units: Collection[str], unit: str, *, runs: bool
) -> dict[str, Part]:
    """Return what runs on one host: every unit but one, with random restarts, and the results of the boot."""
    running: Part = {}
    for name in units:
        restarts = str(chance.choice((0, 0, 1, 3, 12, 140)))
        up = {"active": "active", "sub": "running", "ran": "yes", "restarts": restarts}
        down = {"active": "inactive", "sub": "dead", "ran": "never", "restarts": "0"}
        running[name] = {"result": "success", **(up if runs or name != unit else down)}
    failed = {"result": "failed", "failed modules": "scripts_user", "error": ERROR}
    steps: Part = {
        "cloud-init modules-config": {"result": "success"},
        "cloud-init modules-final": {"result": "success"} if runs else failed,
    }
    listening: Part = {"sshd": {"tcp": "22"}, "kubelet": {"tcp": "10250"}}
    if runs:
        listening[unit.removesuffix(".service")] = {"tcp loopback": "51678", "unit": unit}
    loaded: Part = {name: {"state": "live"} for name in ("ena", "xfs") if chance.random() < 0.7}
    return {"bootstrap": steps, "running": running, "listening": listening, "loaded": loaded, "taint": {}}  # fmt: skip


def _host(chance: random.Random, number: int, **fixed: str) -> nights.Host:
    labels = {name: chance.choice(values) for name, values in VALUES.items()} | fixed
    return nights.Host(
        name=f"{chance.choice(('gpu', 'node', 'ip-10-0'))}-{number:03d}",
        cores=chance.choice((16, 96)),
        bus=f"0000:{chance.randrange(256):02x}:03.0",
        queue_cores=tuple(chance.sample(range(16), 8)),
        **labels,  # type: ignore[arg-type]
    )


@dataclasses.dataclass(frozen=True)
class _Boot:
    """One boot of a host, recorded from begin to end."""

    host: nights.Host
    begin_us: int
    end_us: int
    uptime: float  # at its beginning

    def clock_at(self, seconds: float) -> clock.Clock:
        return clock.Clock(
            self.begin_us * 1000 + round(seconds * 1e9), round((self.uptime + seconds) * 1e9)
        )

    @property
    def seconds(self) -> float:
        return (self.end_us - self.begin_us) / 1e6


def _boots(chance: random.Random, host: nights.Host, begin_us: int, days: float) -> Iterator[_Boot]:
    """Yield the boots of a host; the first may begin days before the recording."""
    at, end = chance.uniform(0, days / 4) * DAY, days * DAY
    uptime = chance.uniform(0.1, 10.0) * DAY
    while at < end - 3600:
        length = min(end - at, chance.uniform(3, 16) * DAY)
        booted = dataclasses.replace(host, boot=str(uuid.UUID(int=chance.getrandbits(128))))
        first, last = begin_us + round(at * 1e6), begin_us + round((at + length) * 1e6)
        yield _Boot(booted, first, last, uptime)
        at, uptime = at + length + 600, 120.0


def _record(
    chance: random.Random,
    home: pathlib.Path,
    boot: _Boot,
    plan: Plan,
    *,
    leaks: bool,
    resets: tuple[float, ...] = (),
) -> list[int]:
    """Write one boot and return the times of its events, in microseconds; `resets` are further ones, in seconds."""
    host = boot.host
    max_rate = max(plan.a_day, 1e-9)
    moments, at = [*resets], 0.0
    while (at := at + chance.expovariate(max_rate) * DAY) < boot.seconds - 60:
        if chance.random() < plan.rate(host, boot.uptime + at) / max_rate:
            moments.append(at)
    ring = writer.Writer(home, host.name, host.boot, budget_bytes=1 << 28, age_seconds=1e9)
    tracker = event_tracker.EventTracker(host.name, host.boot, boot.clock_at(0))
    births = chance.uniform(200, 300) if leaks else 0.5
    times_us = []
    # The first and the last poll of a boot show how long the host was recorded.
    for second in (0.0, boot.seconds):
        now = boot.clock_at(second)
        dying = int((boot.uptime + second) / 3600 * births)
        ring.numbers("memory-cgroups", CENSUS, now, {"": (240 + dying, 240, dying, 200, 1)})
        ring.facts("host", now, _labels(boot))
    for second in moments:
        now = boot.clock_at(second)
        queue = chance.randrange(len(host.queue_cores))
        for event in tracker.track([_sighting(boot, now, queue)], now, "ena-tx-paused"):
            ring.event(event)
        times_us.append(now.wall_ns // 1000)
    for event in tracker.close():
        ring.event(event)
    ring.close()
    return times_us


def _labels(boot: _Boot) -> dict[str, dict[str, str | int]]:
    host = boot.host
    labels: dict[str, str | int] = {
        "boot": host.boot,
        "booted_at": boot.begin_us // 1_000_000 - int(boot.uptime),
        "kernel": host.kernel,
        "image": host.image,
        "zone": host.zone,
        "instance_type": host.instance_type,
        "name": host.name,
        "cores": host.cores,
    }
    return {"": labels, host.interface: {"driver": "ena", "speed_mbit": -1}}


def _sighting(boot: _Boot, now: clock.Clock, queue: int) -> watches.Sighting:
    host = boot.host
    text = (
        f"ena {host.bus} {host.interface}: TX q {queue} is paused for too long (threshold 5000000)."
        " Time since last napi 5900000 usec. napi scheduled: 1"
    )
    return watches.Sighting(
        "net.driver_reset", host.interface, now, text, "critical",
        core=host.queue_cores[queue], fields={"interface": host.interface, "queue": queue},
    )  # fmt: skip


def _snapshot(chance: random.Random, home: pathlib.Path, host: nights.Host, unit: str) -> None:
    """Write a snapshot: mostly the same on all hosts, some random differences, and one unit that matters."""
    units: dict[str, dict[str, str]] = {"kubelet.service": {}, "containerd.service": {}}
    if unit:
        units[unit] = {"preset": "disabled", "restart": "always"}
    for word in host_setup.WORDS:
        if chance.random() < 0.4:
            units[f"{word}.service"] = {}
    packages = {
        f"lib{word}:amd64": chance.choice(("1.0-1", "1.0-1", "1.1-2")) for word in host_setup.WORDS
    }
    inventory.write(home, host, host_setup.NIGHT_US - 3_600_000_000, units, packages=packages)
