"""A process is recognised by PID, start time and boot."""

from __future__ import annotations

import os
import pathlib

from overnight.model import process_identity


def test_a_running_process_is_recognised() -> None:
    identity = process_identity.read_identity(os.getpid())
    assert process_identity.is_running(os.getpid(), **identity)
    assert not process_identity.is_running(os.getpid(), **{**identity, "boot": "another"})
    assert not process_identity.is_running(os.getpid(), "", identity["boot"])


def test_a_name_that_is_not_utf8_does_not_hide_the_start_time() -> None:
    name = pathlib.Path("/proc/self/comm")
    before, started = name.read_bytes(), process_identity.read_start(os.getpid())
    name.write_bytes(b"\xff) \xfe")
    try:
        assert process_identity.read_start(os.getpid()) == started != ""
    finally:
        name.write_bytes(before.strip())
