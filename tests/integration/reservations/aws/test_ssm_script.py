"""The commands for Systems Manager, run by a real shell with stand-ins for the tools of the host."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

from overnight import reservations
from overnight.model.reservation import AgentTasks, Lease, Order
from overnight.reservations.providers import _ssm

if TYPE_CHECKING:
    import pathlib

LEASE = "r-aaaaaaaaaaaa"
ORDER = Order(provider="ec2", where="web", region="eu-west-1")
TASKS = AgentTasks(kinds=("load",), max_seconds=600)
HOST = "i-0123456789abcdef0"


def read_script(stop: bool = False) -> str:
    sent: dict[str, object] = {}

    def call(_: Order, __: str, operation: str, **parameters: object) -> dict[str, object]:
        if operation == "send_command":
            sent.update(parameters)
        return {"Command": {"CommandId": "c-1"}, "Status": "Success"}

    if stop:
        _ssm.stop(call, HOST, ORDER, LEASE)
    else:
        setup = reservations.AgentSetup(
            server="https://centre/$(touch x)", token="s3cret", tasks=TASKS
        )
        lease = Lease(LEASE, "ada", 0, int(time.time() + 7200) * 1_000_000)
        _ssm.start(call, HOST, ORDER, lease, setup)
    lines = sent["Parameters"]["commands"]  # type: ignore[index]
    return "\n".join(lines)


def run(script: str, folder: pathlib.Path, active: bool) -> subprocess.CompletedProcess[str]:
    tools = {
        "systemctl": f"echo systemctl $* >> {folder}/log; exit {0 if active else 3}",
        "aws": f'echo "aws $*" >> {folder}/log; echo s3cret',
        "systemd-run": f'for one in "$@"; do echo "run $one" >> {folder}/log; done',
        "overnight": "exit 0",
    }
    for name, text in tools.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    for path in ("/run/overnight", "/var/lib/overnight-agent"):
        script = script.replace(path, f"{folder}{path}")
    (folder / "var/lib").mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, check=False, cwd=folder
    )  # fmt: skip


def test_the_token_goes_from_the_parameter_into_a_private_file(tmp_path: pathlib.Path) -> None:
    done = run(read_script(), tmp_path, active=False)
    assert done.returncode == 0, done.stderr
    token = tmp_path / "run/overnight/overnight-agent-r-aaaaaaaaaaaa.token"
    assert token.read_text() == "s3cret\n"
    assert token.stat().st_mode & 0o777 == 0o600
    log = (tmp_path / "log").read_text()
    assert f"aws ssm get-parameter --region eu-west-1 --name /overnight/tokens/{HOST} --with-decryption" in log  # fmt: skip
    assert "run https://centre/$(touch x)\n" in log
    tasks = token.with_suffix(".toml")
    assert tasks.read_text() == TASKS.format()
    assert f"run --signals-only\nrun --default-config={tasks}\n" in log
    assert not (tmp_path / "x").exists()
    (limit,) = [line for line in log.splitlines() if "RuntimeMaxSec" in line]
    assert 7100 < int(limit.rpartition("=")[2]) <= 7200


def test_a_unit_that_runs_is_left_alone(tmp_path: pathlib.Path) -> None:
    assert run(read_script(), tmp_path, active=True).returncode == 0
    assert "run " not in (tmp_path / "log").read_text()


def test_a_host_without_overnight_says_so(tmp_path: pathlib.Path) -> None:
    script = read_script().replace("for tool in overnight", "for tool in overnight-missing")
    done = run(script, tmp_path, active=False)
    assert done.returncode == 3
    assert "overnight-missing is not installed on this host" in done.stderr


def test_stopping_removes_what_the_agent_left(tmp_path: pathlib.Path) -> None:
    run(read_script(), tmp_path, active=False)
    assert run(read_script(stop=True), tmp_path, active=False).returncode == 0
    assert not list((tmp_path / "run/overnight").iterdir())
    assert not list((tmp_path / "var/lib").iterdir())
