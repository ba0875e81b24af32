"""Material of a report: the recording around its event, and gaps where nothing was recorded."""

from __future__ import annotations

import dataclasses
import io
import pathlib
import shutil

import captures
import pytest
import rich.console
import rings
import verdicts

from overnight.app import report_material
from overnight.model import cpu
from overnight.model.event import Event
from overnight.model.finding import Finding, Subject
from overnight.model.instrument import Reading, Usage
from overnight.model.selection import Window
from overnight.model.verdict import Chain, Verdict, VerdictStatus
from overnight.queries import case as cases
from overnight.reports.diagnosis import html, markdown, text
from overnight.store import readings, segments

SECOND = 1_000_000
AT = 760  # seconds into the recording
INCIDENT = range(AT - 7, AT)
EVENT = Event(rings.us(AT), "net.driver_reset", "eth0", rings.HOST, id="net.driver_reset-1")


def make_finding(kind: str, core: int, begin: float, end: float, confidence: float = 0.9) -> Finding:  # fmt: skip
    window = Window(rings.us(begin), rings.us(end))
    about = Subject(rings.HOST, core)
    return Finding(f"{kind}-{core}", "x", kind, about, window, confidence, kind, ())


CORE = make_finding("cpu.core_saturated", 1, INCIDENT.start, INCIDENT.stop)


def make_verdict(*findings: Finding, steps: tuple[Finding, ...] = ()) -> Verdict:
    chain = Chain(steps, (), 0.5) if steps else None
    return Verdict(EVENT, VerdictStatus.INCONCLUSIVE, 0.5, chain, findings=findings)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("home")
    writer = rings.open_writer(folder)
    ticks = {core: [0] * len(cpu.TOTAL) for core in ("0", "1")}
    writer.facts("host", rings.at(AT - 60), {"": {"zone": "z1", "kernel": "6.1", "odd": "no"}})
    for second in range(AT - 60, AT + 30):
        for core, row in ticks.items():
            full = core == "1" and second - 1 in INCIDENT
            row[cpu.TOTAL.index("system" if full else "idle")] += 100
        writer.numbers("cpu", cpu.TOTAL, rings.at(second), {c: tuple(r) for c, r in ticks.items()})  # fmt: skip
        writer.tick(rings.at(second))
        if second % 60 == 0:
            columns = ("tracked", "in_use", "dying")
            writer.numbers(
                "memory-cgroups", columns, rings.at(second), {"": (second + 9, 9, second)}
            )
    writer.event(EVENT)
    writer.event(dataclasses.replace(EVENT, time_us=rings.us(5), id="net.driver_reset-0"))
    writer.close()
    begin = rings.BEGIN_US * 1000
    spin = (captures.user("main"), captures.kernel("spin"))
    samples = [
        captures.Sample(
            begin + tick * 10_000_000, path=path, cpu=1, process=process, unit="a.service"
        )
        for second in range(AT - 400, AT + 10)
        for tick in range(second * 100, second * 100 + 100, 4)
        for path, process in [
            (spin, "spinner") if second in INCIDENT else ((captures.user("main"),), "app")
        ]
    ]
    capture = captures.build(samples, host=rings.HOST, begin=begin + (AT - 400) * 10**9, frequency=25)  # fmt: skip
    captures.store(folder, capture)
    return folder


def test_strips_stacks_and_difference_are_of_the_saturated_core(home: pathlib.Path) -> None:
    material = report_material.gather(cases.Case(home, EVENT), make_verdict(CORE, steps=(CORE,)))
    assert material.problems == ()
    assert (material.core, material.incident) == (1, CORE.window)
    assert material.cores
    saturated = [
        second
        for second, row in zip(material.cores.begin_us.tolist(), material.cores.values["kernel"].tolist(), strict=True)
        if row[1] == 100
    ]  # fmt: skip
    assert saturated == [rings.us(second) for second in INCIDENT]
    assert [event.id for event in material.events] == [EVENT.id]
    assert material.processes
    (row,) = material.processes.rows
    assert (row.name, row.samples, row.cores) == ("spinner", 25 * 7, 1.0)
    assert material.flame
    leaves = {material.flame.frames[path[-1]].name for path, _ in material.flame.stacks()}
    assert leaves == {"spin"}
    assert (material.flame.cores, material.flame.frequency) == ((1,), 25)
    assert material.compared
    assert material.compared.capacity == 25 * 7
    before = material.compared.before
    assert "app" in {before.frames[path[0]].name for path, _ in before.stacks()}
    assert material.difference
    assert material.difference.changes[0].name == "spin"
    assert material.labels == {"zone": "z1", "kernel": "6.1"}


