from __future__ import annotations

import dataclasses

import findings
import pytest

from overnight.diagnosis import conditions, knowledge
from overnight.model.selection import Window

AROUND = conditions.Surroundings()


def judge(holds, before, after, around=AROUND, /, **more):
    return conditions.judge(knowledge.Condition(holds, **more), before, after, around)


@pytest.mark.parametrize(
    ("begin", "end", "fit"),
    [
        (-6, 1, 1.0),
        (1, 5, 1.0),  # within the resolution of one second
        (8, 9, 0.6),  # seen later, within the slack
        (12, 14, 0.0),  # after it
        (-30, -9, 1.0),
        (-40, -11, 0.0),  # over for longer than the gap
    ],
)
def test_time_order(begin: float, end: float, fit: float) -> None:
    cause, effect = findings.saturated(begin=begin, end=end), findings.reset()
    assert judge("time_order", cause, effect, slack_seconds=10, gap_seconds=10).fit == fit


@pytest.mark.parametrize(
    ("ratio", "fit"),
    [(1, 1), (0.5, 1), (2, 1), (0.2, 0), (5, 0), (0.01, 0), (3.1623, 0.5), (0.31623, 0.5), (0, 0), (-4, 0)],
)  # fmt: skip
def test_magnitude_agrees_in_part_between_fitting_and_possible(ratio: float, fit: float) -> None:
    cause, effect = findings.hidden_loop(births=300 * ratio), findings.zombies(growth=300)
    judgement = judge(
        "magnitude", cause, effect, cause=("births_per_hour",), effect=("growth_per_hour",)
    )
    assert judgement.fit == pytest.approx(fit, abs=0.01)


def test_a_leak_that_does_not_grow_has_no_cause() -> None:
    cause, effect = findings.hidden_loop(), findings.zombies(growth=0)
    assert (
        judge(
            "magnitude", cause, effect, cause=("births_per_hour",), effect=("growth_per_hour",)
        ).fit
        == 0
    )


@pytest.mark.parametrize(
    ("waited", "fit"), [(None, None), (0.0, 0.0), (0.004, 0.0), (0.99, 0.0), (5.1, 1.0)]
)
def test_a_recently_polled_driver_did_not_starve(waited: float | None, fit: float | None) -> None:
    magnitude = {} if waited is None else {"waited_seconds": waited}
    effect = dataclasses.replace(findings.reset(), magnitude=magnitude)
    assert judge("waited", findings.saturated(), effect).fit == fit


@pytest.mark.parametrize(
    ("begin", "end", "fit"),
    [(-20, -5.1, 0.0), (-20, -4.9, 1.0), (-0.9, 9, 0.0), (-1.1, 9, 1.0), (1, 9, 0.0)],
)
def test_a_core_that_was_free_while_the_driver_waited_did_not_cause_it(
    begin: float, end: float, fit: float
) -> None:
    """Half of the wait is enough, and two seconds less, the resolution."""
    effect = dataclasses.replace(findings.reset(), magnitude={"waited_seconds": 6.0})
    assert judge("waited", findings.saturated(begin=begin, end=end), effect).fit == fit


@pytest.mark.parametrize(("kernel", "fit"), [(100.0, 0.2), (40.0, 0.0)])
def test_a_core_busy_in_the_kernel_may_have_had_interrupts_off(kernel: float, fit: float) -> None:
    magnitude = {"waited_seconds": 0.0, "silent_seconds": 6.1}
    cause = findings.saturated()
    cause = dataclasses.replace(cause, magnitude={**cause.magnitude, "kernel_percent": kernel})
    effect = dataclasses.replace(findings.reset(), magnitude=magnitude)
    assert judge("waited", cause, effect).fit == fit


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_a_missing_measurement_is_unknown(value: float | None) -> None:
    cause, effect = findings.hidden_loop(births=value), findings.zombies()
    judgement = judge(
        "magnitude", cause, effect, cause=("births_per_hour",), effect=("growth_per_hour",)
    )
    assert (judgement.fit, judgement.text) == (None, "births per hour was not measured")


