"""Diagnose whole scenarios: the true chain, no other chain, and no invented cause."""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING

import blanked
import jsonschema
import pytest

import scenarios
from overnight.app import bundles, diagnose
from overnight.interfaces import cli
from overnight.model.instrument import Reading, ReadingKind
from overnight.model.suspect import SuspectName
from overnight.queries import case
from overnight.store import readings

if TYPE_CHECKING:
    from overnight.model.verdict import Verdict

SCHEMA = pathlib.Path(__file__).parents[2] / "docs/schemas/diagnosis-1.json"
SHORT = {"minutes": 16.0, "cores": 8}  # the same as an hour with more cores, in a third of the time
# Suspects that change with the cause; every other is cleared.
CHANGED = {
    "modern": {SuspectName.MEMORY},
    "reclaim": {SuspectName.MEMORY},
    "rt-hog": {SuspectName.AFFINITY},
    "decoy": {SuspectName.AFFINITY},
}
CAUSES = [name for name in scenarios.NAMES if name not in ("quiet", "random", "fleet")]


def problems_of(truth: scenarios.Truth, verdict: Verdict | None = None) -> list[str]:
    if verdict is None:
        verdict, _ = diagnose.diagnose_event(truth.home, truth.event)
    failed = [f"{a.detector} failed: {a.why}" for a in verdict.answers if a.status == "failed"]
    return truth.problems(verdict) + failed


@pytest.mark.parametrize("name", scenarios.NAMES)
def test_each_scenario_has_its_true_chain_and_no_other(tmp_path: pathlib.Path, name: str) -> None:
    truth = scenarios.build(name, tmp_path, seed=11, **({} if name == "fleet" else SHORT))
    for incident in (truth, *truth.others):
        verdict, _ = diagnose.diagnose_event(incident.home, incident.event)
        assert problems_of(incident, verdict) == []
        outcomes = {suspect.name: suspect.outcome for suspect in verdict.suspects}
        if incident.event is not None:
            expected = "not-checked" if name == "fleet" else "cleared"
            changed = dict.fromkeys(CHANGED.get(name, ()), "not-cleared")
            assert outcomes == {**dict.fromkeys(SuspectName, expected), **changed}
        listed = [gap for gap in verdict.gaps if f"{gap.factor:.2f}" == "1.00"]
        assert (listed, bool(verdict.gaps)) == ([], name in ("half-missing", "fleet"))
        with blanked.blanked():
            without_prose, _ = diagnose.diagnose_event(incident.home, incident.event)
        assert blanked.decisions(without_prose) == blanked.decisions(verdict)


def test_readings_of_instruments_are_evidence_of_the_steps_that_they_concern(
    tmp_path: pathlib.Path,
) -> None:
    truth = scenarios.build("reference", tmp_path, seed=11, **SHORT)
    assert truth.event is not None
    before, _ = diagnose.diagnose_event(truth.home, truth.event)
    at, core = truth.event.time_us, truth.event.core
    writer = readings.ReadingWriter(truth.home, truth.event.host, "x", "", at - 900_000_000)
    for second in range(-800, 5):
        wait = 900_000.0 if second > -20 else 200.0
        values = {"count": 9.0, "p99_us": wait, "max_us": wait}
        created = {"memory": 1.0, "count": 8.0}
        writer.add(
            [
                Reading(at + second * 1_000_000, ReadingKind.RUN_QUEUE, core, values=values),
                Reading(at + second * 1_000_000, ReadingKind.CGROUP_CREATED, -1, 7, "ember", "", created),
            ]
        )  # fmt: skip
    writer.close()
    verdict, _ = diagnose.diagnose_event(truth.home, truth.event)
    assert problems_of(truth, verdict) == []
    assert verdict.confidence == before.confidence
    assert verdict.chain
    texts = {
        step.kind: [fact.text for fact in step.evidence if fact.source == "instruments"]
        for step in verdict.chain.steps
    }
    (waits,) = texts["cpu.core_saturated"]
    assert f"waited up to 900 ms for core {core}" in waits
    (creator,) = texts["memory.zombie_cgroups"]
    assert creator.startswith("ember created")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CAUSES)
def test_names_cores_and_rates_do_not_matter(tmp_path: pathlib.Path, name: str) -> None:
    wrong = {}
    for seed in range(100, 108):
        truth = scenarios.build(name, tmp_path / str(seed), seed=seed, cores=(8, 16, 32)[seed % 3])
        for number, incident in enumerate((truth, *truth.others)):
            if problems := problems_of(incident):
                wrong[seed, number] = problems
    assert wrong == {}


# An event that recurs soon has its predecessor in the minutes before: neither the baseline nor the incident
# window may include the earlier event.
RECURRING = [("reference", 25.0), ("reclaim", 25.0), ("modern", 75.0)]
REPEATED = ("reference", "modern", "rt-hog", "softirq-storm", "reclaim", "lock-convoy")


@pytest.mark.parametrize(("name", "close"), RECURRING)
def test_an_event_that_recurs_within_two_minutes_has_its_true_chain(
    tmp_path: pathlib.Path, name: str, close: float
) -> None:
    seed = 1 if name == "reference" else 0
    truth = scenarios.build(name, tmp_path, seed=seed, close=close, recurrences=2, **SHORT)
    assert problems_of(truth) == []


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", REPEATED)
def test_an_event_that_recurs_after_any_time_has_its_true_chain(
    tmp_path: pathlib.Path, name: str
) -> None:
    wrong = {}
    for seed in range(12):
        close = (15.0, 25.0, 40.0, 75.0, 120.0, 150.0)[seed % 6]
        truth = scenarios.build(
            name, tmp_path / str(seed), seed=seed, close=close, recurrences=2, **SHORT
        )
        if problems := problems_of(truth):
            wrong[seed, close] = problems
    assert wrong == {}


