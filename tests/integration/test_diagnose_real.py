"""A core of this host is pinned, recorded, diagnosed, bundled and diagnosed from the bundle."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
from typing import Any

import noise
import pytest

from overnight.app import rehearsal_host
from overnight.sources import cpu
from overnight.store.ring import reader

# Rehearsals do the same in `make test`, with a fault and a known cause.
pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_perf,
    pytest.mark.long,
    pytest.mark.timeout(400),
]
CORE = cpu.online()[-1]
RECORD = ("record", "--for", "4m", "--segment", "5s", "--frequency", "199")
PINNED_SECONDS = 120  # it stands out once the other cores have been mostly idle for some seconds
LOAD = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(15, b"pins-a-core")
os.sched_setaffinity(0, {int(sys.argv[1])})
zero, null = os.open("/dev/zero", os.O_RDONLY), os.open("/dev/null", os.O_WRONLY)
while True:
    os.write(null, os.read(zero, 1 << 16))
"""


def overnight(home: pathlib.Path, *words: str) -> str:
    process = subprocess.run(
        [sys.executable, "-m", "overnight", "--home", str(home), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def list_findings(document: dict[str, Any]) -> list[tuple[object, ...]]:
    """Return kind and subject of each finding."""
    findings = [
        (
            finding["kind"],
            *(finding["subject"].get(part) for part in ("core", "process", "function")),
        )
        for finding in document["findings"]
    ]
    return sorted(findings, key=repr)


def test_a_pinned_core_and_its_bundle_have_the_same_verdict(
    tmp_path: pathlib.Path,
) -> None:
    home = tmp_path / "home"
    recording = subprocess.Popen(
        [sys.executable, "-m", "overnight", "--home", str(home), *RECORD],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    source = reader.Reader(home)

    def pinned() -> bool:
        events = source.events(0, 1 << 62, kinds=["cpu.core_pinned"])
        return any(event.core == CORE and "pins-a-core" in event.process for event in events)

    try:
        deadline = time.monotonic() + noise.HANG_SECONDS
        while not list(home.glob("spool/*.writing")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(4)  # a few seconds of baseline
        with subprocess.Popen([sys.executable, "-c", LOAD, str(CORE)]) as load:
            try:
                crowd = rehearsal_host.Crowd("")
                deadline = time.monotonic() + PINNED_SECONDS
                while not pinned():
                    assert time.monotonic() < deadline, (
                        f"core {CORE} did not stand out in {PINNED_SECONDS} s; used most of the cores:"
                        f" {crowd.describe(0.1)}; busy now: {rehearsal_host.measure_busy()}"
                    )
                    time.sleep(0.2)
                time.sleep(3)
            finally:
                load.kill()
        time.sleep(2)
    finally:
        recording.terminate()
        _, errors = recording.communicate(timeout=60)
    assert recording.returncode == 0, errors

    (event_id,) = {
        event.id
        for event in source.events(0, 1 << 62, kinds=["cpu.core_pinned"])
        if event.core == CORE and "pins-a-core" in event.process
    }
    live = json.loads(overnight(home, "diagnose", "--event", event_id, "-O", "json"))
    culprits = [finding for finding in live["findings"] if finding["kind"] == "cpu.culprit"]
    assert culprits[0]["subject"]["process"] == "pins-a-core"
    assert culprits[0]["subject"]["core"] == CORE
    assert culprits[0]["magnitude"]["kernel_share"] > 0.5
    # A few seconds may be too little evidence for a cause, but must not name a wrong one.
    assert live["verdict"]["status"] in ("cause-found", "inconclusive")
    assert all(finding["subject"].get("process", "pins-a-core") == "pins-a-core"
               for finding in live["verdict"]["chain"][:-1])  # fmt: skip
    assert live["gaps"]

    file = tmp_path / "incident.overnight"
    overnight(home, "bundle", "create", "--event", event_id, "-o", str(file))
    elsewhere = tmp_path / "elsewhere"
    bundled = json.loads(overnight(elsewhere, "diagnose", str(file), "-O", "json"))
    # Names may be masked in a bundle (here a cgroup whose name looks like a token), and ids follow names.
    for part in ("status", "score", "confidence"):
        assert bundled["verdict"][part] == live["verdict"][part]
    assert list_findings(bundled) == list_findings(live)
    assert not elsewhere.exists()  # an opened bundle leaves nothing behind
