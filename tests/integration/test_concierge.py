"""The SDK's own client talks to a real `overnight serve`: the runbook's conversations, and a whole hunt."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import assistants
import httpx2
import impatient
import jsonschema
import mcp
import pytest
import reportedfleet
import serverprocesses
import toolexamples
from mcp.client.streamable_http import streamable_http_client

import scenarios
from overnight.app import concierge
from overnight.interfaces.mcp import catalogue

KIND, PLAN = toolexamples.KIND, toolexamples.PLAN
# Each conversation over one transport; the long tests have the others.
STDIO = [pytest.param("http", marks=pytest.mark.long), "stdio"]
HTTP = ["http", pytest.param("stdio", marks=pytest.mark.long)]


class Served:
    """A server with a made-up fleet; `ask` calls a tool, and notes what was said."""

    def __init__(self, server: serverprocesses.Server, night: scenarios.Truth, at: str) -> None:
        self.server, self.night, self.at = server, night, at
        self.anna = server.create_token("admin", "anna")
        self.claude = self.assistant("admin")

    def assistant(self, role: str) -> str:
        words = ("token", "create", "--role", role, "--assistant", "--name", "claude")
        return self.server.run(*words)

    def person(self, *words: str) -> str:
        """Run a command as a person, with a credential of their own."""
        import subprocess

        done = subprocess.run(
            [*serverprocesses.OVERNIGHT, "--server", self.server.url, *words],
            env=self.server.environment | {"OVERNIGHT_TOKEN": self.anna},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    def confirm(self) -> str:
        """Read what is asked, and confirm the last request."""
        shown = self.person("confirmations")
        self.person("confirm", shown.split(" confirm ")[1].partition("`")[0])
        return shown

    @contextlib.asynccontextmanager
    async def connected(self, transport: str, mode: str = "auto") -> AsyncIterator[mcp.Client]:
        if transport == "http":
            headers = {"Authorization": f"Bearer {self.claude}"}
            async with httpx2.AsyncClient(headers=headers, timeout=120) as http:
                stream = streamable_http_client(f"{self.server.url}/mcp", http_client=http)
                async with mcp.Client(stream, mode=mode) as client:
                    yield client
            return
        process = mcp.StdioServerParameters(
            command=sys.executable,
            args=["-m", "overnight", "--server", self.server.url, "mcp"],
            env=self.server.environment | {"OVERNIGHT_TOKEN": self.claude},
        )
        async with mcp.Client(process, mode=mode) as client:
            yield client


async def ask(client: mcp.Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.structured_content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def wait_for(
    client: mcp.Client, tool: str, holds: Any, seconds: float = 60, **arguments: Any
) -> Any:
    deadline = time.monotonic() + seconds
    while not holds(found := await ask(client, tool, **arguments)):
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.2)
    return found


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> scenarios.Truth:
    home = tmp_path_factory.mktemp("night") / "home"
    return scenarios.build("reference", home, seed=11, minutes=16.0, cores=8)


@pytest.fixture(scope="module")
def served(night: scenarios.Truth, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("serve") / "home"
    known = reportedfleet.make(night, tmp_path_factory.mktemp("fleet") / "home")
    reportedfleet.fill(home, night, known)
    options = ("--interval", "500ms")
    with serverprocesses.running(home, *options, command=impatient.COMMAND) as running:
        yield Served(running, night, reportedfleet.find_middle(known))
        serverprocesses.end_members(home)


@pytest.mark.parametrize("transport", STDIO)
def test_the_conversations_of_the_runbook(served: Served, transport: str) -> None:
    name = f"ci-{transport}"

    async def scene() -> None:
        async with served.connected(transport) as client:
            # "I need 50 ephemeral instances for an ML run": the choice, with sizes and cost
            burst = {"hosts": "50", "claims_per_minute": "4", "warm_up_seconds": "90", "cost_per_host_hour": "0.4"}  # fmt: skip
            text = (await client.get_prompt("burst", burst)).messages[0].content.text
            assert "Propose target_size 13" in text
            assert "provision_cluster" in text
            many = {
                "template_id": "plain",
                "count": 50,
                "lease_hours": 2,
                "cost_per_host_hour": 0.4,
            }
            asked = (await ask(client, "provision_cluster", **many))["confirmation"]
            assert (asked["most_hosts"], asked["cost"]) == (50, 50)
            assert asked["host_hours"] == 125
            small = {"template_id": "plain", "count": 2, "acquired_by": "ml-run"}
            made = (await ask(client, "provision_cluster", **small))["cluster"]
            held = await wait_for(
                client, "system_get_instance_pool", lambda p: p["instance_pool"]["claimed_count"] == 2, id=made["id"]
            )  # fmt: skip
            assert {member["pool_state"] for member in held["members"]} == {"claimed"}
            # and given back, once a person has seen what ends
            given_back = await ask(client, "release_cluster", id=made["id"])
            assert set(given_back["confirmation"]["ends"]) == {
                m["instance_id"] for m in held["members"]
            }
            await asyncio.to_thread(served.confirm)
            ended = await ask(client, "release_cluster", id=made["id"])
            assert (ended["cluster"]["status"], ended["cluster"]["reason"]) == ("ended", "released")
            # "tune the warm pool"
            asks = (await client.get_prompt("burst")).messages[0].content.text
            assert "Ask me for claims_per_minute and warm_up_seconds" in asks
            size = await ask(client, "pool_size", claims_per_minute=1, warm_up_seconds=1)
            pool = {"name": name, "template_id": "plain", "target_size": size["target_size"]}
            created = (await ask(client, "system_create_instance_pool", **pool))["instance_pool"]
            assert (created["status"], created["ready_count"]) == ("active", 0)
            changed = await ask(client, "system_update_instance_pool", id=name, target_size=2)
            assert changed["instance_pool"]["target_size"] == 2
            # "claim a CI runner": directly
            ready = lambda p: p["instance_pool"]["ready_count"] == 2  # noqa: E731
            await wait_for(client, "system_get_instance_pool", ready, id=name)
            claim = {"pool_id": name, "acquired_by": "ci-job-12345", "acquired_for": "build-1234"}
            claimed = await ask(client, "system_acquire_pooled_instance", **claim)
            instance = claimed["instance"]
            assert (instance["status"], instance["pool_state"]) == ("running", "claimed")
            shown = await ask(client, "system_get_instance", id=instance["id"])
            assert shown["claims"][0]["acquired_by"] == {"host_text": "ci-job-12345"}
            returned = await ask(
                client, "system_return_pooled_instance", pool_id=name, instance_id=instance["id"]
            )
            assert returned["instance"]["pool_state"] == "draining"
            # drains are confirmed by a person
            await wait_for(client, "system_get_instance_pool", ready, id=name)
            wanted = {"action": "system_drain_instance_pool", "arguments": {"id": name}}
            pending = (await ask(client, "request_confirmation", **wanted))["confirmation"]
            first = await ask(client, "system_drain_instance_pool", id=name)
            assert first["confirmation"]["id"] == pending["id"]
            seen = await asyncio.to_thread(served.confirm)
            assert pending["what"] in seen
            assert all(member in seen for member in pending["ends"])
            drained = await ask(client, "system_drain_instance_pool", id=name)
            assert drained["drain_result"] == {"drained": 2, "claimed_remaining": 0}
            assert drained["pool"]["status"] == "draining"
            gone = lambda p: not p["members"]  # noqa: E731
            await wait_for(client, "system_get_instance_pool", gone, id=name)
            assert "confirmation" in await ask(client, "system_delete_instance_pool", id=name)
            await asyncio.to_thread(served.confirm)
            assert await ask(client, "system_delete_instance_pool", id=name) == {"deleted": 1}

    asyncio.run(scene())


@pytest.mark.needs_root
@pytest.mark.parametrize("transport", HTTP)
def test_a_whole_hunt(served: Served, transport: str) -> None:
    event = served.night.event

    async def scene() -> None:
        async with served.connected(transport) as client:
            hosts = await ask(client, "hosts", limit=5)
            assert (hosts["total"], hosts["truncated"]) == (31, True)
            listed = await ask(client, "events", kinds=[KIND], begin="60d ago", limit=50)
            [row] = [each for each in listed["events"] if each["id"] == event.id]
            assert row["report"] == f"{served.server.url}/reports/{event.id}"
            verdict = await ask(client, "diagnose", event=event.id)
            assert verdict["status"] == "cause-found"
            assert verdict["headline"]["host_text"].startswith("Cause found")
            assert verdict["chain"][-1]["kind"] == KIND
            cpu = await ask(client, "cpu", event=event.id)
            assert max(reading["used"] for reading in cpu["readings"]) > 95
            top = await ask(client, "top", event=event.id, kind="units", limit=3)
            assert len(top["consumers"]) <= 3
            census = await ask(client, "census", event=event.id)
            assert census["dying"] > 1000
            compared = await ask(client, "compare", kinds=[KIND], at=served.at)
            assert compared["rows"][0]["kind"] == KIND
            cohorts = await ask(client, "cohorts", kind=KIND, limit=2)
            assert cohorts["status"] == "found"
            assert len(cohorts["cohorts"]) == 2
            drift = await ask(client, "drift", kind=KIND, limit=2)
            assert drift["differences"]
            audited = await ask(client, "audit", host=served.night.host)
            assert (audited["host"], audited["total"]) == (served.night.host, 4)
            assert audited["findings"][0]["unit"]["host_text"] == "ecs.service"
            plan = (await client.read_resource("overnight://plans/driver-resets")).contents[0].text
            assert "arms:" in plan
            lab = f"lab-{transport}"
            pool = {"name": lab, "template_id": "plain", "target_size": 1, "max_size": 1}
            await ask(client, "system_create_instance_pool", **pool)
            ready = lambda p: p["instance_pool"]["ready_count"] == 1  # noqa: E731
            await wait_for(client, "system_get_instance_pool", ready, id=lab)
            order = {"provider": "pool", "where": lab, "hours": 1}
            taken = (await ask(client, "reserve", **order))["reservation"]["id"]
            active = lambda r: r["reservation"]["state"] == "active"  # noqa: E731
            await wait_for(client, "reservation_status", active, id=taken)
            await ask(client, "release_reservation", id=taken)
            await wait_for(client, "system_get_instance_pool", ready, id=lab)
            text = PLAN.replace("lab", lab)
            changes = text + "experiment: {allow: [purge]}\n"
            pending = (await ask(client, "start_investigation", plan=changes))["confirmation"]
            assert pending["concerns"][0]["host_text"] == "an experiment may change a host: purge"
            assert pending["cost"] == pytest.approx(0.04)
            started = (await ask(client, "start_investigation", plan=text))["investigation"]
            await ask(client, "stop_investigation", id=started["id"])
            ended = await wait_for(
                client, "investigation_status", lambda r: r["investigation"]["phase"] == "ended", id=started["id"]
            )  # fmt: skip
            report = ended["investigation"]["report"]
            assert report.startswith(f"{served.server.url}/investigations/{started['id']}/")
            person = serverprocesses.Client(served.server.url, served.anna)
            for url in (report, row["report"]):
                path = url.removeprefix(served.server.url)
                assert b"<html" in await asyncio.to_thread(person.get, path)
            serverprocesses.Client.close_all()

    asyncio.run(scene())


@pytest.mark.long  # 15 s
def test_every_tool_answers_as_its_schema_says(served: Served) -> None:
    tour = toolexamples.run_all(served.server, served.night, served.at)
    assert {*tour.examples} == {*catalogue.TOOLS}
    for name, call in tour.examples.items():
        jsonschema.validate(call["input"], catalogue.TOOLS[name].input_schema)
        jsonschema.validate(call["output"], catalogue.TOOLS[name].output_schema)


def test_the_person_at_the_client_confirms_over_stdio_with_their_own_token(
    served: Served, tmp_path: pathlib.Path
) -> None:
    """`--confirm-as`: elicitation confirms with another credential than the assistant's."""
    token = tmp_path / "anna.token"
    token.write_text(served.anna)
    process = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "overnight", "--server", served.server.url, "mcp", "--confirm-as", str(token)],
        env=served.server.environment | {"OVERNIGHT_TOKEN": served.claude},
    )
    asked: list[str] = []

    async def scene() -> None:
        agree = assistants.answers(True, asked)
        async with mcp.Client(process, elicitation_callback=agree) as client:
            pool = {"name": "short", "template_id": "plain", "target_size": 0, "max_size": 0}
            await ask(client, "system_create_instance_pool", **pool)
            assert await ask(client, "system_delete_instance_pool", id="short") == {"deleted": 1}

    asyncio.run(scene())
    assert asked == ["claude asks to delete pool short for good"]
    audit = serverprocesses.Client(served.server.url, served.anna).get("/api/v1/audit?limit=5")
    who = {row["action"]: row["who"].partition(" ")[0] for row in audit["items"]}
    assert (who["confirmation.confirmed"], who["pool.delete"]) == ("anna", "claude")
    serverprocesses.Client.close_all()


