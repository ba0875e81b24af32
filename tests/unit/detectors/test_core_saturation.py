from __future__ import annotations

import pathlib

import captures
import casebook
import pytest
import rings

from overnight.detectors import core_saturation
from overnight.model.finding import Status

DETECTOR = core_saturation.DETECTORS[0]
AT = casebook.EVENT_SECOND


@pytest.fixture
def home(tmp_path: pathlib.Path) -> casebook.Home:
    return casebook.Home(tmp_path)


def pinned(core: int, begin: int, end: int) -> casebook.Shares:
    def shares(second: int, other: int) -> tuple[float, float, float]:
        if other == core and begin <= second < end:
            return 0.0, 1.0, 0.0
        return casebook.quiet(second, other)

    return shares


def test_a_core_hidden_by_the_mean_is_found_to_the_second(home: casebook.Home) -> None:
    home.cpu(pinned(2, AT - 6, AT))
    home.event(core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    assert (finding.kind, finding.subject.core) == ("cpu.core_saturated", 2)
    assert (finding.window.begin_us, finding.window.end_us) == (rings.us(AT - 6), rings.us(AT))
    assert finding.magnitude["seconds"] == 6
    assert finding.magnitude["kernel_percent"] == 100
    assert finding.evidence[1].values["mean_percent_of_all_cores"] == pytest.approx(35.5)
    assert finding.magnitude["others_percent"] == pytest.approx(14)
    assert finding.magnitude["cores_before"] == pytest.approx(0.14)
    compared, hidden, place = (each.text for each in finding.evidence)
    assert "the other cores averaged 14 %; it was 14 % busy in the baseline" in compared
    assert hidden.endswith(" over the incident window: an average hides it")
    assert place == "the saturation began 6.0 s before the event; the event is on this core"
    assert finding.confidence > 0.9


def test_other_cores_rank_after_the_events_core(home: casebook.Home) -> None:
    def both(second: int, core: int) -> tuple[float, float, float]:
        begin = {1: 12, 2: 4}.get(core, 0)
        return (0.0, 1.0, 0.0) if AT - begin <= second < AT else (0.05, 0.0, 0.0)

    home.cpu(both)
    home.event(core=2)
    findings = DETECTOR.look(home.case()).findings
    assert [finding.subject.core for finding in findings] == [2, 1]
    assert findings[0].confidence > findings[1].confidence


@pytest.mark.parametrize(("since_us", "seconds"), [(1_500_000, 3), (None, 7)])
def test_the_stretch_in_which_the_driver_waited_counts(
    home: casebook.Home, since_us: int | None, seconds: int
) -> None:
    home.cpu(shares_of({range(-12, -5): 1.0, range(-3, 0): 1.0}))
    fields = {} if since_us is None else {"since_napi_us": since_us}
    home.event(core=2, fields=fields)
    (finding,) = DETECTOR.look(home.case()).findings
    assert finding.magnitude["seconds"] == seconds


def test_a_quiet_host_is_clear(home: casebook.Home) -> None:
    home.cpu()
    home.event(core=2)
    answer = DETECTOR.look(home.case())
    assert answer.status is Status.CLEAR
    assert "14 %" in answer.why


def test_a_host_that_is_busy_everywhere_has_no_saturated_core(home: casebook.Home) -> None:
    home.cpu(lambda _second, _core: (0.98, 0.0, 0.0))
    home.event(core=2)
    answer = DETECTOR.look(home.case())
    assert answer.status is Status.CLEAR
    assert "whole host" in answer.why


def test_the_events_core_is_found_when_all_cores_are_saturated_briefly(
    home: casebook.Home,
) -> None:
    home.cpu(lambda second, _: (1.0, 0.0, 0.0) if second >= AT - 8 else (0.3, 0.0, 0.0))
    home.event(core=2)
    findings = DETECTOR.look(home.case()).findings
    assert [finding.subject.core for finding in findings] == [2]
    assert findings[0].magnitude["cores_added"] == pytest.approx(0.7, abs=0.05)


@pytest.mark.parametrize("event_core", [1, None])
@pytest.mark.parametrize("shared", [False, True])
def test_a_core_in_the_kernel_is_found_among_busy_ones(
    home: casebook.Home, event_core: int | None, shared: bool
) -> None:
    def shares(second: int, core: int) -> tuple[float, float, float]:
        in_kernel = (0.5, 0.5, 0.0) if shared else (0.0, 1.0, 0.0)
        return in_kernel if core == 2 and AT - 6 <= second < AT else (0.75, 0.05, 0.0)

    home.cpu(shares)
    home.event(core=-1 if event_core is None else event_core)
    (finding,) = DETECTOR.look(home.case()).findings
    assert (finding.subject.core, finding.magnitude["seconds"]) == (2, 6)
    assert any("the median of the other cores for 5 %" in each.text for each in finding.evidence)
    assert finding.against == ()


def shares_of(
    busy: dict[range, float], *, kernel: bool = False, others: float = 0.1, usual: float = 0.1
) -> casebook.Shares:
    """Return shares of core 2 in seconds from the event; the other cores have `others` all the time."""

    def shares(second: int, core: int) -> tuple[float, float, float]:
        share = usual if core == 2 else others
        for seconds, high in busy.items():
            if core == 2 and second - AT in seconds:
                share = high
        return (0.0, share, 0.0) if kernel else (share, 0.0, 0.0)

    return shares


BEFORE = range(-6, 0)


@pytest.mark.parametrize(
    ("shares", "event_core", "seconds"),
    [
        pytest.param(shares_of({BEFORE: 1.0}), 2, 6, id="saturated"),
        pytest.param(shares_of({BEFORE: 0.94}), 2, None, id="94 % busy"),
        pytest.param(shares_of({BEFORE: 0.91}, kernel=True), 2, 6, id="91 % in the kernel"),
        pytest.param(shares_of({BEFORE: 0.89}, kernel=True), 2, None, id="89 % in the kernel"),
        pytest.param(shares_of({range(-1, 0): 1.0}), 2, None, id="one second"),
        pytest.param(shares_of({BEFORE: 1.0, range(-3, -2): 0.2}), 2, 6, id="a breath of a second"),
        pytest.param(
            shares_of({BEFORE: 1.0, range(-4, -2): 0.2}), 2, 2, id="a pause of two seconds"
        ),
        pytest.param(shares_of({BEFORE: 1.0}, others=0.6), 2, 6, id="the others are busy, too"),
        pytest.param(
            shares_of({BEFORE: 1.0}, others=0.6), 1, None, id="another core on a busy host"
        ),
        pytest.param(shares_of({range(1, 6): 1.0}), 2, 5, id="within the error of the clocks"),
        pytest.param(shares_of({range(3, 8): 1.0}), 2, None, id="begins after the event"),
        pytest.param(
            shares_of({range(-25, -13): 1.0, range(-4, 0): 1.0}), 2, 4, id="longer, but long before"
        ),
        pytest.param(
            shares_of({range(-20, -8): 1.0, range(-4, 0): 1.0}), 2, 12, id="longer, and in reach"
        ),
    ],
)
def test_near_misses(
    home: casebook.Home, shares: casebook.Shares, event_core: int, seconds: float | None
) -> None:
    home.cpu(shares)
    home.event(core=event_core)
    findings = DETECTOR.look(home.case()).findings
    assert [finding.magnitude["seconds"] for finding in findings] == (
        [] if seconds is None else [seconds]
    )


@pytest.mark.parametrize(
    ("first", "shares", "factor", "added"),
    [
        pytest.param(0, shares_of({BEFORE: 1.0}), 1.0, 0.9, id="an idle core"),
        pytest.param(AT - 30, shares_of({BEFORE: 1.0}), 0.7, None, id="no baseline"),
        pytest.param(0, shares_of({BEFORE: 1.0}, others=0.7), 1.0, 0.9, id="busy others"),
        pytest.param(0, shares_of({BEFORE: 1.0}, others=0.9), 0.8, 0.9, id="saturated others"),
        pytest.param(0, shares_of({BEFORE: 0.96}, usual=0.92), 1.0, 0.1, id="no room before"),
    ],
)
def test_what_lowers_the_confidence(
    home: casebook.Home,
    first: int,
    shares: casebook.Shares,
    factor: float,
    added: float | None,
) -> None:
    home.numbers("load", ("load1",), lambda _: {"": (1,)}, range(0, AT, 60))
    home.cpu(shares, first=first)
    home.event(core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    assert finding.confidence == pytest.approx(0.95 * factor)
    assert finding.magnitude.get("cores_added") == (added and pytest.approx(added, abs=0.01))


def test_saturation_that_is_normal_for_the_host_is_not_a_finding(home: casebook.Home) -> None:
    def often(second: int, core: int) -> tuple[float, float, float]:
        return (1.0, 0.0, 0.0) if core == 1 and second % 30 < 5 else (0.05, 0.0, 0.0)

    home.cpu(often)
    home.event(core=2)
    answer = DETECTOR.look(home.case())
    assert answer.status is Status.CLEAR
    assert "as often" in answer.why


def test_normal_saturation_of_the_events_core_is_found_with_low_confidence(
    home: casebook.Home,
) -> None:
    def often(second: int, core: int) -> tuple[float, float, float]:
        return (1.0, 0.0, 0.0) if core == 2 and second % 30 < 5 else (0.05, 0.0, 0.0)

    home.cpu(often)
    home.event(core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    assert finding.against
    assert finding.confidence < 0.5


def test_without_signals_samples_show_the_saturation(home: casebook.Home) -> None:
    home.stacks(casebook.busy(AT - 6, AT, 2, "dd", (captures.kernel("vfs_read"),)))
    home.event(core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    assert finding.subject.core == 2
    assert finding.evidence[0].source == "profiles"
    assert finding.magnitude["seconds"] == 6
    assert finding.confidence < 0.95


def test_nothing_recorded_is_no_data(home: casebook.Home) -> None:
    home.event(core=2)
    assert DETECTOR.look(home.case()).status is Status.NO_DATA