@pytest.mark.parametrize(
    ("unit", "cgroup", "other", "fit"),
    [
        ("a.service", "/docker", "/docker", 1.0),
        ("a.service", "/docker/x", "/docker", 1.0),
        ("a.service", "/docker", "/docker/x", 1.0),
        ("a.service", "/dock", "/docker", 0.0),  # not a parent directory
        ("a.service", "", "/system.slice/a.service", 1.0),
        ("a.service", "", "/system.slice/b.service", None),
        ("a.service", "/docker", "/", None),
    ],
)
def test_cgroups_match_when_one_contains_the_other(unit, cgroup, other, fit) -> None:
    cause, effect = findings.hidden_loop(unit, 1, cgroup), findings.zombies(cgroup=other)
    assert judge("same_cgroup", cause, effect).fit == fit


def test_parent_of_is_one_way() -> None:
    upper, lower = findings.zombies(cgroup="/a"), findings.zombies(cgroup="/a/b")
    assert judge("parent_of", upper, lower).fit == 1.0
    assert judge("parent_of", lower, upper).fit == 0.0
    assert judge("parent_of", findings.zombies(cgroup="/"), lower).fit is None


def test_the_culprit_is_the_top_process_on_that_core_in_that_window() -> None:
    first, second = findings.culprit("first", burnt=0.6), findings.culprit("second", burnt=0.3)
    elsewhere = findings.culprit("third", core=2)
    long_ago = findings.culprit("fourth", begin=-600)
    around = conditions.Surroundings.of([second, first, elsewhere, long_ago], knowledge.known())
    saturated = findings.saturated()

    def fit(process: str) -> float | None:
        blamed = findings.make_finding("memory.reclaim", process=process)
        return judge("same_culprit", blamed, saturated, around).fit

    assert fit("first") == 1.0
    assert 0 < fit("second") < 0.6
    assert fit("third") == fit("fourth") == 0.0
    assert fit("") is None
    assert (
        judge("same_culprit", findings.make_finding("memory.reclaim", process="x"), saturated).fit
        is None
    )


@pytest.mark.parametrize(
    ("unit", "function", "fit"),
    [("a.service", "", 1.0), ("b.service", "", 0.0), ("", "", 1.0), ("", "shrink_node", 0.0)],
)
def test_a_namesake_in_another_unit_is_not_the_culprit(
    unit: str, function: str, fit: float
) -> None:
    """Without a function it was seen in ticks, which know no unit."""
    top = findings.culprit("python3", "a.service")
    around = conditions.Surroundings.of([top], knowledge.known())
    subject = {"process": "python3", "unit": unit, "function": function}
    blamed = findings.make_finding("memory.reclaim", **subject)
    assert judge("same_culprit", blamed, findings.saturated(), around).fit == fit


def lift(process: str = "postgres", low: float = 1.8, recurrences: float = 2.0, function: str = ""):
    magnitude = {"lift": 9.0, "low": low, "recurrences": recurrences}
    return findings.make_finding("stack.lift", magnitude=magnitude, process=process, function=function)  # fmt: skip


@pytest.mark.parametrize(
    ("lifts", "fit"),
    [
        pytest.param([lift()], 1.0, id="two recurrences"),
        pytest.param([lift(recurrences=1.0)], None, id="one recurrence"),
        pytest.param([lift(low=-0.1)], 0.2, id="no more than otherwise"),
        pytest.param([lift(low=-0.1), lift(low=0.1)], 1.0, id="the best of them"),
        pytest.param([lift(function="crc32c")], 1.0, id="the same function"),
        pytest.param([lift(function="fsync")], None, id="another function"),
        pytest.param([lift("kubelet")], None, id="another process"),
        pytest.param([], None, id="none"),
    ],
)
def test_near_misses_of_a_recurrence(lifts: list, fit: float | None) -> None:
    around = conditions.Surroundings.of(lifts, knowledge.known())
    cause = findings.culprit("postgres", function="crc32c")
    assert judge("recurrence", cause, findings.saturated(), around).fit == fit


