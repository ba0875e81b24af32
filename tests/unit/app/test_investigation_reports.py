"""The evidence of arms is gathered, argues in verdicts, and is written; nothing that is missing stops the report."""

from __future__ import annotations

import dataclasses
import functools
import html
import json
import pathlib
from typing import Any

import jsonschema
import nightreports
import pytest

import scenarios
from overnight import errors
from overnight.app import diagnose, investigation_evidence, investigation_reports
from overnight.investigations import decisions, plan_file
from overnight.model.finding import Status
from overnight.model.fleet import Fleet
from overnight.model.investigation import ExperimentRun, Investigation, Occurrence, Outcome
from overnight.model.plan import ArmKind, ArmPlan, ExperimentPlan, HostsPlan, Plan, WaitPlan
from overnight.model.verdict import Narrative
from overnight.queries import fleet, rates
from overnight.reports import diagnosis
from overnight.reports.investigation import wording

SCHEMA = pathlib.Path(__file__).parents[3] / "docs/schemas/investigation-report-1.json"
KIND = nightreports.KIND


def refuse(_: Occurrence, __: diagnose.AskFleet) -> diagnose.Diagnosis | None:
    raise errors.CannotError("no window", why="the host is gone", todo="wait")


def test_arms_are_cut_from_the_fleet(tmp_path: pathlib.Path) -> None:
    run = nightreports.reproduced()
    report = investigation_reports.gather(run, nightreports.make_fleet(run), tmp_path)
    rows = {row.arm: row for row in report.contrast.arms}
    assert [*rows] == ["cold", "hot", "fixed", "experiment"]
    hot = rows["hot"].rate
    assert hot is not None
    assert (hot.events, hot.exposure, rows["hot"].cores) == (9, 192.0, 24)
    assert report.contrast.unit == "core-hours"
    assert {trend.dose for trend in report.contrast.trends} == {"zombies", "uptime_s", "load"}


def test_events_of_the_fleet_count_once(tmp_path: pathlib.Path) -> None:
    run = nightreports.reproduced()
    seen = run.arms[1].occurrences[0]
    whole = nightreports.make_fleet(run)
    stored = dataclasses.replace(whole.hosts[3], events=(nightreports.Event(seen.time_us, KIND, host=seen.host, id=seen.event),))  # fmt: skip
    fleet_ = Fleet((*whole.hosts[:3], stored, *whole.hosts[4:]))
    report = investigation_reports.gather(run, fleet_, tmp_path)
    hot = next(row.rate for row in report.contrast.arms if row.arm == "hot")
    assert hot is not None
    assert hot.events == 9


def test_what_is_missing_is_a_problem_and_not_an_error(tmp_path: pathlib.Path) -> None:
    run = nightreports.reproduced()
    whole = nightreports.make_fleet(run)
    part = Fleet(whole.hosts[:5], ("db-99: damaged",))
    report = investigation_reports.gather(run, part, tmp_path, diagnose=refuse, page=tmp_path / "r.html")  # fmt: skip
    assert "db-99: damaged" in report.problems
    assert "hot arm: nothing was recorded of node-6" in report.problems
    assert any("no window" in problem for problem in report.problems)
    assert [each.verdict for each in report.diagnosed] == [None]
    empty = investigation_reports.gather(run, Fleet(()), tmp_path)
    assert all(row.rate is None for row in empty.contrast.arms)


def test_an_event_of_the_hot_arm_is_diagnosed_before_later_ones() -> None:
    run = nightreports.reproduced()
    late = nightreports.make_arm(ArmKind.FIXED, 8.5, 6, {"node-4": (1.0,)})
    late_run = dataclasses.replace(run, arms=(*run.arms[:2], late))
    (chosen,) = investigation_reports.choose_occurrences(late_run)
    assert chosen == max(run.arms[1].occurrences, key=lambda seen: seen.time_us)
    only = dataclasses.replace(run, arms=(late,))
    assert investigation_reports.choose_occurrences(only) == late.occurrences


def test_the_arms_are_what_a_diagnosis_asks_about_the_fleet(tmp_path: pathlib.Path) -> None:
    run = nightreports.reproduced()
    compared = investigation_reports.gather(run, nightreports.make_fleet(run), tmp_path).contrast
    found = investigation_reports.ask_arms(run, compared)(KIND)
    (answer,) = found.answers
    assert (found.hosts, answer.status) == (6, Status.FOUND)
    numbers = {name for each in answer.findings for name in each.magnitude}
    assert numbers == {"aged_memory_cgroups_by_cold", "changed_by_hot", "zombies_ratio"}


