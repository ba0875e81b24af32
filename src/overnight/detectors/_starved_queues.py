"""Queues of network interfaces that were not polled because their core was saturated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _base, _event_location
from overnight.model.finding import Evidence, Finding, Subject

if TYPE_CHECKING:
    from overnight.detectors import _saturation
    from overnight.queries import case as cases

__all__ = ["KIND", "find_starved_queues"]

KIND = "net.queue_starved"
EVENT_KINDS = ("net.driver_reset", "net.driver_starved", "net.tx_timeout")
# Counters of ENA, and of other drivers that use the same words.
COUNTERS = ("suspected_poll_starvation", "missing_tx", "missed_tx", "tx_timeout")
# A core leaves a few packets for later in any second; the watch's limit is 100 a second.
SQUEEZES = 100
MIN_WAIT_S = 1.0  # a driver waits for several seconds before it gives a queue up


def find_starved_queues(
    case: cases.Case, stretch: _saturation.Stretch, location: _event_location.Location
) -> list[Finding]:
    """Find queues of a saturated core that starved according to the event, the driver or the backlog."""
    findings = []
    counters = _risen_counters(case)
    timeouts = _event_location.counter_rises(case, "tx-timeouts", "timeouts")
    squeezed = _event_location.counter_rises(case, "softnet", "squeezed").get(str(stretch.core), 0)
    queues = [
        queue
        for queue in _event_location.read_queues(case)
        if queue.core == stretch.core and queue.way != "rx"
    ]
    reported = _queue_of_driver(case, location)
    if (
        reported is not None
        and reported.core == stretch.core
        and not any(_name(queue) == _name(reported) for queue in queues)
    ):
        queues.append(reported)
    waited = _event_location.waited_seconds(case.event)
    is_driver_event = case.event.kind in EVENT_KINDS
    for queue in queues:
        on_interface = is_driver_event and location.interface == queue.interface
        is_named = on_interface and location.queue == queue.queue
        if on_interface and location.queue is not None and not is_named:
            continue
        if is_named and waited is not None and waited < MIN_WAIT_S:
            continue  # the driver itself reports that the queue did not wait for a poll
        own_timeouts = timeouts.get(f"{queue.interface} q{queue.queue}", 0)
        own_counters = {
            name.partition(" ")[2]: rise
            for name, rise in counters.items()
            if name.startswith(f"{queue.interface} ")
        }
        # The backlog alone shows load, not a queue that stood still.
        if not is_named and not own_timeouts and not own_counters:
            continue
        signs = [
            *([_event_evidence(case, queue)] if is_named else []),
            *_counter_evidence(case, queue, own_timeouts, own_counters, squeezed),
        ]
        confidence = (0.8 if is_named or own_timeouts else 0.5) + 0.08 * (len(signs) - 1)
        confidence = min(0.95, confidence)
        against = []
        if queue.threaded:
            confidence *= 0.8
            against.append(
                Evidence(
                    "a kernel thread polls this queue and may run on another core than its interrupt",
                    "nic-queues",
                )
            )
        origin = "the driver reports" if queue is reported else "known from before the event"
        served = Evidence(
            f"core {stretch.core} serves {_name(queue)} ({origin}) and was saturated for"
            f" {stretch.seconds:.0f} s",
            "events" if queue is reported else "nic-queues",
            {"core": stretch.core, "queue": queue.queue},
            stretch.window,
        )
        findings.append(
            _base.make(
                "culprit",
                KIND,
                Subject(
                    host=case.host, interface=queue.interface, queue=queue.queue, core=stretch.core
                ),
                stretch.window,
                confidence,
                f"{_name(queue)} was not polled: its core {stretch.core} was saturated for"
                f" {stretch.seconds:.0f} s",
                [served, *signs],
                {"seconds": stretch.seconds},
                against,
            )
        )
    return findings


def _name(queue: _event_location.Queue) -> str:
    return f"{queue.interface} queue {queue.queue}"


def _queue_of_driver(
    case: cases.Case, location: _event_location.Location
) -> _event_location.Queue | None:
    """Return the queue that the driver reports as waiting for its core: ENA does from 2.17 on."""
    fields = case.event.fields
    if case.event.kind not in EVENT_KINDS or fields.get("napi_scheduled") != 1:
        return None
    core = fields.get("cpu")
    if location.queue is None or not location.interface or not isinstance(core, int) or core < 0:
        return None
    return _event_location.Queue(location.interface, location.queue, "tx", core)


def _event_evidence(case: cases.Case, queue: _event_location.Queue) -> Evidence:
    since = case.event.fields.get("since_napi_us")
    waited = f", {int(since) / 1e6:.1f} s since the last poll" if isinstance(since, int) else ""
    return Evidence(
        f"the event names the queue: {case.event.text or case.event.kind}{waited}",
        "events",
        {"queue": queue.queue, **({} if since is None else {"since_napi_us": since})},
    )


def _counter_evidence(
    case: cases.Case,
    queue: _event_location.Queue,
    timeouts: int,
    counters: dict[str, int],
    squeezed: int,
) -> list[Evidence]:
    evidence = []
    if timeouts:
        evidence.append(
            Evidence(
                f"the queue's timeout counter rose by {timeouts}",
                "tx-timeouts",
                {"timeouts": timeouts},
                case.window,
            )
        )
    if counters:
        rises = ", ".join(f"{name} by {rise}" for name, rise in counters.items())
        evidence.append(
            Evidence(
                f"driver counters of {queue.interface} rose: {rises}",
                "ethtool",
                {**counters},
                case.window,
            )
        )
    if squeezed >= SQUEEZES:
        evidence.append(
            Evidence(
                f"the core deferred received packets {squeezed} times (softnet time_squeeze)",
                "softnet",
                {"squeezed": squeezed},
                case.window,
            )
        )
    return evidence


def _risen_counters(case: cases.Case) -> dict[str, int]:
    rises = _event_location.counter_rises(case, "ethtool", "value")
    return {name: rise for name, rise in rises.items() if any(word in name for word in COUNTERS)}