def test_names_from_the_evidence_stay_on_one_line() -> None:
    finding = findings.make_finding("memory.reclaim", process="a\n\x1b[31mb")
    assert judge("same_process", finding, finding).text.isprintable()


@pytest.mark.parametrize(
    ("name", "cause", "effect", "fit", "text"),
    [
        ("process", "a", "a", 1.0, "same process: a"),
        ("process", "a", "b", 0.0, "different process: a, not b"),
        ("process", "a", "", None, "the process of one of them is not known"),
        ("process", "", "a", None, "the process of one of them is not known"),
        ("process", "", "", None, "the process of both is not known"),
        ("core", 0, 0, 1.0, "same core: 0"),
        ("core", 0, 1, 0.0, "different core: 0, not 1"),
        ("core", 0, None, None, "the core of one of them is not known"),
        ("core", None, None, None, "the core of both is not known"),
    ],
)
def test_a_name_that_is_not_known_is_neither_the_same_nor_another(
    name: str, cause: str | int | None, effect: str | int | None, fit: float | None, text: str
) -> None:
    ends = (findings.make_finding("cpu.stall", **{name: value}) for value in (cause, effect))  # type: ignore[arg-type]
    assert judge(f"same_{name}", *ends) == conditions.Judgement(fit, text)


@pytest.mark.parametrize(
    ("unit", "path", "fit"),
    [("app.service", "/system.slice/app.service", 1.0), ("app.service", "/my-app.service", None)],
)
def test_a_unit_is_in_a_cgroup_by_its_whole_name(unit: str, path: str, fit: float | None) -> None:
    cause, effect = findings.hidden_loop(unit, 1, ""), findings.zombies(cgroup=path)
    assert judge("same_cgroup", cause, effect).fit == fit


def test_top_consumers_of_other_times_and_hosts_are_not_compared() -> None:
    """One ends as the effect begins, one begins as it ends, and one ran on another host."""
    own, early, late, other = (
        findings.culprit(name, burnt=burnt)
        for name, burnt in (("own", 0.3), ("early", 0.9), ("late", 0.9), ("other", 0.9))
    )
    saturated = findings.saturated()
    begin, end = saturated.window.begin_us, saturated.window.end_us
    early = dataclasses.replace(early, window=Window(begin - 9, begin))
    late = dataclasses.replace(late, window=Window(end, end + 9))
    other = dataclasses.replace(other, subject=dataclasses.replace(other.subject, host="elsewhere"))
    around = conditions.Surroundings.of([own, early, late, other], knowledge.known())
    blamed = findings.make_finding("memory.reclaim", process="own")
    judgement = judge("same_culprit", blamed, saturated, around)
    assert judgement == conditions.Judgement(
        1.0, f"own is the top consumer of core {findings.CORE}"
    )


def test_a_smaller_consumer_of_the_core_is_compared_with_the_top_one() -> None:
    around = conditions.Surroundings(
        (findings.culprit("a", burnt=0.6), findings.culprit("b", burnt=0.3))
    )
    blamed = findings.make_finding("memory.reclaim", process="b")
    judgement = judge("same_culprit", blamed, findings.saturated(), around)
    assert judgement.fit == pytest.approx(0.5)
    assert judgement.text == "b ran on core 39, but a used more of it (0.6 cores against 0.3)"


def test_a_unit_without_a_process_is_compared_with_the_unit_of_the_top_consumer() -> None:
    around = conditions.Surroundings((findings.culprit("a", "a.service"),))
    for unit, fit in (("a.service", 1.0), ("b.service", 0.0)):
        blamed = findings.make_finding("unit.crash_loop", unit=unit)
        assert judge("same_culprit", blamed, findings.saturated(), around).fit == fit


@pytest.mark.parametrize(
    ("begin", "text"),
    [
        (-6, "time: it begins 6 s before its effect"),
        (-1, "time: it begins 1 s before its effect"),
        (-0.9, "time: both begin within two seconds of each other"),
        (1.9, "time: both begin within two seconds of each other"),
        (8, "time: it is first seen 8 s after its effect, within the resolution of its signal"),
        (12, "time: it begins 12 s after its effect"),
    ],
)
def test_the_order_in_time_is_explained_with_its_seconds(begin: float, text: str) -> None:
    cause, effect = findings.saturated(begin=begin, end=14), findings.reset()
    assert judge("time_order", cause, effect, slack_seconds=10, gap_seconds=10).text == text