def test_a_data_home_without_a_server(night: scenarios.Truth) -> None:
    """`overnight mcp` without --server reads the evidence of this machine."""
    event = night.event.id

    async def scene() -> None:
        backend = concierge.LocalBackend(night.home)
        async with mcp.Client(assistants.serve(backend), mode="legacy") as client:
            [host] = (await ask(client, "hosts"))["hosts"]
            assert (host["name"], host["state"]) == (night.host, "recorded")
            begin = {"begin": "2020-01-01", "end": "2100-01-01"}
            listed = await ask(client, "events", kinds=[KIND], **begin)
            assert event in {row["id"] for row in listed["events"]}
            assert listed["events"][0]["report"] is None
            assert (await ask(client, "diagnose", event=event))["status"] == "cause-found"
            assert (await ask(client, "cpu", event=event, core="0-7"))["cores"] == 8
            assert (await ask(client, "top", event=event, kind="functions"))["consumers"]
            assert (await ask(client, "census", event=event))["severity"] == "critical"
            assert (await ask(client, "census", host=night.host))["dying"] > 1000

    asyncio.run(scene())


@pytest.mark.long  # 41 s on two quiet cores
@pytest.mark.needs_root
@pytest.mark.needs_perf
@pytest.mark.alone
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_a_night_is_carried_out_to_its_report(served: Served, transport: str) -> None:
    lab = f"night-{transport}"
    plan = PLAN.replace("lab", lab).replace("for: 60s", "for: 7s")

    async def scene() -> None:
        async with served.connected(transport, "legacy") as client:
            pool = {"name": lab, "template_id": "plain", "target_size": 1, "max_size": 1}
            await ask(client, "system_create_instance_pool", **pool)
            ready = lambda p: p["instance_pool"]["ready_count"] == 1  # noqa: E731
            await wait_for(client, "system_get_instance_pool", ready, id=lab)
            started = (await ask(client, "start_investigation", plan=plan))["investigation"]
            ended = await wait_for(
                client, "investigation_status", lambda r: r["investigation"]["phase"] == "ended", 100, id=started["id"]
            )  # fmt: skip
            found = ended["investigation"]
            assert found["outcome"] == "not-reproduced"
            assert found["arms"][0]["state"] == "ended"
            assert ended["log"][-1] == {"host_text": "every host is given back"}
            person = serverprocesses.Client(served.server.url, served.anna)
            path = found["report"].removeprefix(served.server.url)
            assert b"<html" in await asyncio.to_thread(person.get, path)
            serverprocesses.Client.close_all()

    asyncio.run(scene())
