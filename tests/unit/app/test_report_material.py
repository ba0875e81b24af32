"""What a report shows is what was recorded around its event, and a gap where nothing was."""

from __future__ import annotations

import dataclasses
import pathlib

import captures
import pytest
import rings
import verdicts

from overnight.app import report_material
from overnight.model import cpu
from overnight.model.event import Event
from overnight.model.finding import Finding, Subject
from overnight.model.selection import Window
from overnight.model.verdict import Chain, Verdict, VerdictStatus
from overnight.queries import case as cases
from overnight.store import segments

SECOND = 1_000_000
AT = 760  # seconds into the recording
HOT = range(AT - 7, AT)
TOLD = Event(rings.us(AT), "net.driver_reset", "eth0", rings.HOST, id="net.driver_reset-1")


def found(kind: str, core: int, begin: float, end: float, confidence: float = 0.9) -> Finding:  # fmt: skip
    window = Window(rings.us(begin), rings.us(end))
    about = Subject(rings.HOST, core)
    return Finding(f"{kind}-{core}", "x", kind, about, window, confidence, kind, ())


CORE = found("cpu.core_saturated", 1, HOT.start, HOT.stop)


def told(*findings: Finding, steps: tuple[Finding, ...] = ()) -> Verdict:
    chain = Chain(steps, (), 0.5) if steps else None
    return Verdict(TOLD, VerdictStatus.INCONCLUSIVE, 0.5, chain, findings=findings)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    place = tmp_path_factory.mktemp("home")
    made = rings.open_writer(place)
    ticks = {core: [0] * len(cpu.TOTAL) for core in ("0", "1")}
    made.facts("host", rings.at(AT - 60), {"": {"zone": "z1", "kernel": "6.1", "odd": "no"}})
    for second in range(AT - 60, AT + 30):
        for core, row in ticks.items():
            full = core == "1" and second - 1 in HOT
            row[cpu.TOTAL.index("system" if full else "idle")] += 100
        made.numbers("cpu", cpu.TOTAL, rings.at(second), {c: tuple(r) for c, r in ticks.items()})  # fmt: skip
        made.tick(rings.at(second))
        if second % 60 == 0:
            columns = ("tracked", "in_use", "dying")
            made.numbers("memory-cgroups", columns, rings.at(second), {"": (second + 9, 9, second)})
    made.event(TOLD)
    made.event(dataclasses.replace(TOLD, time_us=rings.us(5), id="net.driver_reset-0"))
    made.close()
    begin = rings.BEGIN_US * 1000
    spin = (captures.user("main"), captures.kernel("spin"))
    samples = [
        captures.Sample(begin + tick * 10_000_000, path=path, cpu=1, process=who, unit="a.service")
        for second in range(AT - 400, AT + 10)
        for tick in range(second * 100, second * 100 + 100, 4)
        for path, who in [(spin, "spinner") if second in HOT else ((captures.user("main"),), "app")]
    ]
    capture = captures.build(samples, host=rings.HOST, begin=begin + (AT - 400) * 10**9, frequency=25)  # fmt: skip
    captures.store(place, capture)
    return place


def test_strips_stacks_and_difference_are_of_the_hot_core(home: pathlib.Path) -> None:
    made = report_material.gather(cases.Case(home, TOLD), told(CORE, steps=(CORE,)))
    assert made.problems == ()
    assert (made.core, made.incident) == (1, CORE.window)
    assert made.cores
    hot = [
        second
        for second, row in zip(made.cores.begin_us.tolist(), made.cores.values["kernel"].tolist(), strict=True)
        if row[1] == 100
    ]  # fmt: skip
    assert hot == [rings.us(second) for second in HOT]
    assert [one.id for one in made.events] == [TOLD.id]
    assert made.processes
    (row,) = made.processes.rows
    assert (row.name, row.samples, row.cores) == ("spinner", 25 * 7, 1.0)
    assert made.flame
    leaves = {made.flame.frames[path[-1]].name for path, _ in made.flame.stacks()}
    assert leaves == {"spin"}
    assert (made.flame.cores, made.flame.frequency) == ((1,), 25)
    assert made.compared
    assert made.compared.capacity == 25 * 7
    before = made.compared.before
    assert "app" in {before.frames[path[0]].name for path, _ in before.stacks()}
    assert made.difference
    assert made.difference.changes[0].name == "spin"
    assert made.labels == {"zone": "z1", "kernel": "6.1"}


def test_the_census_is_read_where_the_verdict_speaks_of_memory(home: pathlib.Path) -> None:
    case = cases.Case(home, TOLD)
    assert report_material.gather(case, told(CORE)).census == ()
    zombies = found("memory.zombie_cgroups", -1, 0, AT)
    looks = report_material.gather(case, told(CORE, zombies)).census
    assert [(one.time_us, one.dying) for one in looks] == [(rings.us(n), n) for n in (720,)]


def test_the_chain_says_what_is_looked_at_then_the_findings_then_the_event(
    home: pathlib.Path,
) -> None:
    case = cases.Case(home, TOLD)
    other = found("cpu.core_saturated", 0, AT - 3, AT)
    late = found("net.queue_starved", 0, AT - 2, AT)
    assert report_material.focus(case, told(other, late, steps=(CORE,)))[0] == 1
    assert report_material.focus(case, told(late, other)) == (0, other.window)
    core, hot = report_material.focus(case, told())
    assert core == -1
    assert hot.begin_us < TOLD.time_us < hot.end_us
    elsewhere = found("cpu.culprit", 0, 1, 5)
    assert report_material.focus(case, told(elsewhere)) == (0, hot)
    long = found("cpu.culprit", 0, 1, AT)
    _, window = report_material.focus(case, told(long))
    assert window == Window(rings.us(AT) - report_material.MAX_INCIDENT_US, rings.us(AT))


def test_without_a_core_everything_of_the_host_is_shown(home: pathlib.Path) -> None:
    made = report_material.gather(cases.Case(home, TOLD), told())
    assert made.flame
    assert made.flame.cores == ()
    assert made.flame.title == rings.HOST


def test_what_was_not_recorded_is_named_and_nothing_is_raised(tmp_path: pathlib.Path) -> None:
    made = report_material.gather(cases.Case(tmp_path, TOLD), told(CORE, steps=(CORE,)))
    assert made.cores is None
    assert made.flame is None
    assert made.problems == ("flame graph: no stacks were sampled in the incident window",)


def test_what_is_damaged_is_named(home: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("it is cut off")

    monkeypatch.setattr(cases.Case, "flame", broken)
    made = report_material.gather(cases.Case(home, TOLD), told(CORE))
    assert made.problems == ("flame graph: it is cut off",)
    assert made.cores is not None
    assert segments.Catalogue(home).hosts() == (rings.HOST,)


def test_lifts_and_fleet_come_from_the_findings(tmp_path: pathlib.Path) -> None:
    one = verdicts.lift_finding()
    less = dataclasses.replace(one, magnitude={"lift": 2.0, "low": 0.1})
    fleet = dataclasses.replace(one, kind="fleet.cohort", detector="fleet.cohort")
    made = report_material.gather(cases.Case(tmp_path, TOLD), told(less, one, fleet))
    assert [row.lift for row in made.lifts] == [41.0, 2.0]
    assert made.lifts[0].function == "mem_cgroup_nr_lru_pages"
    assert made.fleet == (fleet,)