def test_the_gap_between_two_findings_is_not_the_slack_of_their_begin() -> None:
    cause, effect = findings.saturated(begin=-40, end=-15), findings.reset()
    assert judge("time_order", cause, effect, slack_seconds=5, gap_seconds=20).fit == 1.0
    judgement = judge("time_order", cause, effect, slack_seconds=20, gap_seconds=5)
    assert judgement == conditions.Judgement(0.0, "time: it ended 15 s before its effect began")


def test_a_process_name_with_its_pid_is_the_same_process() -> None:
    numbered, plain = (
        findings.make_finding("cpu.stall", process=name) for name in ("app[12]", "app")
    )
    assert judge("same_process", numbered, plain).fit == 1.0
    assert (
        judge("same_process", numbered, findings.make_finding("cpu.stall", process="app2")).fit
        == 0.0
    )


@pytest.mark.parametrize(
    ("taken", "before", "fits"),
    [(1.0, 0.1, True), (0.5, 0.7, True), (0.45, 0.2, True), (0.25, 0.9, True), (0.2, 0.2, False)],
)
def test_a_process_that_adds_enough_load_saturates_the_core(
    taken: float, before: float, fits: bool
) -> None:
    """The core is saturated; the earlier processes use the rest of it."""
    rule = next(
        candidate
        for candidate in knowledge.known().rules
        if candidate.cause == "cpu.culprit" and "cpu.core_saturated" in candidate.effects
    )
    (size,) = (condition for condition in rule.conditions if condition.holds == "magnitude")
    cause = findings.make_finding(
        "cpu.culprit", magnitude={"cores_burnt": taken, "cores_added": taken}, core=2
    )
    effect = findings.make_finding(
        "cpu.core_saturated", magnitude={"cores_burnt": 1.0, "cores_added": 1 - before}, core=2
    )
    judgement = conditions.judge(size, cause, effect, conditions.Surroundings())
    assert (judgement.fit == 1) is fits, judgement.text
    assert "cores added" in judgement.text


def test_without_a_baseline_shares_of_the_core_are_compared() -> None:
    condition = knowledge.Condition(
        "magnitude", cause=("cores_added", "cores_burnt"), effect=("cores_added", "cores_burnt")
    )
    cause = findings.make_finding("cpu.culprit", magnitude={"cores_burnt": 0.9, "cores_added": 0.9})
    effect = findings.make_finding("cpu.core_saturated", magnitude={"cores_burnt": 1.0})
    judgement = conditions.judge(condition, cause, effect, conditions.Surroundings())
    assert judgement.text == "magnitude agrees: 0.9 cores burnt against 1 cores burnt"


def test_the_culprit_is_the_process_that_added_most_not_the_largest() -> None:
    worker = findings.make_finding(
        "cpu.culprit", magnitude={"cores_burnt": 0.55, "cores_added": 0.2}, core=2, process="worker"
    )
    hog = findings.make_finding(
        "cpu.culprit", magnitude={"cores_burnt": 0.45, "cores_added": 0.45}, core=2, process="hog"
    )
    effect = findings.make_finding("cpu.core_saturated", core=2)
    around = conditions.Surroundings((worker, hog))
    judgement = conditions.judge(knowledge.Condition("same_culprit"), hog, effect, around)
    assert judgement.fit == 1


