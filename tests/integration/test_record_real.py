"""`overnight record` on this host: a busy loop on one core is seen there, and nowhere else."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import jsonschema
import pytest

from overnight.sources import cpu

REPOSITORY = pathlib.Path(__file__).parents[2]
SCHEMA = json.loads((REPOSITORY / "docs/schemas/recording-1.json").read_text())
LOOP = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


@pytest.fixture
def busy_core() -> Iterator[int]:
    core = cpu.online()[-1]
    loop = subprocess.Popen([sys.executable, "-c", LOOP, str(core)])
    yield core
    loop.kill()
    loop.wait()


def record(home: pathlib.Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "overnight", "--home", str(home), "record", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.needs_root
@pytest.mark.needs_perf
def test_a_pinned_core_is_named_with_its_process(tmp_path: pathlib.Path, busy_core: int) -> None:
    out, said = record(tmp_path, "--for", "4s", "-O", "json").communicate(timeout=60)
    made = json.loads(out)
    jsonschema.validate(made, SCHEMA)
    assert said == ""
    by_core = {core["core"]: core for core in made["cores"]}
    assert by_core[busy_core]["busy_peak"] >= 90
    # The loop is one of the Pythons on this host; it alone is a whole core's worth.
    name = pathlib.Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    shares = {share["process"]: share for share in made["profile"]["processes"]}
    python = shares.get(name) or shares["python3"] if "python3" in shares else shares["python"]
    assert python["cores"] > 0.5
    assert made["gaps"] == []
    assert pathlib.Path(made["folder"], "perf.data").stat().st_size == made["profile"]["bytes"]


@pytest.mark.needs_root
@pytest.mark.needs_perf
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_early_it_keeps_and_shows_what_it_has(
    tmp_path: pathlib.Path, number: signal.Signals
) -> None:
    running = record(tmp_path, "--for", "10m", "-O", "json")
    deadline = time.monotonic() + 20
    while not list(tmp_path.glob("recordings/*/cpu.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.5)
    running.send_signal(number)
    out, _ = running.communicate(timeout=30)
    assert running.returncode == 0
    made = json.loads(out)
    assert 1 < made["seconds"] < 30
    assert made["profile"]["samples"] > 0


@pytest.mark.needs_root
@pytest.mark.needs_perf
def test_two_recordings_in_one_second_have_folders_of_their_own(tmp_path: pathlib.Path) -> None:
    both = [record(tmp_path, "--for", "1s", "-O", "json") for _ in range(2)]
    folders = {json.loads(running.communicate(timeout=60)[0])["folder"] for running in both}
    assert len(folders) == 2
