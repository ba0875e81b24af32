"""Write the examples of the concierge's tools: each is a real call of a real `overnight serve` with a made-up fleet.

`.venv/bin/python tests/support/toolexamples.py` takes 20 seconds. Lists in answers are cut to one row.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

import reportedfleet
import serverprocesses

import scenarios
from overnight.app import concierge, server_settings
from overnight.interfaces.mcp import catalogue

KIND = "net.driver_reset"
PLAN = """\
name: resets on members
hosts: {provider: pool, where: lab}
arms: [{kind: hot, hosts: 1}]
record: {segment: 5s, frequency: 19}
wait: {for: 60s, events: [job.failed]}
budget: {hours: 0.1, price: 0.4}
"""


class Tour:
    """Calls of one assistant; `examples` has the last answer of each tool."""

    def __init__(self, server: serverprocesses.Server) -> None:
        words = ("token", "create", "--role", "admin", "--assistant", "--name", "claude")
        settings = server_settings.Settings(server.url, server.run(*words))
        self._backend = concierge.RemoteBackend(settings)
        self._server, self._anna = server, server.create_token("admin", "anna")
        self.examples: dict[str, dict[str, Any]] = {}

    def ask(self, tool: str, **arguments: Any) -> Any:
        """Call a tool, and confirm as a person what it asks for."""
        answer = catalogue.call(self._backend, catalogue.TOOLS[tool], arguments).document
        if set(answer) == {"confirmation"}:
            self._confirm()
            answer = catalogue.call(self._backend, catalogue.TOOLS[tool], arguments).document
        if "error" in answer:
            raise RuntimeError(f"{tool}: {answer['error']}")
        self.examples[tool] = {"input": arguments, "output": _cut(answer)}
        return answer

    def wait(self, holds: Callable[[Any], bool], tool: str, **arguments: Any) -> Any:
        deadline = time.monotonic() + 60
        while not holds(answer := self.ask(tool, **arguments)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{tool}: {answer}")
            time.sleep(0.2)
        return answer

    def wait_for_members(self, pool: str, **counts: int) -> Any:
        def holds(answer: Any) -> bool:
            found = answer["instance_pool"]
            return all(found[f"{name}_count"] == count for name, count in counts.items())

        return self.wait(holds, "system_get_instance_pool", id=pool)

    def _confirm(self) -> None:
        command = [*serverprocesses.OVERNIGHT, "--server", self._server.url]
        environment = self._server.environment | {"OVERNIGHT_TOKEN": self._anna}

        def run(*words: str) -> str:
            return subprocess.run([*command, *words], env=environment, check=True, capture_output=True, text=True).stdout  # fmt: skip

        run("confirm", run("confirmations").split(" confirm ")[1].partition("`")[0])


def _cut(value: Any) -> Any:
    """Return an answer with one row of each list of rows."""
    if isinstance(value, dict):
        return {name: _cut(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_cut(inner) for inner in value[: 1 if value and isinstance(value[0], dict) else 5]]
    return value


def run_hunt(tour: Tour, event: str, host: str, middle: str) -> None:
    tour.ask("hosts", limit=1)
    tour.ask("events", kinds=[KIND], begin="60d ago", limit=1)
    for tool in ("diagnose", "cpu", "census"):
        tour.ask(tool, event=event)
    tour.ask("top", event=event, kind="processes", limit=1)
    tour.ask("compare", kinds=[KIND], at=middle)
    for tool in ("cohorts", "drift"):
        tour.ask(tool, kind=KIND, limit=1)
    tour.ask("audit", host=host)


def run_pools(tour: Tour) -> None:
    tour.ask("pool_size", claims_per_minute=4, warm_up_seconds=90, cost_per_host_hour=0.4)
    tour.ask(
        "system_create_instance_pool",
        name="ci", template_id="plain", target_size=2, min_size=1, max_size=10,
    )  # fmt: skip
    members = tour.wait_for_members("ci", ready=2)["members"]
    tour.ask("system_list_instance_pools")
    claim = {"acquired_by": "ci-job-12345", "acquired_for": "build-pipeline-1234"}
    claimed = tour.ask("system_acquire_pooled_instance", pool_id="ci", **claim)["instance"]["id"]
    tour.ask("system_get_instance", id=claimed)
    tour.ask("system_return_pooled_instance", pool_id="ci", instance_id=claimed)
    [other] = {member["instance_id"] for member in members} - {claimed}
    tour.ask("system_terminate_instance", id=other)
    for tool in ("system_replenish_instance_pool", "system_recycle_pool"):
        tour.ask(tool, id="ci")
    tour.ask("system_update_instance_pool", id="ci", target_size=3)
    tour.wait_for_members("ci", ready=3)
    tour.ask("attribute_failure", id="ci")
    tour.ask("recent_events", pool_id="ci", limit=1)
    wanted = {"action": "system_drain_instance_pool", "arguments": {"id": "ci"}}
    tour.ask("request_confirmation", **wanted)
    tour.ask("system_drain_instance_pool", id="ci")
    kept = tour.examples["system_get_instance_pool"]
    tour.wait(lambda found: not found["members"], "system_get_instance_pool", id="ci")
    tour.examples["system_get_instance_pool"] = kept
    tour.ask("system_delete_instance_pool", id="ci")


def run_clusters(tour: Tour) -> None:
    order = {"template_id": "plain", "lease_hours": 2, "cost_per_host_hour": 0.4}
    tour.ask("system_provision_instance", **order, acquired_by="persistent-db")
    cancelled = tour.ask("provision_cluster", **order, count=2, acquired_by="ml-run")["cluster"]
    tour.ask("cancel_cluster", id=cancelled["id"])
    made = tour.ask("provision_cluster", **order, count=2, acquired_by="ml-run")["cluster"]["id"]
    tour.wait_for_members(made, claimed=2)
    tour.ask("release_cluster", id=made)


def run_night(tour: Tour) -> None:
    tour.ask(
        "system_create_instance_pool", name="lab", template_id="plain", target_size=1, max_size=1
    )
    tour.wait_for_members("lab", ready=1)
    order = {"provider": "pool", "where": "lab", "hours": 1, "purpose": "reproduce the reset"}
    made = tour.ask("reserve", **order)["reservation"]["id"]
    tour.wait(lambda a: a["reservation"]["state"] == "active", "reservation_status", id=made)
    tour.ask("release_reservation", id=made)
    tour.wait_for_members("lab", ready=1)
    night = tour.ask("start_investigation", plan=PLAN)["investigation"]["id"]
    tour.ask("stop_investigation", id=night)
    tour.wait(lambda a: a["investigation"]["phase"] == "ended", "investigation_status", id=night)


def run_cancelled_launch(tour: Tour) -> None:
    """Cancel a launch before the member is ready, which takes it a tenth of a second."""
    kept = dict(tour.examples)
    tour.ask(
        "system_create_instance_pool", name="slow", template_id="plain", target_size=0, max_size=12
    )
    for target in range(1, 13):  # with other pools less than 20 hosts: none of it is confirmed
        tour.ask("system_update_instance_pool", id="slow", target_size=target)
        tour.ask("system_replenish_instance_pool", id="slow")
        members = tour.ask("system_get_instance_pool", id="slow")["members"]
        warming = [each["task_id"] for each in members if each["pool_state"] == "warming"]
        try:
            tour.ask("system_cancel_task", id=warming[-1])
        except (IndexError, RuntimeError):
            continue  # it was ready before
        break
    tour.examples |= kept


def run_all(server: serverprocesses.Server, night: scenarios.Truth, middle: str) -> Tour:
    """Call every tool of a server that has the fleet of the night."""
    tour = Tour(server)
    run_hunt(tour, night.event.id, night.host, middle)
    run_pools(tour)
    run_clusters(tour)
    run_night(tour)
    run_cancelled_launch(tour)
    return tour


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        night = scenarios.build("reference", folder / "night", seed=11, minutes=16.0, cores=8)
        known = reportedfleet.make(night, folder / "fleet")
        home = folder / "home"
        reportedfleet.fill(home, night, known)
        with serverprocesses.running(home, "--interval", "500ms") as server:
            try:
                tour = run_all(server, night, reportedfleet.find_middle(known))
            finally:
                serverprocesses.end_members(home)
    lines = (
        f"{json.dumps(name)}: {json.dumps(tour.examples[name])}" for name in sorted(tour.examples)
    )
    catalogue.EXAMPLES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
