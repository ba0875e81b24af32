"""A program that keeps starting short-lived processes is blamed, not what it starts."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import captures
import casebook
import numpy as np
import pytest
import rings

from overnight.app import diagnose
from overnight.detectors import culprit, spawn_storm
from overnight.model.finding import Need, Status, Subject
from overnight.store import capture

DETECTOR = spawn_storm.DETECTORS[0]
AT = casebook.EVENT_SECOND
FORK = (captures.kernel("do_syscall_64"), captures.kernel("copy_process"))
LAUNCHER, UNIT = "nightly.sh (bash)", "cron.service"
Rate = Callable[[int], int]  # processes started in a second


def saturated(second: int, core: int) -> tuple[float, float, float]:
    return (0.2, 0.8, 0.0) if core == 2 and AT - 6 <= second < AT else (0.05, 0.0, 0.0)


def spread(second: int, _core: int) -> tuple[float, float, float]:
    return (0.2, 0.5, 0.0) if AT - 6 <= second < AT else (0.05, 0.0, 0.0)


def rising(to: int, before: int = 0) -> Rate:
    return lambda second: to if AT - 6 <= second < AT else before


def record(
    home: casebook.Home,
    started: Rate | None,
    *,
    names: Sequence[str] = ("true",),
    cores: Sequence[int] = (2,),
    share: int = 90,
    before: int = 0,
    begin: int = 0,
) -> None:
    """Record short-lived children with a share of these cores, now and before; None: without forks."""
    samples = [
        sample
        for core in cores
        for number, name in enumerate(names)
        for since, until, percent in ((begin, AT - 6, before), (AT - 6, AT, share))
        if percent
        for sample in casebook.busy(
            since, until, core, f"nightly.sh → {name}", FORK, unit=UNIT, pid=1000 + number,
            hertz=percent // len(names),
        )
    ]  # fmt: skip
    samples += [
        captures.Sample(casebook.moment(second), captures.IDLE, core, "swapper", pid=0, tid=0)
        for second in range(begin, home.seconds, 5)
        for core in range(home.cores)
    ]
    built = captures.build(
        samples,
        host=rings.HOST,
        begin=casebook.moment(begin),
        end=casebook.moment(home.seconds),
        cores=tuple(range(home.cores)),
    )
    if started is not None:
        built = add_processes(built, started, names, range(begin, home.seconds))
    captures.store(home.folder, built)


def add_processes(
    built: capture.Capture, started: Rate, names: Sequence[str], seconds: range
) -> capture.Capture:
    row = {f"nightly.sh → {name}": 1 + number for number, name in enumerate(names)}
    empty = [""] * (1 + len(names))
    rows = [
        (second, number) for second in seconds for number in range(len(names)) if started(second)
    ]
    return dataclasses.replace(
        built,
        tasks=dataclasses.replace(
            built.tasks,
            row=np.array([row.get(name, -1) for name in built.tasks.process], np.int32),
            launcher=[LAUNCHER if name in row else "" for name in built.tasks.process],
        ),
        processes=capture.Processes(
            pid=np.array([77, *range(1000, 1000 + len(names))], np.int32),
            parent=np.array([-1, *[0] * len(names)], np.int32),
            started_us=np.zeros(1 + len(names), np.int64),
            count=np.ones(1 + len(names), np.uint32),
            name=[LAUNCHER, *row], comm=["bash", *names], executable=empty, command=empty,
            user=empty, cgroup=empty, unit=[UNIT] * len(empty), container=empty, pod=empty,
        ),
        spawns=capture.Spawns(
            launcher=np.zeros(len(rows), np.int32),
            name=[names[number] for _, number in rows],
            second=np.array([rings.us(second) // 10**6 for second, _ in rows], np.int64),
            count=np.array([started(second) // len(names) for second, _ in rows], np.uint32),
        ),
    )  # fmt: skip


@pytest.fixture
def home(tmp_path: pathlib.Path) -> casebook.Home:
    return casebook.Home(tmp_path).cpu(saturated)


def test_the_launcher_of_many_names_is_one_culprit(home: casebook.Home) -> None:
    record(home, rising(900), names=("awk", "sed", "cut", "date", "true", "wc"))
    home.event(core=2, fields={"interface": "eth0", "queue": 5, "since_napi_us": 6_000_000})
    case = home.case()
    (finding,) = DETECTOR.look(case).findings
    assert finding.subject == Subject("db-7", 2, UNIT, LAUNCHER)
    assert finding.magnitude["spawns_per_second"] == 900
    assert finding.magnitude["spawns_before"] == 0
    assert finding.magnitude["cores_added"] == pytest.approx(0.9, abs=0.05)
    assert "awk 17 %" in finding.summary
    assert "and 2 more" in finding.summary
    assert finding.against == ()
    texts = [each.text for each in finding.evidence]
    assert texts[0].startswith(
        f"nightly.sh (bash, {UNIT}) (pid 77) started 5400 processes: awk 17 %, "
    )
    assert texts[1].startswith(
        "its short-lived children have 540 samples of core 2 in 6 s (0.90 cores), "
    )
    assert texts[1].endswith(" itself 0")
    assert texts[2].endswith("it started 0.0 processes a second, now 900.0")
    (blamed,) = (
        each for each in culprit.DETECTORS[0].look(case).findings if each.kind == "cpu.culprit"
    )
    assert blamed.subject == Subject("db-7", 2, UNIT, LAUNCHER, "copy_process")
    assert "nightly" in blamed.evidence[0].look
    assert blamed.evidence[1].values["path"] == "nightly.sh → awk;do_syscall_64;copy_process"
    verdict, _ = diagnose.diagnose_event(home.folder, case.event)
    assert verdict.chain is not None
    kinds = [step.kind for step in verdict.chain.steps]
    assert kinds[:2] == [spawn_storm.KIND, "cpu.core_saturated"], verdict.summary
    assert LAUNCHER in verdict.narrative.headline


def test_a_storm_on_all_cores_needs_no_saturated_core(tmp_path: pathlib.Path) -> None:
    home = casebook.Home(tmp_path).cpu(spread)
    record(home, rising(900, before=1), cores=(0, 1, 2, 3), share=60)
    home.event("pressure.cpu")
    (finding,) = DETECTOR.look(home.case()).findings
    assert finding.subject == Subject("db-7", None, UNIT, LAUNCHER)
    assert finding.magnitude["cores_burnt"] == pytest.approx(4 * 0.6, abs=0.1)


@pytest.mark.parametrize(
    ("started", "options", "status", "confidence"),
    [
        pytest.param(rising(900), {}, Status.FOUND, 0.95, id="a storm"),
        pytest.param(rising(60, before=15), {"before": 5}, Status.FOUND, 0.94, id="four times as many"),
        pytest.param(rising(60, before=60), {"before": 90}, Status.CLEAR, None, id="a build that always runs"),
        pytest.param(rising(60, before=60), {}, Status.CLEAR, None, id="the same number, but more work"),
        pytest.param(rising(2), {}, Status.CLEAR, None, id="a shell loop, twice a second"),
        pytest.param(rising(90, before=60), {"before": 30}, Status.CLEAR, None, id="a slow growth"),
        pytest.param(rising(900), {"share": 10}, Status.CLEAR, None, id="forks that cost nothing"),
        pytest.param(rising(900), {"begin": AT - 8}, Status.FOUND, 0.95 * 0.7, id="no baseline"),
        pytest.param(None, {}, Status.NO_DATA, None, id="without the records of forks"),
    ],
)  # fmt: skip
def test_near_misses(
    home: casebook.Home,
    started: Rate | None,
    options: dict[str, int],
    status: Status,
    confidence: float | None,
) -> None:
    record(home, started, **options)  # type: ignore[arg-type]
    home.event(core=2)
    answer = DETECTOR.look(home.case())
    assert answer.status is status, answer.why
    assert [finding.confidence for finding in answer.findings] == (
        [] if confidence is None else [pytest.approx(confidence, abs=0.02)]
    )
    assert answer.missing == ((Need.PROFILES,) if status is Status.NO_DATA else ())
