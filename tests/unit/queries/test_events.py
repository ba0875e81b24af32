"""Events by name: hosts number them differently, and some hosts did not record them."""

from __future__ import annotations

import captures
import pytest

from overnight import errors
from overnight.model.selection import Selection, Window
from overnight.queries import diff, flame, heatmap, reader, top

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
    assert {coverage.notes for coverage in coverages} == {
        ("page-faults was not recorded in 1 of 3 segments",)
    }
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
