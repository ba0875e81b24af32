"""From a whole night to its verdict: the right chain, no other, and no cause where there is none."""

from __future__ import annotations

import json
import pathlib

import blanked
import jsonschema
import pytest

import scenarios
from overnight.app import bundles, diagnose
from overnight.interfaces import cli
from overnight.queries import case

SCHEMA = pathlib.Path(__file__).parents[2] / "docs/schemas/diagnosis-1.json"
SHORT = {"minutes": 16.0, "cores": 8}  # what an hour of more cores shows, in a third of the time
CAUSES = [name for name in scenarios.NAMES if name not in ("quiet", "random", "fleet")]


def diagnosed(truth: scenarios.Truth) -> list[str]:
    said, _ = diagnose.diagnose_event(truth.home, truth.event)
    failed = [f"{a.detector} failed: {a.why}" for a in said.answers if a.status == "failed"]
    return truth.problems(said) + failed


@pytest.mark.parametrize("name", scenarios.NAMES)
def test_each_night_has_its_own_chain_and_no_other(tmp_path: pathlib.Path, name: str) -> None:
    truth = scenarios.build(name, tmp_path, seed=11, **({} if name == "fleet" else SHORT))
    for one in (truth, *truth.others):
        assert diagnosed(one) == []
        verdict, _ = diagnose.diagnose_event(one.home, one.event)
        with blanked.blanked():
            without_prose, _ = diagnose.diagnose_event(one.home, one.event)
        assert blanked.decisions(without_prose) == blanked.decisions(verdict)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CAUSES)
def test_names_cores_and_rates_do_not_matter(tmp_path: pathlib.Path, name: str) -> None:
    wrong = {}
    for seed in range(100, 108):
        truth = scenarios.build(name, tmp_path / str(seed), seed=seed, cores=(8, 16, 32)[seed % 3])
        for number, one in enumerate((truth, *truth.others)):
            if problems := diagnosed(one):
                wrong[seed, number] = problems
    assert wrong == {}


# What repeats soon has itself in the minutes before: neither the baseline nor the seconds that are told may
# be those of the event before it.
AGAIN = [("reference", 25.0), ("reclaim", 25.0), ("modern", 75.0)]
REPEATED = ("reference", "modern", "rt-hog", "softirq-storm", "reclaim", "lock-convoy")


@pytest.mark.parametrize(("name", "close"), AGAIN)
def test_the_same_again_within_a_minute_or_two(
    tmp_path: pathlib.Path, name: str, close: float
) -> None:
    seed = 1 if name == "reference" else 0
    truth = scenarios.build(name, tmp_path, seed=seed, close=close, recurrences=2, **SHORT)
    assert diagnosed(truth) == []


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", REPEATED)
def test_the_same_again_after_any_time(tmp_path: pathlib.Path, name: str) -> None:
    wrong = {}
    for seed in range(12):
        close = (15.0, 25.0, 40.0, 75.0, 120.0, 150.0)[seed % 6]
        truth = scenarios.build(
            name, tmp_path / str(seed), seed=seed, close=close, recurrences=2, **SHORT
        )
        if problems := diagnosed(truth):
            wrong[seed, close] = problems
    assert wrong == {}


@pytest.mark.parametrize(
    ("name", "status"),
    [("softirq-storm", "cause-found"), ("rt-hog", "cause-found"), ("reference", "inconclusive")],
)
def test_without_stacks_what_the_kernel_counts_itself_is_still_a_cause(
    tmp_path: pathlib.Path, name: str, status: str
) -> None:
    """Soft interrupts and real-time priority are in /proc; that somebody walks over cgroups is not."""
    truth = scenarios.build(name, tmp_path, seed=3, profiles=False, **SHORT)
    said, _ = diagnose.diagnose_event(truth.home, truth.event)
    assert said.status == status
    assert said.confidence < 0.55
    if status == "cause-found":
        assert truth.problems(said) == []


