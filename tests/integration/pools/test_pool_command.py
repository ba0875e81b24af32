"""A pool of real processes from the command line: served, claimed, returned, drained, deleted."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import jsonschema
import pytest

from overnight.interfaces import cli

REPOSITORY = pathlib.Path(__file__).parents[3]


def until(true: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Pool:
    """Runs pool commands and returns their output."""

    def __init__(
        self, home: pathlib.Path, capsys: pytest.CaptureFixture[str], group: str = "pool"
    ) -> None:
        self.home, self._capsys, self._group = home, capsys, group

    def others(self, group: str) -> Pool:
        """Return the commands of another group, on the same data home."""
        return Pool(self.home, self._capsys, group)

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self._capsys.readouterr()
        assert cli.main(["--home", str(self.home), self._group, *arguments]) == code
        out, err = self._capsys.readouterr()
        return out if code in (0, 1) else err

    def json(self, schema: str, *arguments: str, code: int = 0) -> dict[str, object]:
        document = json.loads(self(*arguments, "-O", "json", code=code))
        rules = json.loads((REPOSITORY / f"docs/schemas/{schema}.json").read_text())
        jsonschema.validate(document, rules)
        return document

    def details(self) -> dict[str, object]:
        self._capsys.readouterr()
        cli.main(["--home", str(self.home), "pool", "show", "ci", "-O", "json"])
        return json.loads(self._capsys.readouterr().out)

    def ready(self) -> int:
        return self.details()["pool"]["ready_count"]


@contextlib.contextmanager
def served(home: pathlib.Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "overnight", "--home", str(home), "pool", "serve", *arguments]
    # On SIGABRT it prints the stack of every thread.
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    serving = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        yield serving
    except AssertionError:
        cli.main(["--home", str(home), "pool", "show", "ci", "--recent", "100"])
        serving.send_signal(signal.SIGABRT)
        sys.stdout.write(serving.stderr.read())
        raise
    finally:
        serving.terminate()
        serving.wait(20)
        serving.stderr.close()


def processes(home: pathlib.Path) -> list[int]:
    """Return the PIDs of running members, independent of the database."""
    pids = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"{home}/pools/machines" in stat.read_text():
                pids.append(int(stat.parent.name))
    return pids


@pytest.fixture
def pool(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Pool]:
    home = tmp_path / "home"
    yield Pool(home, capsys)
    for pid in processes(home):  # only where the test failed
        os.kill(pid, signal.SIGKILL)


def test_the_life_of_a_pool(pool: Pool) -> None:
    created = pool.json("pool-1", "create", "ci", "--template", "plain", "--target", "2")
    assert created["pool"]["status"] == "active"
    assert "no reaper is running for this pool" in pool("show", "ci", code=1)
    assert " pool serve" in pool("replenish", "ci", code=3)
    assert "--plain-http" in pool("serve", "--listen", "0.0.0.0:0", code=2)
    assert "target 2, ready 0, warming 0" in pool("acquire", "ci", code=3)
    with served(pool.home, "--interval", "1s") as serving:
        endpoint = re.search(r"http://\S+", serving.stderr.readline())[0]
        until(lambda: pool.ready() == 2)
        claimed = pool.json("pool-claims-1", "acquire", "ci", "--by", "job-1", "--lease", "1h")
        [claim] = claimed["claims"]
        assert claim["acquired_by"] == "job-1"
        # The claim woke the reaper: the replacement does not wait for a tick.
        until(lambda: pool.ready() == 2)
        assert len(processes(pool.home)) == 3
        pool.json("pool-claims-1", "renew", claim["claim_id"], "--lease", "2h")
        details = pool.json("pool-member-1", "member", claim["member_id"])
        assert [entry["claim_id"] for entry in details["claims"]] == [claim["claim_id"]]
        assert {event["member_id"] for event in details["events"]} == {claim["member_id"]}
        assert details["pool"] == "ci"
        cordoned = pool.json("pool-member-1", "cordon", claim["member_id"])
        assert cordoned["member"]["cordoned"]
        pool("uncordon", claim["member_id"])
        # Ended by this command, or by the reaper that it woke.
        assert re.search("is (gone|draining)", pool("return", claim["claim_id"]))
        until(lambda: len(processes(pool.home)) == 2)
        pool.json("pool-1", "update", "ci", "--target", "1", "--set", "ready_ttl_seconds=600")
        until(lambda: len(processes(pool.home)) == 1)
        updated = pool.json("pool-1", "update", "ci", "--label", "a=1", "--label", "b=2")
        assert updated["pool"]["labels"] == {"a": "1", "b": "2"}
        assert "no change given" in pool("update", "ci", code=2)
        assert "ready_ttl_seconds" in pool("update", "ci", "--set", "ready_ttl_seconds=abc", code=2)
        assert "mutually exclusive" in pool("update", "ci", "--pause", "--resume", code=2)
        output = pool("show", "ci")
        assert "member_ready" in output
        assert "ALERT" not in output
        pool.json("pools-1", "list")
        pool.json("pool-done-1", "recycle", "ci")
        assert "still has 1 member" in pool("delete", "ci", code=3)
        drained = pool.json("pool-done-1", "drain", "ci")
        assert (drained["drained"], drained["claimed_remaining"]) == (1, 0)
        # The reaper that `drain` woke may still be terminating the member.
        until(lambda: pool.details()["pool"]["draining_count"] == 0)
        pool.json("pool-done-1", "delete", "ci")
        assert processes(pool.home) == []
        assert endpoint.startswith("http://127.0.0.1:")
    assert "no pools; create one" in pool("list")


def test_members_survive_a_restart_of_the_reaper(pool: Pool) -> None:
    pool("create", "ci", "--template", "plain", "--target", "2")
    with served(pool.home, "--interval", "1s") as serving:
        first = serving.stderr.readline()
        until(lambda: pool.ready() == 2)
    before = sorted(processes(pool.home))
    assert len(before) == 2
    with served(pool.home, "--interval", "1s") as serving:
        assert serving.stderr.readline() == first  # the same address, where members find it again
        until(lambda: not pool.details()["troubles"])
        assert sorted(processes(pool.home)) == before
        os.kill(before[0], signal.SIGKILL)
        until(lambda: pool.ready() == 2 and before[0] not in processes(pool.home))
        until(lambda: any(e["reason"] == "machine_gone" for e in pool.details()["recent_events"]))
        pool("drain", "ci")
        until(lambda: pool.details()["pool"]["draining_count"] == 0)
    assert processes(pool.home) == []


def test_a_cold_claim_from_the_command_line(pool: Pool) -> None:
    pool("create", "ci", "--template", "plain", "--target", "0")
    assert " pool serve" in pool("acquire", "ci", "--cold", code=3)
    with served(pool.home, "--interval", "60s") as serving:
        serving.stderr.readline()
        [claim] = pool.json("pool-claims-1", "acquire", "ci", "--cold")["claims"]
        assert claim["cold"]
        pool("terminate", claim["member_id"], "--yes")
        pool("terminate", claim["member_id"], "--forget")
    assert processes(pool.home) == []


def test_a_served_pool_is_autoscaled(pool: Pool) -> None:
    pool("create", "ci", "--template", "plain", "--target", "0")
    pool("autoscale", "ci", "--min", "2", "--cooldown", "1s")
    with served(pool.home, "--interval", "60s") as serving:
        serving.stderr.readline()
        until(lambda: pool.ready() == 2)
        output = pool("show", "ci")
        assert re.search(r"decided .+ ago: (up to|stays at) 2: ", output)
        assert re.search(r"pool_scaled +min target_size: 0 -> 2; up to 2: min is 2", output)
        pool("autoscale", "ci", "--off")
        pool("update", "ci", "--target", "0")
        until(lambda: processes(pool.home) == [])


def test_a_cluster_from_the_command_line(pool: Pool) -> None:
    cluster = pool.others("cluster")
    order = ("create", "--count", "3", "--template", "plain", "--cost", "0.4", "--lease", "1h")
    plan = cluster.json("cluster-plan-1", *order, "--dry-run")
    assert (plan["host_hours"], plan["cost"]) == (4.5, pytest.approx(1.8))
    assert "no reaper has served" in cluster(*order, "--yes", code=3)
    assert "no clusters" in cluster("list")
    with served(pool.home, "--interval", "1s") as serving:
        until(lambda: pool.others("cluster")("list"))
        assert "4.5 host-hours, 1.80" in cluster(*order, code=2)  # nobody can confirm
        until(lambda: "serving" in serving.stderr.readline())
        held = cluster.json("cluster-1", *order, "--yes", "--by", "me", "--key", "k")
        assert held["cluster"]["state"] == "held"
        assert len(processes(pool.home)) == 3
        assert cluster.json("cluster-1", *order, "--yes", "--by", "me", "--key", "k", "--detach")["cluster"]["id"] == held["cluster"]["id"]  # fmt: skip
        name = held["cluster"]["id"]
        shown = cluster("show", name)
        assert shown.startswith(f"{name} held: 3 of 3 hosts, process plain, by me, held since ")
        assert "claims_remain" not in shown
        assert "3 of 3" in cluster("list")
        cluster.json("clusters-1", "list")
        explained = pool.json("pool-explanation-1", "explain", held["members"][0]["member_id"])
        assert explained["cause"] == "none"
        assert f"claim {held['claims'][0]['claim_id']}" in pool("explain", held["claims"][0]["claim_id"])  # fmt: skip
        kinds = [e["kind"] for e in pool.json("pool-events-1", "events", name)["events"]]
        assert kinds[0] == "cluster_created"
        assert "cluster_held" in pool("events", name)
        assert "is not pending" in pool("cancel", f"{held['members'][0]['member_id']}:launch", code=3)  # fmt: skip
        cluster("cancel", name, code=3)
        renewed = cluster.json("cluster-1", "renew", name, "--for", "2h")
        assert {claim["renewals"] for claim in renewed["claims"]} == {1}
        assert "lease ends in 2 h" in cluster("renew", name, "--for", "2h")
        assert "1.5s" in cluster("renew", name, "--for", "1.5s", code=2)
        assert "released" in cluster("release", name)
        until(lambda: "no clusters" in cluster("list"))
        assert "no hosts left" in cluster("list", "--all")
        assert processes(pool.home) == []


def test_events_are_followed_until_interrupted(pool: Pool) -> None:
    pool("create", "ci", "--template", "plain", "--target", "0")
    command = [sys.executable, "-m", "overnight", "--home", str(pool.home), "pool", "events", "--follow", "-O", "json"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        try:
            assert json.loads(following.stdout.readline())["kind"] == "pool_created"
            pool("update", "ci", "--pause")
            assert json.loads(following.stdout.readline())["kind"] == "pool_paused"
        finally:
            following.send_signal(signal.SIGINT)
        following.stdout.read()
    assert following.returncode == 0