def test_a_quiet_night_writes_the_next_plan(tmp_path: pathlib.Path) -> None:
    run = nightreports.quiet()
    paths = investigation_reports.write(run, nightreports.make_fleet(run), tmp_path)
    assert paths.html == tmp_path / "report.html"
    assert paths.next_plan is not None
    following = plan_file.load(paths.next_plan)
    assert (following.name, following.wait.seconds) == ("driver-resets-2", 8 * 3600)
    assert paths.next_plan.read_text().startswith("# wait 8 h instead of 2 h\n")
    document = json.loads(paths.json.read_text())
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["next_plan"] == str(paths.next_plan)
    assert str(paths.next_plan) in paths.text.read_text().replace("\n", "").replace(" ", "")
    again = investigation_reports.write(run, nightreports.make_fleet(run), tmp_path)
    assert again == paths


def test_only_a_plan_of_this_machine_chooses_the_file(tmp_path: pathlib.Path) -> None:
    quiet = nightreports.quiet()
    own = dataclasses.replace(quiet.plan, report=str(tmp_path / "own" / "night.html"))
    run = dataclasses.replace(quiet, plan=own)
    paths = investigation_reports.write(run, nightreports.make_fleet(run), tmp_path)
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == [
        "night-next-plan.yaml", "night.html", "night.json", "night.txt",
    ]  # fmt: skip
    assert paths.html.name == "night.html"
    remote = dataclasses.replace(own, hosts=dataclasses.replace(own.hosts, provider="kubernetes"))
    run = dataclasses.replace(quiet, plan=remote)
    paths = investigation_reports.write(run, nightreports.make_fleet(run), tmp_path / "home")
    assert paths.html.is_relative_to(tmp_path / "home")


def test_a_reader_of_a_servers_report_gets_the_next_plan_from_the_page(tmp_path: pathlib.Path) -> None:  # fmt: skip
    quiet = nightreports.quiet()
    hosts = HostsPlan(provider="kubernetes", where="prod", count=2)
    run = dataclasses.replace(quiet, plan=dataclasses.replace(quiet.plan, hosts=hosts))
    paths = investigation_reports.write(run, nightreports.make_fleet(run), tmp_path)
    assert paths.next_plan is not None
    plan = paths.next_plan.read_text()
    page = html.unescape(paths.html.read_text())
    assert plan.strip() in page
    assert plan.strip() in paths.text.read_text()
    assert "The next plan: save it as report-next-plan.yaml" in page
    for path in (paths.html, paths.json, paths.text):
        assert str(tmp_path) not in path.read_text()


def test_nothing_happened_and_no_kind_was_named(tmp_path: pathlib.Path) -> None:
    quiet = nightreports.quiet()
    run = dataclasses.replace(quiet, plan=dataclasses.replace(quiet.plan, wait=WaitPlan(seconds=7200)))  # fmt: skip
    report = investigation_reports.gather(run, nightreports.make_fleet(run), tmp_path)
    assert report.contrast.kinds == ("warning",)
    headline = "Did not reproduce: no warning in 2 host-hours of the hot arm"
    assert wording.headline(report) == headline
    assert [row.rate.events for row in report.contrast.arms if row.rate] == [0, 0]


@pytest.mark.parametrize("kinds", [(KIND,), ()])
def test_a_recorded_night_has_its_cause_profiles_and_arms(tmp_path: pathlib.Path, kinds: tuple[str, ...]) -> None:  # fmt: skip
    """One machine: the first minutes of a generated night are the cold arm, the rest with the incident is hot."""
    truth = scenarios.build("reference", tmp_path / "home", seed=11, minutes=16.0, cores=8)
    event = truth.event
    assert event is not None
    read = fleet.read_fleet(tmp_path / "home")
    (host,) = (each for each in read.hosts if each.name == event.host)
    begin, end = host.spells[0].begin_us, host.spells[-1].end_us
    middle = begin + (event.time_us - begin) // 2
    arms = [
        dataclasses.replace(
            nightreports.make_arm(kind, 0, 1, {event.host: ()}), began_us=since, ended_us=until
        )
        for kind, since, until in ((ArmKind.COLD, begin, middle), (ArmKind.HOT, middle, end))
    ]
    seen = Occurrence(event.host, event.id, event.kind, event.time_us)
    arms[1] = dataclasses.replace(arms[1], occurrences=(seen,))
    plan = Plan(name="night", arms=(ArmPlan(kind=ArmKind.COLD), ArmPlan(kind=ArmKind.HOT)), wait=WaitPlan(events=kinds))  # fmt: skip
    run = Investigation(id="i-0000000000aa", plan=plan, arms=tuple(arms), outcome=Outcome.REPRODUCED)  # fmt: skip
    paths = investigation_reports.write(run, read, tmp_path / "home")
    document = json.loads(paths.json.read_text())
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["headline"].startswith("Reproduced, cause found: ")
    assert [path.name for path in paths.verdicts] == ["report-verdict-1.html"]
    assert 'href="report-verdict-1.html"' in paths.html.read_text()
    assert document["contrast"]["unit"] == "core-hours"
    (hot,) = [row for row in document["contrast"]["arms"] if (row["arm"], row["kind"]) == ("hot", event.kind)]  # fmt: skip
    assert hot["cores"] == 8
    assert hot["rate"]["events"] >= 1
    pair = next(row for row in document["contrast"]["pairs"] if row["kind"] == event.kind)
    assert pair["outcome"] == rates.Outcome.CANNOT_TELL  # of one event
    (profiles,) = document["differences"]
    assert profiles["denominator"] == "of the cores' time"
    assert profiles["functions"]["changes"]
    assert profiles["processes"]
    answers = {each["detector"]: each for each in document["verdicts"][0]["verdict"]["detectors"]}
    assert answers["fleet.arms"]["status"] == Status.NO_DATA
    # `diagnose` in the data home of the run is of the same opinion, by the same evidence.
    reported = document["verdicts"][0]["verdict"]
    for chosen in (event.id, diagnose.LAST):
        verdict = diagnose.diagnose(diagnose.Request(tmp_path / "home", event_id=chosen)).verdict
        again = json.loads(json.dumps(verdict.as_json()))
        assert again["event"]["id"] == event.id
        for part in ("verdict", "gaps", "detectors"):
            assert again[part] == reported[part], part


