"""Sixteen training workers and a collector, all called python3: which program, where, and what it did."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable

import jsonschema
import pytest

import scenarios
from overnight.app import diagnose
from overnight.interfaces import cli
from overnight.model import times

Run = Callable[..., str]
SCHEMA = pathlib.Path(__file__).parents[2] / "docs/schemas/diagnosis-1.json"
COLLECTOR, WORKER = "collect_metrics.py (python3)", "train.py (python3)"


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> scenarios.Truth:
    home = tmp_path_factory.mktemp("one-name")
    return scenarios.build("one-name", home, seed=9, minutes=16.0, cores=16)


@pytest.fixture
def run(
    night: scenarios.Truth, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words: str) -> str:
        assert cli.main(["--home", str(night.home), *words]) == 0
        return capsys.readouterr().out

    return call


def test_the_first_two_lines_name_script_pod_and_mechanism(
    night: scenarios.Truth, run: Run
) -> None:
    pod = str(night.facts["unit"])
    assert pod.startswith("monitoring/node-agent-")
    text = run("diagnose")
    first = " ".join(line.strip() for line in text.splitlines()[:2])
    assert f"Cause found: collect_metrics.py (python3, {pod}) reads memory maps of" in first
    assert "smaps" in first
    verdict = text.partition("Checked and not the cause")[0].partition("Top consumers")[0]
    assert "Root cause" in verdict
    namespace, name = pod.split("/")
    assert f"kubectl --namespace {namespace} describe pod {name}" in verdict
    assert "systemctl" not in verdict
    assert "by hand" not in verdict


def test_no_worker_is_blamed(night: scenarios.Truth) -> None:
    verdict, _ = diagnose.diagnose_event(night.home, night.event)
    assert night.problems(verdict) == []
    chains = [chain for chain in (verdict.chain, *verdict.alternatives) if chain]
    blamed = {
        step.subject.actor for chain in chains for step in chain.steps if step.subject.process
    }
    assert blamed == {(COLLECTOR, night.facts["unit"])}


def test_every_report_names_the_collector(
    night: scenarios.Truth, run: Run, tmp_path: pathlib.Path
) -> None:
    document = json.loads(run("diagnose", "-O", "json"))
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    root = document["verdict"]["chain"][0]
    assert root["kind"] == "mechanism.smaps-reading"
    assert (root["subject"]["process"], root["subject"]["unit"]) == (COLLECTOR, night.facts["unit"])
    culprit = next(finding for finding in document["findings"] if finding["kind"] == "cpu.culprit")
    identity = next(each["values"] for each in culprit["evidence"] if "cgroup" in each["values"])
    assert (identity["cgroup"], identity["pod"]) == (night.facts["cgroup"], night.facts["unit"])
    page = tmp_path / "report.html"
    run("diagnose", "-O", "html", "-o", str(page))
    for text in (run("diagnose", "-O", "md").splitlines()[0], page.read_text()):
        assert f"collect_metrics.py (python3, {night.facts['unit']}) reads memory maps" in text


def test_both_programs_are_actors_in_every_command(
    night: scenarios.Truth, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert night.event is not None
    at_us = night.event.time_us
    window = ("-b", times.format_instant(at_us - 5_000_000), "-e", "+5s")
    before = times.format_instant(at_us - 60_000_000)
    commands = {
        "top": ("top", *window),
        "who": ("top", *window, "-O", "json"),
        "flame": ("flame", *window, "-O", "collapsed"),
    }
    for name, words in commands.items():
        text = run(*words)
        assert (COLLECTOR in text, WORKER in text) == (True, True), name
    rows = json.loads(run(*commands["who"]))["rows"]
    (collector,) = (row for row in rows if row["name"] == COLLECTOR)
    assert {each["pod"] for each in collector["processes"]} == {night.facts["unit"]}
    (workers,) = (row for row in rows if row["name"] == WORKER)
    assert len(workers["pids"]) == 16
    compared = ("diff", *window, "--baseline", before, "-O", "json", "--process")
    assert "smaps_account" in run(*compared, "^collect_metrics.py")
    assert "smaps_account" not in run(*compared, "^train.py")
