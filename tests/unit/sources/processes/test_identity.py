from __future__ import annotations

import os
import pathlib
import subprocess
import sys

from overnight.sources.processes import identity


def test_a_real_process_is_read_and_its_secrets_are_masked() -> None:
    script = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", script, "--token", "hunter2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()  # right after exec there is no command line yet
        read = identity.read_identity(child.pid)
        child.stdin.close()
    assert read is not None
    assert (read.pid, read.parent, read.user) == (child.pid, os.getpid(), os.getuid())
    assert read.arguments == tuple(command)
    assert pathlib.Path(read.executable).samefile(sys.executable)
    assert read.started > 0
    assert read.command.endswith("--token (masked)")


def test_an_ended_process_has_no_identity() -> None:
    assert identity.read_identity(2**22 + 1) is None


def test_a_kernel_thread_has_a_name_only() -> None:
    executable, arguments = identity.read_command("/proc/no-such-process")
    assert (executable, arguments) == ("", ())
    read = identity.Identity(2, 0, 0, "kthreadd", executable, arguments, 0, "")
    assert read.program.name == "kthreadd"


def test_a_long_command_line_is_cut() -> None:
    read = identity.Identity(7, 0, 1, "x", "/bin/x", ("x", "y " * 999), 0, "")
    assert len(read.command) == identity.MAX_COMMAND + 1