@pytest.mark.parametrize(
    ("name", "root"),
    [("softirq-storm", "net.softirq_storm"), ("rt-hog", "cpu.rt_hog"), ("reference", None)],
)
def test_without_stacks_kernel_counters_still_show_a_cause(
    tmp_path: pathlib.Path, name: str, root: str | None
) -> None:
    """Soft interrupts and real-time priority are in /proc; a walk over cgroups is not."""
    truth = scenarios.build(name, tmp_path, seed=3, profiles=False, **SHORT)
    verdict, _ = diagnose.diagnose_event(truth.home, truth.event)
    assert verdict.score < (0.55 if root else 0.35)
    if root:
        assert verdict.blamed is not None
        assert (verdict.blamed.root.kind, verdict.score > 0.35) == (root, True)


def test_a_device_fault_is_distinguished_from_a_starved_queue(tmp_path: pathlib.Path) -> None:
    truth = scenarios.build("polled", tmp_path, seed=4, **SHORT)
    verdict, _ = diagnose.diagnose_event(truth.home, truth.event)
    assert verdict.status == "no-cause"
    assert "the event reports that nothing waited for the core" in verdict.summary


def test_no_cause_is_invented(tmp_path: pathlib.Path) -> None:
    assert _invented(tmp_path, range(4)) == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_cause_is_invented_in_two_hundred_scenarios(tmp_path: pathlib.Path) -> None:
    assert len(_invented(tmp_path, range(1000, 1200))) <= 1


def _invented(folder: pathlib.Path, seeds: range) -> list[int]:
    wrong_seeds = []
    for seed in seeds:
        truth = scenarios.build("random", folder / str(seed), seed=seed, minutes=14, cores=8)
        verdict, _ = diagnose.diagnose_event(truth.home, truth.event)
        if verdict.status == "cause-found":
            wrong_seeds.append(seed)
    return wrong_seeds


def test_a_bundle_gives_the_same_verdict_elsewhere(tmp_path: pathlib.Path) -> None:
    truth = scenarios.build("reference", tmp_path / "home", seed=5, **SHORT)
    assert truth.event is not None
    original, _ = diagnose.diagnose_event(truth.home, truth.event)
    file = tmp_path / "incident.overnight"
    bundles.create(truth.home, truth.event, file)
    with bundles.open_temporarily(file) as opened:
        assert opened.home is not None
        event = diagnose.choose_event(opened.home, truth.event.id)
        verdict, _ = diagnose.diagnose_event(opened.home, event)
    assert truth.problems(verdict) == []
    assert (verdict.status, verdict.summary) == (original.status, original.summary)
    assert verdict.chain is not None
    assert original.chain is not None
    assert [step.id for step in verdict.chain.steps] == [step.id for step in original.chain.steps]


def test_a_bundle_contains_the_quiet_time_before_a_series_of_events(tmp_path: pathlib.Path) -> None:
    """Seven resets, two minutes apart: the last is compared with the time before the first."""
    truth = scenarios.build(
        "modern", tmp_path / "home", seed=2, minutes=22.0, cores=8, close=110.0, recurrences=6
    )
    assert truth.event is not None
    original = case.Case(truth.home, truth.event)
    assert original.baseline.begin_us < truth.event.time_us - round(bundles.BEFORE_S * 1e6)
    file = tmp_path / "incident.overnight"
    bundles.create(truth.home, truth.event, file)
    with bundles.open_temporarily(file) as opened:
        assert opened.home is not None
        bundled = case.Case(opened.home, truth.event)
        assert bundled.baseline == original.baseline
        assert bundled.top(bundled.baseline) == original.top(original.baseline)
        verdict, _ = diagnose.diagnose_event(opened.home, truth.event)
    assert truth.problems(verdict) == []


def test_the_command_in_every_output_format(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = scenarios.build("reference", tmp_path, seed=6, **SHORT)
    home = ["--home", str(tmp_path)]
    assert cli.main([*home, "diagnose", "-O", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["verdict"]["status"] == "cause-found"
    assert document["event"]["kind"] == "net.driver_reset"
    root = document["verdict"]["chain"][0]
    assert root["kind"] == truth.chain[0][0]
    assert cli.main([*home, "diagnose"]) == 0
    assert "Cause found: " in capsys.readouterr().out
    assert cli.main([*home, "diagnose", "-O", "md"]) == 0
    assert root["subject"]["unit"] in capsys.readouterr().out
    page = tmp_path / "report.html"
    assert cli.main([*home, "diagnose", "-O", "html", "-o", str(page)]) == 0
    assert "<svg" in page.read_text()


def test_a_recording_without_events_reports_no_cause(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenarios.build("quiet", tmp_path, seed=1, **SHORT)
    assert cli.main(["--home", str(tmp_path), "diagnose"]) == 0
    assert "No cause found" in capsys.readouterr().out


def test_without_a_recording_the_error_names_the_command_to_run(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--home", str(tmp_path), "diagnose"]) == 3
    assert " record --for 12h`" in capsys.readouterr().err
    assert cli.main(["--home", str(tmp_path), "diagnose", "--event", "x"]) == 3
