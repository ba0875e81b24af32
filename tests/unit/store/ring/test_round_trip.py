"""What goes in comes out, packed or not, whatever the numbers and keys are."""

from __future__ import annotations

import array
import pathlib
import tempfile

import hypothesis
import pytest
import rings
from hypothesis import strategies as st

from overnight.store.ring import check, columns, layout, open_block, reader

small = st.integers(0, 300)
number = st.one_of(small, st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-3, 70_000))
key = st.one_of(st.sampled_from(["0", "1", "17 kubelet"]), st.text(max_size=8))


@hypothesis.settings(max_examples=25)
@hypothesis.given(
    st.lists(
        st.dictionaries(key, st.tuples(number, number, number), max_size=4), min_size=1, max_size=8
    ),
    st.booleans(),
)
def test_any_numbers_under_any_keys(told: list[dict[str, tuple[int, ...]]], packed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        made = rings.open_writer(home)
        for second, rows in enumerate(told):
            made.numbers("any", ("a", "idle", "c"), rings.at(second), rows)
        if packed:
            made.close()
        source = reader.Reader(home)
        assert rings.everything(source, "any") == {
            (rings.us(second), name, column): value
            for second, rows in enumerate(told)
            for name, row in rows.items()
            for column, value in zip(("a", "idle", "c"), row, strict=True)
        }
        assert source.problems == []
        assert check.check(home).problems == ()
        made.close()


@hypothesis.settings(max_examples=25)
@hypothesis.given(
    st.lists(st.lists(st.integers(0, 40_000), min_size=9, max_size=9), min_size=1, max_size=12)
)
def test_counters_that_rise(steps: list[list[int]]) -> None:
    """The way that cores take: differences in planes, the sum in place of idle."""
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        made = rings.open_writer(home)
        totals, told = [10**12] * 9, {}
        for second, step in enumerate(steps):
            totals = [total + more for total, more in zip(totals, step, strict=True)]
            rows = {str(core): tuple(totals[3 * core : 3 * core + 3]) for core in range(3)}
            made.numbers("cpu", rings.COLUMNS, rings.at(second), rows)
            for core, row in rows.items():
                for column, value in zip(rings.COLUMNS, row, strict=True):
                    told[rings.us(second), core, column] = value
        made.close()
        assert rings.everything(reader.Reader(home)) == told


@hypothesis.given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=40))
def test_a_column_comes_back(numbers: list[int]) -> None:
    coded = columns.code(columns.split(array.array("q", numbers).tobytes()))
    assert list(columns.decode(*coded, len(numbers))) == numbers


def test_unsigned_numbers_beyond_63_bits_wrap(tmp_path: pathlib.Path) -> None:
    made = rings.open_writer(tmp_path)
    made.numbers("ethtool", ("a",), rings.at(0), {"eth0": ((1 << 64) - 1,)})
    made.numbers("ethtool", ("a",), rings.at(1), {"eth0": (5,)})
    made.close()
    found = rings.everything(reader.Reader(tmp_path), "ethtool")
    assert list(found.values()) == [-1, 5]


def test_rows_that_do_not_fit_are_refused(tmp_path: pathlib.Path) -> None:
    made = rings.open_writer(tmp_path)
    for rows in ({"0": (1, 2)}, {"0": (1, 2, 3), "1": (1,)}):
        with pytest.raises(ValueError, match=r"numbers instead of|shorter"):
            made.numbers("cpu", rings.COLUMNS, rings.at(0), rows)
    rings.record(made, range(2))
    assert rings.everything(reader.Reader(tmp_path)) == rings.expected_numbers(range(2))
    made.close()


