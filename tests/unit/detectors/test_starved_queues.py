"""Queues that starved, and those of the same core or interface that did not."""

from __future__ import annotations

import pathlib
import re

import captures
import casebook
import pytest
import rings

from overnight.detectors import _event_location, culprit
from overnight.model.finding import Subject
from overnight.sources.kernelrules import matcher, rulefiles

DETECTOR = culprit.DETECTORS[0]
AT = casebook.EVENT_SECOND
REPORTED = {
    "interface": "ens5",
    "queue": 3,
    "since_napi_us": 5_001_000,
    "napi_scheduled": 1,
    "cpu": 2,
}
RULES = matcher.Matcher(rulefiles.built_in())
BUSY = (captures.kernel("do_syscall_64"),)


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        ({}, ["net.queue_starved"]),
        ({"cpu": 1}, []),  # of another core
        ({"cpu": -1}, []),  # not polled by any core
        ({"napi_scheduled": 0}, []),  # no poll was scheduled: not starved
        ({"since_napi_us": 4_000}, []),  # polled a moment ago
        ({"queue": ""}, []),
    ],
)
def test_the_drivers_report_is_enough(
    tmp_path: pathlib.Path, changed: dict[str, int | str], kinds: list[str]
) -> None:
    home = casebook.Home(tmp_path).cpu(
        lambda second, core: (
            (0.0, 1.0, 0.0) if core == 2 and AT - 6 <= second < AT else (0.05, 0.0, 0.0)
        )
    )
    home.stacks(casebook.busy(AT - 6, AT, 2, "kubelet", BUSY))
    home.event(fields={**REPORTED, **changed}, core=2)
    answer = DETECTOR.look(home.case())
    starved = [finding for finding in answer.findings if finding.kind == "net.queue_starved"]
    assert [finding.kind for finding in starved] == kinds
    for finding in starved:
        assert finding.subject == Subject("db-7", 2, interface="ens5", queue=3)
        assert "the driver reports" in finding.evidence[0].text


@pytest.mark.parametrize("unknown", ["cpu", "napi_scheduled"])
def test_the_receive_queue_of_the_number_that_the_driver_names_did_not_starve(
    tmp_path: pathlib.Path, unknown: str
) -> None:
    """The driver does not report a core; another core serves the transmit queue."""
    home = casebook.Home(tmp_path)
    queue = {"interface": "ens5", "queue": 3}
    home.writer.facts(
        "nic-queues",
        rings.at(1),
        {
            "ens5 rx3": {**queue, "way": "rx", "core": 2},
            "ens5 tx3": {**queue, "way": "tx", "core": 1},
        },
    )
    home.cpu(lambda second, core: (float(core == 2 and AT - 6 <= second < AT), 0.0, 0.0))
    home.event(fields={name: value for name, value in REPORTED.items() if name != unknown}, core=2)
    kinds = {finding.kind for finding in DETECTOR.look(home.case()).findings}
    assert "net.queue_starved" not in kinds


@pytest.mark.parametrize("fields", [{"napi_scheduled": 0}, {"since_napi_us": 4_000}])
def test_a_queue_is_not_starved_if_its_driver_did_not_wait(
    tmp_path: pathlib.Path, fields: dict[str, int]
) -> None:
    """Even though the saturated core serves the queue."""
    home = casebook.Home(tmp_path).queues({3: 2})
    home.cpu(lambda second, core: (float(core == 2 and AT - 6 <= second < AT), 0.0, 0.0))
    home.event(fields={**REPORTED, "interface": "eth0", **fields}, core=2)
    kinds = {finding.kind for finding in DETECTOR.look(home.case()).findings}
    assert "net.queue_starved" not in kinds


