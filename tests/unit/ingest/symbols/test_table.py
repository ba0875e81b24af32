from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from overnight.ingest.symbols import table

TOP = 2**64 - 1


def symbols(*rows: tuple[int, int, str] | tuple[int, int, str, int]) -> table.Symbols:
    block = bytearray()
    at = []
    for row in rows:
        at.append(len(block))
        block += row[2].encode() + b"\0"
    return table.Symbols(
        start=np.array([row[0] for row in rows], np.uint64),
        size=np.array([row[1] for row in rows], np.uint64),
        binding=np.array([row[3] if len(row) > 3 else table.GLOBAL for row in rows], np.uint8),
        name_at=np.array(at, np.int64),
        names=bytes(block),
    )


def names(made: table.SymbolTable, *addresses: int) -> list[str]:
    found = made.find(np.array(addresses, np.uint64)).tolist()
    return [made.name(i) if i >= 0 else "-" for i in found]


def test_an_address_lies_in_the_function_that_holds_it() -> None:
    made = table.make_table(symbols((200, 10, "b"), (100, 20, "a")))
    assert names(made, 99, 100, 119, 120, 200, 209, 210) == ["-", "a", "a", "-", "b", "b", "-"]


def test_a_symbol_without_size_reaches_to_the_next_and_the_last_to_the_end_of_a_page() -> None:
    made = table.make_table(symbols((100, 0, "a"), (4097, 0, "b")))
    assert names(made, 4096, 4097, 3 * 4096 - 1, 3 * 4096) == ["a", "b", "b", "-"]


def test_a_label_inside_a_function_is_not_a_function() -> None:
    made = table.make_table(symbols((100, 50, "whole"), (120, 0, "label"), (150, 0, "after")))
    assert names(made, 119, 120, 149, 150) == ["whole", "whole", "whole", "after"]


def test_after_an_inner_function_the_outer_one_goes_on() -> None:
    made = table.make_table(symbols((100, 100, "outer"), (120, 10, "inner"), (300, 1, "far")))
    assert names(made, 119, 125, 130, 199, 200) == ["outer", "inner", "outer", "outer", "-"]


def test_among_aliases_size_then_strength_then_names_decide_as_in_perf() -> None:
    weak, local, strong = table.WEAK, table.LOCAL, table.GLOBAL
    for rows, winner in (
        ([(9, 0, "longer_name"), (9, 4, "sized", weak)], "sized"),
        ([(9, 4, "longer_weak", weak), (9, 4, "local", local)], "local"),
        ([(9, 4, "longer_local", local), (9, 4, "global", strong)], "global"),
        ([(9, 4, "__long_name"), (9, 4, "_short"), (9, 4, "open")], "open"),
        ([(9, 4, "short"), (9, 4, "longest"), (9, 4, "longer")], "longest"),
        ([(9, 4, "first"), (9, 4, "other")], "first"),
    ):
        assert names(table.make_table(symbols(*rows)), 9) == [winner]


def test_names_are_compared_as_people_read_them() -> None:
    made = table.make_table(symbols((9, 4, "_Zlong"), (9, 4, "abc")), lambda n: n.lstrip("_Z"))
    assert names(made, 9) == ["long"]


def test_the_chosen_alias_decides_where_the_function_ends() -> None:
    made = table.make_table(symbols((9, 4, "a"), (9, 100, "winner"), (9, 8, "b")))
    assert names(made, 108, 109) == ["winner", "-"]


def test_lists_join_in_their_order() -> None:
    made = table.make_table(
        table.join([symbols((9, 4, "aa")), symbols((9, 4, "bb"), (20, 1, "c"))])
    )
    assert names(made, 9, 20) == ["aa", "c"]


def test_names_that_are_not_text_are_shown_all_the_same() -> None:
    odd = table.Symbols(
        np.array([1], np.uint64),
        np.array([1], np.uint64),
        np.array([1], np.uint8),
        np.array([0], np.int64),
        b"caf\xe9",
    )
    assert table.make_table(odd).name(0) == "caf\ufffd"


def test_symbols_at_the_end_of_the_address_space() -> None:
    made = table.make_table(symbols((TOP - 5, TOP, "last"), (TOP - 9, 0, "label")))
    assert names(made, TOP - 9, TOP - 5, 0) == ["label", "last", "-"]


def test_an_empty_table_finds_nothing() -> None:
    assert names(table.EMPTY, 0, TOP) == ["-", "-"]
    assert len(table.make_table(symbols())) == 0


@given(
    st.lists(
        st.tuples(
            st.integers(0, 60) | st.integers(0, TOP),
            st.integers(0, 20) | st.integers(0, TOP),
            st.text("_ab", max_size=4),
            st.integers(0, 15),
        ),
        max_size=12,
    )
)
def test_what_is_found_holds_the_address(rows: list[tuple[int, int, str, int]]) -> None:
    made = table.make_table(symbols(*rows))
    addresses = np.array([a for row in rows for a in (row[0], min(row[0] + 3, TOP))], np.uint64)
    for address, index in zip(addresses.tolist(), made.find(addresses).tolist(), strict=True):
        if index >= 0:
            assert int(made.start[index]) <= address < int(made.end[index])
            assert made.name(index) in {row[2] for row in rows}


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 30), st.just("x")),
        max_size=12,
        unique_by=lambda row: row[0],
    )
)
def test_an_address_is_found_exactly_where_a_function_holds_it(
    rows: list[tuple[int, int, str]],
) -> None:
    made = table.make_table(symbols(*rows))
    addresses = list(range(100))
    held = [any(start <= a < start + size for start, size, _ in rows) for a in addresses]
    assert (made.find(np.array(addresses, np.uint64)) >= 0).tolist() == held
