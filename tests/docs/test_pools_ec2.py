"""The EC2 section of docs/pools.md: its commands, run by a shell against moto, its policy and its table."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import bootedagents
import motoserver
import pytest

from overnight import aws
from overnight.model.pool import Reason
from overnight.pools.providers import _ec2_errors, ec2

REPOSITORY = pathlib.Path(__file__).parents[2]
TEXT = (REPOSITORY / "docs/pools.md").read_text()
[SECTION] = re.findall(r"^## Members on EC2\n(.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL)
BLOCKS = re.findall(r"^```sh\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
# There is no TLS proxy here.
TLS = "--listen 127.0.0.1:8417 --endpoint https://pools.example.com"
PLAIN = '--listen 0.0.0.0:{port} --endpoint "http://$(hostname):{port}" --plain-http'
# The part of `aws` that the page uses: --some-name becomes SomeName, with JSON or a word as its value.
AWS = """
import json, sys, boto3
service, operation, *words = sys.argv[1:]
options = dict(zip(words[::2], words[1::2], strict=True))
client = boto3.client(service, region_name=options.pop("--region"))
parameters = {
    "".join(part.title() for part in name.strip("-").split("-")): json.loads(value) if value[0] == "{" else value
    for name, value in options.items()
}
print(getattr(client, operation.replace("-", "_"))(**parameters)["ResponseMetadata"]["HTTPStatusCode"])
"""


def write_tool(folder: pathlib.Path, name: str, command: str) -> None:
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
    path.chmod(0o755)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.long  # 16 s
@pytest.mark.timeout(180)
def test_the_commands_of_the_section_run(tmp_path: pathlib.Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tmp_path / "aws.py").write_text(AWS)
    write_tool(tools, "overnight", "-m overnight")
    write_tool(tools, "aws", str(tmp_path / "aws.py"))
    with motoserver.running() as url:
        account = motoserver.Account(url)
        image = account.ec2.register_image(Name="image", RootDeviceName="/dev/xvda")["ImageId"]
        script = "set -euo pipefail\n" + "".join(BLOCKS) + 'kill "$(jobs -p)"\nwait\n'
        assert TLS in script
        port = free_port()
        script = script.replace("ami-0123456789abcdef0", image).replace(
            TLS, PLAIN.format(port=port)
        )
        log = tmp_path / "output"
        with log.open("wb") as out:
            running = subprocess.Popen(
                ["bash", "-c", script],
                env={
                    **os.environ, **motoserver.environment(url),
                    "PATH": f"{tools}:{os.environ['PATH']}", "OVERNIGHT_HOME": str(tmp_path / "home"),
                },
                stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        fleet = bootedagents.Fleet(account, tmp_path / "machines")
        deadline = time.monotonic() + 120
        try:
            while running.poll() is None and time.monotonic() < deadline:
                fleet.boot()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running.wait(0.1)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait(20)
            fleet.switch_off()
        output = log.read_text()
        assert running.returncode == 0, output
        assert "Traceback" not in output
        assert account.instances() == {}
        ended = account.instances("terminated").values()
    assert {instance["InstanceLifecycle"] for instance in ended} == {"spot"}
    assert "m7i.large" in {instance["InstanceType"] for instance in ended}


def test_the_policy_allows_exactly_the_calls_that_are_made() -> None:
    [block] = re.findall(r"^```json\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    allowed = {statement["Action"]: statement for statement in json.loads(block)["Statement"]}
    source = pathlib.Path(ec2.__file__).read_text()
    called = set(re.findall(r'"(describe_\w+|run_\w+|terminate_\w+|get_\w+)"', source))
    calls = {"ec2:" + "".join(part.title() for part in name.split("_")) for name in called}
    # Tags at launch and passing a role need separate permissions.
    assert calls | {"ec2:CreateTags", "iam:PassRole"} == set(allowed)
    for action in set(allowed) - {"ec2:DescribeInstances", "iam:PassRole"}:
        assert allowed[action]["Condition"], action
    assert f"aws:ResourceTag/{ec2.OWNER}" in str(allowed["ec2:TerminateInstances"])


def test_every_reason_is_in_the_table() -> None:
    reasons = {word for _, word in aws.REASONS} | set(_ec2_errors.GONE.values())
    reasons |= {_ec2_errors.UNREACHABLE, Reason.ENDPOINT_UNREACHABLE, Reason.ORDER_REFUSED}
    assert len(reasons) >= 12
    for reason in reasons:
        assert f"`{reason}`" in SECTION, reason
    assert set(_ec2_errors.TODO) <= reasons
