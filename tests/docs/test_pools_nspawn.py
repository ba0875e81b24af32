"""The commands of docs/pools.md about real machines, run in their order by a shell."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
import shellpages

BLOCKS = shellpages.blocks(shellpages.text("pools.md"), "sh nspawn")


@pytest.mark.needs_root
@pytest.mark.needs_nspawn
def test_the_section_runs(tmp_path: pathlib.Path) -> None:
    assert len(BLOCKS) >= 2
    shell = shellpages.Shell(tmp_path)
    code, said = 1, ""
    try:
        code, said = shell.run(BLOCKS, seconds=90)
    finally:
        if code:
            drain = [shell.overnight, "--home", shell.home, "pool", "drain", "lab"]
            subprocess.run(drain, check=False)
    assert code == 0, said
    assert "prepared" in said.splitlines()
    assert "overnight-member.service" in said
    assert "overnight agent of a warm pool member" in said
    assert "Traceback" not in said
    assert not (shell.home / "pools/nspawn").exists()
