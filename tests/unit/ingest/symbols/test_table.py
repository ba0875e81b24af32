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


def names(functions: table.SymbolTable, *addresses: int) -> list[str]:
    indices = functions.find(np.array(addresses, np.uint64)).tolist()
    return [functions.name(i) if i >= 0 else "-" for i in indices]


def test_an_address_belongs_to_the_function_that_contains_it() -> None:
    functions = table.make_table(symbols((200, 10, "b"), (100, 20, "a")))
    assert names(functions, 99, 100, 119, 120, 200, 209, 210) == ["-", "a", "a", "-", "b", "b", "-"]


def test_a_symbol_without_size_reaches_to_the_next_and_the_last_to_the_end_of_a_page() -> None:
    functions = table.make_table(symbols((100, 0, "a"), (4097, 0, "b")))
    assert names(functions, 4096, 4097, 3 * 4096 - 1, 3 * 4096) == ["a", "b", "b", "-"]


def test_a_label_inside_a_function_is_not_a_function() -> None:
    functions = table.make_table(symbols((100, 50, "whole"), (120, 0, "label"), (150, 0, "after")))
    assert names(functions, 119, 120, 149, 150) == ["whole", "whole", "whole", "after"]


def test_the_outer_function_continues_after_an_inner_one() -> None:
    functions = table.make_table(symbols((100, 100, "outer"), (120, 10, "inner"), (300, 1, "far")))
    assert names(functions, 119, 125, 130, 199, 200) == ["outer", "inner", "outer", "outer", "-"]


def test_aliases_are_chosen_by_size_then_binding_then_name_as_in_perf() -> None:
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


def test_aliases_are_compared_by_their_readable_names() -> None:
    functions = table.make_table(symbols((9, 4, "_Zlong"), (9, 4, "abc")), lambda n: n.lstrip("_Z"))
    assert names(functions, 9) == ["long"]


def test_a_function_ends_where_its_chosen_alias_ends() -> None:
    functions = table.make_table(symbols((9, 4, "a"), (9, 100, "winner"), (9, 8, "b")))
    assert names(functions, 108, 109) == ["winner", "-"]


def test_lists_join_in_their_order() -> None:
    functions = table.make_table(
        table.join([symbols((9, 4, "aa")), symbols((9, 4, "bb"), (20, 1, "c"))])
    )
    assert names(functions, 9, 20) == ["aa", "c"]


def test_names_that_are_not_utf_8_are_still_shown() -> None:
    odd = table.Symbols(
        np.array([1], np.uint64),
        np.array([1], np.uint64),
        np.array([1], np.uint8),
        np.array([0], np.int64),
        b"caf\xe9",
    )
    assert table.make_table(odd).name(0) == "caf\ufffd"


def test_symbols_at_the_end_of_the_address_space() -> None:
    functions = table.make_table(symbols((TOP - 5, TOP, "last"), (TOP - 9, 0, "label")))
    assert names(functions, TOP - 9, TOP - 5, 0) == ["label", "last", "-"]


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
def test_the_function_that_is_found_contains_the_address(
    rows: list[tuple[int, int, str, int]],
) -> None:
    functions = table.make_table(symbols(*rows))
    addresses = np.array([a for row in rows for a in (row[0], min(row[0] + 3, TOP))], np.uint64)
    for address, index in zip(addresses.tolist(), functions.find(addresses).tolist(), strict=True):
        if index >= 0:
            assert int(functions.start[index]) <= address < int(functions.end[index])
            assert functions.name(index) in {row[2] for row in rows}


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 30), st.just("x")),
        max_size=12,
        unique_by=lambda row: row[0],
    )
)
def test_an_address_is_found_exactly_where_a_function_contains_it(
    rows: list[tuple[int, int, str]],
) -> None:
    functions = table.make_table(symbols(*rows))
    addresses = list(range(100))
    held = [any(start <= a < start + size for start, size, _ in rows) for a in addresses]
    assert (functions.find(np.array(addresses, np.uint64)) >= 0).tolist() == held


def test_names_are_whole_wherever_their_compressed_piece_ends() -> None:
    long = [f"{number:05}" + "x" * (number % 300) for number in range(400)]
    long += ["a" * (table.MAX_NAME - 1), "b" * table.MAX_NAME, "c" * (3 * table.PIECE), "end"]
    functions = table.make_table(symbols(*((16 * i, 16, name) for i, name in enumerate(long))))
    expected = [name[: table.MAX_NAME] for name in long]
    assert names(functions, *range(0, 16 * len(long), 16)) == expected
    assert names(functions, *range(16 * len(long) - 16, -1, -16)) == expected[::-1]
