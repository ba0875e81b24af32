"""Every command of docs/pools.md, run in order by a shell."""

from __future__ import annotations

import pathlib
import re

import pytest
import shellpages
import typer.main

from overnight.interfaces import cli
from overnight.pools import problems

TEXT = shellpages.text("pools.md")
# test_pools_ec2.py tests the members on EC2.
LOCAL = re.sub(r"^## Members on EC2\n.*?(?=^## )", "", TEXT, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(330)
def test_the_commands_of_the_page_run(tmp_path: pathlib.Path) -> None:
    shell = shellpages.Shell(tmp_path)
    code, output = shell.run(shellpages.blocks(LOCAL), seconds=300)
    assert code == 0, output
    # `pool serve`, in the background, may log the end of the pool a moment later.
    assert any("no pools; create one" in line for line in output.splitlines()[-2:])
    assert "Traceback" not in output
    for agent in (shell.home / "pools/machines").glob("*/agent"):
        assert not pathlib.Path("/proc", agent.read_text().split()[0]).exists()


@pytest.mark.timeout(330)
def test_the_commands_of_the_page_about_clusters_run(tmp_path: pathlib.Path) -> None:
    shell = shellpages.Shell(tmp_path)
    code, output = shell.run(shellpages.blocks(shellpages.text("clusters.md")), seconds=120)
    assert code == 0, output
    assert "Traceback" not in output
    assert "18.0 host-hours, 7.20" in output
    assert '"address": "127.0.0.1#' in output
    assert "released" in output
    assert "it has ended" in output


def test_every_command_of_pools_is_on_the_page() -> None:
    group = typer.main.get_command(cli.build()).commands["pool"]
    left_out = {"replenish", "recycle"}  # serve does these automatically
    for name in set(group.commands) - left_out:
        assert f"overnight pool {name}" in TEXT, name


def test_every_problem_is_on_the_page() -> None:
    source = pathlib.Path(problems.__file__).read_text()
    known = set(re.findall(r'Problem\(\s*"([a-z_]+)"', source))
    assert len(known) >= 10
    self_explanatory = {"not_active", "claim_stale"}  # their texts need no explanation
    for name in known - self_explanatory:
        assert f"`{name}`" in TEXT, name
