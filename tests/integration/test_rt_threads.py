"""A real-time thread of an ordinary process, as the kernel tells of it."""

from __future__ import annotations

import contextlib
import os
import threading
import time

import pytest

from overnight.sources.processes import table, threads


@pytest.mark.needs_root
def test_a_thread_that_was_made_real_time_is_told() -> None:
    done = threading.Event()
    helper = threading.Thread(target=done.wait, daemon=True)  # it sleeps: nobody has to wait for it
    helper.start()
    try:
        os.sched_setscheduler(helper.native_id or 0, os.SCHED_FIFO, os.sched_param(3))
        with contextlib.closing(table.Table()) as processes:
            seen = threads.RealTime(processes)
            processes.read()
            begin = time.process_time()
            while time.process_time() - begin < 0.7:
                pass
            processes.full_scan()
            processes.read()
            rows = seen.read()
    finally:
        done.set()
        helper.join()
    (mine,) = [row for key, row in rows.items() if key.startswith(f"{os.getpid()}/{helper.native_id} ")]  # fmt: skip
    assert mine[-2:] == (1, 3)
