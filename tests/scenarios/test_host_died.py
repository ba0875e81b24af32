"""The window before a host died, diagnosed after it came back."""

from __future__ import annotations

import pathlib

import crashedhost
import pytest

from overnight.agent import previous_boot
from overnight.app import diagnose
from overnight.model import clock
from overnight.model.verdict import VerdictStatus
from overnight.sources.kernelrules import rulefiles
from overnight.store.ring import writer
from scenarios import catalogue, host_setup, incidents, recording

NEXT = "9f8e7d6c-0000-4000-8000-000000000000"
OFF_SECONDS = 90
PANIC = """Panic#1 Part1
<0>[{0:12.6f}] Kernel panic - not syncing: softlockup: hung tasks
<4>[{0:12.6f}] CPU: {1} PID: 4711 Comm: {2} Tainted: G             L     6.1.0-18-amd64 #1
"""


@pytest.mark.parametrize("kind", ["host.unclean_reboot", "host.panic"])
def test_the_process_that_held_the_core_is_found_in_the_last_seconds(
    tmp_path: pathlib.Path, kind: str
) -> None:
    """A real-time process saturates a core for 6 s; then the host goes down, and its recording ends."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    setup = host_setup.make(3, story="died", **catalogue.NEW)
    incident = incidents.rt_hog(setup, [setup.seconds - 0.5])
    night = setup.node()  # without `put`: no reset was logged any more
    recording.record(home, night)
    died_us, uptime = night.time_us(night.seconds), night.host.uptime_seconds + night.seconds
    host = crashedhost.CrashedHost(tmp_path / "root")
    host.reboot(NEXT, 30)
    if kind == "host.panic":
        text = PANIC.format(uptime, incident.facts["core"], incident.facts["process"])
        host.put("sys/fs/pstore/dmesg-ramoops-0", text, died_us / 1e6)
    now_us = died_us + OFF_SECONDS * 1_000_000
    events = previous_boot.find_events(
        home, night.host.name, NEXT, rulefiles.built_in(), root=host.root, now_us=now_us
    )
    ring = writer.Writer(home, night.host.name, NEXT, budget_bytes=1 << 30, age_seconds=1e9)
    for event in events:
        ring.event(event)
    # It is back within seconds, as after kexec: these readings are not of the window.
    back = clock.Clock((died_us + 5_000_000) * 1000, 3_000_000_000)
    ring.numbers("cpu", ("user", "idle"), back, {"0": (1, 1)})
    ring.close()
    event = diagnose.choose_event(home)
    assert event is not None
    assert event.kind == kind
    verdict, case = diagnose.diagnose_event(home, event)
    assert case is not None
    assert case.window.end_us == event.time_us + 1 <= died_us + 1
    if kind == "host.unclean_reboot":
        # What the last seconds show is reported; that it took the host down is not known.
        assert verdict.status is VerdictStatus.NO_CAUSE
        assert "cpu.rt_hog" in {each.kind for each in verdict.ruled_out}
        assert verdict.narrative.event.endswith("Z, or up to 1 min later")
        return
    assert verdict.chain is not None
    assert [step.kind for step in verdict.chain.steps] == ["cpu.rt_hog", "cpu.core_saturated", kind]
    assert verdict.chain.root.subject.process.startswith(str(incident.facts["process"]))
    assert verdict.narrative.event.endswith("Z")
