"""A core that is really pinned here, recorded, diagnosed, bundled, and diagnosed again from the bundle."""

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

# Rehearsals do the same in `make test`, with a fault and a truth.
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
    done = subprocess.run(
        [sys.executable, "-m", "overnight", "--home", str(home), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def found(said: dict[str, Any]) -> list[tuple[object, ...]]:
    """What was found, and about whom."""
    told = [
        (one["kind"], *(one["subject"].get(part) for part in ("core", "process", "function")))
        for one in said["findings"]
    ]
    return sorted(told, key=repr)


def test_from_a_real_core_to_a_verdict_and_from_its_bundle_to_the_same(
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
        told = source.events(0, 1 << 62, kinds=["cpu.core_pinned"])
        return any(one.core == CORE and "pins-a-core" in one.process for one in told)

    try:
        deadline = time.monotonic() + noise.HANG_SECONDS
        while not list(home.glob("spool/*.writing")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(4)  # some seconds before it, to compare with
        with subprocess.Popen([sys.executable, "-c", LOAD, str(CORE)]) as load:
            try:
                crowd = rehearsal_host.Crowd("")
                deadline = time.monotonic() + PINNED_SECONDS
                while not pinned():
                    assert time.monotonic() < deadline, (
                        f"core {CORE} did not stand out in {PINNED_SECONDS} s; used most of the cores:"
                        f" {crowd.describe(0.1)}; busy now: {noise.measure_busy()}"
                    )
                    time.sleep(0.2)
                time.sleep(3)
            finally:
                load.kill()
        time.sleep(2)
    finally:
        recording.terminate()
        _, said = recording.communicate(timeout=60)
    assert recording.returncode == 0, said

    (event_id,) = {
        one.id
        for one in source.events(0, 1 << 62, kinds=["cpu.core_pinned"])
        if one.core == CORE and "pins-a-core" in one.process
    }
    here = json.loads(overnight(home, "diagnose", "--event", event_id, "-O", "json"))
    culprits = [one for one in here["findings"] if one["kind"] == "cpu.culprit"]
    assert culprits[0]["subject"]["process"] == "pins-a-core"
    assert culprits[0]["subject"]["core"] == CORE
    assert culprits[0]["magnitude"]["kernel_share"] > 0.5
    # Some seconds are little evidence: it may be too little for a claim, never for another one.
    assert here["verdict"]["status"] in ("cause-found", "inconclusive")
    assert all(one["subject"].get("process", "pins-a-core") == "pins-a-core"
               for one in here["verdict"]["chain"][:-1])  # fmt: skip
    assert here["gaps"]

    file = tmp_path / "incident.overnight"
    overnight(home, "bundle", "create", "--event", event_id, "-o", str(file))
    elsewhere = tmp_path / "elsewhere"
    there = json.loads(overnight(elsewhere, "diagnose", str(file), "-O", "json"))
    # Names may be masked in a bundle (here a cgroup whose name looks like a token), and ids follow names.
    for part in ("status", "confidence"):
        assert there["verdict"][part] == here["verdict"][part]
    assert found(there) == found(here)
    assert not elsewhere.exists()  # nothing is left of an opened bundle
