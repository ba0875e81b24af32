"""Which process wrote a file."""

from __future__ import annotations

import os
import subprocess
import sys

from overnight.model import process_identity

RENAMED = r"""
import ctypes
ctypes.CDLL(None).prctl(15, b"\xff) Z (x", 0, 0, 0)  # PR_SET_NAME
print(flush=True)
input()
"""


def test_a_process_with_any_name_is_identified():
    command = [sys.executable, "-c", RENAMED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        identity = process_identity.read_identity(child.pid)
        assert process_identity.read_stat(child.pid)[0] in "SR"
        assert int(identity["started"]) >= int(process_identity.read_start(os.getpid()))
        assert process_identity.is_running(child.pid, **identity)
        assert not process_identity.is_running(child.pid, "1", identity["boot"])
        child.communicate(b"\n")
    assert process_identity.read_stat(child.pid) == ("X", "")
    assert not process_identity.is_running(child.pid, **identity)
