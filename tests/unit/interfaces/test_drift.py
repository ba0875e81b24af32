"""`overnight drift`: sick hosts, output and exit codes; and the detectors on the same home."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import jsonschema
import pytest
import rings
from scenarios.truth import find_event

from overnight.app import diagnose
from overnight.interfaces import cli
from overnight.model.event import Event
from overnight.model.finding import Status
from overnight.model.snapshot import Snapshot
from overnight.queries import case
from overnight.store.ring import writer
from scenarios import fleet

SCHEMA = pathlib.Path(__file__).parents[3] / "docs/schemas/drift-1.json"
SICK = ("db-00", "db-01", "db-02")


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    """Twelve hosts; only three had a driver reset, and only those have an agent enabled."""
    for number in range(12):
        name = f"db-{number:02}"
        ring = writer.Writer(tmp_path, name, rings.BOOT, budget_bytes=1 << 30, age_seconds=1 << 20)
        ring.facts("host", rings.at(0), {"": {"zone": "a" if name in SICK else "b"}})
        ring.numbers("cpu", ("user",), rings.at(0), {"0": (1,)})
        ring.tick(rings.at(3600))
        ring.numbers("cpu", ("user",), rings.at(3600), {"0": (2,)})
        if name in SICK:
            ring.event(
                Event(
                    rings.us(60 + number), "net.driver_reset", host=name, boot=rings.BOOT,
                    severity="critical", id=f"reset-{number}",
                )
            )  # fmt: skip
        ring.close()
        units = {"sshd.service": {"state": "enabled"}, "agent\x1b.service": {"state": "enabled"}}
        if name not in SICK:
            del units["agent\x1b.service"]
        snapshot = Snapshot(
            {"host": name}, {"units": units, "sysctl": {"kernel.x": str(number)}}, ()
        )
        path = tmp_path / "snapshots" / name / "20261115T070000Z.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(snapshot.as_json()))
    return tmp_path


def run(home: pathlib.Path, *words: str) -> int:
    return cli.main(["--home", str(home), "drift", *words])


@pytest.mark.parametrize(
    "words",
    [[], ["--kind", "net."], [word for name in SICK for word in ("--sick", name)]],
    ids=["critical events", "a kind", "named"],
)
def test_the_difference_of_the_sick_hosts_is_found(home, capsys, words: list[str]) -> None:
    assert run(home, "-O", "json", *words) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert (document["status"], document["sick"]) == ("found", list(SICK))
    first = document["differences"][0]
    assert first["items"][0]["key"] == "agent\x1b.service"
    assert (first["sick_with"], first["healthy_with"]) == (3, 0)
    assert first["p"] == pytest.approx(1 / 220)
    assert [difference["stands"] for difference in document["differences"]] == [True] + [False] * 12
    assert document["columns"] == 13


def test_check_exits_with_1_and_the_terminal_is_safe(home, capsys) -> None:
    assert run(home, "--check", "--limit", "2") == 1
    shown = capsys.readouterr().out
    assert "3/3 sick, 0/9 healthy  units: agent\\x1b.service" in shown
    assert "chance does not explain 1 of 13 differences; -O json lists the others" in shown
    assert shown.count("healthy  ") == 1
    assert run(home, "--sick", "db-05", "--sick", "db-06", "--limit", "2") == 0
    shown = capsys.readouterr().out
    assert shown.count("healthy  ") == 2
    assert "11 more differences (--limit)" in shown


def test_too_few_hosts_are_no_data(home, capsys) -> None:
    assert run(home, "--check", "--sick", "db-05", "-O", "json") == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["status"] == "no-data"
    assert "cannot conclude" in document["why"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--sick", "db-99"], 3, "no host 'db-99' is recorded"),
        (["--kind", "cpu.core_pinned"], 3, "no host had cpu.core_pinned"),
        (["--kind", "net.", "--sick", "db-01"], 2, "mutually exclusive"),
        (["--kind", "net.", "--unit", "x.service"], 2, "mutually exclusive"),
        (["--unit", "sshd.service"], 3, "sshd.service is active on no host"),
    ],
)
def test_invalid_options_are_refused(
    home, capsys, words: list[str], code: int, message: str
) -> None:
    assert run(home, *words) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(3))
def test_the_failed_bootstrap_and_the_unit_that_runs_in_one_zone_come_first(
    tmp_path, capsys, seed: int
) -> None:
    truth = fleet.build_failed_bootstrap(tmp_path, seed)
    unit, hosts = str(truth.facts["unit"]), sorted(truth.facts["hosts"])
    for words in ([], ["--kind", "net.driver_reset"], ["--unit", unit]):
        assert run(tmp_path, "-O", "json", *words) == 0
        document = json.loads(capsys.readouterr().out)
        jsonschema.validate(document, json.loads(SCHEMA.read_text()))
        assert (document["status"], document["sick"]) == ("found", hosts)
        assert [difference["stands"] for difference in document["differences"]].count(True) == 1
        things = [(item["part"], item["key"]) for item in document["differences"][0]["items"]]
        assert list(dict.fromkeys(things)) == [
            ("bootstrap", "cloud-init modules-final"),
            ("running", unit),
            ("listening", unit.removesuffix(".service")),
        ]
        assert len(document["never_active"].pop(unit)) == 8
        assert document["never_active"] == document["unrecorded"] == {}
    assert run(tmp_path, "--unit", unit) == 0
    shown = capsys.readouterr().out
    assert (
        "4/4 active, 0/8 not active  bootstrap: cloud-init modules-final result = success" in shown
    )
    assert "result = success (failed on the others)" in shown
    assert f"together with: running: {unit} active = active (inactive on the others)" in shown
    assert f"{unit} is enabled, but was never active on 8 hosts: an audit of" in shown
    assert f"cloud-init modules-final failed on {document['healthy'][0]}: {fleet.ERROR}" in shown


def test_snapshots_of_an_older_version_are_compared_without_what_runs(tmp_path, capsys) -> None:
    truth = fleet.build_failed_bootstrap(tmp_path, 1, old=3)
    assert run(tmp_path, "-O", "json", "--kind", "net.") == 0
    document = json.loads(capsys.readouterr().out)
    first = document["differences"][0]
    assert first["items"][0]["part"] == "bootstrap"
    assert (first["sick"], first["healthy"]) == (3, 6)
    assert document["unrecorded"] == dict.fromkeys(
        ("bootstrap", "running", "listening", "loaded", "taint"), 3
    )
    assert run(tmp_path, "--unit", str(truth.facts["unit"])) == 0
    assert "without a snapshot" in capsys.readouterr().out


def test_the_fleet_detector_names_the_unit_that_runs(tmp_path) -> None:
    truth = fleet.build_failed_bootstrap(tmp_path, 2)
    (host, *_) = truth.facts["hosts"]
    incident = case.Case(tmp_path, find_event(tmp_path, host, "net.driver_reset", 0))
    (detector,) = [d for d in diagnose.discover_fleet_detectors() if d.name == "fleet.drift"]
    answer = detector.look(incident)
    (finding,) = answer.findings
    assert finding.subject.unit == truth.facts["unit"]
    assert finding.subject.item.startswith("bootstrap: cloud-init modules-final result = success")


def test_without_snapshots_the_error_names_the_command(tmp_path, capsys) -> None:
    assert run(tmp_path) == 3
    assert " snapshot`" in capsys.readouterr().err


def test_the_detectors_answer_for_a_case(home: pathlib.Path) -> None:
    incident = case.Case(home, Event(rings.us(61), "net.driver_reset", host="db-01"))
    detectors = diagnose.discover_fleet_detectors()
    answers = {detector.name: detector.look(incident) for detector in detectors}
    assert {name: answer.status for name, answer in answers.items()} == {
        "fleet.cohort": Status.FOUND,
        "fleet.uptime": Status.NO_DATA,
        "fleet.drift": Status.FOUND,
    }
    assert answers["fleet.cohort"].findings[0].subject.cohort == "zone a"
    assert answers["fleet.drift"].findings[0].subject.unit == "agent\x1b.service"
    for answer in answers.values():
        json.dumps(answer.as_json())
        json.dumps([finding.as_json() for finding in answer.findings])


def test_building_the_command_line_does_not_import_statistics() -> None:
    code = (
        "import sys, overnight.detectors.fleet, overnight.app.drift\n"
        "from overnight.interfaces import cli\n"
        "cli.build()\n"
        "print(sorted({'numpy', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_sick_hosts_are_compared_with_a_spared_zone_only(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "--home",
        str(home),
        "drift",
        "--sick",
        "db-00",
        "--sick",
        "db-05",
        "--limit",
        "1",
        "-O",
        "json",
    ]
    healthy = {}
    for zone in ("a", "b", "c"):
        assert cli.main([*command, "--against", f"zone={zone}"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["sick"] == ["db-00", "db-05"]
        assert document["without_snapshot"] == []
        healthy[zone] = document["healthy"]
    assert healthy["a"] == ["db-01", "db-02"]
    assert healthy["b"] == [f"db-{n:02}" for n in range(3, 12) if n != 5]
    assert healthy["c"] == []
    assert cli.main([*command, "--against", "zone"]) == 2
    assert "'zone' is not a label" in capsys.readouterr().err
