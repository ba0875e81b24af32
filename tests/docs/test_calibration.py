"""The confidence of verdicts: fitted to the corpus, and described as it was measured."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from benchmarks.support import calibration as fitting

from overnight.diagnosis import calibration

ROWS = fitting.read()


def test_table_picture_and_document_are_those_of_the_corpus() -> None:
    """Run `python -m benchmarks.support.calibration --write` after a change of the corpus."""
    assert fitting.TABLE.read_text() == fitting.format_table(ROWS)
    document = fitting.DOCUMENT.read_text()
    assert document == fitting.write_block(document, fitting.format_block(ROWS))
    assert fitting.PICTURE.read_text() == fitting.draw(fitting.fill_bins(fitting.predict(ROWS)))


def test_confidence_rises_with_the_score_and_is_never_certain() -> None:
    known = calibration.known()
    assert 3 <= len(known.scores) <= fitting.MAX_KNOTS + 1
    confidences = [known.probability(score) for score in np.linspace(0, 1, 201)]
    assert confidences == sorted(confidences)
    assert 0 < confidences[0] < calibration.CLAIMED < confidences[-1] < 1
    assert all(np.diff(known.scores) > 0)
    assert known.diagnoses == sum(row.score is not None for row in ROWS)


def test_corpus_is_sorted_and_blames_with_a_score() -> None:
    keys = [(row.source, row.family, row.seed) for row in ROWS]
    assert keys == sorted(keys)
    assert all((row.score is None) == (row.right is None) for row in ROWS)


def make_rows(
    family: str, scores: list[float], right: bool | None, source: str = "made-up"
) -> list[fitting.Row]:
    return [
        fitting.Row(source, family, seed, "", None if right is None else score, right)
        for seed, score in enumerate(scores)
    ]


GOOD = make_rows("good", [0.7, 0.8, 0.9] * 20, True)
BAD = make_rows("bad", [0.1, 0.2, 0.3] * 20, False)


def test_fit_rises_and_shrinks_towards_a_coin() -> None:
    knots = fitting.fit([*GOOD, *BAD])
    scores, shares = zip(*knots, strict=True)
    assert list(scores) == sorted(scores)
    assert list(shares) == sorted(shares)
    assert shares[:2] == pytest.approx([1 / 42] * 2, abs=1e-4)  # 40 diagnoses, all wrong
    assert 0.95 < shares[-1] < 0.98
    # Right verdicts with the lower score: both are as sure as their mean.
    [guess, (_, share)] = fitting.fit([*make_rows("a", [0.2] * 30, True), *make_rows("b", [0.8] * 10, False)])  # fmt: skip
    assert share == pytest.approx(0.5, abs=0.01)
    assert guess == (0.0, fitting.GUESS)


def test_a_family_counts_once_however_often_it_was_run() -> None:
    often = [*make_rows("a", [0.5] * 10, True), *make_rows("b", [0.5] * 40, False)]
    [_, (_, share)] = fitting.fit(often)
    assert share == pytest.approx(0.5, abs=0.01)
    # Of its nights only a tenth blames somebody.
    quiet = make_rows("b", [0.5] * 36, None)
    rare = [*make_rows("a", [0.5] * 40, True), *make_rows("b", [0.5] * 4, False)]
    [_, (_, share)] = fitting.fit([*rare, *(dataclasses.replace(row, seed=row.seed + 4) for row in quiet)])  # fmt: skip
    assert share == pytest.approx(1 / 1.1, abs=0.03)
    once = make_rows("a", [0.5], False, source="scene")
    [_, (_, share)] = fitting.fit([*make_rows("a", [0.5] * 40, True), *once])
    assert share == pytest.approx(1 / 1.1, abs=0.03)


def test_a_family_is_predicted_from_the_others() -> None:
    """A family that is always wrong at a high score does not know it; with its look-alike, neither does that."""
    odd = [*make_rows("odd", [0.9] * 20, False), *make_rows("odd-lookalike", [0.9] * 20, False)]
    predicted = fitting.predict([*GOOD, *BAD, *odd])
    assert all(each.confidence > 0.9 for each in predicted if each.row.group == "odd")
    assert all(each.confidence < 0.8 for each in predicted if each.row.family == "good")
    counts = fitting.count_outcomes([*GOOD, *BAD, *odd], predicted)
    assert counts["made-up", "odd"] == {"nights": 20, "claimed wrong": 20}
    assert any("| made-up: odd | 20 | 0 | 0 | 20 | 0 | 0 |" in line for line in fitting.list_outcomes(counts, families=False))  # fmt: skip


def test_brier_score_and_interval() -> None:
    assert fitting.brier([(1.0, 0.5, True), (3.0, 0.0, True)]) == pytest.approx(0.8125)
    assert fitting.wilson(0.5, 10) == pytest.approx((0.237, 0.763), abs=0.001)
    both = [fitting.Predicted(row, 1.0, 0.9 if row.right else 0.2) for row in [*GOOD, *BAD]]
    errors = fitting.compare_brier(both)
    assert errors["confidence"] == pytest.approx((0.1**2 + 0.2**2) / 2)
    assert errors["base rate"] == pytest.approx(0.25)
    sure = [fitting.Predicted(row, 1.0, 0.97) for row in [*GOOD, *BAD[:2]]]
    [low, high] = fitting.fill_bins([*sure, *(fitting.Predicted(row, 1.0, 0.2) for row in BAD)])
    assert (low.count, low.right, low.low, high.count) == (60, 0.0, 0.0, 62)
    assert high.right == pytest.approx(60 / 62)
    assert low.high < high.low < high.right < high.high
    heavy = [dataclasses.replace(each, weight=50.0) for each in sure[-1:]]
    [wide] = fitting.fill_bins([*sure[:-1], *heavy])
    assert wide.right < 0.6
    assert wide.high - wide.low > 0.5  # one verdict decides
