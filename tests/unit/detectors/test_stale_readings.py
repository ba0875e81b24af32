"""Readings that end before the event clear nothing: every detector, on both sides of the limit."""

from __future__ import annotations

import itertools
import pathlib

import captures
import casebook
import pytest
import rings

from overnight.app import diagnose
from overnight.detectors import cgroup_walk, zombie_cgroups
from overnight.diagnosis import suspects
from overnight.model import event
from overnight.model.finding import Answer, Need, Status
from overnight.queries import freshness

AT, SECONDS = casebook.EVENT_SECOND, casebook.EVENT_SECOND + 20
DETECTORS = {detector.name: detector for detector in diagnose.discover_detectors()}
GROUPS = [
    pytest.param(detector, group, id=f"{name}: {', '.join(group)}")
    for name, detector in DETECTORS.items()
    for group in detector.clears_by
]
# Signals of a quiet host: columns, and the rows of a second.
QUIET = {
    Need.CPU: (casebook.CPU, lambda s: {str(core): (0, 0, 0, 100 * s, 0, 0, 0, 0) for core in range(4)}),
    Need.PROCESSES: (casebook.PROCESSES, lambda s: {"9 app": (s // 9, 0, 1, 0, 0, 83, 0, 0)}),
    Need.PRESSURE: (("some", "full"), lambda s: {"io": (s, 0), "memory": (0, 0)}),
    Need.VMSTAT: (("pgscan_direct", "pgscan_kswapd", "allocstall", "oom_kill"), lambda s: {"": (0,) * 4}),
    Need.CGROUP_BIRTHS: (("born", "died", "short_lived", "lived"), lambda s: {"/system.slice": (s // 60,) * 3 + (s,)}),
    Need.UNIT_RESTARTS: (("restarts", "since"), lambda s: {"app.service": (0, 1)}),
    Need.LIMITS: (("used", "maximum"), lambda s: {"pids": (100, 32768)}),
    Need.RECORDER: (("utime", "stime"), lambda s: {"77 overnight": (s // 9, 0)}),
    Need.MEMORY_CGROUPS: (("tracked", "in_use", "dying", "stat_read", "stat_reads"), lambda s: {"": (60, 40, 20, 90, 1)}),
}  # fmt: skip


def record(path: pathlib.Path, *, until: dict[Need, int], begin: int = 0) -> casebook.Home:
    """Record a quiet host; signals of `until` end at that second, and all others reach beyond the event."""
    home = casebook.Home(path, seconds=SECONDS)
    for need, (columns, rows) in QUIET.items():
        every = freshness.interval_us(need) // 10**6
        seconds = {*range(begin, SECONDS, every), *({until[need]} if need in until else ())}
        for second in sorted(seconds):
            if second <= until.get(need, SECONDS):
                home.writer.numbers(need, columns, rings.at(second), rows(second))
    end = until.get(Need.PROFILES, SECONDS)
    home.stacks(_sample_all(end), end=end)
    home.event()
    return home


def _sample_all(end: int) -> list[captures.Sample]:
    app = (captures.user("main"), captures.kernel("vfs_read"))
    idle = [
        captures.Sample(casebook.moment(second), captures.IDLE, core, "swapper", pid=0, tid=0)
        for second, core in itertools.product(range(end), range(4))
    ]
    return idle + [sample for at in range(0, end, 10) for sample in casebook.busy(at, at + 0.05, 1, "app", app)]  # fmt: skip


@pytest.mark.parametrize(("detector", "group"), GROUPS)
def test_a_stale_reading_clears_nothing(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    detector: diagnose.detectors.Detector,
    group: tuple[Need, ...],
) -> None:
    if detector.name == "spawn-storm":  # these stacks have no starts of processes
        clear = Answer(detector.name, Status.CLEAR)
        monkeypatch.setattr(type(detector), "examine", lambda *_: clear)
    for older, status in ((0, Status.CLEAR), (1, Status.NO_DATA)):
        # Events and facts are stored as they change; that the recorder ran is seen by its other readings.
        stale = [*group, *(QUIET if Need.EVENTS in group else ())]
        until = {need: AT - int(freshness.max_age_us(group[0]) / 1e6) - older for need in stale}
        if not older:
            until.pop(
                Need.PROFILES, None
            )  # some detectors need more of them; test_freshness has the limit
        answer = detector.look(record(tmp_path / f"{older}", until=until).case())
        assert answer.status is status, answer
        assert set(answer.missing) <= set(detector.needs)


def test_every_detector_that_can_be_clear_has_a_limit() -> None:
    assert {name for name, detector in DETECTORS.items() if not detector.clears_by} == {"event"}
    for detector in DETECTORS.values():
        assert {need for group in detector.clears_by for need in group} <= set(detector.needs)


@pytest.mark.parametrize(("before", "status"), [(6, Status.NO_DATA), (7, Status.CLEAR), (20, Status.CLEAR)])  # fmt: skip
def test_a_recording_that_began_seconds_before_the_event_clears_nothing(
    tmp_path: pathlib.Path, before: int, status: Status
) -> None:
    """A driver gives a queue five seconds: of six recorded ones, only a part was before the trouble."""
    case = record(tmp_path, until={Need.PROFILES: 1}, begin=AT - before).case()
    seen = {name: DETECTORS[name].look(case).status for name in ("core-saturation", "softirq", "stalls", "oom")}  # fmt: skip
    assert seen == dict.fromkeys(seen, status)


@pytest.mark.parametrize("name", ["stalls", "oom", "storage"])
def test_a_kernel_log_that_cannot_be_read_clears_nothing(tmp_path: pathlib.Path, name: str) -> None:
    home = record(tmp_path, until={})
    rows = {"kernel-log": {"problem": "permission denied: /dev/kmsg", "denied": True}}
    home.writer.facts("agent-problems", rings.at(5), rows)
    answer = DETECTORS[name].look(home.case())
    assert (answer.status, answer.missing) == (Status.NO_DATA, (Need.EVENTS,))
    assert answer.why == "kernel-log: permission denied: /dev/kmsg"


@pytest.mark.parametrize(("before", "status"), [(5, Status.NO_DATA), (60, Status.CLEAR)])
def test_lines_of_the_kernel_log_that_were_overwritten_clear_nothing(
    tmp_path: pathlib.Path, before: int, status: Status
) -> None:
    home = record(tmp_path, until={})
    text = "lines 7 to 90 of the kernel log were overwritten unread"
    home.event(event.LINES_LOST, AT - before, text=text)
    home.event()
    case = home.case()
    for name in ("stalls", "oom", "storage"):
        answer = DETECTORS[name].look(case)
        assert answer.status is status
        assert (answer.why == f"kernel-log: {text}") is (status is Status.NO_DATA)


@pytest.mark.parametrize(("every", "status"), [(1, Status.CLEAR), (3, Status.CLEAR), (4, Status.NO_DATA), (60, Status.NO_DATA), (600, Status.NO_DATA)])  # fmt: skip
def test_means_of_imported_minutes_clear_no_core(
    tmp_path: pathlib.Path, every: int, status: Status
) -> None:
    """In a minute's mean of 20 %, a core may have been saturated for twelve seconds."""
    home = casebook.Home(tmp_path, seconds=AT + 700)
    columns, rows = QUIET[Need.CPU]
    for second in range(0, AT + 700, every):
        home.writer.numbers(Need.CPU, columns, rings.at(second), rows(second))
    for need in (Need.CPU, Need.EVENTS):
        home.event(event.IMPORTED, 0, until_us=rings.us(AT + 600), source="import", fields={"contains": need})  # fmt: skip
    home.event()
    case = home.case()
    for name in ("core-saturation", "softirq", "culprit", "rt-hog"):
        assert DETECTORS[name].look(case).status is status
    assert DETECTORS["stalls"].look(case).status is Status.CLEAR  # the log reaches beyond the event
    steal = {each.title: each for each in suspects.check_suspects(case)}["hypervisor steal"]
    assert (steal.outcome == "cleared") is (status is Status.CLEAR)


CENSUS, BIRTHS = QUIET[Need.MEMORY_CGROUPS][0], QUIET[Need.CGROUP_BIRTHS][0]
(ZOMBIES,) = zombie_cgroups.DETECTORS


def churn(path: pathlib.Path, *, counted: int, removed: int | None, cgroup: str = "/a.service") -> casebook.Home:  # fmt: skip
    """A count of 40 dying cgroups; after it, so many are removed until the event."""
    home = casebook.Home(path, seconds=SECONDS)
    home.writer.numbers("memory-cgroups", CENSUS, rings.at(counted), {"": (60, 20, 40, 0, 0)})
    for second in range(AT - 120, SECONDS):
        gone = (
            0 if removed is None else removed * max(0, min(second, AT) - counted) // (AT - counted)
        )
        rows = {cgroup: (gone, gone, gone, 0)} if removed is not None else {}
        home.writer.numbers("load", ("load1",), rings.at(second), {"": (0,)})
        if removed is not None:
            home.writer.numbers("cgroup-births", BIRTHS, rings.at(second), rows)
    home.event()
    return home


@pytest.mark.parametrize(
    ("counted", "removed", "status"),
    [
        pytest.param(AT - 58, 6995, Status.NO_DATA, id="the night of the issue"),
        pytest.param(AT - 58, 960, Status.NO_DATA, id="enough for many"),
        pytest.param(AT - 58, 950, Status.CLEAR, id="too few for many"),
        pytest.param(AT - 90, 0, Status.CLEAR, id="as old as the limit"),
        pytest.param(AT - 91, 0, Status.NO_DATA, id="older than the limit"),
        pytest.param(AT - 58, None, Status.NO_DATA, id="removals are not known"),
        pytest.param(AT - 20, None, Status.CLEAR, id="counted in the incident window"),
    ],
)
def test_dying_cgroups_are_cleared_by_a_count_that_can_see_them(
    tmp_path: pathlib.Path, counted: int, removed: int | None, status: Status
) -> None:
    case = churn(tmp_path, counted=counted, removed=removed).case()
    answer = ZOMBIES.look(case)
    assert answer.status is status, answer
    if removed == 6995:
        assert answer.why.startswith("40 memory cgroups were dying 58 s before the event, and 6,9")


def test_the_count_at_the_event_itself_needs_no_removals(tmp_path: pathlib.Path) -> None:
    home = churn(tmp_path, counted=AT - 58, removed=6995)
    home.writer.numbers("memory-cgroups", CENSUS, rings.at(AT), {"": (60, 20, 40, 0, 0)})
    assert ZOMBIES.look(home.case()).status is Status.CLEAR


def test_removals_below_all_cgroups_count_together(tmp_path: pathlib.Path) -> None:
    """Five hundred below each of two: none of them is enough alone."""
    home = churn(tmp_path, counted=AT - 58, removed=500)
    for second in range(AT - 120, SECONDS):
        gone = 500 * max(0, min(second, AT) - AT + 58) // 58
        rows = {f"/{name}.service": (gone, gone, gone, 0) for name in "ab"}
        home.writer.numbers("cgroup-births", BIRTHS, rings.at(second + 0.5), rows)
    assert ZOMBIES.look(home.case()).status is Status.NO_DATA


@pytest.mark.parametrize(("minutes", "status"), [(119, Status.FOUND), (121, Status.NO_DATA)])
def test_a_high_count_is_good_for_two_hours(
    tmp_path: pathlib.Path, minutes: int, status: Status
) -> None:
    home = casebook.Home(tmp_path, seconds=SECONDS)
    at = AT - 60 * minutes
    home.writer.numbers("memory-cgroups", CENSUS, rings.at(at), {"": (30_000, 20, 30_000, 0, 0)})
    home.cpu(first=AT - 30)
    home.event()
    assert ZOMBIES.look(home.case()).status is status


def test_io_pressure_that_is_stale_clears_no_disk(tmp_path: pathlib.Path) -> None:
    """The kernel log is fresh."""
    for older, status in ((0, Status.CLEAR), (1, Status.NO_DATA)):
        until = {Need.PRESSURE: AT - int(freshness.max_age_us(Need.PRESSURE) / 1e6) - older}
        answer = DETECTORS["storage"].look(record(tmp_path / f"{older}", until=until).case())
        assert (answer.status, answer.missing) == (status, (Need.PRESSURE,) * older)


def test_policies_that_are_stale_clear_no_real_time_process(tmp_path: pathlib.Path) -> None:
    """A core was saturated, which fresh readings of the cores show."""
    for older, status in ((0, Status.CLEAR), (1, Status.NO_DATA)):
        home = casebook.Home(tmp_path / f"{older}", seconds=SECONDS)
        home.cpu(lambda second, core: (float(core == 2 and AT - 8 <= second < AT), 0.0, 0.0))
        columns, rows = QUIET[Need.PROCESSES]
        last = AT - int(freshness.max_age_us(Need.PROCESSES) / 1e6) - older
        home.numbers(Need.PROCESSES, columns, rows, range(AT - 60, last + 1))
        home.event()
        answer = DETECTORS["rt-hog"].look(home.case())
        assert (answer.status, answer.missing) == (status, (Need.PROCESSES,) * older)


@pytest.mark.parametrize("with_stacks", [True, False])
def test_stacks_show_the_seconds_that_the_readings_of_cores_miss(
    tmp_path: pathlib.Path, *, with_stacks: bool
) -> None:
    """The readings end five seconds before the event; until then core 1 was saturated, and then core 2."""
    home = casebook.Home(tmp_path, seconds=AT - 5)
    home.cpu(lambda second, core: (float(core == 1 and second >= AT - 15), 0.0, 0.0))
    home.seconds = SECONDS
    if with_stacks:
        work = (captures.user("main"),)
        idle = [
            captures.Sample(casebook.moment(AT - 60 + n / 10), captures.IDLE, core, "swapper", pid=0, tid=0)
            for n in range(600)
            for core in range(4)
        ]  # fmt: skip
        home.stacks(idle + casebook.busy(AT - 5, AT, 2, "app", work), begin=AT - 60, end=AT)
    home.event()
    answer = DETECTORS["core-saturation"].look(home.case())
    assert [finding.subject.core for finding in answer.findings] == ([2] if with_stacks else [1])


def test_directories_beyond_the_watches_may_hide_removals(tmp_path: pathlib.Path) -> None:
    case = churn(tmp_path, counted=AT - 58, removed=1, cgroup="(unwatched)").case()
    assert ZOMBIES.look(case).status is Status.NO_DATA


@pytest.mark.parametrize(("removed", "confidence"), [(6995, 0.9 * 0.8), (10, 0.9 * 0.45)])
def test_a_walk_is_doubted_only_by_a_count_that_shows_few(
    tmp_path: pathlib.Path, removed: int, confidence: float
) -> None:
    home = churn(tmp_path, counted=AT - 58, removed=removed)
    home.cpu(first=AT - 120)
    path = (captures.user("main"), *map(captures.kernel, ("try_charge_memcg", "shrink_node", "mem_cgroup_iter")))  # fmt: skip
    home.stacks(casebook.busy(AT - 10, AT, 1, "reader", path), begin=AT - 120)
    (finding,) = cgroup_walk.DETECTORS[0].look(home.case()).findings
    assert finding.confidence == pytest.approx(confidence)
    texts = " ".join(each.text for each in (*finding.evidence, *finding.against))
    assert ("there may be more" in texts) == (removed == 6995)