def test_the_device_s_own_fault_is_told_from_a_starved_queue(tmp_path: pathlib.Path) -> None:
    truth = scenarios.build("polled", tmp_path, seed=4, **SHORT)
    said, _ = diagnose.diagnose_event(truth.home, truth.event)
    assert said.status == "no-cause"
    assert "the event reports that nothing waited for the core" in said.summary


def test_no_cause_is_invented(tmp_path: pathlib.Path) -> None:
    assert _invented(tmp_path, range(4)) == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_cause_is_invented_in_two_hundred_nights(tmp_path: pathlib.Path) -> None:
    assert len(_invented(tmp_path, range(1000, 1200))) <= 1


def _invented(folder: pathlib.Path, seeds: range) -> list[int]:
    found = []
    for seed in seeds:
        truth = scenarios.build("random", folder / str(seed), seed=seed, minutes=14, cores=8)
        said, _ = diagnose.diagnose_event(truth.home, truth.event)
        if said.status == "cause-found":
            found.append(seed)
    return found


def test_a_bundle_gives_the_same_verdict_elsewhere(tmp_path: pathlib.Path) -> None:
    truth = scenarios.build("reference", tmp_path / "home", seed=5, **SHORT)
    assert truth.event is not None
    here, _ = diagnose.diagnose_event(truth.home, truth.event)
    file = tmp_path / "incident.overnight"
    bundles.create(truth.home, truth.event, file)
    with bundles.open_temporarily(file) as made:
        assert made.home is not None
        told = diagnose.choose_event(made.home, truth.event.id)
        there, _ = diagnose.diagnose_event(made.home, told)
    assert truth.problems(there) == []
    assert (there.status, there.summary) == (here.status, here.summary)
    assert there.chain is not None
    assert here.chain is not None
    assert [one.id for one in there.chain.steps] == [one.id for one in here.chain.steps]


def test_a_bundle_has_the_quiet_time_before_a_row_of_events(tmp_path: pathlib.Path) -> None:
    """Seven resets, two minutes apart: the last is compared with the time before the first."""
    truth = scenarios.build(
        "modern", tmp_path / "home", seed=2, minutes=22.0, cores=8, close=110.0, recurrences=6
    )
    assert truth.event is not None
    here = case.Case(truth.home, truth.event)
    assert here.baseline.begin_us < truth.event.time_us - round(bundles.BEFORE_S * 1e6)
    file = tmp_path / "incident.overnight"
    bundles.create(truth.home, truth.event, file)
    with bundles.open_temporarily(file) as made:
        assert made.home is not None
        there = case.Case(made.home, truth.event)
        assert there.baseline == here.baseline
        assert there.top(there.baseline) == here.top(here.baseline)
        said, _ = diagnose.diagnose_event(made.home, truth.event)
    assert truth.problems(said) == []


def test_the_command_in_every_form(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = scenarios.build("reference", tmp_path, seed=6, **SHORT)
    home = ["--home", str(tmp_path)]
    assert cli.main([*home, "diagnose", "-O", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    jsonschema.validate(said, json.loads(SCHEMA.read_text()))
    assert said["verdict"]["status"] == "cause-found"
    assert said["event"]["kind"] == "net.driver_reset"
    root = said["verdict"]["chain"][0]
    assert root["kind"] == truth.chain[0][0]
    assert cli.main([*home, "diagnose"]) == 0
    assert "Cause found: " in capsys.readouterr().out
    assert cli.main([*home, "diagnose", "-O", "md"]) == 0
    assert root["subject"]["unit"] in capsys.readouterr().out
    page = tmp_path / "report.html"
    assert cli.main([*home, "diagnose", "-O", "html", "-o", str(page)]) == 0
    assert "<svg" in page.read_text()


def test_a_night_without_events_says_so(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenarios.build("quiet", tmp_path, seed=1, **SHORT)
    assert cli.main(["--home", str(tmp_path), "diagnose"]) == 0
    assert "No cause found" in capsys.readouterr().out


def test_without_a_recording_it_says_what_to_do(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--home", str(tmp_path), "diagnose"]) == 3
    assert "overnight record" in capsys.readouterr().err
    assert cli.main(["--home", str(tmp_path), "diagnose", "--event", "x"]) == 3
