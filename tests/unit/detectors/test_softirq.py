from __future__ import annotations

import pathlib

import captures
import casebook
import pytest

from overnight.detectors import softirq
from overnight.model.finding import Status

DETECTOR = softirq.DETECTORS[0]
AT = casebook.EVENT_SECOND
RECEIVE = (
    captures.kernel("run_ksoftirqd"),
    captures.kernel("handle_softirqs"),
    captures.kernel("net_rx_action"),
)


def storm(second: int, core: int) -> tuple[float, float, float]:
    return (0.0, 0.0, 0.97) if core == 2 and AT - 5 <= second < AT + 5 else (0.05, 0.0, 0.02)


@pytest.fixture
def home(tmp_path: pathlib.Path) -> casebook.Home:
    return casebook.Home(tmp_path)


def receive(home: casebook.Home, more: int) -> casebook.Home:
    """Record soft interrupts and packets of core 2: 100 a second, plus `more` in the storm."""

    def total(second: int) -> int:
        return 100 * second + more * max(0, min(10, second - AT + 5))

    home.numbers(
        "softirqs", ("NET_RX",), lambda s: {"2": (total(s),), "1": (s,)}, range(home.seconds)
    )
    return home.numbers(
        "interfaces",
        ("rx_packets",),
        lambda s: {"eth0": (9 * total(s),), "lo": (s,)},
        range(0, home.seconds, 10),
    )


def test_a_storm_is_found_with_its_packets_and_interface(home: casebook.Home) -> None:
    receive(home.cpu(storm), 20_000)
    home.stacks(casebook.busy(AT - 5, AT + 5, 2, "ksoftirqd/2", RECEIVE))
    home.event("net.softnet_drops", core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    assert (finding.kind, finding.subject.core) == ("net.softirq_storm", 2)
    assert finding.magnitude["softirq_percent"] == pytest.approx(97)
    assert finding.magnitude["packets_per_second"] > 50_000
    assert [entry.source for entry in finding.evidence] == [
        "cpu",
        "softirqs",
        "interfaces",
        "profiles",
    ]
    assert finding.evidence[2].values["interface"] == "eth0"
    assert [entry.text.partition(" (")[0] for entry in finding.evidence] == [
        "core 2 spent 97 % of its time in softirqs for 10 s; at most 2 % in nine of ten seconds of the baseline",
        "core 2 had 20,100 receive softirqs a second; 100 in the baseline",
        "eth0 received 90,900 packets a second; 900 in the baseline",
        "1000 of 1000 softirq samples of core 2 are in network polls; 0 samples were lost",
    ]


def burst(begin: int, end: int, share: float = 0.97, before: float = 0.02) -> casebook.Shares:
    """Return softirqs of core 2 in those seconds from the event; `before` is every fifth second's share."""

    def shares(second: int, core: int) -> tuple[float, float, float]:
        if core == 2 and AT + begin <= second < AT + end:
            return 0.0, 0.0, share
        return 0.01, 0.0, before if core == 2 and second % 5 == 0 else 0.02

    return shares


@pytest.mark.parametrize(
    ("shares", "squeezed", "found"),
    [
        pytest.param(burst(-5, 5), 100, True, id="a storm"),
        pytest.param(burst(1, 9), 100, True, id="within the error of the clocks"),
        pytest.param(burst(3, 10), 100, False, id="begins after the event"),
        pytest.param(burst(-1, 0), 100, False, id="one second"),
        pytest.param(burst(-5, 5, 0.45), 100, False, id="less than half of the core"),
        pytest.param(burst(-5, 5, 0.6, 0.35), 100, False, id="noisy in the baseline, too"),
        pytest.param(lambda *_: (0.1, 0.0, 0.6), 100, False, id="ordinary receive work"),
        pytest.param(burst(-5, 5), 90, False, id="few packets deferred"),
    ],
)
def test_near_misses(
    home: casebook.Home, shares: casebook.Shares, squeezed: int, found: bool
) -> None:
    """Deferred packets are the only sign that the softirqs are the network's."""
    home.cpu(shares)
    home.numbers(
        "softnet", ("squeezed",), lambda s: {"2": (squeezed * s,), "1": (s,)}, range(home.seconds)
    )
    home.event("net.softnet_drops", core=2)
    assert len(DETECTOR.look(home.case()).findings) == found


def test_the_storm_of_the_events_core_comes_first(home: casebook.Home) -> None:
    home.cpu(
        lambda s, core: (0.0, 0.0, 0.97 if core in (1, 2) and AT - 3 * core <= s < AT else 0.0)
    )
    home.numbers("softnet", ("squeezed",), lambda s: dict.fromkeys("12", (200 * s,)), range(960))
    home.event("net.softnet_drops", core=1)
    assert [f.subject.core for f in DETECTOR.look(home.case()).findings] == [1, 2]


def test_soft_interrupts_of_other_kinds_are_not_a_storm(home: casebook.Home) -> None:
    receive(home.cpu(storm), 0)
    path = (captures.kernel("handle_softirqs"), captures.kernel("run_timer_softirq"))
    home.stacks(
        casebook.busy(AT - 5, AT + 5, 2, "swapper", path, hertz=60)
        + casebook.busy(AT - 5, AT + 5, 2, "ksoftirqd/2", RECEIVE, hertz=40)
    )
    home.event("cpu.core_pinned", core=2)
    answer = DETECTOR.look(home.case())
    assert answer.status is Status.CLEAR
    assert "nothing shows" in answer.why


@pytest.mark.parametrize("is_own", [True, False])
def test_packets_that_a_process_sends_to_its_own_host_are_doubtful(
    home: casebook.Home, is_own: bool
) -> None:
    receive(home.cpu(storm), 20_000)
    sending = (captures.kernel("udp_sendmsg"), captures.kernel("ip_finish_output2"))
    path = (*(sending if is_own else ()), *RECEIVE[1:])
    home.stacks(casebook.busy(AT - 5, AT + 5, 2, "sender", path))
    home.event("net.softnet_drops", core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    assert bool(finding.against) == is_own
    assert (finding.confidence < 0.4) == is_own


def test_nothing_recorded_is_no_data(home: casebook.Home) -> None:
    home.event(core=2)
    assert DETECTOR.look(home.case()).status is Status.NO_DATA
