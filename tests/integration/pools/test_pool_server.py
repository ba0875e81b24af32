"""Pool commands with --server print what they print for a database; real servers, real processes as members."""

from __future__ import annotations

import json
import pathlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import serverprocesses

from overnight.app import pools
from overnight.interfaces import cli

ID = re.compile(r"\b([a-z])-[0-9a-f]{12}\b")
TIMED = re.compile(
    r"(_us|_s|address|machine_id|host|generation|watched|low|high|detail|warm_up_seconds|mean|p[0-9]+|per_minute|dispersion|bursty)$"
)
NUMBER = re.compile(r"\d[\d.,e+-]*( ?m?s)?\b")
# The reaper terminates members, too, and may miss one in a list that is older.
RACING = ("beat_us", "gone_us", "missing_us", "attempts", "task")
Run = Callable[..., Any]


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[serverprocesses.Server]:
    with serverprocesses.running(tmp_path / "server", "--interval", "1s") as running:
        yield running
        drained(running)
        serverprocesses.Client.close_all()


def drained(server: serverprocesses.Server) -> None:
    """Leave no process behind: it would outlive its server."""
    plane = pools.Pools(server.home).plane
    for details in plane.list(archived=True):
        plane.drain(details.pool.name)
        for member in plane.show(details.pool.name).members:
            plane.terminate(member.id)
    plane.context.database.close()


