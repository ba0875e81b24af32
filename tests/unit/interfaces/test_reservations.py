"""`overnight reserve`, `release`, `reservations` and `janitor`, on a played platform."""

from __future__ import annotations

import configparser
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import reservedhosts

from overnight.app import reservations as use_cases
from overnight.app import snapshot, units
from overnight.interfaces import cli
from overnight.model import times
from overnight.model.reservation import Lease, Workload
from overnight.model.snapshot import Snapshot
from overnight.reservations import decisions
from overnight.reservations.providers import local

if TYPE_CHECKING:
    from collections.abc import Callable

    from reservedhosts import Platform

    Run = Callable[..., tuple[int, str]]
    Parsed = Callable[[str, str], tuple[int, Any]]

SCHEMAS = pathlib.Path(__file__).parents[3] / "docs/schemas"
S = 1_000_000


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> reservedhosts.Platform:
    played = reservedhosts.Platform(times.now_us, "a", "b", "c")
    monkeypatch.setattr(use_cases, "open_providers", lambda *_, **__: {"played": played})
    return played


@pytest.fixture
def run(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.setenv("OVERNIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OVERNIGHT_POOLS_DATABASE", raising=False)

    def call(words: str, *more: str) -> tuple[int, str]:
        code = cli.main([*words.split(), *more])
        out, err = capsys.readouterr()
        return code, out + (err if code not in (0, 1) else "")

    return call


@pytest.fixture
def parsed(run: Run) -> Parsed:
    """Return a function that runs a command with -O json and checks the document."""

    def call(words: str, schema: str) -> tuple[int, Any]:
        code, out = run(f"{words} -O json")
        document = json.loads(out)
        jsonschema.validate(document, json.loads((SCHEMAS / f"{schema}-1.json").read_text()))
        return code, document

    return call


def test_a_reservation_from_plan_to_release(platform: Platform, run: Run, parsed: Parsed) -> None:
    platform.hosts["a"].unhealthy = "NotReady"
    code, out = run("reserve --provider played --count 2 --dry-run")
    assert code == 0
    assert "left out: a: unhealthy: NotReady" in out
    assert "would reserve 2 hosts; nothing was changed" in out
    assert platform.marked == []
    code, plan = parsed("reserve --provider played --count 2 --dry-run", "reservation-plan")
    assert [each["host"]["name"] for each in plan["hosts"]] == ["b", "c"]

    code, made = parsed("reserve --provider played --count 2 --for 2h", "reservation")
    assert code == 1  # no agent reports from these hosts
    assert made["state"] == "active"
    assert platform.marked == ["b", "c"]
    assert [event["kind"] for event in made["events"]][:1] == ["created"]

    code, listed = parsed("reservations list", "reservations")
    assert [each["id"] for each in listed["reservations"]] == [made["id"]]
    code, out = run(f"reservations show {made['id']}")
    assert code == 1
    assert "do: start one: `overnight agent` on the host, or `overnight reserve --agent`" in out
    assert f"release {made['id']}" in out
    code, longer = parsed(f"reservations extend {made['id']} --for 5h", "reservation")
    assert longer["until_us"] > made["until_us"]
    code, _ = parsed(f"reservations check {made['id']}", "reservation")
    assert code == 1

    code, gone = parsed(f"release {made['id']}", "reservations")
    assert (code, gone["reservations"][0]["state"]) == (0, "released")
    assert platform.marked == []
    assert run("reservations list") == (0, "no reservations\n")
    assert made["id"] in run("reservations list --all")[1]


def test_what_cannot_be_reserved_exits_with_3(platform: Platform, run: Run) -> None:
    code, out = run("reserve --provider played --count 9 --dry-run")
    assert code == 3
    assert "only 3 of 9 hosts can be reserved" in out
    code, out = run("reserve --provider played --host nowhere")
    assert code == 3
    assert "nowhere: no such host" in out
    code, out = run("reserve --provider other")
    assert code == 2
    assert "no provider 'other'" in out
    code, out = run("reserve --provider played --label gold")
    assert code == 2
    assert "invalid --label 'gold'" in out


def test_evictions_need_a_confirmation(platform: Platform, run: Run) -> None:
    for host in platform.hosts.values():
        host.workloads.append(Workload("web-1", "pod"))
    code, out = run("reserve --provider played --evict --dry-run")
    assert "pod web-1 is evicted" in out
    code, out = run("reserve --provider played --evict")
    assert code == 2
    assert "evicts pod web-1 from a" in out
    assert "--yes" in out
    assert platform.marked == []
    assert run("reserve --provider played --evict --yes")[0] == 1
    assert platform.marked == ["a"]


def test_a_host_that_is_not_like_production_needs_a_confirmation(
    platform: Platform, run: Run, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.hosts["b"].facts["kernel"] = "6.8"
    code, out = run("reserve --provider played --host b --reference a")
    assert code == 2
    assert "b: kernel is 6.8, a has 6.1" in out
    code, out = run("reserve --provider played --host b --reference x")
    assert code == 3
    assert "no reference host 'x'" in out

    def take(version: str) -> Snapshot:
        return Snapshot({"host": "prod-1"}, {"packages": {"bash": {"version": version}}, "sysctl": {"x": version}}, ())  # fmt: skip

    file = tmp_path / "prod.json"
    snapshot.save(take("5.2"), file)
    code, out = run("reserve --provider played --dry-run --reference", str(file))
    assert code == 0
    assert "warning: its packages are not compared" in out
    monkeypatch.setattr(snapshot, "take", lambda: take("5.1"))
    monkeypatch.setattr(use_cases, "open_providers", lambda *_, **__: {"local": platform})
    code, out = run("reserve --dry-run --reference", str(file))
    assert "differs: packages bash version is 5.1, prod-1 has 5.2" in out
    assert "sysctl" not in out


def test_all_reservations_and_marks_are_released_after_a_question(
    platform: Platform, run: Run, parsed: Parsed
) -> None:
    run("reserve --provider played --owner ops")
    lease = Lease("r-0123456789ab", "team-b", times.now_us() + 9**9 * S, times.now_us() + 9**9 * S)  # fmt: skip
    platform.hosts["c"].claim, platform.hosts["c"].mark = lease, lease.text()
    code, out = run("release --all")
    assert code == 2
    assert "(ops)" in out
    code, gone = parsed("release --all --yes", "reservations")
    assert code == 0
    assert platform.marked == ["c"]
    code, out = run("release --all-marks --provider played")
    assert code == 2
    assert "c (team-b)" in out
    code, gone = parsed("release --all-marks --provider played --yes", "reservations")
    assert [mark["released"] for mark in gone["marks"]] == [True]
    assert platform.marked == []
    assert run("release")[0] == 2
    assert run("release --all r-0123456789ab")[0] == 2
    assert run("release r-0123456789ab")[0] == 3


def test_a_platform_that_is_away_keeps_the_reservation_releasing(
    platform: Platform, run: Run
) -> None:
    run("reserve --provider played")
    [made] = use_cases.Reservations(home()).list()
    platform.go_away()
    code, out = run(f"release {made.id}")
    assert code == 3
    assert "a is still marked: no answer: timed out" in out
    assert run("janitor --provider played")[0] == 3
    platform.error = None
    assert run(f"release {made.id}")[0] == 0
    assert platform.marked == []


def home() -> pathlib.Path:
    return pathlib.Path(os.environ["OVERNIGHT_HOME"])


def test_the_janitor_needs_no_database(platform: Platform, run: Run, parsed: Parsed) -> None:
    ended = times.now_us() - (decisions.GRACE_SECONDS + 60) * S
    lease = Lease("r-0123456789ab", "ops", ended, ended)
    platform.hosts["c"].claim, platform.hosts["c"].mark = lease, lease.text()
    code, dry = parsed("janitor --provider played --dry-run", "janitor")
    assert (code, dry["marks"][0]["released"]) == (0, False)
    code, out = run("janitor --provider played")
    assert code == 0
    assert "c  r-0123456789ab  released: expired 3 min ago" in out
    assert platform.marked == []
    assert not home().exists()
    assert run("janitor --provider played") == (0, "no marks\n")


def test_the_janitor_prints_its_unit_and_timer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "FOLDERS", ())
    unit = configparser.RawConfigParser(strict=False)
    unit.read_string(run("janitor --provider kubernetes --where prod --print-unit")[1])
    assert unit["Service"]["Type"] == "oneshot"
    assert unit["Service"]["ExecStart"].endswith("janitor --provider kubernetes --where prod")
    timer = configparser.RawConfigParser()
    timer.read_string(run("janitor --print-timer")[1])
    assert timer["Install"]["WantedBy"] == "timers.target"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_accepts_the_unit_and_the_timer(tmp_path: pathlib.Path) -> None:
    service, timer = (tmp_path / f"overnight-janitor.{kind}" for kind in ("service", "timer"))
    service.write_text(units.render("janitor", ["--provider", "local"], python=sys.executable))
    timer.write_text(units.read_timer("janitor"))
    verified = subprocess.run(
        ["systemd-analyze", "verify", service, timer], capture_output=True, text=True, check=True
    )
    assert verified.stderr == ""


def test_this_machine_is_reserved_and_released(
    run: Run, parsed: Parsed, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SYSTEM", tmp_path / "system")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setattr(local, "SAMPLE_SECONDS", 0.1)
    _, made = parsed("reserve --for 10m --purpose night-4", "reservation")
    [mark] = tmp_path.glob("*/**/reservation.json")
    written = Lease.parse(mark.read_text())
    assert written is not None
    assert (written.id, written.purpose, written.until_us) == (made["id"], "night-4", made["until_us"])  # fmt: skip
    code, out = run("reserve --for 10m")
    assert code == 3
    assert "reserved by" in out
    assert "left: reserved until" in run("janitor")[1]
    code, _ = run(f"release {made['id']}")
    assert code == 0
    assert not mark.exists()
