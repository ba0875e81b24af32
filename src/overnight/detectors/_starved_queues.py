"""Queues of network interfaces that were not polled because their core was saturated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _base, _event_location
from overnight.model import times
from overnight.model.finding import Evidence, Subject
from overnight.model.selection import Window
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.detectors import _saturation
    from overnight.model.event import Event
    from overnight.queries import case as cases

KIND = "net.queue_starved"
EVENT_KINDS = ("net.driver_reset", "net.driver_starved", "net.tx_timeout")
# Counters of ENA, and of other drivers that use the same words.
COUNTERS = ("suspected_poll_starvation", "missing_tx", "missed_tx", "tx_timeout")
# A core leaves a few packets for later in any second; the watch's limit is 100 a second.
SQUEEZES = 100
MIN_WAIT_S = 1.0  # a driver waits for several seconds before it gives a queue up
# Where the driver does not report its wait: ENA and the transmit watchdog give a queue 5 s, and both the
# readings of the core and the watchdog's timer are a second or two off.
LEAST_BEFORE_US = 3_000_000


def find_starved_queues(
    case: cases.Case, stretch: _saturation.Stretch, location: _event_location.Location
) -> list[_base.Draft]:
    """Find queues of a saturated core that starved according to the event, the driver or the backlog."""
    drafts = []
    counters = _event_location.counter_rises(case, "ethtool", "value")
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
    waited, _ = _event_location.read_waits(case.event)
    before = stretch.until(case.event)  # what ran after a reset did not lead to it
    is_driver_event = case.event.kind in EVENT_KINDS
    too_late = stretch.window.begin_us > case.event.time_us - LEAST_BEFORE_US
    for queue in queues:
        on_interface = is_driver_event and location.interface == queue.interface
        is_named = on_interface and location.queue == queue.queue
        if on_interface and location.queue is not None and not is_named:
            continue
        if is_named and waited is not None and waited < MIN_WAIT_S:
            continue  # the driver itself reports that the queue did not wait for a poll
        if is_named and waited is None and too_late:
            continue
        own_timeouts = timeouts.get(f"{queue.interface} q{queue.queue}", 0)
        own_counters = {
            name.partition(" ")[2]: rise
            for name, rise in counters.items()
            if name.startswith(f"{queue.interface} ") and any(word in name for word in COUNTERS)
        }
        # The backlog alone shows load, not a queue that stood still.
        if not is_named and not own_timeouts and not own_counters:
            continue
        origin = "the driver reports" if queue is reported else "known from before the event"
        seconds, window = before.seconds, before.window
        if is_named:
            seconds, window = _reported_wait(case.event, before, waited)
        saturated = f"was saturated for {before.seconds:.0f} s"
        saturated += " before the event" if before is not stretch else ""
        draft = _base.Draft(
            KIND,
            Subject(
                host=case.host, interface=queue.interface, queue=queue.queue, core=stretch.core
            ),
            window,
            0.8 if is_named or own_timeouts else 0.5,
            f"{_name(queue)} was not polled for {times.format_duration(seconds, exact=True)}: its core {stretch.core} {saturated}",
            magnitude={"seconds": seconds},
        )
        draft.support(
            f"core {stretch.core} serves {_name(queue)} ({origin}) and {saturated}",
            "events" if queue is reported else "nic-queues",
            core=stretch.core,
            queue=queue.queue,
        )
        if is_named:
            draft.evidence.append(_event_evidence(case, queue))
        if own_timeouts:
            text = f"the queue's timeout counter rose by {own_timeouts}"
            draft.support(text, "tx-timeouts", window=case.window, timeouts=own_timeouts)
        if own_counters:
            rises = ", ".join(f"{name} by {rise}" for name, rise in own_counters.items())
            text = f"driver counters of {queue.interface} rose: {rises}"
            draft.evidence.append(Evidence(text, "ethtool", own_counters, case.window))
        if squeezed >= SQUEEZES:
            text = f"the core deferred received packets {squeezed} times (softnet time_squeeze)"
            draft.support(text, "softnet", window=case.window, squeezed=squeezed)
        # Each sign beyond the first makes it surer.
        draft.confidence = min(0.95, draft.confidence + 0.08 * (len(draft.evidence) - 2))
        if queue.threaded:
            text = "a kernel thread polls this queue and may run on another core than its interrupt"
            draft.weigh(Evidence(text, "nic-queues"), supports=False, factor=0.8)
        drafts.append(draft)
    return drafts


def _reported_wait(
    event: Event, before: _saturation.Stretch, waited: float | None
) -> tuple[float, Window]:
    """Return how long the queue was not polled by the driver's own number, and that part of the saturation.

    A transmit watchdog counts from the last packet sent, which may be from before the saturation.
    """
    seconds = before.seconds if waited is None else waited
    for name, unit in (("stuck_ms", 1e3), ("since_transmit_us", 1e6)):
        stuck = event.fields.get(name)
        if waited is None and isinstance(stuck, int):
            seconds = min(seconds, stuck / unit)
    begin_us = event.time_us - round(seconds * SECOND_US)
    if before.window.begin_us < begin_us < before.window.end_us:
        return seconds, Window(begin_us, before.window.end_us)
    return seconds, before.window


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
    waited = ""
    if isinstance(since, int):
        waited = f", {times.format_duration(since / 1e6, exact=True)} since the last poll"
    return Evidence(
        f"the event names the queue: {case.event.text or case.event.kind}{waited}",
        "events",
        {"queue": queue.queue, **({} if since is None else {"since_napi_us": since})},
    )
