"""Simulated fleets with a known truth: false-positive rate and power of the statistics.

The short runs use the tolerance that their number of runs needs; the long runs are marked `long`, and
docs/fleet.md has their figures (`pytest -m long -s` prints them).
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import fleets
import numpy as np
import pytest
from scipy import stats

from overnight.detectors.fleet import cohort, hazard, odds, permutation, skew

ALPHA = 0.05
SETTINGS = [(0.5, 0.25), (0.8, 0.25), (1.5, 0.2)]  # events per host, shape of their rates
LENGTHS = [
    pytest.param(200, id="short", marks=pytest.mark.timeout(60)),
    pytest.param(2000, id="full", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
]
GROUPS = skew.form_groups({"zone": [str(zone) for zone in fleets.ZONES]})


def print_figures(figures: str) -> None:
    """Print figures; `-s` shows them."""
    sys.stdout.write(figures + "\n")


def most(share: float, runs: int) -> float:
    """Return the limit that a true share of this size exceeds once in a thousand times."""
    return float(stats.binom.ppf(0.999, runs, share)) / runs


def least(share: float, runs: int) -> float:
    return float(stats.binom.ppf(0.001, runs, share)) / runs


def share_of(runs: int, hit: Callable[[np.random.Generator], bool], seed: int = 1) -> float:
    chance = np.random.default_rng(seed)
    return sum(hit(chance) for _ in range(runs)) / runs


# --- cohort skew


def permuted(mean: float, shape: float, times: float) -> Callable[[np.random.Generator], bool]:
    def hit(chance: np.random.Generator) -> bool:
        events, time = fleets.clustered(chance, mean, shape, times)
        cohorts = skew.compare(events, time, GROUPS, chance, 399)
        return bool(cohorts) and cohorts[0].p <= ALPHA

    return hit


def binomial(mean: float, shape: float) -> Callable[[np.random.Generator], bool]:
    """The naive test: events of a zone against its share of time, as if events were independent."""

    def hit(chance: np.random.Generator) -> bool:
        events, time = fleets.clustered(chance, mean, shape)
        total = int(events.sum())
        p = [
            stats.binom.sf(events[zone].sum() - 1, total, time[zone].sum() / time.sum())
            for zone in (name == fleets.ZONES for name in "abc")
        ]
        return bool(total) and min(p) <= ALPHA

    return hit


def any_event(mean: float, shape: float) -> Callable[[np.random.Generator], bool]:
    """Fisher's test of hosts with any event, Bonferroni for three zones: it ignores counts."""

    def hit(chance: np.random.Generator) -> bool:
        events, _ = fleets.clustered(chance, mean, shape, 5)
        sick = events > 0
        inside = [int(sick[name == fleets.ZONES].sum()) - 1 for name in "abc"]
        smallest = stats.hypergeom.sf(inside, 60, sick.sum(), 20).min()
        return bool(smallest <= ALPHA / 3)

    return hit


@pytest.mark.parametrize("runs", LENGTHS)
def test_cohort_false_positives_stay_below_alpha(runs: int) -> None:
    shares = [share_of(runs, permuted(mean, shape, 1)) for mean, shape in SETTINGS]
    print_figures(f"cohort, no effect: {shares}")
    assert np.mean(shares) <= most(0.05, 3 * runs)
    assert max(shares) <= most(0.06, runs)


@pytest.mark.parametrize("runs", LENGTHS)
def test_the_naive_binomial_test_has_many_false_positives(runs: int) -> None:
    shares = [share_of(runs, binomial(mean, shape)) for mean, shape in SETTINGS]
    print_figures(f"cohort, no effect, binomial: {shares}")
    assert min(shares) > 0.2


@pytest.mark.parametrize("runs", LENGTHS)
def test_cohort_finds_five_times_the_rate(runs: int) -> None:
    shares = [share_of(runs, permuted(mean, shape, 5)) for mean, shape in SETTINGS]
    tables = [share_of(runs, any_event(mean, shape)) for mean, shape in SETTINGS]
    print_figures(f"cohort, 5 times: {shares}; Fisher on any event: {tables}")
    assert min(shares) >= least(0.46, runs)
    assert max(tables) < min(shares) - 0.1


