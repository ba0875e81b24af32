"""Queues without a known core whose driver names the core."""

from __future__ import annotations

import pathlib

import captures
import casebook
import pytest

from overnight.detectors import culprit
from overnight.model.finding import Subject

DETECTOR = culprit.DETECTORS[0]
AT = casebook.EVENT_SECOND
REPORTED = {
    "interface": "ens5",
    "queue": 3,
    "since_napi_us": 5_001_000,
    "napi_scheduled": 1,
    "cpu": 2,
}
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
