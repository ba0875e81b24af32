"""A queue that nobody mapped to a core, and whose driver names the core itself."""

from __future__ import annotations

import pathlib

import captures
import casebook
import pytest

from overnight.detectors import culprit
from overnight.model.finding import Subject

DETECTOR = culprit.DETECTORS[0]
AT = casebook.EVENT_SECOND
SAID = {"interface": "ens5", "queue": 3, "since_napi_us": 5_001_000, "napi_scheduled": 1, "cpu": 2}
BUSY = (captures.kernel("do_syscall_64"),)


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        ({}, ["net.queue_starved"]),
        ({"cpu": 1}, []),  # another core's
        ({"cpu": -1}, []),  # no core polls it
        ({"napi_scheduled": 0}, []),  # it waits for no poll: no starvation
        ({"since_napi_us": 4_000}, []),  # it was polled a moment ago
        ({"queue": ""}, []),
    ],
)
def test_the_driver_s_own_word_is_enough(
    tmp_path: pathlib.Path, changed: dict[str, int | str], kinds: list[str]
) -> None:
    home = casebook.Home(tmp_path).cpu(
        lambda second, core: (
            (0.0, 1.0, 0.0) if core == 2 and AT - 6 <= second < AT else (0.05, 0.0, 0.0)
        )
    )
    home.stacks(casebook.busy(AT - 6, AT, 2, "kubelet", BUSY))
    home.event(fields={**SAID, **changed}, core=2)
    answer = DETECTOR.look(home.case())
    starved = [finding for finding in answer.findings if finding.kind == "net.queue_starved"]
    assert [finding.kind for finding in starved] == kinds
    for finding in starved:
        assert finding.subject == Subject("db-7", 2, interface="ens5", queue=3)
        assert "the driver reports" in finding.evidence[0].text


@pytest.mark.parametrize("fields", [{"napi_scheduled": 0}, {"since_napi_us": 4_000}])
def test_a_driver_that_was_not_kept_waiting_is_believed(
    tmp_path: pathlib.Path, fields: dict[str, int]
) -> None:
    """Its queue is known to be the full core's: still, nothing starved."""
    home = casebook.Home(tmp_path).queues({3: 2})
    home.cpu(lambda second, core: (float(core == 2 and AT - 6 <= second < AT), 0.0, 0.0))
    home.event(fields={**SAID, "interface": "eth0", **fields}, core=2)
    kinds = {finding.kind for finding in DETECTOR.look(home.case()).findings}
    assert "net.queue_starved" not in kinds