@pytest.fixture
def commands(
    server: serverprocesses.Server,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], Run]:
    """Return a function: how commands run with a role's token; '' is the database itself."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    for name in ("OVERNIGHT_SERVER", "OVERNIGHT_POOLS_DATABASE"):
        monkeypatch.delenv(name, raising=False)

    def choose(role: str) -> Run:
        token = server.create_token(role, f"the-{role}") if role else ""  # fmt: skip
        where = ["--server", server.url] if role else ["--home", str(server.home)]

        def run(*words: str, code: int = 0, text: bool = False) -> Any:
            monkeypatch.setenv("OVERNIGHT_TOKEN", token)
            capsys.readouterr()
            form = [] if text else ["-O", "json"]
            group = [] if words[0] == "cluster" else ["pool"]
            got = cli.main([*where, *group, *words, *form])
            out, err = capsys.readouterr()
            assert got == code, (words, got, out, err)
            return out + err if text else json.loads(out or err)

        return run

    return choose


def plain(value: Any, name: str = "") -> Any:
    """Return a document without ids, times and addresses."""
    if isinstance(value, dict):
        return {ID.sub(r"\1-…", key): plain(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item, name) for item in value]
    if name in RACING or (name == "id" and isinstance(value, int)):
        return None  # events are numbered
    if TIMED.search(name):
        return value is not None
    text = ID.sub(r"\1-…", value) if isinstance(value, str) else value
    return NUMBER.sub("#", text) if name in ("what", "why", "reason") else text


def until_ready(run: Run, pool: str, count: int) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline
        document: dict[str, Any] = run("show", pool, code=0)
        if document["pool"]["ready_count"] >= count:
            return document
        time.sleep(0.05)


def until_members(run: Run, pool: str, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(run("show", pool)["members"]) != count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def play(run: Run, name: str) -> list[Any]:
    """Run every command on a pool; return what they print, without ids and times."""
    printed: list[Any] = []

    def keep(*words: str, code: int = 0) -> Any:
        document = run(*words, code=code)
        printed.append((words[0], plain(document)))
        return document

    options = ("--label", "team=ml", "--set", "ready_ttl_seconds=600", "--max", "4")
    keep("create", name, "--template", "plain", "--target", "0", *options)
    keep("create", name, "--template", "plain", "--target", "2", code=3)
    keep("update", name, code=2)
    keep("update", name, "--set", "ready_ttl_seconds=700")
    run("update", name, "--target", "2")
    until_ready(run, name, 2)
    [claim] = keep("acquire", name, "--by", "job-17", "--for", "tests", "--lease", "1h")["claims"]
    repeated = keep("acquire", name, "--key", "once")["claims"]
    assert run("acquire", name, "--key", "once")["claims"] == repeated
    keep("renew", claim["claim_id"], "--lease", "2h")
    keep("renew", claim["claim_id"], "--lease", "900d", code=2)
    keep("renew", "c-000000000000", code=3)
    keep("drain", name, code=2)  # it has claims, and nobody can confirm
    keep("terminate", claim["member_id"], code=2)
    returned = keep("return", claim["claim_id"])["member"]["member_id"]
    keep("return", claim["claim_id"])  # again: nothing changes
    assert run("member", returned)["claims"][0]["acquired_by"] == "job-17"
    keep("return", name, repeated[0]["member_id"])
    # Both are replaced.
    until_ready(run, name, 2)
    run("update", name, "--pause")
    until_members(run, name, 2)
    keep("show", name, "--recent", "0")
    [first, second] = [m["member_id"] for m in run("show", name)["members"] if m["pool_state"] == "ready"]  # fmt: skip
    keep("acquire", name, "--wait", "1s", code=3)
    assert run("events", name, "--recent", "1")["events"][0]["pool"] == name
    keep("explain", first)
    keep("explain", "m-000000000000", code=3)
    keep("cancel", f"{first}:launch", code=3)
    keep("cordon", first)
    keep("uncordon", first)
    keep("replenish", name)
    keep("recycle", name)
    keep("autoscale", name)
    keep("autoscale", name, "--dry-run", code=3)
    keep(
        "autoscale",
        name,
        "--miss",
        "2%",
        "--at",
        "mon-fri 08:00-18:00 = 2",
        "--zero-after",
        "1h",
        "--warmup",
        "30s",
    )
    keep("autoscale", name, "--dry-run")
    keep("autoscale", name, "--zero-after", "none")
    keep("autoscale", name, "--off")
    keep("size", "--pool", name, code=3)
    keep("size", "--pool", name, "--claims-per-minute", "2", "--warmup", "30s")
    keep("terminate", second, "--yes")
    until_members(run, name, 1)
    keep("delete", name, code=3)
    keep("drain", name)
    keep("forget", "elsewhere", code=2)
    until_members(run, name, 0)
    shown = keep("show", name, "--recent", "0")
    assert shown["pool"]["status"] == "draining"
    keep("delete", name)
    keep("show", name, code=3)
    keep("list", "--all")
    return printed


def of_anywhere(text: str) -> list[str]:
    """Return the lines of an answer; the commands in it without their data home or server."""
    return re.sub(r"overnight (--(home|server) \S+ )+", "overnight ", text).splitlines()


def test_commands_print_the_same_from_a_server(commands: Callable[[str], Run]) -> None:
    local, remote = play(commands(""), "ci"), play(commands("admin"), "ci")
    for (words, here), (same, there) in zip(local, remote, strict=True):
        assert words == same
        assert of_anywhere(json.dumps(here, indent=1)) == of_anywhere(json.dumps(there, indent=1))


def test_a_cluster_of_a_server(
    server: serverprocesses.Server, commands: Callable[[str], Run]
) -> None:
    viewer, operator, admin = map(commands, ("viewer", "operator", "admin"))
    order = ("cluster", "create", "--count", "2", "--template", "plain", "--lease", "1h")
    assert "admin is required" in operator(*order, "--yes", code=3)["error"]["what"]
    assert operator(*order, "--dry-run")["host_hours"] == 3.0
    assert "host-hours" in admin(*order, code=2)["error"]["why"]
    held = admin(*order, "--yes", "--for", "run-9", "--why", "the nightly run")
    name = held["cluster"]["id"]
    assert (held["cluster"]["state"], held["cluster"]["claimed_count"]) == ("held", 2)
    assert viewer("cluster", "show", name)["cluster"] == held["cluster"]
    assert viewer("events", name, "--recent", "1")["events"][0]["kind"] == "cluster_held"
    assert "operator is required" in viewer("explain", name, code=3)["error"]["what"]
    for change in ("renew", "release"):
        viewer("cluster", change, name, code=3)
    renewed = operator("cluster", "renew", name, "--for", "2h", "--why", "one more epoch")
    assert [claim["renewals"] for claim in renewed["claims"]] == [1, 1]
    assert operator("cluster", "release", name)["cluster"]["reason"] == "released"
    deadline = time.monotonic() + 30
    while viewer("cluster", "list")["clusters"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    client = serverprocesses.Client(server.url, server.create_token("admin"))
    rows = [row for row in client.get("/api/v1/audit")["items"] if "cluster." in row["action"]]
    assert [(row["action"], row["target"], row["why"]) for row in rows] == [
        ("cluster.release", name, ""),
        ("cluster.renew", name, "one more epoch"),
        ("cluster.create", name, "the nightly run"),
    ]


def test_texts_are_the_same_from_a_server(commands: Callable[[str], Run]) -> None:
    local, remote = commands(""), commands("admin")
    remote("create", "ci", "--template", "plain", "--target", "0", "--max", "4")
    remote("update", "ci", "--pause")  # nothing changes between two commands
    remote("autoscale", "ci", "--max", "3")
    for words in (("list",), ("show", "ci"), ("autoscale", "ci")):
        here, there = local(*words, text=True), remote(*words, text=True)
        assert [line for line in of_anywhere(here) if "ago" not in line] == [
            line for line in of_anywhere(there) if "ago" not in line
        ]


def test_roles_and_the_audit_log(
    server: serverprocesses.Server, commands: Callable[[str], Run]
) -> None:
    viewer, operator, admin = map(commands, ("viewer", "operator", "admin"))
    for run in (viewer, operator):
        refused = run("create", "ci", "--template", "plain", "--target", "1", code=3)["error"]
        assert "admin is required" in refused["what"]
    admin("create", "ci", "--template", "plain", "--target", "1")
    until_ready(viewer, "ci", 1)
    assert "operator is required" in viewer("acquire", "ci", code=3)["error"]["what"]
    [claim] = operator("acquire", "ci", "--for", "nightly tests")["claims"]
    for words in (("drain", "ci", "--yes"), ("terminate", claim["member_id"], "--yes"), ("delete", "ci")):  # fmt: skip
        operator(*words, code=3)
    viewer("list")
    viewer("autoscale", "ci")
    viewer("member", claim["member_id"])
    operator("return", claim["claim_id"], "--why", "the tests are over")
    client = serverprocesses.Client(server.url, server.create_token("admin"))
    rows = [row for row in client.get("/api/v1/audit")["items"] if "pool." in row["action"]]
    shown = [(row["action"], row["target"], row["why"], row["who"].split()[0]) for row in rows]
    assert shown == [
        ("pool.give_back", claim["claim_id"], "the tests are over", "the-operator"),
        ("pool.acquire", f"ci {claim['claim_id']}", "nightly tests", "the-operator"),
        ("pool.create", "ci", "", "the-admin"),
    ]


def test_a_claim_waits_and_a_caller_who_left_gets_none(
    server: serverprocesses.Server, commands: Callable[[str], Run]
) -> None:
    admin = commands("admin")
    admin("create", "ci", "--template", "plain", "--target", "1", "--max", "1")
    until_ready(admin, "ci", 1)
    [claim] = admin("acquire", "ci")["claims"]
    token = server.create_token("operator")
    leaving = serverprocesses.Client(server.url, token)
    waiting = {"request": {"wait_seconds": 60, "acquired_by": "leaves"}}
    leaving.connection.request(
        "POST", "/api/v1/pools/ci/claims", json.dumps(waiting),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )  # fmt: skip
    queue_length(admin, 1)
    leaving.connection.close()
    queue_length(admin, 0)
    timer = threading.Timer(1, server.run, ("pool", "return", claim["claim_id"]))
    timer.start()
    [second] = admin("acquire", "ci", "--by", "stays", "--wait", "60s")["claims"]
    timer.join()
    assert second["acquired_by"] == "stays"
    assert second["waited_us"] > 0
    refused = admin("acquire", "ci", "--wait", "2h", code=2)["error"]
    assert "at most 1h" in refused["what"]


def queue_length(run: Run, length: int) -> None:
    deadline = time.monotonic() + 30
    while len(run("show", "ci")["waiters"]) != length:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_server_refuses_what_it_does_not_know(
    server: serverprocesses.Server, commands: Callable[[str], Run]
) -> None:
    client = serverprocesses.Client(server.url, server.create_token("admin"))
    status, problem = client.ask("GET", "/api/v1/pools/none")
    assert (status, problem["kind"]) == (404, "pool-not-found")
    change = {"template": "plain", "target_size": 1}
    asked = {"name": "ci", "provider": "process", "change": change}
    for wrong in ({"sizes": 3}, {"settings": {"name": "x"}}, {"target_size": 1 << 40}):
        status, problem = client.ask("POST", "/api/v1/pools", asked | {"change": change | wrong})
        assert status == 400, problem
        assert problem["todo"]
    assert client.ask("POST", "/api/v1/pools", asked)[0] == 200
    status, problem = client.ask("POST", "/api/v1/pools", asked)
    assert (status, problem["kind"]) == (409, "pool-exists")
    assert client.ask("POST", "/api/v1/pools/ci/drain", {})[0] == 400  # not confirmed
    with_both = commands("admin")("list", "--database", "sqlite:////tmp/none.db", code=2)
    assert "mutually exclusive" in with_both["error"]["what"]
    # Of one machine's administrator; not of a server.
    assert "does not take --server" in commands("admin")("serve", code=2)["error"]["what"]