def test_readings_of_instruments_are_in_every_report(
    home: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)
    writer = readings.ReadingWriter(tmp_path, rings.HOST, "runqueue-latency", "", rings.us(AT - 99))
    values = {"count": 4.0, "p99_us": 7e5, "max_us": 8.12e5}
    writer.add(
        [
            Reading(rings.us(AT - 3), "run-queue", 1, values=values),
            Reading(rings.us(AT - 3), "run-queue", 1, 7, "<b>x", values={"max_us": 9e4}),
            Reading(rings.us(AT - 3), "from-a-newer-version", 1),
        ]
    )
    writer.add_usage(Usage(0.5, 0.1, 2, 0), ended=True)
    writer.close()
    case, verdict = cases.Case(tmp_path, EVENT), make_verdict(CORE, steps=(CORE,))
    material = report_material.gather(case, verdict)
    assert material.problems == ()
    assert material.waits == {1: ((rings.us(AT - 3), 8.12e5),)}
    assert [row.subject for row in material.readings] == ["", "<b>x"]
    assert [recording.instrument for recording in material.recordings] == ["runqueue-latency"]
    outputs = []
    for report in (html, markdown):
        file = io.BytesIO()
        report.write(verdict, file, material)
        outputs.append(file.getvalue().decode())
    console = rich.console.Console(record=True, width=200, file=io.StringIO())
    console.print(text.render(verdict, material))
    for output in (*outputs, console.export_text()):
        assert "run-queue core 1 4 times p99 700 ms max 812 ms" in " ".join(output.split())
        assert "lost 2 events" in output
    assert 'class="wait"' in outputs[0]
    assert "<b>x" not in outputs[0]


def test_the_census_is_read_when_a_finding_is_about_memory(home: pathlib.Path) -> None:
    case = cases.Case(home, EVENT)
    assert report_material.gather(case, make_verdict(CORE)).census == ()
    zombies = make_finding("memory.zombie_cgroups", -1, 0, AT)
    samples = report_material.gather(case, make_verdict(CORE, zombies)).census
    assert [(sample.time_us, sample.dying) for sample in samples] == [
        (rings.us(n), n) for n in (720,)
    ]


def test_the_focus_comes_from_the_chain_then_the_findings_then_the_event(
    home: pathlib.Path,
) -> None:
    case = cases.Case(home, EVENT)
    other = make_finding("cpu.core_saturated", 0, AT - 3, AT)
    late = make_finding("net.queue_starved", 0, AT - 2, AT)
    assert report_material.focus(case, make_verdict(other, late, steps=(CORE,)))[0] == 1
    assert report_material.focus(case, make_verdict(late, other)) == (0, other.window)
    core, incident = report_material.focus(case, make_verdict())
    assert core == -1
    assert incident.begin_us < EVENT.time_us < incident.end_us
    elsewhere = make_finding("cpu.culprit", 0, 1, 5)
    assert report_material.focus(case, make_verdict(elsewhere)) == (0, incident)
    long = make_finding("cpu.culprit", 0, 1, AT)
    _, window = report_material.focus(case, make_verdict(long))
    assert window == Window(rings.us(AT) - report_material.MAX_INCIDENT_US, rings.us(AT))


def test_without_a_core_the_whole_host_is_shown(home: pathlib.Path) -> None:
    material = report_material.gather(cases.Case(home, EVENT), make_verdict())
    assert material.flame
    assert material.flame.cores == ()
    assert material.flame.title == rings.HOST


def test_missing_stacks_are_a_problem_not_an_error(tmp_path: pathlib.Path) -> None:
    material = report_material.gather(
        cases.Case(tmp_path, EVENT), make_verdict(CORE, steps=(CORE,))
    )
    assert material.cores is None
    assert material.flame is None
    assert material.problems == ("flame graph: no stacks were sampled in the incident window",)


def test_a_damaged_recording_is_a_problem_not_an_error(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("it is cut off")

    monkeypatch.setattr(cases.Case, "flame", broken)
    material = report_material.gather(cases.Case(home, EVENT), make_verdict(CORE))
    assert material.problems == ("flame graph: it is cut off",)
    assert material.cores is not None
    assert segments.Catalogue(home).hosts() == (rings.HOST,)


def test_lifts_and_fleet_come_from_the_findings(tmp_path: pathlib.Path) -> None:
    lift = verdicts.lift_finding()
    less = dataclasses.replace(lift, magnitude={"lift": 2.0, "low": 0.1})
    fleet = dataclasses.replace(lift, kind="fleet.cohort", detector="fleet.cohort")
    material = report_material.gather(cases.Case(tmp_path, EVENT), make_verdict(less, lift, fleet))
    assert [finding.magnitude["lift"] for finding in material.lifts] == [41.0, 2.0]
    assert material.lifts[0].subject.function == "mem_cgroup_nr_lru_pages"
    assert material.fleet == (fleet,)
