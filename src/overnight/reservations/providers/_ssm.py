"""An agent on an instance, started by a command of Systems Manager.

Systems Manager stores commands and shows them to everybody with ssm:ListCommands. The token is therefore never
part of one: the host reads it from a SecureString parameter, which is deleted when the command has ended.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from overnight import reservations

if TYPE_CHECKING:
    from overnight.model.reservation import Lease, Order

TOKENS = "/overnight/tokens"
UNIT = "overnight-agent-"  # followed by the lease
WAIT_SECONDS = 60.0
RUNNING = ("Pending", "InProgress", "Delayed")
Call = Callable[..., Any]  # order, service, operation, parameters

# The unit ends with the lease, even if nobody can reach the host any more. The home is removed with it: it
# belongs to this reservation alone.
START = """\
set -eu
umask 077
systemctl is-active --quiet {unit} && exit 0
for tool in overnight aws systemd-run; do
  command -v "$tool" >/dev/null || {{ echo "$tool is not installed on this host" >&2; exit 3; }}
done
mkdir -p /run/overnight /var/lib/{unit}
aws ssm get-parameter --region {region} --name {name} --with-decryption \\
  --query Parameter.Value --output text > /run/overnight/{unit}.token
{tasks}systemd-run --quiet --collect --unit {unit} --property RuntimeMaxSec={seconds} \\
  --property 'ExecStopPost=/bin/rm -rf /run/overnight/{unit}.token /run/overnight/{unit}.toml /var/lib/{unit}' \\
  "$(command -v overnight)" --home /var/lib/{unit} agent --server {server} --token-file /run/overnight/{unit}.token{options}
"""
STOP = """\
systemctl stop {unit} 2>/dev/null || true
rm -rf /run/overnight/{unit}.token /run/overnight/{unit}.toml /var/lib/{unit}
"""


def need_managed(call: Call, host: str, order: Order) -> None:
    """Raise for an instance that Systems Manager cannot reach: a command would wait for it."""
    wanted = [{"Key": "InstanceIds", "Values": [host]}]
    answer = call(order, "ssm", "describe_instance_information", Filters=wanted)
    found = answer.get("InstanceInformationList", [])
    if not found or found[0].get("PingStatus") != "Online":
        raise reservations.PlatformError(
            f"cannot start an agent on {host}",
            why="its SSM agent is offline" if found else "Systems Manager does not manage it",
            todo="give the instance a role with the policy AmazonSSMManagedInstanceCore, or build an image that "
            "contains the agent (`overnight agent --print-unit`)",
            retry=bool(found),
        )


def start(
    call: Call, host: str, order: Order, lease: Lease, setup: reservations.AgentSetup
) -> None:
    """Start the unit and wait for the command; a unit that runs is left as it is."""
    if not setup.token:
        raise reservations.PlatformError(
            f"cannot start an agent on {host}",
            why="the reservation names no server that it could report to",
            todo="add --agent-server URL to `overnight reserve`",
            retry=False,
        )
    name, unit = f"{TOKENS}/{host}", UNIT + lease.id
    seconds = max(60, lease.cap_us // 1_000_000 - int(time.time()))
    server, config = shlex.quote(setup.server), f"/run/overnight/{unit}.toml"
    tasks = f"printf %s {shlex.quote(setup.tasks.format())} > {config}\n" if setup.tasks else ""
    options = "".join(f" {word}" for word in setup.options(config))
    script = START.format(
        unit=unit, region=order.region, name=name, seconds=seconds, server=server, tasks=tasks, options=options
    )  # fmt: skip
    call(order, "ssm", "put_parameter", Name=name, Value=setup.token, Type="SecureString", Overwrite=True)  # fmt: skip
    try:
        command = _send(call, host, order, script, f"start {unit}")
        status, detail = _wait(call, host, order, command)
    finally:
        _delete_token(call, host, order)
    if status != "Success":
        raise reservations.PlatformError(
            f"the agent did not start on {host}",
            why=f"command {command} of Systems Manager is {status}: {detail}",
            todo=f"aws ssm get-command-invocation --region {order.region} --command-id {command} --instance-id {host}",
        )


def stop(call: Call, host: str, order: Order, lease_id: str) -> None:
    """Send the command that stops the unit. Systems Manager delivers it when the host is reachable."""
    _delete_token(call, host, order)
    unit = UNIT + lease_id
    # An instance that is not managed any more is left to the time limit of the unit.
    _send(call, host, order, STOP.format(unit=unit), f"stop {unit}", absent="InvalidInstanceId")


def _delete_token(call: Call, host: str, order: Order) -> None:
    call(order, "ssm", "delete_parameter", absent="ParameterNotFound", Name=f"{TOKENS}/{host}")


def _send(call: Call, host: str, order: Order, script: str, comment: str, absent: str = "") -> str:
    answer = call(
        order, "ssm", "send_command", absent=absent, InstanceIds=[host], Comment=comment,
        DocumentName="AWS-RunShellScript", TimeoutSeconds=3600, Parameters={"commands": script.splitlines()},
    )  # fmt: skip
    return str(answer["Command"]["CommandId"]) if answer else ""


def _wait(call: Call, host: str, order: Order, command: str) -> tuple[str, str]:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        answer = call(
            order, "ssm", "get_command_invocation", absent="InvocationDoesNotExist",
            CommandId=command, InstanceId=host,
        ) or {"Status": "Pending"}  # fmt: skip
        if answer["Status"] not in RUNNING or time.monotonic() >= deadline:
            return answer["Status"], answer.get("StandardErrorContent", "").strip()[:300]
        time.sleep(1)
