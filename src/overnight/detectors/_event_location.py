"""Where an event happened: its interface, queue and core, as they were before it.

A driver that resets names a queue but not its core, and gets new interrupts afterwards.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, cast

from overnight.model.finding import Evidence, Need
from overnight.model.selection import Window
from overnight.model.times import SECOND_US
from overnight.sources import interrupts

if TYPE_CHECKING:
    from overnight import sources
    from overnight.detectors import _base
    from overnight.model.event import Event
    from overnight.queries import case as cases

# Counters are read every 10 s: the event may be as much older than the reading that shows it, and the
# queues must be those from before that.
COUNTER_LAG_US = 11 * SECOND_US
COUNTER_WATCHES = ("driver-counters",)


@dataclasses.dataclass(frozen=True)
class Queue:
    """One queue of an interface and the core that serves it; None: several cores, or not known."""

    interface: str
    queue: int
    way: str
    core: int | None
    threaded: bool = False


@dataclasses.dataclass(frozen=True)
class Location:
    """Of the event; `from_queues` where its core was looked up in `nic-queues`, not named by the event."""

    core: int | None = None
    interface: str = ""
    queue: int | None = None
    from_queues: bool = False

    @property
    def source(self) -> str:
        """The evidence source of the core."""
        return Need.NIC_QUEUES if self.from_queues else Need.EVENTS

    def oppose_elsewhere(self, draft: _base.Draft, *, factor: float) -> None:
        """Add evidence against a finding if the event is known to be on another core."""
        if self.core is not None and self.core != draft.subject.core:
            text = f"the event is on core {self.core}, this is core {draft.subject.core}"
            evidence = Evidence(text, self.source, {"event_core": self.core})
            draft.weigh(evidence, supports=False, factor=factor)


def find_location(case: cases.Case) -> Location:
    event = case.event
    interface = str(event.fields.get("interface", ""))
    queue = _number(event.fields.get("queue"))
    core = event.known_core if event.core >= 0 else _number(event.fields.get("cpu"))
    is_net = event.kind.startswith("net.")
    if is_net and not interface and (device := str(event.fields.get("device", ""))):
        interface = _interface_of(case, device)
    if is_net and queue is None:
        # Some drivers name no queue; the queue's own counter does.
        rises = [
            key
            for key in counter_rises(case, "tx-timeouts", "timeouts")
            if interface in ("", key.partition(" ")[0])
        ]
        if len(rises) == 1:
            interface, _, label = rises[0].partition(" ")
            queue = _number(label.lstrip("q"))
    if core is None and interface and queue is not None:
        core = _core(interrupts.core_of(_queue_facts(case), interface, queue))
        return Location(core, interface, queue, from_queues=core is not None)
    return Location(core, interface, queue)


def read_waits(event: Event) -> tuple[float | None, float | None]:
    """Return how long the queue waited for the core to poll it, and how long no interrupt asked for a poll.

    Both by the driver, in seconds; None where it does not report it. The line of a reset comes before one about a
    missing completion, which is older.
    """
    for line in ("", "missed_"):
        since = _number(event.fields.get(f"{line}since_napi_us"))
        if since is not None:
            # Without a scheduled poll nothing waits for the core: the device did not ask for one.
            is_idle = event.fields.get(f"{line}napi_scheduled") == 0
            return (0.0, since / SECOND_US) if is_idle else (since / SECOND_US, None)
    return None, None


def read_queues(case: cases.Case) -> tuple[Queue, ...]:
    """Read every queue and its core from before the event; empty where that was not recorded."""
    return tuple(
        Queue(
            str(fact.get("interface", "")),
            queue,
            str(fact.get("way", "")),
            _core(_number(fact.get("core"))),
            bool(fact.get("threaded", False)),
        )
        for fact in _queue_facts(case).values()
        if (queue := _number(fact.get("queue"))) is not None and queue >= 0
    )


def counter_rises(case: cases.Case, signal: str, column: str) -> dict[str, int]:
    """Read each key's counter rise from the incident window's begin until shortly after the event."""
    window = Window(case.window.begin_us, case.event.time_us + 30 * SECOND_US)
    rises = case.rates(signal, window, columns=(column,)).rises(column)
    return {key: round(rise) for key, rise in rises.items() if rise > 0.5}


def _queue_facts(case: cases.Case) -> sources.Facts:
    lag = COUNTER_LAG_US if case.event.source in COUNTER_WATCHES else 1
    instants = (case.event.time_us - before for before in (lag, 1))
    states = (case.facts("nic-queues", instant) for instant in instants)
    known = next((state for state in states if state is not None), {})
    # The recorder wrote them from `sources.Facts`.
    return cast("sources.Facts", known)


def _interface_of(case: cases.Case, device: str) -> str:
    facts = case.facts("nic-drivers", case.event.time_us - 1) or {}
    names = [name for name, fact in facts.items() if fact.get("bus") == device]
    return names[0] if len(names) == 1 else ""


def _core(number: int | None) -> int | None:
    return None if number is None or number < 0 else number


def _number(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and value.isdigit() else None
