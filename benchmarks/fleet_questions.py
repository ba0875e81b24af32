"""Questions about a made-up fleet of 10,000 hosts, watched for 90 days."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from benchmarks import Result
from overnight.app import fleet_questions
from overnight.model.event import Event
from overnight.model.fleet import Fleet, Host, Spell

__all__ = ["measure"]

KIND = "net.driver_reset"
HOSTS, DAYS, EVENTS = 10_000, 90.0, 2_000
DAY_US = 86_400_000_000
VALUES = {"zone": 6, "image": 8, "kernel": 5, "instance_type": 6, "driver": 2}
FOLLOWERS = 8  # labels that follow the zone on most hosts; the detector must separate all of them


def measure() -> list[Result]:
    fleet = Fleet(tuple(_make_hosts(np.random.default_rng(7))))
    request = fleet_questions.KindRequest(KIND)
    results = []
    for question in (fleet_questions.COHORTS, fleet_questions.HAZARD):
        begin = time.perf_counter()
        answer = question.answer(fleet, request)  # type: ignore[attr-defined]
        seconds = time.perf_counter() - begin
        assert answer.status == "found", answer.why
        events = answer.watched.events
        name = f"{question.name} of {HOSTS:,} hosts, {DAYS:g} days, {events:,} events"  # type: ignore[attr-defined]
        results.append(Result(name, seconds, "s", "<= 10", seconds <= 10))
    return results


def _make_hosts(chance: np.random.Generator) -> Iterator[Host]:
    """Yield hosts that reboot every 12 days; resets come in one zone, and after a week of uptime."""
    for number in range(HOSTS):
        name = f"host-{number:05}"
        labels = {label: f"{label}-{chance.integers(count)}" for label, count in VALUES.items()}
        sick = labels["zone"] == "zone-1"
        for n in range(FOLLOWERS):
            labels[f"label-{n}"] = labels["zone"] if chance.random() < 0.9 else "other"
        labels["rack"] = f"rack-{number // 4}"
        rate = EVENTS / HOSTS / DAYS * chance.gamma(0.25, 4) * (5.5 if sick else 1.1)
        at, uptime = 0.0, float(chance.exponential(10))
        spells, events = [], []
        while at < DAYS:
            length = min(float(chance.exponential(12)), DAYS - at)
            boot = f"{number:05x}{len(spells):03x}"
            begin, end = (round(day * DAY_US) for day in (at, at + length))
            spells.append(Spell(begin, end, uptime * 86_400, boot))
            for into in np.sort(chance.random(chance.poisson(rate * length)) * length):
                if uptime + into >= 7 or chance.random() < 0.2:
                    moment = begin + round(into * DAY_US)
                    events.append(Event(moment, KIND, host=name, boot=boot, id=f"{boot}-{into}"))
            at, uptime = at + length + 0.01, 0.0
        yield Host(name, labels, tuple(spells), tuple(events))