def five_zones(mean: float, shape: float, *, immune: bool) -> Callable[[np.random.Generator], bool]:
    """Sixty hosts in five zones; zone c may be immune. Hit: it is found to be spared, or else any zone is found."""
    groups = skew.form_groups({"zone": ["abcde"[n % 5] for n in range(60)]})
    spared = np.arange(60) % 5 == 2

    def hit(chance: np.random.Generator) -> bool:
        time = chance.uniform(0.3, 1.0, 60)
        events = chance.poisson(mean * chance.gamma(shape, 1 / shape, 60) * time).astype(float)
        cohorts = skew.compare(np.where(spared & immune, 0.0, events), time, groups, chance, 399)
        best = next(iter(cohorts), None)
        is_right = best and (not immune or (best.spared and best.names == ((("zone", "c"),))))
        return bool(best and is_right and best.p <= ALPHA)

    return hit


@pytest.mark.parametrize("runs", LENGTHS)
def test_a_spared_zone_is_found_and_no_zone_without_an_effect(runs: int) -> None:
    settings = [(1.5, 0.25), (3, 0.5), (3, 1.0)]
    false = [share_of(runs, five_zones(*each, immune=False)) for each in settings]
    found = [share_of(runs, five_zones(*each, immune=True)) for each in settings]
    print_figures(f"cohort, five zones, no effect: {false}; one spared: {found}")
    assert np.mean(false) <= most(0.05, 3 * runs)
    assert max(false) <= most(0.06, runs)
    assert [share >= least(power, runs) for share, power in zip(found, (0.3, 0.85, 0.97), strict=True)] == [True] * 3  # fmt: skip


