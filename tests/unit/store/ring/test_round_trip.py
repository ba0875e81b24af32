"""Numbers are read back unchanged, packed or not, for any numbers and keys."""

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
def test_any_numbers_under_any_keys_come_back(
    readings: list[dict[str, tuple[int, ...]]], packed: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        writer = rings.open_writer(home)
        for second, rows in enumerate(readings):
            writer.numbers("any", ("a", "idle", "c"), rings.at(second), rows)
        if packed:
            writer.close()
        source = reader.Reader(home)
        assert rings.everything(source, "any") == {
            (rings.us(second), name, column): value
            for second, rows in enumerate(readings)
            for name, row in rows.items()
            for column, value in zip(("a", "idle", "c"), row, strict=True)
        }
        assert source.problems == []
        assert check.check(home).problems == ()
        writer.close()


@hypothesis.settings(max_examples=25)
@hypothesis.given(
    st.lists(st.lists(st.integers(0, 40_000), min_size=9, max_size=9), min_size=1, max_size=12)
)
def test_rising_counters_come_back(steps: list[list[int]]) -> None:
    """The encoding of the cores: differences in planes, the sum in place of idle."""
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        writer = rings.open_writer(home)
        totals, expected = [10**12] * 9, {}
        for second, step in enumerate(steps):
            totals = [total + more for total, more in zip(totals, step, strict=True)]
            rows = {str(core): tuple(totals[3 * core : 3 * core + 3]) for core in range(3)}
            writer.numbers("cpu", rings.COLUMNS, rings.at(second), rows)
            for core, row in rows.items():
                for column, value in zip(rings.COLUMNS, row, strict=True):
                    expected[rings.us(second), core, column] = value
        writer.close()
        assert rings.everything(reader.Reader(home)) == expected


@hypothesis.given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=40))
def test_a_column_comes_back(numbers: list[int]) -> None:
    coded = columns.code(columns.split(array.array("q", numbers).tobytes()))
    assert list(columns.decode(*coded, len(numbers))) == numbers


def test_unsigned_numbers_beyond_63_bits_wrap(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path)
    writer.numbers("ethtool", ("a",), rings.at(0), {"eth0": ((1 << 64) - 1,)})
    writer.numbers("ethtool", ("a",), rings.at(1), {"eth0": (5,)})
    writer.close()
    numbers = rings.everything(reader.Reader(tmp_path), "ethtool")
    assert list(numbers.values()) == [-1, 5]


def test_rows_of_the_wrong_length_are_refused(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path)
    for rows in ({"0": (1, 2)}, {"0": (1, 2, 3), "1": (1,)}):
        with pytest.raises(ValueError, match=r"numbers instead of|shorter"):
            writer.numbers("cpu", rings.COLUMNS, rings.at(0), rows)
    rings.record(writer, range(2))
    assert rings.everything(reader.Reader(tmp_path)) == rings.expected_numbers(range(2))
    writer.close()


def test_only_the_requested_times_keys_and_columns_are_read(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path)
    rings.record(writer, range(50), cores=5)
    writer.close()
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


def test_columns_may_be_stored_less_often(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path)
    for second in range(40):
        rows = rings.rows_of(second)
        writer.numbers("cpu", rings.COLUMNS, rings.at(second), rows, every=(0, 10.0, 0))
    writer.close()
    numbers = rings.everything(reader.Reader(tmp_path))
    slow = sorted({at for at, _, column in numbers if column == "system"})
    assert slow == [rings.us(second) for second in (0, 10, 20, 30)]
    assert {at: v for at, v in numbers.items() if at[2] != "system"} == {
        at: v for at, v in rings.expected_numbers(range(40)).items() if at[2] != "system"
    }
    assert all(rings.expected_numbers(range(40))[at] == v for at, v in numbers.items())


def test_empty_readings_and_keys_that_come_and_go(tmp_path: pathlib.Path) -> None:
    readings = [{}, {"a": (1,)}, {"b": (5,), "a": (2,)}, {"b": (4,)}, {}, {"a": (9,)}]
    writer = rings.open_writer(tmp_path)
    for second, rows in enumerate(readings):
        writer.numbers("top", ("x",), rings.at(second), rows)
    writer.close()
    frames = list(reader.Reader(tmp_path).numbers(rings.HOST, "top", 0, rings.EVER))
    assert [list(frame.wall_us) for frame in frames] == [[rings.us(n) for n in range(6)]]
    times, values = frames[0].series("a", "x")
    assert (list(times), list(values)) == ([rings.us(n) for n in (1, 2, 5)], [1, 2, 9])
    with pytest.raises(KeyError):
        frames[0].series("c", "x")


def test_both_clocks_are_kept(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path)
    rings.record(writer, range(5))
    writer.numbers("cpu", rings.COLUMNS, rings.at(5, step=-3600), rings.rows_of(5))
    writer.close()
    frames = list(reader.Reader(tmp_path).numbers(rings.HOST, "cpu", 0, rings.EVER))
    assert [list(frame.monotonic_ns) for frame in frames] == [
        [105_000_000_000],
        [(100 + n) * 1_000_000_000 for n in range(5)],
    ]
    assert frames[0].wall_us[0] == rings.us(5 - 3600)
    assert len(rings.ring_files(tmp_path)) == 2  # each file has one clock
    assert frames[0].boot == rings.BOOT


def test_hostile_host_names_stay_inside(tmp_path: pathlib.Path) -> None:
    for host in ("../../etc", "", ".", "a/b\n\x1b[31m", "\udcff", "x" * 300, "ü"):
        folder = layout.host_folder(tmp_path, host)
        assert folder.parent == tmp_path / "signals"
        assert len(folder.name.encode()) <= 255
        folder.mkdir(parents=True)
        (folder / "host").write_bytes(host.encode("utf-8", "surrogatepass"))
        assert host in layout.hosts(tmp_path)


def test_an_uncommitted_record_does_not_change_the_next() -> None:
    table = open_block.TableWriter(0, "cpu", ("a",))
    head = open_block.head_record("h", "b", 1, full=True)
    first = table.record({"0": (5,)}, 1, 1)
    table.commit()
    table.record({"0": (50,)}, 2, 2)  # the disk did not take it
    third = table.record({"0": (7,)}, 3, 3)
    block = open_block.parse(head + first + third)
    assert [reading.deltas for reading in block.tables[0].readings] == [b"", b"\x02"]
