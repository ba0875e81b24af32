from __future__ import annotations

import contextlib
import inspect
import pathlib
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.model import cgroups
from overnight.sources.memorycgroups import parents

V2 = cgroups.parse_layout("30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n")
V1 = cgroups.parse_layout("30 23 0:26 / /cg rw - cgroup cgroup rw,memory\n")
COST = parents.own_cost(2)
PAGE = parents.PAGE


def test_v2_is_counted_directory_by_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = {"": 700, "a": 600, "a/b": 500, "a/c": 0, "d": 20}
    for path, number in dying.items():
        folder = tmp_path / "cg" / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.stat").write_text(f"nr_descendants 9\nnr_dying_descendants {number}\n")
    rows = parents.read_parents(V2, 700, tmp_path)
    assert [(row.path, row.dying, row.in_use) for row in rows] == [
        ("/a/b", 500, 0),
        ("/a", 100, 2),
        ("/", 80, 2),
        ("/d", 20, 0),
    ]
    assert all(row.counted and row.at_least == row.at_most == row.dying for row in rows)
    monkeypatch.setattr(parents, "MAX_PARENTS", 2)
    assert len(parents.read_parents(V2, 700, tmp_path)) == 2


@contextlib.contextmanager
def shallow_stack() -> Iterator[None]:
    """Limit recursion to more than the depth that is walked (and a coverage tool), less than the tree's."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 400)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize("layout", [V1, V2], ids=["v1", "v2"])
def test_endlessly_nested_cgroups_are_not_an_error(
    tmp_path: pathlib.Path, layout: cgroups.Layout
) -> None:
    deep = tmp_path / "cg"
    for _ in range(300):
        deep.mkdir()
        (deep / "cgroup.stat").write_text("nr_dying_descendants 5\n")
        (deep / "memory.stat").write_text(f"cache 0\ntotal_cache {50 * PAGE}\n")
        deep = deep / "x"
    with shallow_stack():
        rows = parents.read_parents(layout, 5, tmp_path, budget_s=5)
    assert [(row.path.count("/x"), row.dying) for row in rows] == [(parents.MAX_DEPTH, 5)]


def v1_folder(folder: pathlib.Path, *, own: int = 0, total: int = 0, kernel: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.stat").write_text(
        f"cache {own}\nrss 0\nswap 0\ntotal_cache {total}\ntotal_rss 0\n"
    )
    (folder / "memory.kmem.usage_in_bytes").write_text(f"{kernel}\n")


def test_v1_shares_follow_the_memory_held(tmp_path: pathlib.Path) -> None:
    """Below `leak`, 300 cgroups hold a page each; below `big`, a few hold much more."""
    big = 400 * 1000 * PAGE
    v1_folder(tmp_path / "cg", own=5 * PAGE, total=big + 305 * PAGE + 9 * PAGE)
    v1_folder(tmp_path / "cg/leak", total=300 * PAGE + 9 * PAGE, kernel=301 * COST + 5000)
    v1_folder(tmp_path / "cg/leak/live", own=9 * PAGE, total=9 * PAGE, kernel=5000)
    v1_folder(tmp_path / "cg/big", total=big, kernel=300 << 20)
    rows = parents.read_parents(V1, 329, tmp_path)
    assert [(row.path, row.dying, row.at_least, row.at_most) for row in rows] == [
        ("/leak", 300, 0, 300),
        ("/big", 29, 29, 329),
    ]
    assert not any(row.counted for row in rows)


def test_v1_counts_pages_when_parents_are_not_charged_kernel_memory(tmp_path: pathlib.Path) -> None:
    """Before 5.9, a directory with live children is charged less than they would cost."""
    v1_folder(tmp_path / "cg", total=100 * PAGE)
    v1_folder(tmp_path / "cg/a", total=100 * PAGE, kernel=0)
    v1_folder(tmp_path / "cg/a/live")
    assert [(row.path, row.dying) for row in parents.read_parents(V1, 100, tmp_path)] == [
        ("/a", 100)
    ]


def test_v1_uses_counters_when_reads_are_slow(tmp_path: pathlib.Path) -> None:
    """A directory's own memory then counts as held: the bounds are wider, and the reads stay fast."""
    v1_folder(tmp_path / "cg", total=100 * PAGE)
    for name, pages in (("leak", 300), ("busy", 100_000)):
        v1_folder(tmp_path / "cg" / name, kernel=330 * COST)
        usage = tmp_path / "cg" / name / "memory.usage_in_bytes"
        usage.write_text(f"{pages * PAGE + 330 * COST}\n")
    ticks = iter(range(100))
    rows = parents.read_parents(V1, 350, tmp_path, clock=lambda: next(ticks) * 0.2)
    assert next(ticks) < 10
    assert [(row.path, row.dying, row.at_least, row.at_most) for row in rows] == [
        ("/leak", 300, 0, 300),
        ("/busy", 50, 50, 350),
    ]


@given(
    st.dictionaries(
        st.sampled_from(["/cg", "/cg/a", "/cg/b", "/cg/a/c"]),
        st.builds(
            parents.Charge,
            st.integers(0, 5),
            st.integers(0, 10**9),
            st.integers(0, 10**9),
        ),
    ),
    st.integers(0, 100_000),
)
def test_shares_stay_within_their_bounds_and_the_total(
    charges: dict[str, parents.Charge], dying: int
) -> None:
    rows = parents.share_out(charges, dying, "/cg", COST)
    assert sum(row.dying for row in rows) <= dying
    for row in rows:
        assert 0 <= row.at_least <= row.dying <= row.at_most <= dying


@pytest.mark.parametrize(("cores", "measured"), [(2, 14_300), (32, 75_000)])
def test_the_cost_of_a_cgroup_is_the_measured_one(cores: int, measured: int) -> None:
    assert parents.own_cost(cores) == pytest.approx(measured, rel=0.02)