def test_only_what_is_asked_for(tmp_path: pathlib.Path) -> None:
    made = rings.open_writer(tmp_path)
    rings.record(made, range(50), cores=5)
    made.close()
    source = reader.Reader(tmp_path)
    everything = rings.expected_numbers(range(50), cores=5)
    assert rings.everything(source, begin_us=rings.us(10), end_us=rings.us(20)) == {
        at: value for at, value in everything.items() if rings.us(10) <= at[0] < rings.us(20)
    }
    assert rings.everything(source, keys=("3",), columns=("idle",)) == {
        at: value for at, value in everything.items() if at[1:] == ("3", "idle")
    }
    assert rings.everything(source, keys=("nobody",)) == {}
    assert rings.everything(source, signal="nothing") == {}
    assert source.signals(rings.HOST, 0, rings.EVER) == {"cpu": rings.COLUMNS}
    assert source.extent(rings.HOST) == (rings.us(0), rings.us(49))
    assert source.extent("nobody") is None


def test_columns_kept_less_often(tmp_path: pathlib.Path) -> None:
    made = rings.open_writer(tmp_path)
    for second in range(40):
        rows = rings.rows_of(second)
        made.numbers("cpu", rings.COLUMNS, rings.at(second), rows, every=(0, 10.0, 0))
    made.close()
    found = rings.everything(reader.Reader(tmp_path))
    slow = sorted({at for at, _, column in found if column == "system"})
    assert slow == [rings.us(second) for second in (0, 10, 20, 30)]
    assert {at: v for at, v in found.items() if at[2] != "system"} == {
        at: v for at, v in rings.expected_numbers(range(40)).items() if at[2] != "system"
    }
    assert all(rings.expected_numbers(range(40))[at] == v for at, v in found.items())


def test_a_zero_look_and_keys_that_come_and_go(tmp_path: pathlib.Path) -> None:
    looked = [{}, {"a": (1,)}, {"b": (5,), "a": (2,)}, {"b": (4,)}, {}, {"a": (9,)}]
    made = rings.open_writer(tmp_path)
    for second, rows in enumerate(looked):
        made.numbers("top", ("x",), rings.at(second), rows)
    made.close()
    frames = list(reader.Reader(tmp_path).numbers(rings.HOST, "top", 0, rings.EVER))
    assert [list(frame.wall_us) for frame in frames] == [[rings.us(n) for n in range(6)]]
    times, values = frames[0].series("a", "x")
    assert (list(times), list(values)) == ([rings.us(n) for n in (1, 2, 5)], [1, 2, 9])
    with pytest.raises(KeyError):
        frames[0].series("c", "x")


def test_both_clocks_are_kept(tmp_path: pathlib.Path) -> None:
    made = rings.open_writer(tmp_path)
    rings.record(made, range(5))
    made.numbers("cpu", rings.COLUMNS, rings.at(5, step=-3600), rings.rows_of(5))
    made.close()
    frames = list(reader.Reader(tmp_path).numbers(rings.HOST, "cpu", 0, rings.EVER))
    assert [list(frame.monotonic_ns) for frame in frames] == [
        [105_000_000_000],
        [(100 + n) * 1_000_000_000 for n in range(5)],
    ]
    assert frames[0].wall_us[0] == rings.us(5 - 3600)
    assert len(rings.ring_files(tmp_path)) == 2  # a file is of one clock
    assert frames[0].boot == rings.BOOT


def test_hostile_host_names_stay_inside(tmp_path: pathlib.Path) -> None:
    for host in ("../../etc", "", ".", "a/b\n\x1b[31m", "\udcff", "x" * 300, "ü"):
        folder = layout.host_folder(tmp_path, host)
        assert folder.parent == tmp_path / "signals"
        assert len(folder.name.encode()) <= 255
        folder.mkdir(parents=True)
        (folder / "host").write_bytes(host.encode("utf-8", "surrogatepass"))
        assert host in layout.hosts(tmp_path)


def test_a_record_that_was_not_committed_never_was() -> None:
    table = open_block.TableWriter(0, "cpu", ("a",))
    head = open_block.head_record("h", "b", 1, full=True)
    first = table.record({"0": (5,)}, 1, 1)
    table.commit()
    table.record({"0": (50,)}, 2, 2)  # the disk did not take it
    third = table.record({"0": (7,)}, 3, 3)
    made = open_block.parse(head + first + third)
    assert [look.deltas for look in made.tables[0].readings] == [b"", b"\x02"]
