"""After a killed writer or a full disk, stored segments stay and no partial one is visible."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import captures
import pytest

from overnight.model.selection import Selection
from overnight.queries import flame
from overnight.store import check, segments

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

WRITER = """
import pathlib, sys
import captures
from overnight.store import writer
for i in range(100_000):
    begin = captures.NIGHT + i
    samples = captures.random_samples(i, 20, begin=begin, end=begin + 9 * 10**9)
    writer.write_capture(pathlib.Path(sys.argv[1]), captures.build(samples))
    if i == 0:
        print("ready", flush=True)
"""


def test_a_killed_writer_leaves_a_clean_store(tmp_path: pathlib.Path) -> None:
    chance = random.Random(3)
    catalogue = segments.Catalogue(tmp_path)
    everything = Selection(idle=True)
    leftovers = stored = 0
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, env=ENVIRONMENT
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(0.15 + chance.random() / 5)
            process.send_signal(signal.SIGKILL)
        report = check.check(catalogue)
        assert report.problems == ()
        assert report.segments >= stored
        stored = report.segments
        leftovers += len(report.unfinished)
        source = captures.store(tmp_path)
        answer = flame.flame(source, source.extent(), everything)
        assert (answer.coverage.segments, answer.coverage.samples) == (stored, report.samples)
        check.remove_unfinished(report)
        assert check.check(catalogue).unfinished == ()
        assert list(tmp_path.rglob(".new-*")) == []
    assert stored
    assert leftovers  # at least one kill came while a segment was written


FILLER = """
import json, pathlib, subprocess, sys
import captures
from overnight import errors
from overnight.app import imports
from overnight.store import check, segments, writer
home = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k,mode=0700", "overnight-test", home], check=True)
full = ""
for i in range(1000):
    begin = captures.NIGHT + i * 10**10
    samples = captures.random_samples(i, 500, begin=begin, end=begin + 9 * 10**9)
    try:
        writer.write_capture(home, captures.build(samples))
    except OSError as error:
        full = str(error)
        break
collapsed = pathlib.Path(sys.argv[2])
collapsed.write_text("".join(f"app;main;f{i:0500};g 1\\n" for i in range(2000)))
try:
    list(imports.import_files(home, [collapsed]))
    imported = ""
except errors.CannotError as error:
    imported = error.todo
report = check.check(segments.Catalogue(home))
print(json.dumps([i, full, imported, report.segments, report.problems, report.unfinished]))
"""


@pytest.mark.needs_root
def test_a_full_disk_leaves_a_clean_store(tmp_path: pathlib.Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    process = subprocess.run(
        ["unshare", "-m", "--propagation", "private", sys.executable, "-c", FILLER, home, tmp_path / "x.collapsed"],
        capture_output=True,
        env=ENVIRONMENT,
        check=False,
        text=True,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    written, full, imported, stored, problems, unfinished = json.loads(process.stdout)
    assert "No space left on device" in full
    assert "free disk space" in imported
    assert stored == written > 0
    assert (problems, unfinished) == ([], [])
    assert list(home.iterdir()) == []  # the disk was mounted only in that namespace
