"""The runbook's table with real processes and a real `overnight pool serve`: symptom, tools of assistants, fix.

The command `overnight pool explain` must agree with the tool `attribute_failure`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import assistants
import pytest
from realmachines import SERVE, until

from overnight.app import pools
from overnight.interfaces import cli
from overnight.model.pool import Request
from overnight.pools import demand, pool_errors, problems

# A file system without room for a file, seen by the reaper alone: its mounts end with it.
NO_ROOM = 'mount -t tmpfs -o nr_inodes=1 none "$0" && exec "$@"'
AWAY = "http://127.0.0.1:9"  # nothing listens there
SECOND_US = 1_000_000
INTERVAL, INTERVAL_US = "200ms", 200_000


class Site:
    """The pools of a data home, the processes that serve it, and the tools that ask about it."""

    def __init__(self, home: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self._capsys = home, capsys
        self.where = pools.Pools(home)
        self.tools = assistants.LocalTools(home)

    @contextlib.contextmanager
    def served(self, *options: str, prefix: tuple[str, ...] = ()) -> Iterator[None]:
        command = [*prefix, *SERVE, str(self.home), "pool", "serve", "--interval", INTERVAL]
        before = self.where.plane.reaper_us
        with subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL) as serving:
            try:
                until(lambda: self.where.plane.reaper_us != before)
                yield
            finally:
                serving.kill()

    def pool(self, target: int, most: int | None = None, **settings: int) -> None:
        change = pools.PoolChange(
            template="plain", target_size=target, max_size=most, settings=settings
        )
        self.where.create("ci", "process", change)

    def show(self) -> Any:
        return self.tools.call_tool("system_get_instance_pool", id="ci")

    def count(self, *states: str) -> list[int]:
        shown = self.show()["instance_pool"]
        return [shown[f"{state}_count"] for state in states]

    def problems(self) -> set[str]:
        return {problem["name"] for problem in self.show()["problems"]}

    def wait_until_ready(self, count: int) -> None:
        until(lambda: self.count("ready") == [count])

    def happened(self, kind: str, **scope: str) -> list[str]:
        """Return the reasons of the recent events of a kind, the newest first."""
        asked = {"pool_id": "ci", **scope, "limit": 100}
        events = self.tools.call_tool("recent_events", **asked)["events"]
        return [event["reason"] for event in events if event["kind"] == kind]

    def explain(self, name: str = "ci") -> Any:
        return self.tools.call_tool("attribute_failure", id=name)

    def wait_for(self, cause: str, name: str = "ci") -> str:
        """Wait until that is the cause, for the command too; return the next command."""
        deadline = time.monotonic() + 15
        while (explained := self.explain(name))["cause"] != cause:
            assert time.monotonic() < deadline, explained
            time.sleep(0.02)
        self._capsys.readouterr()
        cli.main(["--home", str(self.home), "pool", "explain", name, "-O", "json"])
        assert json.loads(self._capsys.readouterr().out)["cause"] == cause
        return str(explained["todo"])

    def members(self) -> list[str]:
        return [member["instance_id"] for member in self.show()["members"]]

    def acquire(self, **request: Any) -> Any:
        [grant] = self.where.acquire("ci", Request(**request))
        return grant


@pytest.fixture
def site(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    site = Site(tmp_path / "home", capsys)
    yield site
    control = site.where.plane.context
    provider = control.provider("process")
    for machine in provider.inventory(control.owner, 10):
        provider.terminate(machine.id, 10)
    assert provider.inventory(control.owner, 10) == []
    control.database.close()
    site.tools.close()


def test_a_larger_target_changes_nothing_without_a_reaper(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pool(1)
    with site.served():
        site.wait_until_ready(1)
    site.where.update("ci", pools.PoolChange(target_size=3))
    assert site.explain()["cause"] == "none"  # it may be between two ticks
    monkeypatch.setattr(problems, "REAPER_LATE_US", SECOND_US)
    assert "overnight pool serve" in site.wait_for("reaper_not_running")
    assert site.problems() == {"reaper_not_running"}
    assert site.show()["instance_pool"]["deficit"] == 2
    assert site.happened("member_warming") == ["replenish"]
    with site.served():
        site.wait_until_ready(3)
        site.wait_for("none")
    assert site.happened("member_warming") == ["replenish"] * 3


def test_members_that_do_not_reach_the_endpoint_stay_warming(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pool(2, bootstrap_token_seconds=1)
    with site.served("--endpoint", AWAY):
        until(lambda: len(list((site.home / "pools/machines").glob("*/process"))) == 2)
        missed = site.tools.call_tool("system_acquire_pooled_instance", "NoReadyMembersError", pool_id="ci")  # fmt: skip
        assert missed["what"].endswith("ready 0, warming 2")
        assert site.count("ready", "warming") == [0, 2]
        assert site.happened("claim_refused") == ["still_warming"]
        site.wait_for("still_warming", missed["todo"].split()[-1].strip("`"))
        assert "--target" in site.wait_for("still_warming")
        first, second = site.members()
        assert "its agent has not enrolled" in site.explain(first)["summary"]
        until(lambda: "Connection refused" in str(site.explain(first)["console"]))
        site.wait_for("token_expired", first)
        monkeypatch.setattr(problems, "SLOW_WARMING_US", SECOND_US)
        assert "overnight pool terminate m-" in site.wait_for("bootstrap_failed")
        assert "slow_warming" in site.problems()
        assert site.happened("member_enrolled") == []
    with site.served("--listen", "127.0.0.1:0"):
        for member in (first, second):
            site.where.terminate(member, confirmed=True)
        site.wait_until_ready(2)
        assert not {first, second} & set(site.members())
        assert site.explain(first)["cause"] == "ended_as_intended"
        assert site.happened("member_draining", instance_id=first) == ["terminated"]


@pytest.mark.needs_root
def test_no_member_is_launched_where_there_is_no_room(site: Site) -> None:
    site.pool(2, breaker_failures=2, launch_backoff_seconds=0, terminate_backoff_seconds=1)
    machines = site.home / "pools/machines"
    machines.mkdir(parents=True, mode=0o700)
    with site.served(prefix=("unshare", "--mount", "sh", "-c", NO_ROOM, str(machines))):
        until(lambda: "breaker_open" in site.problems())
        assert "--close-breaker" in site.wait_for("quota_exhausted")
        [row, *_] = [e for e in site.explain()["evidence"] if e["what"] == "member_errored"]
        assert (row["source"], row["reason"]) == ("provider", "provider_quota_exceeded")
        assert "No space left on device" in row["said"]["host_text"]
        assert set(site.happened("member_errored")) == {"provider_quota_exceeded"}
        assert site.count("ready", "warming") == [0, 0]
    with site.served():
        changed = site.tools.call_tool("system_update_instance_pool", id="ci", close_breaker=True)
        assert changed["instance_pool"]["target_size"] == 2
        site.wait_until_ready(2)
        site.wait_for("none")
        assert site.problems() == set()


def test_a_pool_is_stuck_draining_by_a_claim_and_then_by_its_machine(site: Site) -> None:
    site.pool(1, provider_timeout_seconds=1)
    with site.served():
        site.wait_until_ready(1)
        grant = site.acquire(acquired_by="job-1")
        site.where.drain("ci", confirmed=True)
        assert "overnight pool return CLAIM" in site.wait_for("claims_running")
        assert site.explain(grant.claim.id)["cause"] == "none"
        [held] = site.show()["claims"]
        assert (held["claim_id"], held["acquired_by"]) == (grant.claim.id, {"host_text": "job-1"})
        with pytest.raises(pool_errors.PoolHasMembersError):
            site.where.delete("ci")
        # What terminates the machine does not come to an end: its folder is locked.
        folder = os.open(site.home / "pools/machines" / grant.member.id, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            site.where.give_back(grant.claim.id)
            member = grant.member.id
            assert f"overnight pool terminate {member}" in site.wait_for("teardown_stalled")
            assert f"{member}:terminate" in site.wait_for("teardown_stalled", member)
            assert site.happened("terminate_failed", instance_id=member)[0] == "provider_timeout"
            [left] = site.show()["members"]
            assert left["task_id"] == f"{member}:terminate"
        finally:
            os.close(folder)
        site.where.terminate(grant.member.id, confirmed=True)
        until(lambda: not site.members())
        site.where.delete("ci")
    assert list((site.home / "pools/machines").iterdir()) == []


def test_claims_are_faster_than_members_or_the_pool_is_at_its_maximum(site: Site) -> None:
    site.pool(1, most=20)
    with site.served():
        site.wait_until_ready(1)
        missed = 0
        while missed < 3:
            try:
                site.acquire(acquired_by="burst")
            except pool_errors.NoReadyMembersError:
                missed += 1
        assert "--target" in site.wait_for("claims_too_fast")
        assert "too_small" in site.problems()
        assert site.happened("claim_missed")[0] == "no_ready_members"
        site.wait_until_ready(1)
        site.where.update("ci", pools.PoolChange(max_size=len(site.members())))
        last = site.acquire()
        assert "--max" in site.wait_for("at_maximum")
        assert "none_ready" in site.problems()
        until(lambda: "at_maximum" in site.happened("launch_skipped"))
        with pytest.raises(pool_errors.NoReadyMembersError) as waited:
            site.acquire(wait_seconds=0.5)
        site.wait_for("at_maximum", waited.value.todo.split()[-1].strip("`"))
        site.where.give_back(last.claim.id)
        site.wait_until_ready(1)


@pytest.mark.long
def test_bursts_empty_a_pool_that_is_too_tight(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bursts are distinguished from chance after 20 refills, each a warm-up and a tick: 20 minutes with the default tick.

    The reaper of this test ticks every 200 ms, so that 20 refills take seconds.
    """
    monkeypatch.setattr(demand, "TICK_US", INTERVAL_US)
    site.pool(2, most=100)
    with site.served():
        deadline = time.monotonic() + 120
        while "claims_oscillate" not in site.problems():
            assert time.monotonic() < deadline
            site.wait_until_ready(2)
            for number in range(8):
                with contextlib.suppress(pool_errors.NoReadyMembersError):
                    site.acquire(acquired_by=f"job-{number}", lease_seconds=1)
            time.sleep(1)
        explained = site.explain()
        # On a busy machine a slow launch or teardown may explain more.
        assert "size_too_tight" in (explained["cause"], *explained["others"]), explained
        [found] = [p for p in site.show()["problems"] if p["name"] == "claims_oscillate"]
        assert re.search(r"overnight pool update ci --target \d+ --max \d+", found["todo"])
        assert set(site.happened("claim_missed")) == {"no_ready_members"}


def test_a_claim_ends_with_its_lease_or_its_machine(site: Site) -> None:
    site.pool(2)
    with site.served():
        site.wait_until_ready(2)
        lost, expired = site.acquire(lease_seconds=3600), site.acquire(lease_seconds=1)
        # The machine of a claim counts as lost when its agent has been silent for this long, too.
        change = pools.PoolChange(target_size=0, settings={"heartbeat_stale_after_seconds": 1})
        site.where.update("ci", change)
        os.kill(int(lost.member.address.partition("#")[2]), signal.SIGKILL)
        site.wait_for("lease_expired", expired.claim.id)
        site.wait_for("machine_lost", lost.claim.id)
        assert site.explain(lost.member.id)["cause"] == "machine_lost"
        assert set(site.happened("claim_ended")) == {"lease_expired", "machine_gone"}
        until(lambda: not site.members())