@pytest.mark.parametrize("runs", LENGTHS)
def test_next_to_spared_zones_no_ordinary_one_is_accused(
    runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of ten zones are spared; the sickest of the other seven is so by chance."""
    monkeypatch.setattr(permutation, "DRAWS", 399)
    zones = np.arange(100) % 10
    groups, time = skew.form_groups({"zone": [str(zone) for zone in zones]}), np.ones(100)

    def hit(chance: np.random.Generator) -> bool:
        events = np.where(zones < 3, 0.0, 1 + chance.poisson(3, 100))
        cohorts = skew.compare(events, time, groups, chance)
        significant = [each for each in cohorts if each.p <= ALPHA]
        kept = cohort.separate(events, time, groups, significant, chance)
        return not all(each.spared for each in kept)

    share = share_of(runs, hit)
    print_figures(f"cohort, three of ten zones spared, another one accused: {share}")
    assert share <= most(0.05, runs)


@pytest.mark.parametrize("runs", LENGTHS)
def test_five_labels_have_no_more_false_positives_than_one(runs: int) -> None:
    """The labels have no effect; some of them are nearly the same."""

    def hit(chance: np.random.Generator) -> bool:
        events, time = fleets.clustered(chance, 0.8, 0.25)
        zone = chance.integers(0, 3, 60)
        labels = {
            "zone": zone,
            "image": np.where(chance.random(60) < 0.9, zone, chance.integers(0, 3, 60)),
            "kernel": chance.integers(0, 2, 60),
            "instance_type": chance.integers(0, 6, 60),
            "driver": chance.integers(0, 2, 60),
        }
        groups = skew.form_groups({name: list(map(str, of)) for name, of in labels.items()})
        cohorts = skew.compare(events, time, groups, chance, 399)
        return bool(cohorts) and cohorts[0].p <= ALPHA

    share = share_of(runs, hit)
    print_figures(f"cohort, no effect, five labels: {share}")
    assert share <= most(0.05, runs)


@pytest.mark.parametrize("runs", LENGTHS)
def test_a_correlated_label_disappears_within_the_true_label(runs: int) -> None:
    """Zone correlates with image, and the image is the cause: within images the zone is not found."""
    zone = fleets.ZONES == "a"

    def hit(chance: np.random.Generator) -> bool:
        image = np.where(chance.random(60) < 0.8, zone, ~zone)
        time = chance.uniform(0.3, 1.0, 60)
        events = chance.poisson(time * np.where(image, 2.0, 0.3)).astype(float)
        (p,) = skew.within(events, time, zone[:, None], image.astype(np.int64), chance, 199)
        return p <= ALPHA

    share = share_of(runs, hit)
    print_figures(f"cohort, zone within image: {share}")
    assert share <= most(0.05, runs)


# --- uptime


def rises(shape: float, early: float, burst: float = 1.0) -> Callable[[np.random.Generator], bool]:
    def hit(chance: np.random.Generator) -> bool:
        line = fleets.rebooted(chance, early=early, shape=shape, burst=burst)
        rise = hazard.find_rise(line, chance, 199)
        return rise is not None and rise.p <= ALPHA and (early == 1 or rise.z > 0)

    return hit


@pytest.mark.parametrize("runs", LENGTHS)
def test_a_constant_hazard_has_few_false_positives(runs: int) -> None:
    """With equal hosts, with different hosts, and with events in bursts of two and four."""
    kinds = ((0.0, 1.0), (1.0, 1.0), (0.3, 1.0), (0.0, 2.0), (1.0, 4.0))
    shares = [share_of(runs, rises(shape, 1, burst)) for shape, burst in kinds]
    print_figures(f"uptime, constant hazard: {shares}")
    assert max(shares) <= most(0.06, runs)


@pytest.mark.parametrize("runs", LENGTHS)
def test_uptime_at_the_event_alone_rejects_a_constant_hazard(runs: int) -> None:
    """The naive test: whether uptimes of events are spread evenly from 0 to the longest."""

    def hit(chance: np.random.Generator) -> bool:
        line = fleets.rebooted(chance)
        longest = (line.uptime + line.seconds).max()
        return bool(stats.kstest(line.event_uptime / longest, "uniform").pvalue <= ALPHA)

    share = share_of(min(runs, 1000), hit)
    print_figures(f"uptime, constant hazard, naive KS: {share}")
    assert share >= 0.9


@pytest.mark.parametrize("runs", LENGTHS)
def test_a_reboot_that_helps_for_a_week_is_found(runs: int) -> None:
    shares = [share_of(runs, rises(0.0, early)) for early in (0.1, 0.0)]
    print_figures(f"uptime, a tenth of the hazard in the first week, none: {shares}")
    assert shares[0] >= least(0.95, runs)
    assert shares[1] >= least(0.985, runs)


@pytest.mark.parametrize("runs", LENGTHS)
def test_the_onset_is_inside_its_interval(runs: int) -> None:
    runs //= 5
    inside, middle = 0, []
    chance = np.random.default_rng(3)
    for _ in range(runs):
        onset = hazard.find_onset(fleets.rebooted(chance, early=0.05), chance, rising=True)
        assert onset is not None
        inside += onset.low <= 7 * hazard.DAY <= onset.high
        middle.append(onset.uptime / hazard.DAY)
    print_figures(f"onset of 7 days: in the interval {inside / runs}, median {np.median(middle)}")
    assert inside / runs >= least(0.95, runs)
    assert np.median(middle) == pytest.approx(7.25, abs=0.75)


# --- drift


@pytest.mark.parametrize("runs", LENGTHS)
def test_the_lower_bound_ranks_the_cause_first(runs: int) -> None:
    chance = np.random.default_rng(4)
    ranks: dict[str, list[float]] = {"lift": [], "low": []}
    for _ in range(runs):
        has, sick = fleets.drifted(chance)
        a, c = has[sick].sum(axis=0).astype(float), has[~sick].sum(axis=0).astype(float)
        table = (a, sick.sum() - a, c, (~sick).sum() - c)
        for name, score in (("lift", odds.lift(table)), ("low", odds.bound(table)[1])):
            before, equal = (score > score[0] + 1e-12).sum(), np.isclose(score, score[0]).sum()
            ranks[name].append(1 + before + (equal - 1) / 2)
    places = {name: (np.median(of), np.percentile(of, 90)) for name, of in ranks.items()}
    print_figures(f"drift, median and p90 rank of the cause: {places}")
    assert places["low"] == (1, 1)
    assert places["lift"][0] >= 2
    assert places["lift"][1] >= 4


@pytest.mark.parametrize("runs", LENGTHS)
def test_drift_false_positives_stay_below_alpha(runs: int) -> None:
    runs //= 2

    def hit(cause: bool) -> Callable[[np.random.Generator], bool]:
        def draw(chance: np.random.Generator) -> bool:
            has, sick = fleets.drifted(chance, cause=cause)
            columns, _ = odds.rank(has, np.ones_like(has), sick, chance, 199)
            first = 0 in [item for item, _ in columns[0].items] if cause else True
            return columns[0].p_max <= ALPHA and first

        return draw

    quiet, first = share_of(runs, hit(False)), share_of(runs, hit(True))
    print_figures(f"drift, nothing wrong: {quiet}; the cause first and past the gate: {first}")
    assert quiet <= most(0.05, runs)
    assert first >= 0.8


def test_the_smallest_p_of_three_against_nine() -> None:
    assert permutation.smallest_p(12, 3, 3) == pytest.approx(1 / 220)
    assert odds.smallest_p(3, 9, 4999) == pytest.approx(1 / 220)
    assert odds.smallest_p(3, 3, 4999) == pytest.approx(2 / 20)
