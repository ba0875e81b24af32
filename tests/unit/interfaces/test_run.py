"""`overnight run` on a played platform: plans, listing, progress, Ctrl-C. tests/integration/test_run_real.py runs one."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import signal
import threading
from typing import TYPE_CHECKING, Any

import investigated
import jsonschema
import pytest
import reservedhosts

from overnight.app import investigation_evidence, reservations
from overnight.app import investigations as use_cases
from overnight.interfaces import cli
from overnight.investigations import context as investigation_context
from overnight.investigations import decisions
from overnight.model import stop_signals, times
from overnight.model.plan import ArmKind

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]

SCHEMAS = pathlib.Path(__file__).parents[3] / "docs/schemas"
PLAN = """
name: night
hosts:
  provider: {provider}
arms:
  - kind: cold
  - kind: hot
    age:
      memory-cgroups: 500
wait:
  for: 6s
  events: [net.driver_reset]
load:
  duty: 20%
budget:
  hours: 1
"""


class Clock:
    """Makes six seconds of an arm pass in less than one."""

    def __init__(self) -> None:
        self.ticks = 0

    def __call__(self) -> int:
        self.ticks += 1
        return times.now_us() + self.ticks * 50_000


class LocalHost(investigated.Hosts):
    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> LocalHost:
    """Play this machine: its reservation and its tasks."""
    platform = reservedhosts.Platform(times.now_us, "a")
    played = LocalHost(Clock())  # type: ignore[arg-type]
    played.fault = (ArmKind.HOT, 2.0)
    monkeypatch.setattr(reservations, "open_providers", lambda *_, **__: {"local": platform})
    monkeypatch.setattr(use_cases.Investigations, "_open_host", lambda *_: played)
    quick = functools.partial(investigation_context.Context, clock=played.clock)
    monkeypatch.setattr(investigation_context, "Context", quick)
    monkeypatch.setattr(investigation_evidence.Evidence, "diagnose", lambda *_: None)
    monkeypatch.setattr(decisions, "pause_seconds", lambda *_: 0.01)
    monkeypatch.setenv(use_cases.MARK, "")  # restored after the test
    return played


@pytest.fixture
def run(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.setenv("OVERNIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OVERNIGHT_SERVER", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for provider in ("local", "kubernetes"):
        (tmp_path / f"{provider}.yaml").write_text(PLAN.format(provider=provider))
    monkeypatch.chdir(tmp_path)

    def call(words: str) -> tuple[int, str, str]:
        code = cli.main(["run", *words.split()])
        return code, *capsys.readouterr()

    return call


def parse(out: str, schema: str) -> Any:
    document = json.loads(out)
    jsonschema.validate(document, json.loads((SCHEMAS / f"{schema}-1.json").read_text()))
    return document


def test_examples_are_printed(run: Run) -> None:
    code, out, _ = run("--example this-machine")
    assert (code, out.splitlines()[2]) == (0, "schema: overnight.plan/1")
    code, _, err = run("--example other")
    assert code == 2
    assert "examples: driver-resets, miniature-night, this-machine" in err


def test_wrong_calls_say_what_to_do(run: Run, tmp_path: pathlib.Path) -> None:
    assert "overnight run --example driver-resets" in run("--dry-run")[2]
    assert "error: overnight run needs a command" in run("")[2]
    code, _, err = run("kubernetes.yaml")
    assert code == 2
    assert "a plan with hosts of provider kubernetes needs a server" in err
    assert "overnight run kubernetes.yaml --server URL" in err
    code, _, err = run("local.yaml --server http://127.0.0.1:9")
    assert (code, "overnight run local.yaml" in err) == (2, True)
    (tmp_path / "bad.yaml").write_text("name: x\nhosts: {coutn: 2}\n")
    assert "bad.yaml:2:9: hosts has no key coutn" in run("bad.yaml")[2]
    for wrong, right, says in (
        (
            "memory-cgroups",
            "memory-groups",
            "bad.yaml:9:7: unknown name memory-groups; did you mean memory-cgroups?",
        ),
        (
            "provider: local",
            "provider: kubernets",
            "unknown name kubernets; did you mean kubernetes?",
        ),
        (
            "provider: local\n",
            "provider: ec2\ninstruments: [{name: cgroup-chrun}]\n",
            "unknown name cgroup-chrun; did you mean cgroup-churn?",
        ),
        (
            "budget:",
            "record:\n  every: {memory-cgroup: 2}\nbudget:",
            "bad.yaml:16:11: unknown name memory-cgroup; did you mean memory-cgroups?",
        ),
        ("duty: 20%", "kind: cpus", "bad.yaml:14:3: unknown name cpus"),
        (
            "driver_reset",
            "driver_rest",
            "bad.yaml:12:3: wait.events: unknown kind net.driver_rest; did you mean net.driver_reset?",
        ),
        ("budget:", "report: night.txt\nbudget:", "bad.yaml:15:1: report does not end with .html"),
    ):
        (tmp_path / "bad.yaml").write_text(PLAN.format(provider="local").replace(wrong, right))
        code, _, err = run("bad.yaml")
        assert (code, says in err) == (2, True), err
    code, _, err = run("local.yaml --for 1h")
    assert (code, "take up to 2 hours, but budget.hours is 1" in err) == (2, True)
    for words in ("status i-x", "stop i-x", "resume i-x"):
        assert "no investigation 'i-x'" in run(words)[2]


def test_files_of_a_plan_do_not_depend_on_the_folder(run: Run, tmp_path: pathlib.Path) -> None:
    text = (
        PLAN.format(provider="local").replace("duty: 20%", "kind: replay\n  profile: p.json")
        + "report: r.html"
    )
    (tmp_path / "plan.yaml").write_text(text)
    plan = use_cases.load_plan(pathlib.Path("plan.yaml"))
    assert plan.load is not None
    assert (plan.load.profile, plan.report) == (str(tmp_path / "p.json"), str(tmp_path / "r.html"))


def test_a_dry_run_changes_nothing(hosts: LocalHost, run: Run) -> None:
    code, out, _ = run("local.yaml --dry-run --for 1m")
    assert code == 0
    assert out.splitlines()[1] == "2. arm cold on all hosts: record, load cpu for 1 min"
    assert "arms take at most 2 min" in out.splitlines()
    assert out.splitlines()[-1] == "would reserve 1 host; nothing was changed"
    code, out, _ = run("start local.yaml --dry-run -O json")
    assert parse(out, "run-plan")["seconds"] == pytest.approx(12)
    assert not hosts.tasks
    assert run("list")[1] == "no investigations\n"


@pytest.mark.parametrize("words", ["kernel.soft_lockup", "net.driver_rest"])
def test_a_plan_that_can_never_fire_is_refused(
    hosts: LocalHost, run: Run, tmp_path: pathlib.Path, words: str
) -> None:
    for provider in ("local", "kubernetes"):
        text = PLAN.format(provider=provider).replace("net.driver_reset", words)
        (tmp_path / "bad.yaml").write_text(text)
        for more in ("", "--dry-run"):
            code, _, err = run(f"bad.yaml {more}")
            assert (code, f"unknown kind {words}; did you mean" in err) == (2, True)
    assert not hosts.tasks


def test_outcomes_of_others_are_accepted_with_a_note(
    hosts: LocalHost, run: Run, tmp_path: pathlib.Path
) -> None:
    text = PLAN.format(provider="local").replace("reset]", "reset, invoice.late, job.]")
    (tmp_path / "plan.yaml").write_text(text)
    code, out, _ = run("plan.yaml --dry-run")
    notes = [line for line in out.splitlines() if line.startswith("note: ")]
    assert (code, notes) == (
        0,
        [
            "note: no detector reports invoice.late; add each one on its host: `overnight event add --kind invoice.late`",
            "note: no detector reports job.; add each one on its host: `overnight event add --kind job.NAME`",
        ],
    )
    code, out, _ = run("plan.yaml --dry-run -O json")
    assert len(parse(out, "run-plan")["notes"]) == 2
    assert notes[0] in run("plan.yaml")[2]


def test_a_plan_is_checked_without_a_server(run: Run) -> None:
    code, out, _ = run("kubernetes.yaml --dry-run")
    assert code == 0
    assert out.splitlines()[0] == "1. reserve 1 host from kubernetes for at most 1 h"
    assert "5. write the report to the server" in out
    assert "arms take at most 12 s" in out
    assert "not checked: which hosts of kubernetes can be reserved, and what that disturbs" in out
    assert (
        "not checked: whether each host accepts these tasks (its /etc/overnight/agent.toml)" in out
    )
    assert out.splitlines()[-1] == "the plan is valid; no server was asked (--server URL), and nothing was changed"  # fmt: skip
    code, out, _ = run("kubernetes.yaml --dry-run -O json")
    document = parse(out, "run-plan")
    assert (code, document["reservation"], len(document["unchecked"])) == (0, None, 2)


@pytest.mark.parametrize("foreign", ["night.html", "night.txt", "night.json", "night-next-plan.yaml", "night-verdict-3.html"])  # fmt: skip
def test_a_report_replaces_no_file_of_others(
    hosts: LocalHost, run: Run, tmp_path: pathlib.Path, foreign: str
) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN.format(provider="local") + "report: night.html\n")
    other = tmp_path / foreign
    # A page of `diagnose` begins like this, too.
    other.write_text('<meta name="generator" content="overnight"><title>Diagnosis')
    for words in ("plan.yaml", "plan.yaml --dry-run"):
        code, _, err = run(words)
        assert (code, f"plan.yaml:17:1: {foreign} exists and is not a file of a report" in err) == (2, True), err  # fmt: skip
    assert (other.read_text()[-9:], hosts.tasks) == ("Diagnosis", {})
    other.unlink()
    other.symlink_to(tmp_path / "elsewhere")
    assert run("plan.yaml --dry-run")[0] == 2
    other.unlink()
    code, out, _ = run("plan.yaml --dry-run")
    assert (code, f"write the report to {tmp_path}/night.html\n" in out) == (0, True)
    assert run("plan.yaml")[0] == 0
    assert (tmp_path / "night.txt").read_text().startswith("Reproduced")
    code, out, _ = run("plan.yaml --dry-run")
    assert (code, f"write the report to {tmp_path}/night.html, in place of the last one\n" in out) == (0, True)  # fmt: skip
    (tmp_path / "night.html").rename(tmp_path / "kept.html")
    (tmp_path / "night.html").symlink_to("kept.html")
    assert run("plan.yaml --dry-run")[0] == 2


def test_a_file_that_comes_during_the_night_stays(
    hosts: LocalHost, run: Run, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN.format(provider="local") + "report: night.html\n")
    other, begin = tmp_path / "night.html", hosts.list_events

    def write(*words: Any) -> Any:
        other.write_text("root's own")
        return begin(*words)

    monkeypatch.setattr(hosts, "list_events", write)
    code, out, err = run("plan.yaml")
    assert (code, other.read_text()) == (0, "root's own"), err
    [line] = [line for line in out.splitlines() if line.startswith("report: ")]
    report = pathlib.Path(line.removeprefix("report: "))
    assert report.name == "report.html"
    why = f"the report is not in {other}: {other} exists and is not a file of a report"
    assert why in json.loads(report.with_suffix(".json").read_text())["not_possible"]


@pytest.mark.parametrize("name", ["folder.html", "pipe.html", "zero.html", "plan.yaml/a.html", "n" * 300 + ".html", "a\\0.html", "shut/new/a.html"])  # fmt: skip
def test_a_report_that_cannot_be_written_is_refused_before_the_night(
    hosts: LocalHost, run: Run, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: pathlib.Path(path).name != "shut")
    for folder in ("shut", "folder.html"):
        (tmp_path / folder).mkdir()
    os.mkfifo(tmp_path / "pipe.html")
    (tmp_path / "zero.html").symlink_to("/dev/zero")
    (tmp_path / "plan.yaml").write_text(PLAN.format(provider="local") + f'report: "{name}"\n')
    for words in ("plan.yaml", "plan.yaml --dry-run"):
        code, _, err = run(words)
        assert (code, "plan.yaml:17:1: " in err) == (2, True), err
    assert (hosts.tasks, sorted(tmp_path.glob("[a-z]*.html"))) == (
        {}, [tmp_path / name for name in ("folder.html", "pipe.html", "zero.html")]
    )  # fmt: skip


@pytest.mark.usefixtures("hosts")
def test_a_night_is_not_lost_with_the_folder_of_its_report(
    run: Run, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN.format(provider="local") + "report: /proc/a.html\n")
    code, out, err = run("plan.yaml")
    assert code == 0, err
    [line] = [line for line in out.splitlines() if line.startswith("report: ")]
    report = pathlib.Path(line.removeprefix("report: "))
    why = json.loads(report.with_suffix(".json").read_text())["not_possible"]
    assert any(each.startswith("the report is not in /proc/a.html: ") for each in why)


@pytest.mark.parametrize(
    "words", ["local.yaml", pytest.param("start local.yaml", marks=pytest.mark.long)]
)
def test_a_plan_is_carried_out_and_shown(hosts: LocalHost, run: Run, words: str) -> None:
    code, out, err = run(words)
    assert code == 0, err
    assert out.startswith("\nReproduced: net.driver_reset")
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["overnight"] * 3
    assert "arm hot: net.driver_reset reset" in err
    assert "every host is given back" in err
    assert hosts.is_closed
    assert run("list")[1] == "no investigations\n"
    code, listed, _ = run("list --all -O json")
    [shown] = parse(listed, "investigations")["investigations"]
    code, status, _ = run(f"status {shown['id']} -O json")
    document = parse(status, "investigation")
    assert (code, document["outcome"], document["left_s"]) == (0, "reproduced", 0.0)
    report = pathlib.Path(document["report"])
    written = json.loads(report.with_suffix(".json").read_text())
    assert written["investigation"]["id"] == shown["id"]
    code, _, err = run(f"resume {shown['id']}")
    assert (code, "has ended" in err) == (3, True)
    assert run(f"stop {shown['id']}")[0] == 0


def test_nothing_happened_is_exit_code_1(hosts: LocalHost, run: Run) -> None:
    hosts.fault = None
    code, out, _ = run("local.yaml --for 6s")
    assert code == 1
    assert out.startswith("\nDid not reproduce: ")
    assert "-next-plan.yaml" in out


def test_ctrl_c_ends_it_cleanly_and_twice_leaves_it(
    hosts: LocalHost, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = hosts.list_events

    def interrupt(*words: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return begin(*words)

    monkeypatch.setattr(hosts, "list_events", interrupt)
    code, _, err = run("local.yaml --for 20m")
    assert code == 130
    left = next(line for line in err.splitlines() if line.startswith("interrupted; continue with"))
    made = left.split()[-1].strip("`")
    assert "run resume" in left
    assert [t.kind for t in hosts.tasks.values() if not t.state.is_final] == ["record", "load"]

    def stop(*words: Any) -> Any:
        monkeypatch.setattr(hosts, "list_events", begin)
        return interrupt(*words)

    monkeypatch.setattr(hosts, "list_events", stop)
    code, out, _ = run(f"resume {made}")
    assert "stopped on request" in out
    assert code == 1
    assert hosts.changed == {}


def test_the_second_signal_interrupts() -> None:
    stop = threading.Event()
    with stop_signals.stop_then_interrupt(stop):
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert stop.wait(10)
