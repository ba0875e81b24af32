"""The PostgreSQL server of the tests ends with the process that started it, also after kill -9."""

from __future__ import annotations

import os
import pathlib
import select
import subprocess
import sys

import noise
import pytest

RUN = """
import sys
import pooldatabases
with pooldatabases.server() as running:
    print(running.get_pid(), running.pgdata.parent, flush=True)
    sys.stdin.read()
"""


@pytest.mark.long
def test_no_server_and_no_folder_is_left_after_kill_9() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as child:
        assert child.stdout is not None
        server, folder = child.stdout.readline().decode().split()
        guards = pathlib.Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text()
        handles = [os.pidfd_open(int(pid)) for pid in (server, *guards.split())]
        child.kill()
    for handle in handles:
        assert select.select([handle], [], [], noise.HANG_SECONDS)[0]
        os.close(handle)
    assert not pathlib.Path(folder).exists()
