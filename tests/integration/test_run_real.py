"""`overnight run` on this machine: real tasks, killed and resumed, then ended by an event."""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from overnight.app import investigations, rehearsal_host
from overnight.investigations import plan_file
from overnight.model.investigation import Phase
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight.model.investigation import Investigation

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_perf, pytest.mark.timeout(300)]
RUN = """
import pathlib, sys
from overnight.interfaces import cli
from overnight.reservations.providers import local
local.SYSTEM = pathlib.Path(sys.argv[1])
sys.exit(cli.main(sys.argv[2:]))
"""
PLAN = """
name: short
arms:
  - kind: hot
    age: {dentries: 500}
load: {kind: cpu, duty: 20%}
record: {segment: 5s}
wait: {for: 4m, events: [test.incident], count: 1}
budget: {hours: 0.5}
"""


class Machine:
    """The machine of the test, with a mark, an undo journal and a data home of its own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.home, self.undo = folder, folder / "home", folder / "undo"
        self.mark = folder / "run/overnight"
        self.environment = {**os.environ, "OVERNIGHT_UNDO": str(self.undo)}
        self.investigations = investigations.Investigations(self.home)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", RUN, str(self.mark), "--home", str(self.home), *words]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ask(self, *words: str) -> dict[str, Any]:
        with self.begin(*words, "-O", "json") as process:
            out, err = process.communicate(timeout=200)
        assert process.returncode in (0, 1), err
        document: dict[str, Any] = json.loads(out)
        return document

    def find(self) -> Investigation | None:
        """Return the investigation; a command would take a second for each look."""
        return next(iter(self.investigations.list(ended=True)), None)

    def states(self) -> list[tuple[str, str]]:
        found = self.find()
        return [(t.kind, t.state) for arm in (found.arms if found else ()) for t in arm.tasks]

    def processes(self) -> list[str]:
        """Return the command lines that name the data home."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found += [words] if f"{self.home}/investigations" in words else []
        return found


def wait_for(what: Callable[[], object], seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.3)


@pytest.mark.together
def test_a_run_that_is_killed_goes_on_and_an_event_ends_it(tmp_path: pathlib.Path) -> None:
    machine = Machine(tmp_path)
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    with machine.begin("run", str(plan)) as first:
        wait_for(lambda: ("load", "running") in machine.states() or first.poll() is not None)
        first.kill()
        _, log = first.communicate()
        assert first.returncode == -9, log
    made = machine.find()
    assert made is not None
    assert made.phase is Phase.ARMS
    assert machine.processes()  # the tasks outlive their driver
    home = machine.home / "investigations" / made.id
    with machine.begin("run", "resume", made.id) as second:
        running = [
            ("record", "failed"),
            ("load", "failed"),
            ("record", "running"),
            ("load", "running"),
        ]
        wait_for(lambda: machine.states()[1:] == running or second.poll() is not None)
        wait_for(lambda: rings.Reader(home).hosts())
        time.sleep(6)  # long enough to count as observed
        added = [sys.executable, "-m", "overnight", "--home", str(home), "event", "add"]
        at = ["--kind", "test.incident", "--at", "now", "--text", "it happened"]
        subprocess.run([*added, *at], env=machine.environment, check=True, capture_output=True)
        _, log = second.communicate(timeout=200)
        assert second.returncode == 0, log
    ended = machine.ask("run", "status", made.id)
    assert (ended["phase"], ended["outcome"], ended["reason"]) == ("ended", "reproduced", "")
    [arm] = ended["arms"]
    [seen] = arm["occurrences"]
    assert (seen["kind"], pathlib.Path(seen["report"]).is_file()) == ("test.incident", True)
    assert seen["headline"]
    [dose] = arm["doses"].values()
    assert dose["cores"] == os.cpu_count()
    assert 0 < dose["load"] <= 1
    assert dose["uptime_s"] > 0
    assert [*arm["constancy"].values()] != []
    # Nothing is left: no process, no mark, no state of age.
    assert machine.processes() == []
    assert not (machine.mark / "reservation.json").exists()
    assert not [path for path in machine.undo.rglob("*") if path.is_file()]
    assert [json.loads(line)["arm"] for line in (home / "arms.jsonl").read_text().splitlines()] == [
        "hot", "hot", None,
    ]  # fmt: skip


@pytest.mark.long
@pytest.mark.needs_nspawn
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_a_night_in_miniature_is_right_also_if_it_is_killed(
    seed: int, tmp_path: pathlib.Path
) -> None:
    """Kill it in any phase, resume it, and see the cause found in the hot arm, and nothing left."""
    machine, plan = Machine(tmp_path), tmp_path / "plan.yaml"
    plan.write_text(plan_file.examples()["miniature-night"])
    before = rehearsal_host.take_inventory()
    with machine.begin("run", str(plan), "--yes") as first:
        time.sleep(random.Random(seed).uniform(8, 170))
        first.kill()
        first.communicate()
    made = machine.find()
    assert made is not None
    with machine.begin("run", "resume", made.id) as second:
        _, log = second.communicate(timeout=600)
    assert second.returncode == 0, log
    ended = machine.ask("run", "status", made.id)
    events = {arm["kind"]: len(arm["occurrences"]) for arm in ended["arms"]}
    # Six strikes, less those that the kill cut short.
    assert (ended["outcome"], events | {"hot": events["hot"] > 0}) == (
        "reproduced",
        {"cold": 0, "hot": True},
    ), log
    report = pathlib.Path(ended["report"]).with_suffix(".txt").read_text()
    # A recording that was killed in the hot arm may be too short to tell who creates the cgroups.
    causes = {"leaks memory cgroups": "mask-unit ", "dying memory cgroups accumulate": "purge"}
    [change] = [causes[cause] for cause in causes if cause in report.splitlines()[0]]
    assert "1 of 1 host given back" in report
    assert ended["experiment"]["change"].startswith(change)
    assert machine.processes() == []
    assert not [path for path in machine.undo.rglob("*") if path.is_file()]
    after = rehearsal_host.take_inventory()
    assert [name for name in after.cgroups - before.cgroups if "overnight" in name] == []
    assert (after.netns - before.netns, after.links - before.links) == (set(), set())
