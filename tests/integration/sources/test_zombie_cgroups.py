"""Real zombies: created, counted, located, measured, and gone after a purge.

Other sessions on this machine create and remove cgroups too. The tests watch those changes, and a count
may differ by no more than their number.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

import jsonschema
import noise
import pytest
import zombies

from overnight.app import census
from overnight.sources import cgroupchurn
from overnight.sources.memorycgroups import counts, parents

REPOSITORY = pathlib.Path(__file__).parents[3]
SCHEMA = json.loads((REPOSITORY / "docs/schemas/census-1.json").read_text())
ROOT = pathlib.Path("/")
FREED = 4  # of hundreds that are created here

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif(not zombies.POSSIBLE, reason="the memory controller is not cgroup v1's"),
]


@pytest.fixture
def leak() -> Iterator[zombies.Zombies]:
    with zombies.zombies() as made_zombies:
        yield made_zombies


@pytest.fixture
def churn(leak: zombies.Zombies) -> Iterator[cgroupchurn.Churn]:
    with contextlib.closing(cgroupchurn.Churn((str(zombies.MEMORY),))) as churn:
        yield churn


def read_census() -> counts.Census:
    return counts.read_census(counts.read_layout(ROOT), ROOT)


def count_others(churn: cgroupchurn.Churn, leak: zombies.Zombies) -> int:
    """Return FREED (the last zombies of other tests) plus births and deaths elsewhere since the start."""
    return FREED + sum(row[0] + row[1] for key, row in churn.read().items() if not key.startswith(leak.key))  # fmt: skip


def wait_until_gone(level: int, slack: int) -> None:
    """Wait for the kernel, which frees them after a grace period."""
    deadline = time.monotonic() + noise.HANG_SECONDS
    while read_census().dying > level + slack:
        assert time.monotonic() < deadline, f"{read_census()} does not fall to {level}"
        time.sleep(0.05)


def test_zombies_are_counted_located_and_gone_after_a_purge(
    leak: zombies.Zombies, churn: cgroupchurn.Churn
) -> None:
    for name in "ab":
        (leak.parent / name).mkdir()
    churn.read()
    before = read_census()
    leak.make(100, "a")
    leak.make(300, "b")
    after = read_census()
    slack = count_others(churn, leak)
    assert after.tracked - before.tracked == pytest.approx(400, abs=slack)
    assert after.in_use - before.in_use == pytest.approx(0, abs=slack)
    assert after.dying - before.dying == pytest.approx(400, abs=slack)
    assert churn.read()[f"{leak.key}/b"][:3] == (300, 300, 300)

    rows = parents.read_parents(counts.read_layout(ROOT), after.dying, ROOT, budget_s=5)
    located = {row.path: row for row in rows}
    for name, number in (("a", 100), ("b", 300)):
        row = located[f"{leak.key}/{name}"]
        assert row.dying == pytest.approx(number, rel=0.05)
        assert row.at_least <= number <= row.at_most * 1.05

    leak.purge()
    wait_until_gone(before.dying, count_others(churn, leak))


def test_the_growth_is_that_of_the_created_zombies(leak: zombies.Zombies) -> None:
    points = [(time.monotonic(), 0, 0, 0)]

    def sleep(seconds: float) -> None:
        leak.make(600)  # many, so that zombies of other tests freed meanwhile do not matter
        time.sleep(seconds)
        points.append((time.monotonic(), 0, 0, leak.count))

    result = census.take(seconds=3, sleep=sleep)
    assert result.growth_per_hour == pytest.approx(census.growth_per_hour(points), rel=0.05)
    assert result.creators[0].cgroup == leak.key
    assert result.creators[0].explains == pytest.approx(1, abs=0.05)
    assert result.creators[0].short_lived == leak.count


def test_a_watched_cgroup_is_not_kept_by_its_watch(churn: cgroupchurn.Churn, leak: zombies.Zombies) -> None:  # fmt: skip
    """The kernel does not remove watches on its own: the recorder must not be the leak."""
    before = read_census()
    for i in range(50):
        (leak.parent / str(i)).mkdir()
    churn.read()
    watched = len(churn._by_watch)
    for i in range(50):
        (leak.parent / str(i)).rmdir()
    churn.read()
    assert watched - len(churn._by_watch) == 50
    info = pathlib.Path(f"/proc/self/fdinfo/{churn.fileno()}").read_text()
    assert info.count("inotify wd:") == len(churn._by_watch)
    wait_until_gone(before.dying, count_others(churn, leak))


def census_json(*arguments: str) -> tuple[int, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "overnight", "census", "-O", "json", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    return done.returncode, document


def test_the_census_command_on_this_host() -> None:
    code, document = census_json("--for", "1s")
    assert code == (document["severity"] != "ok")
    assert document["tracked"] == document["in_use"] + document["dying"]


@pytest.mark.long
def test_five_thousand_zombies(leak: zombies.Zombies) -> None:
    before = read_census()
    leak.make(5_000)
    code, document = census_json("--for", "2s")
    assert code == 1
    assert document["severity"] == "warning"
    assert document["dying"] - before.dying == pytest.approx(5_000, abs=20)
    found = {parent["path"]: parent for parent in document["parents"]}
    nest = found.pop(leak.key)
    assert nest["at_least"] <= 5_000 <= nest["at_most"] * 1.05
    # Memory that a cgroup of this session holds could be that of zombies: 7 MB, of 800, on one machine.
    elsewhere = sum(parent["at_most"] for parent in found.values())
    assert nest["dying"] == pytest.approx(5_000, abs=250 + elsewhere)
    leak.purge()
    wait_until_gone(before.dying, 20)
