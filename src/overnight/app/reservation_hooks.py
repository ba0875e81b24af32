"""Joins reservations with the fleet of the same database: what was heard of a host, tokens for agents, loads."""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time
from typing import TYPE_CHECKING

from overnight import errors, reservations
from overnight.model import times
from overnight.model.control_plane import HostFilter, Role
from overnight.model.load import Constancy
from overnight.model.reservation import Check, CheckState
from overnight.model.times import HOUR_US
from overnight.model.uplink import TaskKind, TaskState
from overnight.reservations import context

if TYPE_CHECKING:
    from overnight.database import engine
    from overnight.fleet import context as fleet_context
    from overnight.model.control_plane import HostRow

BY = "reserve"
LOCAL = "local"  # the provider whose host is this one
WORKLOAD, DUTY, GATE_SECONDS = "cpu", 0.6, 60
TASK_SECONDS = GATE_SECONDS + 300
POLL_SECONDS = 5.0
GATE = "load-constancy"
NOISE = "something else uses the cores: see `overnight top` on the host, then release it or wait"


def open_fleet(database: engine.Database, home: pathlib.Path) -> fleet_context.Context:
    from overnight.fleet import blobs, context

    return context.Context(database, blobs.Blobs(home / "blobs"), times.now_us, context.Limits())


def make(database: engine.Database, home: pathlib.Path) -> context.Hooks:
    from overnight.fleet import inventory, tokens

    fleet = open_fleet(database, home)
    hosts, known = inventory.Inventory(fleet), tokens.Tokens(fleet)

    def find(name: str) -> HostRow | None:
        """Return the host of this name, or the instance of this id: a cloud names hosts by it."""
        with contextlib.suppress(errors.NotFoundError):
            return hosts.host(name)
        found = hosts.hosts(HostFilter({"instance": name}), limit=1).items
        return found[0] if found else None

    def hear(name: str) -> reservations.Heard | None:
        if (row := find(name)) is None:
            return None
        return reservations.Heard(
            row.seen_us or None, row.skew_us if row.seen_us else None, row.name
        )

    def setup_agent(host: str, server: str) -> reservations.AgentSetup:
        if not server:
            return reservations.AgentSetup(server="")
        # A host that is known needs a token of its own. A new one may have any new name: the agent reports that of
        # its system, which may not be the platform's.
        row = find(host)
        token = known.create(
            Role.AGENT,
            name=_token_name(host),
            expires_us=fleet.clock() + HOUR_US,
            host=row.name if row else "",
            by=BY,
        )
        return reservations.AgentSetup(server=server, token=token.text)

    def revoke_unused(host: str) -> None:
        for token in known.list():
            unused = token.used_us is None and token.revoked_us is None
            if unused and (token.name, token.created_by) == (_token_name(host), BY):
                known.revoke(token.id, by=BY, why="the host was released")

    def gate(provider: str, host: str) -> Check:
        if provider == LOCAL:
            return _run_here(home)
        row = find(host)
        return _run_there(fleet, row.name if row else host)

    return context.Hooks(
        heard=hear, agent_setup=setup_agent, agent_ended=revoke_unused, load_gate=gate
    )


def _token_name(host: str) -> str:
    return f"reservation of {host}"[:100]


def _run_here(home: pathlib.Path) -> Check:
    from overnight.app import load

    request = load.Request(WORKLOAD, load.Options(duty=DUTY), home=home, seconds=GATE_SECONDS)
    verdict = load.run(request, threading.Event()).verdict
    return _judge(verdict.says, constant=verdict.status is not Constancy.NOT_CONSTANT)


def _judge(detail: str, *, constant: bool) -> Check:
    if constant:
        return Check(GATE, CheckState.PASSED, detail)
    return Check(GATE, CheckState.FAILED, detail, NOISE)


def _run_there(fleet: fleet_context.Context, host: str) -> Check:
    """Ask the agent of a host for a load, and wait for its verdict."""
    from overnight.fleet import tasks

    asked = tasks.Tasks(fleet)
    arguments = {"workload": WORKLOAD, "seconds": GATE_SECONDS, "duty": round(100 * DUTY)}
    try:
        task = asked.create(host, TaskKind.LOAD, arguments, by=BY, why="acceptance")
    except errors.NotFoundError:
        return Check(GATE, CheckState.UNKNOWN, "no agent reports from this host", "start one: `overnight reserve --agent`")  # fmt: skip
    until = time.monotonic() + TASK_SECONDS
    while not task.state.is_final and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
        task = asked.get(task.id)
    if task.state in (TaskState.DONE, TaskState.FAILED):
        return _judge(task.detail, constant=task.state is TaskState.DONE)
    if not task.state.is_final:
        asked.cancel(task.id, by=BY)
    advice = "allow the task `load` in /etc/overnight/agent.toml of the host, and see that its agent reports"
    return Check(GATE, CheckState.UNKNOWN, f"the task is {task.state} {task.detail}".rstrip(), advice)  # fmt: skip
