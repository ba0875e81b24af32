"""A real-time thread of an ordinary process is read from the kernel."""

from __future__ import annotations

import contextlib
import os
import threading
import time

import pytest

from overnight.sources.processes import table, threads


@pytest.mark.needs_root
def test_a_thread_that_becomes_real_time_is_reported() -> None:
    done = threading.Event()
    helper = threading.Thread(target=done.wait, daemon=True)  # it sleeps, so it delays nothing
    helper.start()
    try:
        os.sched_setscheduler(helper.native_id or 0, os.SCHED_FIFO, os.sched_param(3))
        with contextlib.closing(table.Table()) as processes:
            source = threads.RealTime(processes)
            processes.read()
            begin = time.process_time()
            while time.process_time() - begin < 0.7:
                pass
            processes.full_scan()
            processes.read()
            rows = source.read()
    finally:
        done.set()
        helper.join()
    (numbers,) = [row for key, row in rows.items() if key.startswith(f"{os.getpid()}/{helper.native_id} ")]  # fmt: skip
    assert numbers[-2:] == (1, 3)
