"""Fit the confidence to diagnoses with a known truth, and measure how well it predicts.

`python -m benchmarks.support.calibration --write` fits `benchmarks/data/diagnoses.csv`, and writes
`calibration.toml`, the picture and the tables of `docs/diagnosis.md`.

Each family counts the same, however often it was run, and one of fewer than `WHOLE_FAMILY` incidents less: a few of
them must not decide.
"""

from __future__ import annotations

import argparse
import collections
import csv
import dataclasses
import itertools
import math
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from overnight.diagnosis import calibration

ROOT = pathlib.Path(__file__).parents[2]
CORPUS = ROOT / "benchmarks/data/diagnoses.csv"
TABLE = ROOT / "src/overnight/diagnosis/calibration.toml"
DOCUMENT = ROOT / "docs/diagnosis.md"
PICTURE = ROOT / "docs/pictures/calibration.svg"
BEGIN, END = (f"<!-- calibration.py: {word} -->\n" for word in ("begin", "end"))
LOOKALIKE = "-lookalike"
MAX_KNOTS, MIN_IN_BIN = 10, 25
WHOLE_FAMILY = 10
GUESS = 0.5  # the probability at score 0, where nothing is measured: a coin
BINS = (0.0, 0.5, calibration.CLAIMED, 0.85, 0.9, 0.95, 1.0)  # of the confidence


@dataclasses.dataclass(frozen=True)
class Row:
    """One diagnosis; `score` and `right` are None where nobody was blamed."""

    source: str  # made-up, rehearsal or scene
    family: str
    seed: int
    status: str
    score: float | None
    right: bool | None

    @property
    def group(self) -> str:
        """The family that is left out with it: a scene and its look-alike run the same kind of program."""
        return self.family.removesuffix(LOOKALIKE)


@dataclasses.dataclass(frozen=True)
class Predicted:
    """A diagnosis that blames somebody, with the confidence and the share of right ones of the other families."""

    row: Row
    weight: float
    confidence: float
    base: float = 0.5

    @property
    def claimed(self) -> bool:
        return self.confidence >= calibration.CLAIMED


@dataclasses.dataclass(frozen=True)
class Bin:
    """The verdicts of a range of confidence; `low` and `high` are the 95 % interval of the share that is right."""

    begin: float
    end: float
    count: int
    confidence: float
    right: float
    low: float
    high: float


def read(path: pathlib.Path = CORPUS) -> list[Row]:
    with path.open(newline="") as file:
        return [
            Row(
                row["source"],
                row["family"],
                int(row["seed"]),
                row["status"],
                float(row["score"]) if row["score"] else None,
                row["right"] == "1" if row["right"] else None,
            )
            for row in csv.DictReader(file)
        ]


def weigh(rows: Sequence[Row]) -> list[float]:
    """Return the weight of each row, 1 on average. Incidents without a blamed cause count for their family."""
    sizes = collections.Counter((row.source, row.family) for row in rows)
    weights = [1 / max(sizes[row.source, row.family], WHOLE_FAMILY) for row in rows]
    return [weight * len(rows) / sum(weights) for weight in weights]