def test_the_wait_of_the_driver_comes_before_that_of_a_watchdog_and_is_of_one_queue(
    tmp_path: pathlib.Path,
) -> None:
    """The same core serves a queue of another interface, whose timeouts rise; it has no number of its own."""
    home = casebook.Home(tmp_path)
    names = {"eth0 q3": ("eth0", 3), "eth1 q7": ("eth1", 7)}
    facts = {key: {"interface": name, "queue": queue, "way": "", "core": 2} for key, (name, queue) in names.items()}  # fmt: skip
    home.writer.facts("nic-queues", rings.at(1), facts)  # type: ignore[arg-type]
    home.cpu(lambda second, core: (float(core == 2 and AT - 8 <= second < AT - 2), 0.0, 0.0))
    rises = range(AT - 100, AT + 60, 10)
    home.numbers("tx-timeouts", ("timeouts",), lambda s: {"eth1 q7": (200 * (s >= AT),)}, rises)
    home.event(fields={**REPORTED, "interface": "eth0", "stuck_ms": 3000})
    starved = {
        finding.subject.interface: (finding.magnitude["seconds"], finding.window)
        for finding in DETECTOR.look(home.case()).findings
        if finding.kind == "net.queue_starved"
    }
    assert {name: seconds for name, (seconds, _) in starved.items()} == {"eth0": 5.001, "eth1": 6}
    # The core was saturated until two seconds before the event: not longer.
    assert {window.end_us for _, window in starved.values()} == {rings.us(AT - 2)}


@pytest.mark.parametrize(
    ("begin", "since_us", "is_starved"),
    [(4, None, True), (1, None, False), (1, 5_001_000, True)],
)
def test_a_core_that_is_saturated_just_before_the_timeout_did_not_cause_it(
    tmp_path: pathlib.Path, begin: int, since_us: int | None, is_starved: bool
) -> None:
    """Unless the driver itself reports that the queue waited."""
    home = casebook.Home(tmp_path).queues({3: 2})
    home.cpu(lambda second, core: (float(core == 2 and AT - begin <= second < AT + 5), 0.0, 0.0))
    fields = {"interface": "eth0", "queue": 3, "since_napi_us": since_us, "napi_scheduled": 1}
    home.event("net.tx_timeout", fields={k: v for k, v in fields.items() if since_us or k != "since_napi_us"})  # fmt: skip
    kinds = {finding.kind for finding in DETECTOR.look(home.case()).findings}
    assert ("net.queue_starved" in kinds) is is_starved


@pytest.mark.parametrize(
    ("rises", "facts", "confidence"),
    [
        pytest.param({"tx-timeouts": "eth0 q3"}, {}, 0.8, id="its timeouts"),
        pytest.param({"ethtool": "eth0 missing_tx_cmpl"}, {}, 0.5, id="counters of its interface"),
        pytest.param(
            {"ethtool": "eth0 missing_tx_cmpl", "softnet": "2"}, {}, 0.58, id="counters and backlog"
        ),
        pytest.param(
            {"tx-timeouts": "eth0 q3"}, {"threaded": True}, 0.8 * 0.8, id="polled by a thread"
        ),
        pytest.param(
            {"ethtool": "eth0 missed_tx", "softnet": "1"}, {}, 0.5, id="backlog of another core"
        ),
        pytest.param({"ethtool": "eth0 tx_timeout"}, {}, 0.5, id="timeouts of its interface"),
        pytest.param({"softnet": "2"}, {}, None, id="the backlog alone"),
        pytest.param({"tx-timeouts": "eth0 q4"}, {}, None, id="timeouts of another queue"),
        pytest.param({"ethtool": "eth1 missing_tx_cmpl"}, {}, None, id="another interface"),
        pytest.param({"ethtool": "eth0 rx_drops"}, {}, None, id="counters of another kind"),
        pytest.param({"tx-timeouts": "eth0 q3"}, {"way": "rx"}, None, id="a receive queue"),
        pytest.param({"tx-timeouts": "eth0 q3"}, {"core": 1}, None, id="served by another core"),
    ],
)
def test_near_misses(
    tmp_path: pathlib.Path,
    rises: dict[str, str],
    facts: dict[str, object],
    confidence: float | None,
) -> None:
    """A counter rises by 200 at the event; the event itself names no queue."""
    home = casebook.Home(tmp_path).queues({3: 2}, **facts)
    home.cpu(lambda second, core: (float(core == 2 and AT - 6 <= second < AT), 0.0, 0.0))
    columns = {"tx-timeouts": "timeouts", "ethtool": "value", "softnet": "squeezed"}
    for signal, key in rises.items():
        home.numbers(
            signal, (columns[signal],), lambda s, key=key: {key: (200 * (s >= AT),)}, range(800, 960, 10)
        )  # fmt: skip
    home.event("cpu.core_pinned", core=2)
    starved = [
        finding.confidence
        for finding in DETECTOR.look(home.case()).findings
        if finding.kind == "net.queue_starved"
    ]
    assert starved == ([] if confidence is None else [pytest.approx(confidence)])


