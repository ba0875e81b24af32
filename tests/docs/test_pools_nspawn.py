"""The commands of docs/pools.md for nspawn machines, run in order by a shell."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
import shellpages

BLOCKS = shellpages.blocks(shellpages.text("pools.md"), "sh nspawn")


@pytest.mark.needs_root
@pytest.mark.needs_nspawn
@pytest.mark.together
def test_the_commands_of_the_section_run(tmp_path: pathlib.Path) -> None:
    assert len(BLOCKS) >= 2
    shell = shellpages.Shell(tmp_path)
    code, output = 1, ""
    try:
        code, output = shell.run(BLOCKS, seconds=90)
    finally:
        if code:
            drain = [shell.overnight, "--home", shell.home, "pool", "drain", "lab", "--yes"]
            subprocess.run(drain, check=False)
    assert code == 0, output
    assert "prepared" in output.splitlines()
    assert "overnight-member.service" in output
    assert "overnight agent of a warm pool member" in output
    assert "Traceback" not in output
    assert not (shell.home / "pools/nspawn").exists()