def test_the_experiment_tests_the_cause_of_the_report(tmp_path: pathlib.Path) -> None:
    """A neighbour caused an event in the cold arm, too: it was tested, and nothing tests interpreted Python code."""
    run = dataclasses.replace(nightreports.reproduced(), experiment=None)
    other = Occurrence("node-1", "e-cold", "cpu.core_pinned", run.arms[0].began_us + 5)
    crowd = tuple(dataclasses.replace(other, event=f"e-{n}") for n in range(20))
    cold = dataclasses.replace(run.arms[0], occurrences=(*crowd, other))
    run = dataclasses.replace(run, arms=(cold, *run.arms[1:]))
    run = dataclasses.replace(run, plan=dataclasses.replace(run.plan, wait=WaitPlan(), experiment=ExperimentPlan(allow=("mask-unit", "purge"))))  # fmt: skip
    cause = nightreports.argue(run)

    class Evidence(investigation_evidence.Evidence):
        def _read_verdict(self, _: Investigation, seen: Occurrence, ask: object = None) -> diagnose.Diagnosis:  # fmt: skip
            weak = dataclasses.replace(cause, confidence=0.4, narrative=Narrative("Cause found: load-cpu-1 runs Python code"))  # fmt: skip
            return diagnose.Diagnosis(weak if seen.event == "e-cold" else cause, diagnosis.EMPTY)

        def _read_fleet(self, run: Investigation) -> Fleet:
            return nightreports.make_fleet(run)

    use: Any = None
    evidence = Evidence(tmp_path, use)
    chosen = evidence.choose_experiment(run)
    last = max(run.arms[1].occurrences, key=lambda seen: seen.time_us)
    assert chosen.event == last.event
    assert chosen.steps[0] == f"mask-unit {nightreports.UNIT}"
    arm = dataclasses.replace(run.arms[2], kind=ArmKind.FIXED)
    tested = ExperimentRun(change=chosen.change, why=chosen.why, arm=arm, event=chosen.event)
    run = dataclasses.replace(run, experiment=tested)
    assert decisions.find_compared(run, chosen.event) == 1
    # Also if another verdict has become stronger with the experiment's own arm.
    late = functools.partial(evidence._read_verdict, run)
    paths = investigation_reports.write(run, nightreports.make_fleet(run), tmp_path, diagnose=late)
    headline = json.loads(paths.json.read_text())["headline"]
    assert headline.endswith(cause.narrative.headline.removeprefix("Cause found: "))


def test_a_server_diagnoses_with_what_it_has(tmp_path: pathlib.Path) -> None:
    run = nightreports.reproduced()
    asked = []

    def answer(seen: Occurrence, ask: diagnose.AskFleet) -> diagnose.Diagnosis:
        asked.append((seen.kind, ask(seen.kind).answers[0].status))
        return diagnose.Diagnosis(nightreports.argue(run), diagnosis.EMPTY)

    paths = investigation_reports.write(
        run, nightreports.make_fleet(run), tmp_path, diagnose=answer, reservations=(nightreports.reservation("node-1"),)
    )  # fmt: skip
    assert asked == [(KIND, Status.FOUND)]
    assert paths.verdicts[0].exists()
    assert "1 of 1 host given back" in paths.text.read_text()


def test_a_server_reads_the_windows_that_it_has(tmp_path: pathlib.Path) -> None:
    seen = Occurrence("node-4", "x", KIND, 5)
    read = investigation_reports.read_windows(lambda _: None)
    assert read(seen, lambda _: pytest.fail("nothing to ask about")) is None
    broken = tmp_path / "window.bundle"
    broken.write_bytes(b"not a bundle")
    with pytest.raises(errors.OvernightError):
        investigation_reports.read_windows(lambda _: broken)(seen, lambda _: pytest.fail("not read"))  # fmt: skip
