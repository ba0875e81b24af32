"""A credential is revoked although the disk of the database is full."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.needs_root

# In a mount namespace of its own: the mount ends with the process.
SCRIPT = """
import contextlib, pathlib, subprocess, sys
from overnight import errors
from overnight.app import pools, tokens
from overnight.model.control_plane import Role

home = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "overnight-test", home], check=True)

def opened():
    return tokens.open_tokens(pools.Pools(home))

def create(where, name):
    return tokens.create(where, Role.VIEWER, by="test", name=name)

first = opened()
made = [create(first, str(number)) for number in range(3)]
with contextlib.suppress(OSError), (home / "filler").open("wb", buffering=0) as file:
    while True:
        file.write(bytes(4096))
failed = 0
for _ in range(2000):  # until the log of the database is full, too
    try:
        create(first, "x" * 100)
    except errors.CannotError:
        failed += 1
        if failed > 3:
            break
assert failed > 3, failed
for number, token in enumerate(made[:2]):
    where = opened() if number else first
    where.revoke(token.id, by="test")
    assert opened().authenticate(token.text) is None
assert opened().authenticate(made[2].text) is not None
(home / "filler").unlink()
create(opened(), "again")
opened().revoke(made[2].id, by="test")
assert (home / "pools" / "pools.db-reserve").stat().st_blocks * 512 >= 1 << 20
"""


def test_a_token_is_revoked_on_a_full_disk(tmp_path: pathlib.Path) -> None:
    command = ["unshare", "-m", sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
