"""Reclaim that the counters show, and scans that are not an incident."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import evidence
import pytest

from overnight.detectors import reclaim

(DETECTOR,) = reclaim.DETECTORS
SECONDS, AT = 900, 860
TASK = ("__alloc_pages_slowpath", "try_to_free_pages", "shrink_node", "shrink_lruvec")


def _in(*spans: tuple[int, int]) -> Callable[[int], int]:
    """Return how many of the seconds, counted from the event, have passed."""
    return lambda s: sum(max(0, min(end, s - AT) - begin) for begin, end in spans)


@pytest.mark.parametrize(
    ("seconds", "direct", "kswapd", "stalls", "confidence"),
    [
        pytest.param(_in((-8, 0)), 50_000, 0, 9, 0.7, id="a burst"),
        pytest.param(_in((-8, 0)), 50_000, 0, 0, 0.5, id="no task waited"),
        pytest.param(lambda s: s, 50_000, 0, 9, None, id="it goes on all night"),
        pytest.param(_in((-1, 0)), 50_000, 0, 9, None, id="one second"),
        pytest.param(_in((-5, -4), (-2, -1)), 50_000, 0, 9, None, id="two seconds apart"),
        pytest.param(_in((-8, 0)), 9_000, 0, 9, None, id="few pages"),
        pytest.param(_in((-8, 0)), 0, 50_000, 9, None, id="only in the background"),
    ],
)
def test_near_misses(
    tmp_path: pathlib.Path,
    seconds: Callable[[int], int],
    direct: int,
    kswapd: int,
    stalls: int,
    confidence: float | None,
) -> None:
    """Pages a second scanned by tasks and by kswapd, and allocations that had to wait."""
    home = evidence.Home(tmp_path, SECONDS)
    home.signal(
        "vmstat", 1, lambda s: {"": (direct * seconds(s), kswapd * seconds(s), stalls * seconds(s), 0)}
    )  # fmt: skip
    findings = DETECTOR.look(home.case(home.add_event(AT, "net.driver_reset"))).findings
    assert [finding.confidence for finding in findings] == (
        [] if confidence is None else [pytest.approx(confidence)]
    )


def test_a_burst_is_reported_with_its_own_numbers(tmp_path: pathlib.Path) -> None:
    """Stalled allocations and pages of the eight seconds, not of the incident window."""
    home = evidence.Home(tmp_path, SECONDS)
    seconds = _in((-8, 0))
    home.signal("vmstat", 1, lambda s: {"": (50_000 * seconds(s), 0, 9 * seconds(s), 0)})
    (finding,) = DETECTOR.look(home.case(home.add_event(AT, "net.driver_reset"))).findings
    assert finding.summary == (
        "tasks had to free memory themselves and scanned 50,000 pages a second for 8 s;"
        " no stack shows which tasks"
    )
    assert finding.magnitude["allocations_stalled_per_second"] == pytest.approx(9)
    (counted,) = finding.evidence
    assert counted.text.startswith("50,000 pages a second were scanned; 0 in the baseline (")


@pytest.mark.parametrize("is_counted", [True, False])
def test_reclaim_at_the_limit_of_a_cgroup_is_not_in_the_counters_of_the_host(
    tmp_path: pathlib.Path, is_counted: bool
) -> None:
    home = evidence.Home(tmp_path, SECONDS)
    home.idle()
    home.add_samples(AT - 8, 8, ("try_charge", "try_to_free_mem_cgroup_pages", "shrink_lruvec"))
    if is_counted:
        home.signal("vmstat", 1, lambda _: {"": (0, 0, 0, 0)})
    (finding,) = DETECTOR.look(home.case(home.add_event(AT, "net.driver_reset"))).findings
    assert "because its cgroup was at its memory limit" in finding.summary
    assert (finding.confidence, finding.against) == (pytest.approx(0.85), ())
    assert "the host itself had free memory" in finding.evidence[-1].text


def test_direct_reclaim_without_counters_keeps_its_confidence(tmp_path: pathlib.Path) -> None:
    home = evidence.Home(tmp_path, SECONDS)
    home.idle()
    home.add_samples(AT - 8, 8, TASK)
    (finding,) = DETECTOR.look(home.case(home.add_event(AT, "net.driver_reset"))).findings
    assert (finding.confidence, finding.against) == (pytest.approx(0.85), ())


@pytest.mark.parametrize(
    ("pages", "waited", "confidence", "against"),
    [
        pytest.param(_in((-8, 0)), 20, 0.95, [], id="the host scans, and tasks wait"),
        pytest.param(_in((-8, 0)), 10, 0.95, ["pressure"], id="hardly any task waits"),
        pytest.param(lambda s: s, 20, 0.7, ["vmstat"], id="as many pages as in the baseline"),
        pytest.param(lambda s: s // 9, 20, 0.7, ["vmstat"], id="few pages"),
    ],
)
def test_counters_beside_the_stacks(
    tmp_path: pathlib.Path,
    pages: Callable[[int], int],
    waited: int,
    confidence: float,
    against: list[str],
) -> None:
    home = evidence.Home(tmp_path, SECONDS)
    home.idle()
    home.add_samples(AT - 8, 8, TASK)
    home.signal("vmstat", 1, lambda s: {"": (50_000 * pages(s), 0, 0, 0)})
    home.signal("pressure", 1, lambda s: {"memory": (10_000 * waited * s, 0)})
    (finding,) = DETECTOR.look(home.case(home.add_event(AT, "net.driver_reset"))).findings
    assert finding.confidence == pytest.approx(confidence)
    assert [entry.source for entry in finding.against] == against
