"""Events by name: each host's own number for it, and those that did not record it."""

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
    """The event that alpha has second is beta's first; gamma has another one alone."""

    def made(host: str, events: tuple[str, ...], counts: tuple[int, ...]) -> object:
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
        made("alpha", ("cycles", "page-faults"), (100, 7)),
        made("beta", ("page-faults", "cycles"), (20, 400)),
        made("gamma", ("cpu-clock",), (3000,)),
    )


@pytest.mark.parametrize("name", ["page-faults", "page", "p"])
def test_every_answer_counts_the_event_under_each_hosts_number(
    source: reader.Reader, name: str
) -> None:
    chosen = Selection(event=name)
    found = [
        flame.flame(source, WINDOW, chosen).coverage,
        flame.flame(source, WINDOW, chosen, reverse=True).coverage,
        top.top(source, WINDOW, chosen).coverage,
        diff.diff(source, WINDOW, WINDOW, chosen).coverage,
        heatmap.by_core(source, WINDOW, chosen).coverage,
        heatmap.by_offset(source, WINDOW, chosen).coverage,
    ]
    assert {one.samples for one in found} == {27}
    assert {one.core_seconds for one in found} == {40.0}  # gamma's are not looked at
    assert {one.notes for one in found} == {("page-faults was not recorded in 1 of 3 segments",)}
    rows = top.top(source, WINDOW, chosen).rows
    assert [(row.name, row.samples) for row in rows] == [("beta", 20), ("alpha", 7)]


def test_a_name_that_is_first_everywhere_comes_from_the_sums(source: reader.Reader) -> None:
    by_name = Selection(event="cycles")
    found = heatmap.by_core(source, WINDOW, by_name, hosts=("alpha",))
    assert found.values.sum() == 100
    assert diff.diff(source, WINDOW, WINDOW, by_name, hosts=("alpha",)).coverage.samples == 100


def test_a_name_that_none_has_is_refused(source: reader.Reader) -> None:
    for name, hosts in (("c", ()), ("faults", ()), ("cpu-clock", ("alpha",))):
        with pytest.raises(errors.UsageError, match="event") as told:
            flame.flame(source, WINDOW, Selection(event=name), hosts=hosts)
        assert "cycles" in told.value.why
    nothing = Window(0, 1)
    assert flame.flame(source, nothing, Selection(event="x")).coverage.samples == 0
