"""Every rehearsal, recorded by a second recorder with default settings: diagnosed as right as by its own."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import time

import pytest
import rehearsed

from overnight.app import diagnose, rehearsal
from overnight.sources.perf import recovery
from overnight.store.ring import reader as rings

pytestmark = [
    pytest.mark.needs_root, pytest.mark.needs_perf, pytest.mark.needs_nspawn, pytest.mark.alone,
    pytest.mark.long, pytest.mark.timeout(600),
]  # fmt: skip
NAMES = [known.name for known in rehearsal.discover() if known.has_event]
PRELUDE_S = 15.0  # what the outside recorder knows before the fault is prepared
STOP_SECONDS = 120.0


def start_recorder(home: pathlib.Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "overnight", "--home", str(home), "record", "--for", "30m"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + STOP_SECONDS
    while recovery.read_current(home / "spool") is None:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process


@pytest.mark.parametrize("name", NAMES)
def test_an_outside_recorder_sees_the_same_cause(tmp_path: pathlib.Path, name: str) -> None:
    outside = tmp_path / "outside"
    recorder = start_recorder(outside)
    try:
        time.sleep(PRELUDE_S)
        outcome = rehearsed.rehearse(name, 7, tmp_path / "own")
        time.sleep(2)
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.wait(STOP_SECONDS)
    assert recorder.returncode == 0
    events = rings.Reader(outside).events(0, 1 << 62, kinds=[rehearsal.EVENT])
    event = [event for event in events if event.fields.get("rehearsal") == outcome.run][-1]
    verdict, _ = diagnose.diagnose_event(outside, event)
    # On a host that others disturb, `rehearsed` accepts a verdict that claims nothing wrong; so does this.
    claimed = {step.kind for step in verdict.chain.steps} if verdict.chain else set()
    assert not claimed & outcome.expected.absent
    if outcome.correct:
        assert outcome.expected.problems(verdict) == []
