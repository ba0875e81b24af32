"""The final report: the answer first, in every format, whatever names hosts and plans have."""

from __future__ import annotations

import dataclasses
import html.parser
import io
import json
import pathlib
import re
from typing import TYPE_CHECKING

import jsonschema
import nightreports
import pytest
import rich.console
import verdicts

from overnight.model.investigation import Answer, HostTask, Outcome
from overnight.queries import rates
from overnight.reports.investigation import html as pages
from overnight.reports.investigation import json as documents
from overnight.reports.investigation import text as texts
from overnight.reports.investigation import wording

if TYPE_CHECKING:
    from overnight.reports import investigation as reports

SCHEMA = pathlib.Path(__file__).parents[4] / "docs/schemas/investigation-report-1.json"
FORMATS = (pages, documents, texts)


def write(report: reports.Report, module: object = pages) -> str:
    out = io.BytesIO()
    module.write(report, out)  # type: ignore[attr-defined]
    return out.getvalue().decode()


class Page(html.parser.HTMLParser):
    """Tags, links and text of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name == "src"]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_answer_comes_first() -> None:
    full = nightreports.full_report()
    headline = "Reproduced, cause found, experiment undecided: ecs.service leaks memory cgroups"
    assert wording.headline(full) == headline
    assert write(full, texts).startswith(headline)
    labels = [part.label for part in wording.parts(full)]
    assert labels == ["Events", "Cause", "Mechanism", "Change", "Arms", "", "", "Experiment", "Hosts"]  # fmt: skip
    page = Page(write(full))
    assert page.tags.count("h1") == 1
    assert page.text.index(headline) < page.text.index("Ratio of the rates of two arms")


def test_other_outcomes_have_their_headline() -> None:
    full = nightreports.full_report()
    run = full.investigation
    assert run.experiment
    heads = {
        Answer.CONFIRMED: "Reproduced, cause found, confirmed by an experiment: ecs.service",
        Answer.REFUTED: "Reproduced, cause not found; an experiment refutes this one: ecs.service",
    }
    for answer, head in heads.items():
        experiment = dataclasses.replace(run.experiment, answer=answer)
        shown = dataclasses.replace(full, investigation=dataclasses.replace(run, experiment=experiment))  # fmt: skip
        assert wording.headline(shown).startswith(head)
        commands = [part.command for part in wording.parts(shown) if part.label == "Change"]
        assert [bool(command) for command in commands] == [answer is Answer.CONFIRMED]
    alone = dataclasses.replace(run, experiment=None)
    none = dataclasses.replace(full, investigation=alone, diagnosed=())
    assert wording.headline(none) == "Reproduced: net.driver_reset; no verdict"
    failed = dataclasses.replace(run, outcome=Outcome.FAILED, reason="no host could be reserved")
    assert wording.headline(dataclasses.replace(full, investigation=failed)) == "Failed: no host could be reserved"  # fmt: skip
    started = dataclasses.replace(alone, outcome=Outcome.OPEN)
    assert wording.headline(dataclasses.replace(full, investigation=started)).startswith("Not finished, cause found: ")  # fmt: skip
    quiet = wording.headline(nightreports.quiet_report())
    assert quiet == "Did not reproduce: no net.driver_reset in 2 host-hours of the hot arm"


def test_the_verdict_has_the_arguments_of_the_arms() -> None:
    text = Page(write(nightreports.full_report())).text
    assert "hosts that were given dying memory cgroups have more of the event" in text
    assert "the event is rarer where only this unit is changed" in text


def test_all_conditions_of_the_night_are_in_every_format() -> None:
    full = nightreports.full_report()
    for module in FORMATS:
        text = write(full, module)
        text = Page(text).text if module is pages else re.sub(r"\s+", " ", text)
        for part in (
            "foreign-workload", "2.1 s behind", "CV 0.3 %", "0.4 % of one core", "agent.toml does not list it",
            "ended after 6 h", "signals are damaged", "the change is undone", "mem_cgroup_iter",
        ):  # fmt: skip
            assert part in text, (module.__name__, part)


def test_what_did_not_come_has_a_bound_moves_and_the_next_plan() -> None:
    quiet = nightreports.quiet_report()
    for module in (pages, texts):
        text = write(quiet, module)
        text = re.sub(r"\s+", " ", Page(text).text if module is pages else text)
        for part in (
            "rarer than once in 40 host-minutes (1.5 per host-hour), with 95 % confidence",
            "not compared with a host of production", "the workloads of this machine kept running",
            "wait 8 h instead of 2 h", "overnight run /srv/overnight/report-next-plan.yaml",
        ):  # fmt: skip
            assert part in text, (module.__name__, part)


def test_long_times_are_days_and_none_is_not_a_rate() -> None:
    quiet = nightreports.quiet_report()
    assert quiet.not_reproduced
    for rate, words in ((0.01, "once in 4.2 host-days"), (0.1, "once in 10 host-hours")):
        missed = dataclasses.replace(quiet.not_reproduced, missed_rate=rate)
        assert words in wording.format_missed(dataclasses.replace(quiet, not_reproduced=missed))
    missed = dataclasses.replace(quiet.not_reproduced, missed_rate=None)
    shown = dataclasses.replace(quiet, not_reproduced=missed)
    assert wording.format_missed(shown).startswith("No host was observed")


@pytest.mark.parametrize("make", [nightreports.full_report, nightreports.quiet_report])
def test_the_document_follows_its_schema(make) -> None:
    document = json.loads(write(make(), documents))
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))


def test_the_same_report_gives_the_same_bytes() -> None:
    for module in FORMATS:
        assert write(nightreports.full_report(), module) == write(
            nightreports.full_report(), module
        )


@pytest.mark.parametrize("text", verdicts.HOSTILE)
def test_no_name_breaks_the_page(text: str) -> None:
    page = Page(write(nightreports.hostile_report(text)))
    assert page.tags.count("script") == 1
    assert page.tags.count("style") == 1
    assert not {"img", "iframe", "link", "form", "object"} & {*page.tags}
    assert page.handlers == []
    assert not [link for link in page.links if re.match(r"\s*(javascript|data|vbscript):", link, re.IGNORECASE)]  # fmt: skip
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page.text)


@pytest.mark.parametrize("text", ["javascript:alert(1)", " javascript:alert(1)", "data:text/html,x", "https://a/b?c=<x>\"'", "//evil.example/x"])  # fmt: skip
def test_a_link_is_an_address_or_a_path(text: str) -> None:
    address = wording.link(text)
    assert not re.match(r"\s*(javascript|data):|//", address)
    assert not {*"<>\"'"} & {*address}
    assert wording.link("https://overnight.example/reports/1?a=b") == "https://overnight.example/reports/1?a=b"  # fmt: skip


@pytest.mark.parametrize("text", verdicts.HOSTILE)
def test_no_name_controls_the_terminal(text: str) -> None:
    report = nightreports.hostile_report(text)
    out = io.StringIO()
    rich.console.Console(file=out, width=80, force_terminal=False).print(texts.render(report))
    for written in (out.getvalue(), write(report, texts)):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", written)
    json.loads(write(report, documents))


def test_functions_are_ranked_by_what_they_did_themselves_and_files_are_named_shortly() -> None:
    full = nightreports.full_report()
    (difference,) = full.differences
    caller, callee = (
        dataclasses.replace(each, name=name, own_difference=own, status="more")
        for each, name, own in zip(difference.functions.changes, ("caller", "callee"), (0.0, 0.2), strict=True)
    )  # fmt: skip
    functions = dataclasses.replace(difference.functions, changes=(caller, callee))
    seen = dataclasses.replace(full.diagnosed[0], report="/srv/night/report-verdict-1.html")
    shown = dataclasses.replace(
        full, folder="/srv/night", diagnosed=(seen,), differences=(dataclasses.replace(difference, functions=functions),)
    )  # fmt: skip
    text = write(shown, texts)
    assert text.index("callee") < text.index("caller")
    assert "report: report-verdict-1.html" in text


def test_reports_fit_in_80_columns() -> None:
    for report in (nightreports.full_report(), nightreports.quiet_report()):
        out = io.StringIO()
        rich.console.Console(file=out, width=80).print(texts.render(report))
        assert max(len(line.rstrip()) for line in out.getvalue().splitlines()) <= 80


def test_an_investigation_without_arms_is_still_a_report() -> None:
    run = dataclasses.replace(nightreports.quiet(), arms=(), outcome=Outcome.FAILED)
    report = nightreports.report_of(run)
    for module in FORMATS:
        assert "no arm could be observed" in write(report, module)


def test_a_pair_that_may_be_chance_says_so() -> None:
    pair = nightreports.full_report().contrast.pairs[0]
    chance = dataclasses.replace(pair, compared=dataclasses.replace(pair.compared, p_hosts=0.4))
    assert chance.compared.outcome is rates.Outcome.CANNOT_TELL
    assert "hosts assigned to arms at random differ as much in 40 % of cases" in wording.list_caveats(chance)  # fmt: skip
    alone = dataclasses.replace(pair, is_confounded=True)
    assert "swap the arms" in wording.list_caveats(alone)


def test_a_task_that_its_arm_stopped_did_not_fail() -> None:
    full = nightreports.full_report()
    arm = full.investigation.arms[1]
    tasks = (
        HostTask("node-4", "record", "t-1", state="failed", detail="stopped by task stop-t-1: 20 s recorded"),
        HostTask("node-5", "age", "t-2", "dentries", "failed", "no space left\ncore  busy"),
    )  # fmt: skip
    run = dataclasses.replace(full.investigation, arms=(dataclasses.replace(arm, tasks=tasks),))
    limits = list(wording.list_limits(dataclasses.replace(full, investigation=run)))
    assert limits[0] == "hot arm, node-5: age dentries failed: no space left"
    assert not any("stopped by" in limit for limit in limits)


def test_a_load_that_is_not_constant_is_listed_once_with_its_figures() -> None:
    full = nightreports.full_report()
    arm = full.investigation.arms[1]
    tasks = (
        HostTask("node-4", "load", "t-1", state="failed", detail="not constant: cpu CV 12 %"),
        HostTask("node-5", "load", "t-2", state="failed", detail="stress-ng is not installed"),
    )
    constancy = {"node-4": "not constant", "node-6": "constant"}
    arm = dataclasses.replace(arm, tasks=tasks, constancy=constancy)
    run = dataclasses.replace(full.investigation, arms=(arm,), experiment=None)
    shown = dataclasses.replace(full, investigation=run)
    assert list(wording.list_constancy(shown)) == [
        ("hot", "node-4", "not constant: cpu CV 12 %"),
        ("hot", "node-6", "constant"),
    ]
    assert Page(write(shown)).text.count("cpu CV 12 %") == 1
    assert "hot arm, node-5: load failed: stress-ng is not installed" in wording.list_limits(shown)


def test_a_dose_that_one_host_cannot_judge_is_not_drawn() -> None:
    drawn = write(nightreports.full_report())
    assert 'class="dose0"' in drawn
    assert "No dose can be judged" not in drawn
    quiet = nightreports.quiet()
    cold, hot = (
        nightreports.make_arm(kind, at, 2, {"db-7": events}, {"db-7": {"zombies": dose}})
        for kind, at, events, dose in (("cold", 0, (), 320.0), ("hot", 2, (1.0,), 15_000.0))
    )
    run = dataclasses.replace(quiet, outcome=Outcome.REPRODUCED, arms=(cold, hot))
    for module in (pages, texts):
        written = write(nightreports.report_of(run), module)
        text = re.sub(r"\s+", " ", Page(written).text if module is pages else written)
        assert "No dose can be judged: 1 host was observed. A trend needs five hosts" in text
        assert 'class="dose0"' not in written
        assert "1 events" not in written
