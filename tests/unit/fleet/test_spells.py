"""Observed time: whatever arrives in whatever order, spells grow and never overlap."""

from __future__ import annotations

import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from overnight.fleet import spells
from overnight.model.uplink import Observed

times = st.integers(0, 60)
observed = st.builds(
    lambda boot, begin, length: Observed(boot, begin * 10**6, (begin + length) * 10**6, begin),
    st.sampled_from(["a", "b"]),
    times,
    st.integers(0, 20),
)


def apply(known: dict[int, Observed], new: list[Observed]) -> dict[int, Observed]:
    gone, written = spells.merge(known.values(), new)
    left = {begin: spell for begin, spell in known.items() if begin not in gone}
    return left | {spell.begin_us: spell for spell in written}


def covered(known: dict[int, Observed]) -> int:
    return sum(spell.end_us - spell.begin_us for spell in known.values())


@given(st.lists(st.lists(observed, max_size=3), max_size=8))
@example([[Observed("b", 2_000_000, 7_000_000, 2), Observed("a", 1_000_000, 8_000_000, 1), Observed("a", 0, 1_000_000, 0)]])  # fmt: skip
def test_spells_never_overlap_or_shrink_and_a_repetition_changes_nothing(
    reports: list[list[Observed]],
) -> None:
    known: dict[int, Observed] = {}
    for report in reports:
        later = apply(known, report)
        assert covered(later) >= covered(known)
        for spell in known.values():
            assert any(
                s.boot == spell.boot and s.begin_us <= spell.begin_us and s.end_us >= spell.end_us
                for s in later.values()
            )
        known = later
        assert apply(known, report) == known
        in_order = sorted(known.values(), key=lambda spell: spell.begin_us)
        for first, second in itertools.pairwise(in_order):
            assert first.begin_us < first.end_us <= second.begin_us


@given(st.lists(observed, max_size=6).map(lambda all_: [s for s in all_ if s.boot == "a"]), st.randoms())  # fmt: skip
def test_the_order_does_not_matter_within_a_boot(sent: list[Observed], chance: object) -> None:
    shuffled = list(sent)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    first: dict[int, Observed] = {}
    second: dict[int, Observed] = {}
    for spell in sent:
        first = apply(first, [spell])
    for spell in shuffled:
        second = apply(second, [spell])
    assert [(s.begin_us, s.end_us) for s in sorted(first.values(), key=lambda s: s.begin_us)] == [
        (s.begin_us, s.end_us) for s in sorted(second.values(), key=lambda s: s.begin_us)
    ]
