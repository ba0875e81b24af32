"""Where an event happened: its interface, queue and core, as they were known before it.

A driver that resets names a queue and no core, and afterwards its interrupts are new ones. So the core is
looked up in what the flight recorder knew a moment before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import numpy as np

from overnight.model.selection import Window
from overnight.sources import interrupts

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model.event import Event
    from overnight.queries import case as cases

__all__ = [
    "Place",
    "Queue",
    "event_place",
    "queues_before",
    "risen",
    "silent_seconds",
    "waited_seconds",
]

SECOND = 1_000_000
# Counters are looked at every 10 s: what such a look saw may have happened as long before, and what
# was known of the queues must be older than that.
COUNTER_LAG_US = 11 * SECOND
COUNTER_WATCHES = ("driver-counters",)


@dataclasses.dataclass(frozen=True)
class Queue:
    """One queue of an interface and the core that serves it; -1: not one core, or not known."""

    interface: str
    queue: int
    way: str
    core: int
    threaded: bool = False


@dataclasses.dataclass(frozen=True)
class Place:
    """Of the event; `how` says where the core and the queue are known from, '' where they are not."""

    core: int = -1
    interface: str = ""
    queue: int = -1
    how: str = ""


def event_place(case: cases.Case) -> Place:
    """Core, interface and queue of the event."""
    told = case.event
    interface = str(told.fields.get("interface", ""))
    queue = _number(told.fields.get("queue"))
    core = told.core if told.core >= 0 else _number(told.fields.get("cpu"))
    how = "the event names it" if core >= 0 else ""
    is_net = told.kind.startswith("net.")
    if is_net and not interface and (device := str(told.fields.get("device", ""))):
        interface = _interface_of(case, device)
    if is_net and queue < 0:
        # Some drivers name no queue; the queue's own counter does.
        rose = [key for key in risen(case, "tx-timeouts", "timeouts") if _is_on(key, interface)]
        if len(rose) == 1:
            interface, _, label = rose[0].partition(" ")
            queue = _number(label.lstrip("q"))
    if core < 0 and interface and queue >= 0:
        facts = _facts(case)
        core = interrupts.core_of(facts, interface, queue)
        if core >= 0:
            how = (
                f"nic-queues: {interface} queue {queue} was served by core {core} before the event"
            )
    return Place(core, interface, queue, how)


def waited_seconds(told: Event) -> float | None:
    """For how long the driver says that its queue waited to be polled; None where it does not say.

    Without a poll that is scheduled nothing waits for the core: the device did not ask for one.
    """
    since, scheduled = told.fields.get("since_napi_us"), told.fields.get("napi_scheduled")
    if not isinstance(since, int) or isinstance(since, bool):
        return None
    return 0.0 if scheduled == 0 else since / SECOND


def silent_seconds(told: Event) -> float | None:
    """For how long no interrupt asked for a poll, where the driver says that; None where it says otherwise."""
    since, scheduled = told.fields.get("since_napi_us"), told.fields.get("napi_scheduled")
    if scheduled != 0 or not isinstance(since, int) or isinstance(since, bool):
        return None
    return since / SECOND


def queues_before(case: cases.Case) -> tuple[Queue, ...]:
    """Every queue and its core, as known before the event; nothing where that was not recorded."""
    return tuple(
        Queue(
            str(fact.get("interface", "")),
            _number(fact.get("queue")),
            str(fact.get("way", "")),
            _number(fact.get("core")),
            bool(fact.get("threaded", False)),
        )
        for fact in _facts(case).values()
        if _number(fact.get("queue")) >= 0
    )


def risen(
    case: cases.Case, signal: str, column: str, *, after_us: int = 30 * SECOND
) -> dict[str, int]:
    """By how much each key's counter rose from the hot stretch on until a little after the event."""
    window = Window(case.window.begin_us, case.event.time_us + after_us)
    rates = case.rates(signal, window, columns=(column,))
    if column not in rates.values:
        return {}
    rose = np.nansum(rates.values[column] * rates.seconds[:, None], axis=0)
    return {
        key: round(float(more))
        for key, more in zip(rates.keys, rose.tolist(), strict=True)
        if more > 0.5
    }


def _facts(case: cases.Case) -> sources.Facts:
    lag = COUNTER_LAG_US if case.event.source in COUNTER_WATCHES else 1
    known: Mapping[str, Mapping[str, object]] | None = None
    for before in (lag, 1):
        known = case.ring.facts(case.host, "nic-queues", case.event.time_us - before).state
        if known is not None:
            break
    # The recorder wrote them from `sources.Facts`.
    return cast("sources.Facts", known or {})


def _interface_of(case: cases.Case, device: str) -> str:
    facts = case.ring.facts(case.host, "nic-drivers", case.event.time_us - 1).state or {}
    found = [name for name, fact in facts.items() if fact.get("bus") == device]
    return found[0] if len(found) == 1 else ""


def _is_on(key: str, interface: str) -> bool:
    return not interface or key.partition(" ")[0] == interface


def _number(value: object) -> int:
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool)
        else (int(value) if isinstance(value, str) and value.isdigit() else -1)
    )
