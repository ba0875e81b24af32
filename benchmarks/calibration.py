"""How well the confidence of a verdict predicts that it is right: diagnoses with a known truth, by family left out."""

from __future__ import annotations

from benchmarks import Result
from benchmarks.support import calibration

__all__ = ["measure"]


def measure() -> list[Result]:
    rows = calibration.read()
    predicted = calibration.predict(rows)
    bins = calibration.fill_bins(predicted)
    counts = calibration.count_outcomes(rows, predicted)
    print(
        *calibration.list_bins(bins),
        "",
        *calibration.list_outcomes(counts, families=True),
        sep="\n",
    )
    errors = calibration.compare_brier(predicted)
    claims = [each for each in predicted if each.claimed]
    wrong = sum(not each.row.right for each in claims)
    return [
        Result("Brier score of the confidence, peer: a chain's score", errors["confidence"], "", goal="< base rate", met=errors["confidence"] < errors["base rate"], peer="score", peer_value=errors["score"]),
        Result("the same, peer: the share of right verdicts", errors["confidence"], "", peer="base rate", peer_value=errors["base rate"]),
        Result("wrong causes among claims", 100 * wrong / len(claims), "%"),
        Result("wrong causes among all incidents", 100 * wrong / len(rows), "%"),
        Result("right verdicts that are claimed", 100 * (len(claims) - wrong) / sum(bool(each.row.right) for each in predicted), "%"),
    ]  # fmt: skip