def fit(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """Return scores and their probabilities, both rising: isotonic regression of equally heavy bins.

    One right and one wrong verdict are added to each bin, so that none is certain. A score of 0 is a guess, so that
    missing evidence lowers the confidence below the lowest bin, too.
    """
    blamed = sorted(
        (row.score, weight, bool(row.right))
        for row, weight in zip(rows, weigh(rows), strict=True)
        if row.score is not None
    )
    scores, weights, right = (np.array(column, float) for column in zip(*blamed, strict=True))
    # Of equal weight; the same score is never in two bins.
    middles = np.cumsum(weights) - weights / 2
    bins = max(2, min(MAX_KNOTS, int(weights.sum() / MIN_IN_BIN)))
    places = np.minimum((bins * middles / weights.sum()).astype(int), bins - 1)
    places = places[np.searchsorted(scores, scores)]
    blocks: list[tuple[float, float, float]] = []  # weight, sum of scores, right ones
    for place in np.unique(places):
        chosen = places == place
        weight = weights[chosen]
        blocks.append((
            weight.sum() + 2,
            (weight * scores[chosen]).sum() / weight.sum() * (weight.sum() + 2),
            (weight * right[chosen]).sum() + 1,
        ))  # fmt: skip
        while len(blocks) > 1 and blocks[-1][2] / blocks[-1][0] <= blocks[-2][2] / blocks[-2][0]:
            last, before = blocks.pop(), blocks.pop()
            blocks.append((last[0] + before[0], last[1] + before[1], last[2] + before[2]))
    knots = [
        (round(float(score / whole), 4), round(float(good / whole), 4))
        for whole, score, good in blocks
    ]
    return [(0.0, min(GUESS, knots[0][1])), *knots]


def predict(rows: Sequence[Row]) -> list[Predicted]:
    """Predict each verdict that blames somebody from the other families."""
    predicted = []
    for group in {row.group for row in rows}:
        others = [row for row in rows if row.group != group]
        scores, probabilities = zip(*fit(others), strict=True)
        fitted = calibration.Calibration(scores, probabilities, 0, 0)
        base = _share_right(
            (row, weight) for row, weight in zip(others, weigh(others), strict=True)
        )
        predicted += [
            Predicted(row, weight, fitted.probability(row.score), base)
            for row, weight in zip(rows, weigh(rows), strict=True)
            if row.group == group and row.score is not None
        ]
    return sorted(predicted, key=lambda each: dataclasses.astuple(each.row))


def _share_right(weighed: Iterable[tuple[Row, float]]) -> float:
    blamed = [(row.right, weight) for row, weight in weighed if row.score is not None]
    right, weights = zip(*blamed, strict=True)
    return float(np.average(right, weights=weights))


def brier(predicted: Iterable[tuple[float, float, bool | None]]) -> float:
    """Return the weighted mean square of what a probability missed: 0 is best, 0.25 is a coin."""
    weights, guesses, right = np.array(list(predicted), float).T
    return float(np.average((guesses - right) ** 2, weights=weights))


def compare_brier(predicted: Sequence[Predicted]) -> dict[str, float]:
    """Return the Brier score of the confidence, of the score itself, and of the share of right verdicts."""
    weights = [each.weight for each in predicted]
    guesses = {
        "confidence": [each.confidence for each in predicted],
        "score": [each.row.score or 0.0 for each in predicted],
        "base rate": [each.base for each in predicted],
    }
    right = [each.row.right for each in predicted]
    return {name: brier(zip(weights, each, right, strict=True)) for name, each in guesses.items()}


def fill_bins(predicted: Sequence[Predicted]) -> list[Bin]:
    bins = []
    for begin, end in itertools.pairwise(BINS):
        chosen = [each for each in predicted if begin <= each.confidence < end]
        if not chosen:
            continue
        weights = np.array([each.weight for each in chosen])
        right = _share_right((each.row, each.weight) for each in chosen)
        sure = float(np.average([each.confidence for each in chosen], weights=weights))
        # As many verdicts of equal weight would tell as much.
        count = float(weights.sum() ** 2 / (weights**2).sum())
        bins.append(Bin(begin, end, len(chosen), sure, right, *wilson(right, count)))
    return bins


def wilson(share: float, count: float) -> tuple[float, float]:
    """Return the 95 % interval of a share of `count` verdicts.

    >>> [round(bound, 3) for bound in wilson(0.5, 10)]
    [0.237, 0.763]
    """
    z = 1.96
    middle = share + z * z / (2 * count)
    reach = z * math.sqrt(max(0.0, share * (1 - share)) / count + z * z / (4 * count * count))
    whole = 1 + z * z / count
    return max(0.0, (middle - reach) / whole), min(1.0, (middle + reach) / whole)


def count_outcomes(
    rows: Sequence[Row], predicted: Sequence[Predicted]
) -> dict[tuple[str, str], collections.Counter[str]]:
    """Count, by source and family: nights, and the right and wrong causes that are claimed or suspected."""
    counts: dict[tuple[str, str], collections.Counter[str]] = collections.defaultdict(
        collections.Counter
    )
    for row in rows:
        counts[row.source, row.family]["nights"] += 1
    for each in predicted:
        claimed = "claimed" if each.claimed else "suspected"
        right = "right" if each.row.right else "wrong"
        counts[each.row.source, each.row.family][f"{claimed} {right}"] += 1
    return dict(sorted(counts.items()))


OUTCOMES = ("claimed right", "suspected right", "claimed wrong", "suspected wrong")


def list_outcomes(
    counts: dict[tuple[str, str], collections.Counter[str]], *, families: bool
) -> list[str]:
    """Return a Markdown table, a line per family, or per source with the families that have wrong claims."""
    shown: dict[str, collections.Counter[str]] = {}
    for (source, family), counter in counts.items():
        if not families:
            shown.setdefault(f"{source}, all", collections.Counter()).update(counter)
        if families or counter["claimed wrong"]:
            shown[f"{source}: {family}"] = counter
    lines = ["| incidents | number | claimed, right | suspected, right | claimed, wrong | suspected, wrong | nobody blamed |", "|---|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    for name, counter in sorted(shown.items()):
        cells = [counter["nights"], *(counter[outcome] for outcome in OUTCOMES)]
        cells.append(2 * counter["nights"] - sum(cells))
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return lines


def list_bins(bins: Iterable[Bin]) -> list[str]:
    lines = ["| confidence | verdicts | on average | right | 95 % interval |", "|---|--:|--:|--:|---|"]  # fmt: skip
    lines += [
        f"| {each.begin:.2f} to {each.end:.2f} | {each.count} | {each.confidence:.2f}"
        f" | {100 * each.right:.0f} % | {100 * each.low:.0f} to {100 * each.high:.0f} % |"
        for each in bins
    ]
    return lines


def format_table(rows: Sequence[Row]) -> str:
    """Return `calibration.toml`."""
    blamed = [row for row in rows if row.score is not None]
    knots = "".join(f"  [{score:.4f}, {share:.4f}],\n" for score, share in fit(rows))
    return (
        "# Written by `python -m benchmarks.support.calibration --write` from benchmarks/data/diagnoses.csv.\n"
        f"diagnoses = {len(blamed)}  # of {len(rows)} incidents; the others have no suspect\n"
        f"families = {len({row.group for row in rows})}\n"
        f"brier = {compare_brier(predict(rows))['confidence']:.3f}  # of families that were left out of the fit\n"
        f"knots = [  # score, probability\n{knots}]\n"
    )


def format_block(rows: Sequence[Row]) -> str:
    """Return the generated part of docs/diagnosis.md."""
    predicted = predict(rows)
    counts = count_outcomes(rows, predicted)
    whole = sum(counts.values(), collections.Counter())
    claims = whole["claimed right"] + whole["claimed wrong"]
    errors = compare_brier(predicted)
    summary = (
        f"Brier score {errors['confidence']:.3f}; of the score itself {errors['score']:.3f}, of the share of right verdicts"
        f" {errors['base rate']:.3f}. {whole['claimed wrong']} of {claims} claims"
        f" ({100 * whole['claimed wrong'] / max(1, claims):.1f} %) and of {whole['nights']} incidents"
        f" ({100 * whole['claimed wrong'] / max(1, whole['nights']):.1f} %) name a wrong cause."
    )
    lines = [
        f"{len(rows)} incidents, of {len({row.group for row in rows})} families:",
        "",
        *list_bins(fill_bins(predicted)),
        "",
        summary,
        "",
        *list_outcomes(counts, families=False),
        "",
    ]
    return "\n".join(lines)


def write_block(document: str, block: str) -> str:
    before, _, rest = document.partition(BEGIN)
    return f"{before}{BEGIN}{block}{END}{rest.partition(END)[2]}"


def draw(bins: Sequence[Bin]) -> str:
    """Draw the reliability diagram: on the diagonal, as many verdicts are right as the confidence says."""
    side, left, top = 320, 56, 16
    style = "font:12px system-ui,sans-serif;fill:#333"

    def at(confidence: float, share: float) -> tuple[float, float]:
        return left + side * confidence, top + side * (1 - share)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + side + 24}" height="{top + side + 52}" role="img" aria-label="Share of right verdicts by confidence">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<path d="M{left} {top + side}L{left + side} {top}" stroke="#999" stroke-dasharray="4 4"/>',
        f'<path d="M{left} {top}V{top + side}H{left + side}" fill="none" stroke="#333"/>',
    ]
    for tick in (0, 0.25, 0.5, 0.75, 1):
        x, y = at(tick, tick)
        parts.append(
            f'<text x="{x:.0f}" y="{top + side + 18}" text-anchor="middle" style="{style}">{tick:g}</text>'
            f'<text x="{left - 8}" y="{y + 4:.0f}" text-anchor="end" style="{style}">{100 * tick:.0f} %</text>'
        )
    x, _ = at(calibration.CLAIMED, 0)
    parts.append(
        f'<path d="M{x:.0f} {top}V{top + side}" stroke="#c60" stroke-width="0.8"/>'
        f'<text x="{x - 6:.0f}" y="{top + side - 8}" text-anchor="end" style="{style}">suspected</text>'
        f'<text x="{x + 6:.0f}" y="{top + side - 8}" style="{style}">claimed</text>'
    )
    for each in bins:
        x, y = at(each.confidence, each.right)
        _, low = at(0, each.low)
        _, high = at(0, each.high)
        parts.append(
            f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="#069" stroke-width="1.5"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#069"><title>{each.count} verdicts</title></circle>'
        )
    parts.append(
        f'<text x="{left + side / 2:.0f}" y="{top + side + 40}" text-anchor="middle" style="{style}">confidence; right verdicts with their 95 % interval</text></svg>'
    )
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="update the table, picture and document"
    )
    options = parser.parse_args()
    rows = read()
    if options.write:
        TABLE.write_text(format_table(rows))
        PICTURE.write_text(draw(fill_bins(predict(rows))))
        DOCUMENT.write_text(write_block(DOCUMENT.read_text(), format_block(rows)))
    print(format_table(rows), format_block(rows), sep="\n")


if __name__ == "__main__":
    main()
