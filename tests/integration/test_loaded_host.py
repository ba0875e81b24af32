"""The method itself: a constant load on every core, a recording, and a program that pins one core in the kernel."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import noise
import pytest

from overnight.sources import cpu
from overnight.store.ring import reader

if TYPE_CHECKING:
    from overnight.model.event import Event

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_perf, pytest.mark.timeout(240)]
CORES = cpu.online()
CORE = CORES[-1]
OVERNIGHT = (sys.executable, "-m", "overnight", "--home")
# Nice -10: it gets most of its core however busy this machine is with other things as well.
PINS_A_CORE = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(15, b"pins-a-core")
os.sched_setaffinity(0, {int(sys.argv[1])})
os.nice(-10)
zero = os.open("/dev/zero", os.O_RDONLY)
buffers = [bytearray(1 << 20)]
while True:
    os.readv(zero, buffers)
"""


@contextlib.contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + noise.HANG_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_core_pinned_in_the_kernel_under_load_is_an_alarm_with_its_culprit(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    home = tmp_path / "home"
    source = reader.Reader(home)

    def alarms(since: float) -> list[Event]:
        events = source.events(round(since * 1e6), 1 << 62, kinds=["cpu.core_pinned"])
        return [event for event in events if event.severity != "info" and event.core == CORE]

    command = [*OVERNIGHT, str(home)]
    with running(*command, "load", "cpu", "--cores", f"0-{CORE}", "--duty", "60%", "--for", "4m"):
        with running(
            *command, "record", "--for", "4m", "--segment", "5s", "--frequency", "199"
        ) as recording:
            wait(lambda: list(home.glob("spool/*.writing")))
            time.sleep(5)  # a baseline under load
            began = time.time()
            with running(sys.executable, "-c", PINS_A_CORE, str(CORE)):
                wait(lambda: alarms(began - 2))
                time.sleep(2)
            time.sleep(1)
        assert recording.returncode == 0
    event = alarms(began - 2)[-1]
    fields = {name: float(value) for name, value in event.fields.items() if "percent" in name}
    assert fields["kernel_percent"] > fields["others_kernel_percent"] + 30
    assert fields["others_percent"] > 40
    diagnosis = subprocess.run(
        [*command, "diagnose", "--event", event.id, "-O", "json"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    document = json.loads(diagnosis.stdout)
    culprits = [each["subject"] for each in document["findings"] if each["kind"] == "cpu.culprit"]
    assert (culprits[0]["process"], culprits[0]["core"]) == ("pins-a-core", CORE)
    blamed = {step["subject"].get("process") for step in document["verdict"]["chain"][:-1]}
    assert blamed <= {"pins-a-core", None}
    assert list((tmp_path / "undo").glob("*.undo")) == []
