"""Events by name: hosts number them differently, and some hosts did not record them."""

from __future__ import annotations

import pathlib

import captures
import casebook
import pytest

from overnight import errors
from overnight.model.selection import Selection, Window
from overnight.queries import diff, flame, heatmap, reader, top, view

NIGHT, SECOND = captures.NIGHT, captures.SECOND
WINDOW = captures.window(NIGHT, NIGHT + 10 * SECOND)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> reader.Reader:
    """Alpha's second event is beta's first; gamma recorded only another event."""

    def build(host: str, events: tuple[str, ...], counts: tuple[int, ...]) -> object:
        samples = [
            captures.Sample(NIGHT + SECOND + i, event=number, process=host)
            for number, count in enumerate(counts)
            for i in range(count)
        ]
        return captures.build(
            samples, host=host, events=events, begin=NIGHT, end=NIGHT + 10 * SECOND
        )

    return captures.store(
        tmp_path_factory.mktemp("events"),
        build("alpha", ("cycles", "page-faults"), (100, 7)),
        build("beta", ("page-faults", "cycles"), (20, 400)),
        build("gamma", ("cpu-clock",), (3000,)),
    )


@pytest.mark.parametrize("name", ["page-faults", "page", "p"])
def test_every_query_uses_each_hosts_number_for_the_event(source: reader.Reader, name: str) -> None:
    chosen = Selection(event=name)
    coverages = [
        flame.flame(source, WINDOW, chosen).coverage,
        flame.flame(source, WINDOW, chosen, reverse=True).coverage,
        top.top(source, WINDOW, chosen).coverage,
        diff.diff(source, WINDOW, WINDOW, chosen).coverage,
        heatmap.by_core(source, WINDOW, chosen).coverage,
        heatmap.by_offset(source, WINDOW, chosen).coverage,
    ]
    assert {coverage.samples for coverage in coverages} == {27}
    assert {coverage.core_seconds for coverage in coverages} == {40.0}  # gamma is not counted
    ((note,),) = {coverage.notes for coverage in coverages}
    assert note.startswith("page-faults was not recorded in 1 of 3 segments: they have cpu-clock")
    rows = top.top(source, WINDOW, chosen).rows
    assert [(row.name, row.samples) for row in rows] == [("beta", 20), ("alpha", 7)]


def test_a_name_that_is_first_everywhere_comes_from_the_sums(source: reader.Reader) -> None:
    by_name = Selection(event="cycles")
    cores = heatmap.by_core(source, WINDOW, by_name, hosts=("alpha",))
    assert cores.values.sum() == 100
    assert diff.diff(source, WINDOW, WINDOW, by_name, hosts=("alpha",)).coverage.samples == 100


def test_an_event_that_no_host_recorded_is_refused(source: reader.Reader) -> None:
    for name, hosts in (("c", ()), ("faults", ()), ("cpu-clock", ("alpha",))):
        with pytest.raises(errors.UsageError, match="event") as refused:
            flame.flame(source, WINDOW, Selection(event=name), hosts=hosts)
        assert "cycles" in refused.value.why
    nothing = Window(0, 1)
    assert flame.flame(source, nothing, Selection(event="x")).coverage.samples == 0


def captured(event: str, begin: int, end: int, count: int) -> object:
    """A capture of one event, with its name as the process."""
    rows = [captures.Sample(NIGHT + begin * SECOND + i, process=event) for i in range(count)]
    return captures.build(
        rows, events=(event,), begin=NIGHT + begin * SECOND, end=NIGHT + end * SECOND
    )


def test_captures_of_different_events_are_never_added_up(tmp_path: pathlib.Path) -> None:
    """The event that covers most of the window counts, however few samples it has."""
    source = captures.store(
        tmp_path, captured("cycles", 0, 20, 900), captured("cpu-clock", 20, 60, 70)
    )
    window = captures.window(NIGHT, NIGHT + 60 * SECOND)
    answers = [
        flame.flame(source, window).coverage,
        top.top(source, window).coverage,
        heatmap.by_core(source, window).coverage,
        heatmap.by_core(source, window, step_us=100_000).coverage,
        heatmap.by_offset(source, window).coverage,
    ]
    for coverage in answers:
        assert (coverage.samples, coverage.event) == (70, "cpu-clock")
        assert coverage.recorded_seconds == 40.0
        (note,) = coverage.notes
        assert "cpu-clock was not recorded in 1 of 2 segments: they have cycles" in note
    assert [row.name for row in top.top(source, window).rows] == ["cpu-clock"]
    page = view.view(source, window, "alpha")
    assert "cycles" not in page.strings
    assert page.arrays["row_count"].sum() == 70
    other = top.top(source, window, Selection(event="cycles"))
    assert (other.coverage.samples, other.coverage.event) == (900, "cycles")


def test_captures_of_different_events_are_not_compared(tmp_path: pathlib.Path) -> None:
    source = captures.store(
        tmp_path, captured("cycles", 0, 20, 900), captured("cpu-clock", 20, 60, 70)
    )
    first = captures.window(NIGHT, NIGHT + 20 * SECOND)
    second = captures.window(NIGHT + 20 * SECOND, NIGHT + 60 * SECOND)
    for window, baseline, event in ((first, second, "cycles"), (second, first, "cpu-clock")):
        with pytest.raises(errors.UsageError, match=f"no event '{event}'"):
            diff.diff(source, window, baseline)


def test_a_diagnosis_compares_one_event(tmp_path: pathlib.Path) -> None:
    home = casebook.Home(tmp_path).cpu()
    at = casebook.EVENT_SECOND
    for event, begin, end in (("cycles", 0, at - 60), ("cpu-clock", at - 60, at + 50)):
        rows = casebook.busy(begin, end, 1, event, (captures.user("work"),), hertz=10)
        recorded = captures.build(
            rows,
            host=home.event().host,
            events=(event,),
            begin=casebook.moment(begin),
            end=casebook.moment(end),
        )
        captures.store(tmp_path, recorded)
    opened = home.case()
    assert opened.stacks(opened.window).coverage.event == "cpu-clock"
    before = opened.stacks(opened.baseline)
    assert (before.coverage.samples, before.seconds) == (0, 0.0)
    ran, _ = opened.ran((opened.baseline, opened.window))
    assert [consumer.actor.process for consumer in ran] == ["cpu-clock"]
