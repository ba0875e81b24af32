"""The cost of recording."""

from __future__ import annotations

import os
import time

from overnight.agent import usage


def test_our_own_cpu_time_is_counted():
    before = usage.read_usage(())
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    after = usage.read_usage(())
    assert 0.04 < after.cpu_seconds - before.cpu_seconds < 0.5
    assert 1 << 20 < after.rss_bytes < 1 << 32


def test_a_helper_that_ended_is_not_an_error():
    assert usage.read_usage((2**22 + 1,)).rss_bytes > 0


def test_helpers_are_counted(tmp_path):
    (tmp_path / "proc/7").mkdir(parents=True)
    tail = " ".join(["0"] * 20)
    (tmp_path / "proc/7/stat").write_text(
        f"7 (perf (x) y) S 1 7 7 0 -1 0 0 0 0 0 300 100 0 0 20 0 1 0 9 0 10 {tail}"
    )
    alone = usage.read_usage((), tmp_path)
    both = usage.read_usage((7,), tmp_path)
    assert both.cpu_seconds - alone.cpu_seconds > 400 / os.sysconf("SC_CLK_TCK") - 0.01
    assert both.rss_bytes == 10 * os.sysconf("SC_PAGE_SIZE")