@pytest.mark.parametrize(
    ("source", "core"),
    [
        pytest.param("ena-tx-paused", 1, id="its line is written at the reset"),
        pytest.param("driver-counters", 2, id="its counters were read up to 10 s later"),
    ],
)
def test_the_core_of_a_queue_is_that_from_before_the_reset(
    tmp_path: pathlib.Path, source: str, core: int
) -> None:
    """The driver moved the queue five seconds before the event, or as part of the reset."""
    home = casebook.Home(tmp_path).queues({3: 2}).queues({3: 1}, AT - 5).queues({3: 0}, AT)
    home.event("net.driver_reset", fields=REPORTED, source=source)
    (queue,) = _event_location.read_queues(home.case())
    assert queue.core == core


ENA = "ena 0000:00:05.0 eth0: "
PAUSED = ENA + "TX q 3 is paused for too long (threshold 5000000). "


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        (PAUSED + "Time since last napi 5052000 usec. napi scheduled: 1", 5.052),
        (PAUSED + "Time since last napi 4294967295 usec. napi scheduled: 1", 4294.967),
        (PAUSED + "usecs since napi 5052000. napi scheduled: 1. napi CPU: 2. msecs since interrupt: 5056", 5.052),
        (ENA + "TX hasn't completed, qid 3, index 12. 5052000 usecs from last napi execution, napi scheduled: 1", 5.052),
        (ENA + "Found a Tx that wasn't completed on time, qid 3, index 12. 5052000 usecs have passed since last napi"
         " execution. Missing Tx timeout value 5000 msecs", 5.052),
        (ENA + "Found a Tx that wasn't completed on time, qid 3, index 107.", 6.0),
        ("NETDEV WATCHDOG: eth0 (ena): transmit queue 3 timed out", 6.0),
        # The core in this line ran the watchdog's timer; it is not the queue's.
        (ENA + "NETDEV WATCHDOG: CPU: 1: transmit queue 3 timed out 5340 ms", 5.34),
        # A transmit watchdog counts from the last packet sent, which may be long before the core was saturated.
        (ENA + "NETDEV WATCHDOG: CPU: 2: transmit queue 3 timed out 12000 ms", 6.0),
        ("virtio_net virtio0 eth0: TX timeout on queue: 3, sq: output.3, vq: 0x1, name: output.3, 5021000 usecs ago", 5.021),
    ],
)  # fmt: skip
def test_seconds_without_a_poll_are_the_drivers_own_or_end_at_the_event(
    tmp_path: pathlib.Path, line: str, seconds: float
) -> None:
    """The core stays saturated for eight seconds after the reset."""
    home = casebook.Home(tmp_path).queues({3: 2})
    home.cpu(lambda second, core: (float(core == 2 and AT - 6 <= second < AT + 8), 0.0, 0.0))
    matched = next(iter(RULES.match(line)))
    home.event(matched.rule.kind, fields=matched.fields, source=matched.rule.name)
    case = home.case()
    (starved,) = [f for f in DETECTOR.look(case).findings if f.kind == "net.queue_starved"]
    assert starved.magnitude["seconds"] == pytest.approx(seconds, abs=0.01)
    assert starved.window.end_us == case.event.time_us
    assert "e+" not in starved.summary + starved.evidence[1].text
    assert not {"8 s", "14 s"} & set(re.findall(r"\d+ s\b", starved.summary + starved.evidence[0].text))  # fmt: skip
