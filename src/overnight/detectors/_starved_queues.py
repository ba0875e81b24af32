"""Queues of network interfaces whose core was taken from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _event_location as place
from overnight.detectors import _saturation as saturation
from overnight.model.finding import Evidence, Finding, Subject, finding_id

if TYPE_CHECKING:
    from overnight.queries import case as cases

__all__ = ["KIND", "starved"]

KIND = "net.queue_starved"
SAYING = ("net.driver_reset", "net.driver_starved", "net.tx_timeout")
# Counters of ENA, and of others by the same words.
STARVING = ("suspected_poll_starvation", "missing_tx", "missed_tx", "tx_timeout")
# A core leaves a few packets for later in any second; the watch's limit is 100 a second.
SQUEEZES = 100
LEAST_WAIT_S = 1.0  # a driver waits for several seconds before it gives a queue up


def starved(case: cases.Case, stretch: saturation.Stretch, where: place.Place) -> list[Finding]:
    """Queues of that core that something says starved: the event, the driver, or the backlog."""
    made = []
    counters = _starving(case)
    timeouts = place.risen(case, "tx-timeouts", "timeouts")
    squeezed = place.risen(case, "softnet", "squeezed").get(str(stretch.core), 0)
    known = [
        one for one in place.queues_before(case) if one.core == stretch.core and one.way != "rx"
    ]
    told = _told_by_driver(case, where)
    waited = place.waited_seconds(case.event)
    if (
        told is not None
        and told.core == stretch.core
        and not any((one.interface, one.queue) == (told.interface, told.queue) for one in known)
    ):
        known.append(told)
    for queue in known:
        named = case.event.kind in SAYING and where.interface == queue.interface
        event_says = named and where.queue == queue.queue
        if named and where.queue >= 0 and not event_says:
            continue
        if event_says and waited is not None and waited < LEAST_WAIT_S:
            continue  # the driver itself says that nobody kept the queue waiting for a poll
        own = timeouts.get(f"{queue.interface} q{queue.queue}", 0)
        host_wide = {
            name: more for name, more in counters.items() if name.startswith(f"{queue.interface} ")
        }
        said = _said(case, queue, where, event_says, own, host_wide, squeezed)
        # The backlog alone tells of load, not of a queue that stood still.
        if not said or (not event_says and not own and not host_wide):
            continue
        confidence = min(0.95, (0.8 if event_says or own else 0.5) + 0.08 * (len(said) - 1))
        against = []
        if queue.threaded:
            confidence *= 0.8
            against.append(
                Evidence(
                    "a kernel thread polls this queue, and may run on another core than its interrupt",
                    "nic-queues",
                )
            )
        subject = Subject(
            host=case.host, interface=queue.interface, queue=queue.queue, core=stretch.core
        )
        how = "as the driver says" if queue is told else "as known before the event"
        served = Evidence(
            f"core {stretch.core} serves {queue.interface} queue {queue.queue}, {how}, and was at its limit for"
            f" {stretch.seconds:.0f} s",
            "events" if queue is told else "nic-queues",
            {"core": stretch.core, "queue": queue.queue},
            stretch.window,
        )
        made.append(
            Finding(
                id=finding_id("culprit", KIND, subject, stretch.begin_us),
                detector="culprit",
                kind=KIND,
                subject=subject,
                window=stretch.window,
                confidence=confidence,
                summary=(
                    f"{queue.interface} queue {queue.queue} was not served: its core {stretch.core} was at its limit"
                    f" for {stretch.seconds:.0f} s"
                ),
                evidence=(served, *said),
                magnitude={"seconds": round(stretch.seconds, 3)},
                against=tuple(against),
            )
        )
    return made


def _told_by_driver(case: cases.Case, where: place.Place) -> place.Queue | None:
    """The queue that a driver says waits for its core, by name: ENA from 2.17 on tells which."""
    fields = case.event.fields
    if case.event.kind not in SAYING or fields.get("napi_scheduled") != 1 or where.queue < 0:
        return None
    core = fields.get("cpu")
    if not isinstance(core, int) or core < 0 or not where.interface:
        return None
    return place.Queue(where.interface, where.queue, "tx", core)


def _said(
    case: cases.Case,
    queue: place.Queue,
    where: place.Place,
    event_says: bool,
    timeouts: int,
    counters: dict[str, int],
    squeezed: int,
) -> list[Evidence]:
    said = []
    if event_says:
        since = case.event.fields.get("since_napi_us")
        waited = f", {int(since) / 1e6:.1f} s since the last poll" if isinstance(since, int) else ""
        said.append(
            Evidence(
                f"the event names the queue: {case.event.text or case.event.kind}{waited}",
                "events",
                {"queue": where.queue, **({"since_napi_us": since} if since is not None else {})},
            )
        )
    if timeouts:
        said.append(
            Evidence(
                f"the queue's own counter of timeouts rose by {timeouts}",
                "tx-timeouts",
                {"timeouts": timeouts},
                case.window,
            )
        )
    if counters:
        text = ", ".join(f"{name.partition(' ')[2]} by {more}" for name, more in counters.items())
        said.append(
            Evidence(
                f"the driver's counters of {queue.interface} rose: {text}",
                "ethtool",
                {name.partition(" ")[2]: more for name, more in counters.items()},
                case.window,
            )
        )
    if squeezed >= SQUEEZES:
        said.append(
            Evidence(
                f"the core left received packets for later {squeezed} times",
                "softnet",
                {"squeezed": squeezed},
                case.window,
            )
        )
    return said


def _starving(case: cases.Case) -> dict[str, int]:
    rose = place.risen(case, "ethtool", "value")
    return {name: more for name, more in rose.items() if any(word in name for word in STARVING)}