def share(
    effect: dict[str, str | int],
    cause: dict[str, str | int] | None = None,
    *,
    victims: dict[int, float] | None = None,
    culprits: dict[int, str] | None = None,
    disks: tuple[str, str] = ("", ""),
) -> conditions.Judgement:
    """Judge what a failed job shares with a saturated core 39; the victim used so much of each core."""
    ends = [
        findings.make_finding("cpu.core_saturated", **{"core": 39, **(cause or {})}),  # type: ignore[arg-type]
        findings.make_finding("job.failed", 5, 6, detector="event", **effect),  # type: ignore[arg-type]
    ]
    for n, (name, disk) in enumerate(zip(("device", "disk"), disks, strict=True)):
        evidence = dataclasses.replace(ends[n].evidence[0], values={name: disk} if disk else {})
        ends[n] = dataclasses.replace(ends[n], evidence=(evidence,))
    around = conditions.Surroundings(
        tuple(findings.culprit(name, core=core) for core, name in (culprits or {}).items()),
        victims=tuple(
            findings.make_finding("app.core", magnitude={"own_share": share}, core=core)
            for core, share in (victims or {}).items()
        ),
    )
    return judge("shared", *ends, around)


@pytest.mark.parametrize(
    ("effect", "more", "fit"),
    [
        pytest.param({}, {}, None, id="only the time"),
        pytest.param({}, {"victims": {39: 0.5}}, 1.0, id="it ran there"),
        pytest.param({}, {"victims": {39: 0.49}}, None, id="it also ran there"),
        pytest.param({}, {"victims": {39: 0.02}}, None, id="it may have waited there"),
        pytest.param({}, {"victims": {39: 0.019}}, 0.0, id="it only passed by"),
        pytest.param({}, {"victims": {3: 0.9}}, None, id="it ran on another core, that of another incident"),
        pytest.param({"core": 39}, {"victims": {39: 0.019}}, None, id="the core that it names, where it did not run"),
        pytest.param({"core": 39}, {"victims": {39: 0.02}}, 1.0, id="the core that it names"),
        pytest.param({"core": 39}, {}, 1.0, id="the same core"),
        pytest.param({"core": 3}, {}, 0.0, id="another core"),
        pytest.param({"core": 3}, {"cause": {"core": None}}, None, id="the core of the cause is not known"),
        pytest.param({}, {"cause": {"core": None}, "culprits": {None: "app"}}, None, id="no core is known"),
        pytest.param({"process": "app"}, {"culprits": {39: "app"}}, 1.0, id="it is the culprit"),
        pytest.param({"process": "app"}, {"culprits": {3: "app"}}, None, id="the culprit of another core"),
        pytest.param({"process": "app"}, {"cause": {"core": None}, "culprits": {None: "app"}}, None, id="a culprit of an unknown core"),
        pytest.param({"process": "app"}, {"cause": {"process": "app"}}, 1.0, id="the same process"),
        pytest.param({"process": "app"}, {"cause": {"process": "other"}}, None, id="another process"),
        pytest.param({"unit": "a.service"}, {"cause": {"unit": "a.service"}}, 1.0, id="the same unit"),
        pytest.param({"cgroup": "/a/b"}, {"cause": {"cgroup": "/a"}}, 1.0, id="a cgroup in the other"),
        pytest.param({"cgroup": "/ab"}, {"cause": {"cgroup": "/a"}}, None, id="another cgroup"),
        pytest.param({"interface": "eth0"}, {"cause": {"interface": "eth0"}}, 1.0, id="the same interface"),
        pytest.param({"interface": "eth0"}, {"cause": {"interface": "eth1"}}, 0.0, id="another interface"),
        pytest.param({}, {"disks": ("/dev/sda1", "sda")}, 1.0, id="a partition of the disk"),
        pytest.param({}, {"disks": ("nvme0n1p2", "/dev/nvme0")}, 1.0, id="a namespace of the disk"),
        pytest.param({}, {"disks": ("sda", "sdaa")}, None, id="another disk"),
        pytest.param({}, {"disks": ("sda", "sdb")}, None, id="the next disk"),
        pytest.param({}, {"disks": ("sda", "")}, None, id="one disk"),
    ],
)  # fmt: skip
def test_what_an_outcome_shares_with_its_incident(
    effect: dict[str, str | int], more: dict[str, object], fit: float | None
) -> None:
    judgement = share(effect, **more)  # type: ignore[arg-type]
    assert judgement.fit == fit, judgement.text
