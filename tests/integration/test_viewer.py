"""The viewer: its own tests, and a page of a real recording, in a real Chromium.

Screenshots are kept in out/shots for inspection.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time

import noise
import pytest

from overnight.sources import cpu

REPOSITORY = pathlib.Path(__file__).parents[2]
WEB = REPOSITORY / "web"
SHOTS = REPOSITORY / "out/shots"
LOOP = """
import os, pathlib, sys, time
pathlib.Path("/proc/self/comm").write_text("the-loop")
os.sched_setaffinity(0, {int(sys.argv[1])})
end = time.monotonic() + float(sys.argv[2])
import zlib
data = bytes(range(256)) * 4096
while time.monotonic() < end:
    zlib.crc32(data)
"""


LOOP_NAME = "the-loop"


def npm(*arguments: str) -> None:
    process = subprocess.run(
        [*arguments], cwd=WEB, capture_output=True, text=True, check=False, timeout=300
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]


@pytest.fixture(autouse=True, scope="module")
def dependencies() -> None:
    if not (WEB / "node_modules/.bin/vitest").exists():
        npm("npm", "ci", "--silent", "--ignore-scripts")
    SHOTS.mkdir(parents=True, exist_ok=True)


def test_the_unit_tests_of_the_page_pass() -> None:
    npm("npm", "test", "--silent")


@pytest.mark.long
@pytest.mark.needs_chromium
@pytest.mark.timeout(300)
def test_dragging_comparing_and_searching_in_chromium() -> None:
    npm("npm", "run", "--silent", "test:browser", "--", str(SHOTS))
    assert (SHOTS / "incident-3-compared-1400-dark.png").stat().st_size > 10_000


@pytest.mark.long
@pytest.mark.needs_root
@pytest.mark.needs_perf
@pytest.mark.needs_chromium
@pytest.mark.timeout(180)
def test_a_page_of_a_real_recording(tmp_path: pathlib.Path) -> None:
    overnight = [sys.executable, "-m", "overnight", "--home", str(tmp_path)]
    running = subprocess.Popen(
        [*overnight, "record", "--for", "9s", "--segment", "4s", "--frequency", "199"],
        stdout=subprocess.PIPE,
    )
    deadline = time.monotonic() + noise.HANG_SECONDS
    while not list(tmp_path.glob("spool/*.writing")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(2.5)
    begin = time.time_ns() // 1000
    subprocess.run([sys.executable, "-c", LOOP, str(cpu.online()[-1]), "3"], check=True)
    end = time.time_ns() // 1000
    running.communicate(timeout=60)
    page = tmp_path / "night.html"
    mark = f"{end / 1e6}=the loop ended"
    subprocess.run([*overnight, "heatmap", "-O", "html", "-o", page, "--mark", mark], check=True)
    npm(
        "npx", "--no-install", "vite-node", "tests/browser/recorded.ts",
        str(page), "crc32_z", str(begin), str(end), str(SHOTS),
    )  # fmt: skip
    window = ["-b", str(begin / 1e6), "-e", str(end / 1e6), "--mark", mark]
    for name, query in {
        "diff.html": ["diff", *window],
        "diff.svg": ["diff", *window],
        "top.html": ["top", *window],
        "heatmap.svg": ["heatmap", "--mark", mark],
        "offset.svg": ["heatmap", "--by", "offset", "--mark", mark],
    }.items():
        arguments = [*query, "-O", name.partition(".")[2], "-o", tmp_path / name]
        subprocess.run([*overnight, *arguments], check=True)
    npm(
        "npx", "--no-install", "vite-node", "tests/browser/asked.ts",
        str(tmp_path), "crc32_z", LOOP_NAME, str(SHOTS),
    )  # fmt: skip
