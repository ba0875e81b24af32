"""Cohort skew: findings, labels explained by another label, and too little data."""

from __future__ import annotations

import math

import fleets
import numpy as np
import pytest
from scipy import stats

from overnight.detectors.fleet import cohort, drift, permutation, skew, uptime
from overnight.model import fleet
from overnight.model.finding import Finding, Status


def make_fleet(count: int, label, event_count, spread: float = 1.0) -> fleet.Fleet:
    """Make hosts whose labels and number of events depend on their number."""
    chance = np.random.default_rng(5)
    return fleet.Fleet(
        tuple(
            fleets.host(
                f"h{n:02}",
                label(n),
                uptime_days=float(chance.uniform(0, 2)) * spread,
                events=chance.uniform(0, 10, int(event_count(n))).tolist(),
            )
            for n in range(count)
        )
    )


def texts(finding: Finding) -> str:
    return "\n".join(evidence.text for evidence in finding.evidence)


def test_the_image_is_found_and_explains_the_correlated_zone() -> None:
    answer = cohort.CohortSkew().ask(
        make_fleet(
            60,
            lambda n: {"image": "b" if n < 20 else "a", "zone": "z1" if n < 15 or n > 54 else "z2"},
            lambda n: (2, 3, 1, 4)[n % 4] if n < 20 else n % 10 == 0,
        ),
        fleets.KIND,
    )
    assert answer.status is Status.FOUND
    (finding,) = answer.findings
    assert (finding.kind, finding.subject.cohort) == ("fleet.cohort_skew", "image b")
    assert "explains away zone z1" in texts(finding)
    assert "compared: within zone (p = " in texts(finding)
    assert "within all other labels at once (zone, uptime): p = " in texts(finding)
    assert finding.magnitude["rate_ratio"] > 10
    assert finding.magnitude["p_value"] <= 0.001
    assert finding.against == ()
    assert answer.why == finding.summary


def five_zones(n: int) -> dict[str, str]:
    return {"zone": "abcde"[n % 5], "image": f"i{n % 3}"}


def test_a_spared_zone_is_found_and_the_others_are_not_accused() -> None:
    """The story: four zones are equally sick, and a second fault keeps the fifth from having the first."""
    watched = make_fleet(60, five_zones, lambda n: 0 if n % 5 == 2 else (0, 3, 5, 8)[n // 5 % 4])
    answer, compared = cohort.CohortSkew().study(watched, fleets.KIND)
    (finding,) = answer.findings
    assert finding.subject.cohort == "zone c"
    assert "spares zone c" in answer.why
    assert finding.magnitude["rate_ratio"] < 0.05
    assert finding.magnitude["p_value"] <= 0.01
    assert finding.magnitude["hosts_with_event"] == 0
    assert finding.evidence[0].values["expected_events"] > 30
    assert any(each.look == f"overnight drift --kind {fleets.KIND} --against zone=c" for each in finding.evidence)  # fmt: skip
    best = compared[0]
    assert (best.names, best.spared) == ((("zone", "c"),), True)


def test_of_a_sick_and_a_spared_zone_both_are_found() -> None:
    watched = make_fleet(100, five_zones, lambda n: {"c": 0, "a": 20 + n % 7}.get("abcde"[n % 5], 3 + n % 2))  # fmt: skip
    named = {each.subject.cohort: each.summary for each in cohort.CohortSkew().ask(watched, fleets.KIND).findings}  # fmt: skip
    assert named.keys() == {"zone a", "zone c"}
    assert "follows" in named["zone a"]
    assert "spares" in named["zone c"]


def test_a_spared_zone_explains_the_image_that_is_spared_with_it() -> None:
    watched = make_fleet(
        100,
        lambda n: {"zone": "abcde"[n % 5], "image": "x" if n % 5 == 2 or n % 20 == 3 else "y"},
        lambda n: 0 if n % 5 == 2 else 3 + n % 3,
    )
    (finding,) = cohort.CohortSkew().ask(watched, fleets.KIND).findings
    assert finding.subject.cohort == "zone c"
    assert "explains away image y" in texts(finding)
    assert "within image" in texts(finding)


def test_of_twenty_hosts_four_that_are_spared_are_found() -> None:
    watched = make_fleet(20, lambda n: {"zone": "abcde"[n % 5]}, lambda n: n % 5 != 2)
    (finding,) = cohort.CohortSkew().ask(watched, fleets.KIND).findings
    assert finding.magnitude["smallest_p"] == pytest.approx(1 / 4845, rel=1e-3)
    assert finding.evidence[1].values["p_fisher"] == pytest.approx(1 / 4845, rel=1e-3)


def test_the_smallest_p_of_a_spared_cohort_has_all_healthy_hosts_in_it() -> None:
    member, strata = np.arange(20) < 8, np.zeros(20, np.int64)
    for healthy, expected in ((6, math.comb(8, 6) / math.comb(20, 6)), (0, 1 / math.comb(20, 8))):
        events = (np.arange(20) >= healthy).astype(float)
        smallest = skew.smallest_stratified(events, member, strata, spared=True)
        assert smallest == pytest.approx(expected)


def test_hosts_with_equal_rates_are_neither_sick_nor_spared() -> None:
    watched = make_fleet(20, lambda n: {"zone": "abcde"[n % 5]}, lambda _: 3)
    answer, compared = cohort.CohortSkew().study(watched, fleets.KIND)
    assert answer.status is not Status.FOUND
    assert not any(each.spared for each in compared)


def test_where_all_hosts_are_sick_the_numbers_of_events_show_a_spared_zone() -> None:
    watched = make_fleet(60, five_zones, lambda n: 1 if n % 5 == 2 else 20 + n % 3)
    (finding,) = cohort.CohortSkew().ask(watched, fleets.KIND).findings
    assert finding.subject.cohort == "zone c"
    assert "spares" in finding.summary


def test_a_spared_zone_within_an_image_is_spared_within_it() -> None:
    """And the image that all other zones have stands out in the other direction: each is tested in its own."""
    watched = make_fleet(
        100,
        lambda n: {"zone": "abcde"[n % 5], "image": "x" if n % 5 == 2 or n % 4 == 0 else "y"},
        lambda n: 0 if n % 5 == 2 else 3 + n % 4,
    )
    spared, sick = cohort.CohortSkew().ask(watched, fleets.KIND).findings
    assert (spared.subject.cohort, sick.subject.cohort) == ("zone c", "image y")
    for finding, other in ((spared, "image"), (sick, "zone")):
        assert f"within {other} (p = 1/5,000)" in texts(finding)


def test_the_exact_tests_of_a_small_fleet_are_in_the_direction_of_the_finding() -> None:
    for spares in (True, False):
        watched = make_fleet(20, lambda n: {"zone": "abc"[n % 3]}, lambda n: 4 * ((n % 3 == 2) != spares))  # noqa: B023  # fmt: skip
        (finding,) = cohort.CohortSkew().ask(watched, fleets.KIND).findings
        assert finding.subject.cohort == "zone c"
        assert ("spares" in finding.summary) is spares
        exact = {name: p for each in finding.evidence for name, p in each.values.items() if name.startswith("p_")}  # fmt: skip
        assert max(exact["p_fisher"], exact["p_boschloo"]) < 0.001


def test_two_halves_are_told_once() -> None:
    watched = make_fleet(40, lambda n: {"zone": "ab"[n % 2]}, lambda n: 4 * (n % 2))
    (finding,) = cohort.CohortSkew().ask(watched, fleets.KIND).findings
    assert finding.subject.cohort == "zone b"


def test_labels_of_the_same_hosts_are_one_finding() -> None:
    answer = cohort.CohortSkew().ask(
        make_fleet(
            40, lambda n: {"image": f"i{n < 10}", "kernel": f"k{n < 10}"}, lambda n: 2 * (n < 10)
        ),
        fleets.KIND,
    )
    assert [finding.subject.cohort for finding in answer.findings] == ["image iTrue = kernel kTrue"]


def test_nearly_identical_labels_are_reported_as_indistinguishable() -> None:
    answer = cohort.CohortSkew().ask(
        make_fleet(
            40,
            lambda n: {"image": f"i{n < 10}", "kernel": f"k{n < 11}"},
            lambda n: 2 * (n < 10),
        ),
        fleets.KIND,
    )
    finding = answer.findings[0]
    assert any("cannot be distinguished" in entry.text for entry in finding.against)
    assert finding.confidence <= 0.5


def test_three_of_three_hosts_against_none_of_nine_is_found() -> None:
    answer = cohort.CohortSkew().ask(
        make_fleet(12, lambda n: {"zone": "a" if n < 3 else "b"}, lambda n: n < 3), fleets.KIND
    )
    (finding,) = answer.findings
    assert finding.magnitude["smallest_p"] == pytest.approx(1 / 220, rel=1e-3)
    values = finding.evidence[1].values
    assert values["p_fisher"] == pytest.approx(1 / 220, rel=1e-3)
    table = [[3, 0], [0, 9]]
    assert values["p_boschloo"] == pytest.approx(
        stats.boschloo_exact(table, alternative="greater").pvalue, rel=1e-3
    )
    assert values["p_boschloo"] < values["p_fisher"]
    assert "1/220" in texts(finding)
    assert "--against" not in texts(finding)  # nothing is spared


def test_too_few_hosts_is_no_data() -> None:
    answer = cohort.CohortSkew().ask(
        make_fleet(6, lambda n: {"zone": "a" if n < 3 else "b"}, lambda n: n < 3), fleets.KIND
    )
    assert answer.status is Status.NO_DATA
    assert "cannot conclude: 3 of 6" in answer.why
    assert "no smaller than 0.05" in answer.why
    assert "more hosts are needed" in answer.why


def test_missing_hosts_with_an_event_are_counted() -> None:
    answer = cohort.CohortSkew().ask(
        make_fleet(20, lambda n: {"zone": "abcd"[n % 4]}, lambda n: n == 0), fleets.KIND
    )
    assert answer.status is Status.NO_DATA
    assert "at least 2 more hosts with an event are needed" in answer.why


@pytest.mark.parametrize(
    ("sick", "status"), [(2, Status.NO_DATA), (3, Status.FOUND)], ids=["two", "three"]
)
def test_two_affected_hosts_are_no_data(sick: int, status: Status) -> None:
    answer = cohort.CohortSkew().ask(
        make_fleet(60, lambda n: {"zone": "a" if n < 3 else "b"}, lambda n: 9 * (n < sick)),
        fleets.KIND,
    )
    assert (answer.status, "prove nothing" in answer.why) == (status, status is Status.NO_DATA)


@pytest.mark.parametrize(
    ("member", "sick", "smallest"),
    [
        pytest.param("110000110000", "100000100000", (1 / 3) ** 2, id="two strata"),
        pytest.param("110000000000", "100000100000", 1 / 3, id="one without the cohort"),
        pytest.param("110000110000", "100000000000", 1 / 3, id="one without an event"),
        pytest.param("111111000000", "100000100000", 1.0, id="each has one side only"),
    ],
)
def test_the_smallest_p_within_strata_is_a_product(member: str, sick: str, smallest: float) -> None:
    """Two strata of six hosts."""
    belongs, events = (np.array([bit == "1" for bit in bits]) for bits in (member, sick))
    strata = np.repeat([0, 1], 6)
    found = skew.smallest_stratified(events.astype(float), belongs, strata)
    assert found == pytest.approx(smallest)


@pytest.mark.parametrize(
    ("hosts", "label", "event_count", "status", "why"),
    [
        (1, lambda n: {"zone": "a"}, lambda n: 1, Status.NO_DATA, "no cohorts"),
        (9, lambda n: {"zone": "a"}, lambda n: 1, Status.NO_DATA, "the same labels"),
        (9, lambda n: {}, lambda n: 1, Status.NO_DATA, "0 watched hosts with labels, at least 4 are needed"),
        (40, lambda n: {"zone": f"z{n % 2}"}, lambda n: 0, Status.CLEAR, "no net.driver"),
        (40, lambda n: {"zone": f"z{n % 2}"}, lambda n: n % 3 == 0, Status.CLEAR, "no label"),
    ],
)  # fmt: skip
def test_an_answer_without_a_finding_has_a_reason(hosts, label, event_count, status, why) -> None:
    answer = cohort.CohortSkew().ask(make_fleet(hosts, label, event_count, spread=0.0), fleets.KIND)
    assert answer.status is status
    assert why in answer.why
    assert answer.findings == ()


def test_rates_are_per_watched_time_and_not_per_host() -> None:
    """Zone a was watched ten times as long and has ten times the events: the same rate."""
    hosts = [
        fleets.host(f"h{n}", {"zone": "a" if n < 20 else "b"}, days=100 if n < 20 else 10,
                    events=[1.0 + n / 50] * (10 if n < 20 else 1))
        for n in range(40)
    ]  # fmt: skip
    answer = cohort.CohortSkew().ask(fleet.Fleet(tuple(hosts)), fleets.KIND)
    named = [finding.subject.cohort for finding in answer.findings]
    assert not [name for name in named if "zone" in name]


def test_the_same_fleet_gets_the_same_answer() -> None:
    hosts = make_fleet(30, lambda n: {"zone": "a" if n < 9 else "b"}, lambda n: n % 5 == 0 or n < 6)
    assert cohort.CohortSkew().ask(hosts, fleets.KIND) == cohort.CohortSkew().ask(
        hosts, fleets.KIND
    )


def test_unknown_values_are_not_a_cohort() -> None:
    groups = skew.form_groups({"zone": ["", "", "a", "a", "b"], "image": ["x"] * 5})
    assert groups.names == ((("zone", "a"),),)


def test_sums_of_shuffled_values_are_those_of_all_draws_at_once(monkeypatch) -> None:
    chance = np.random.default_rng(3)
    values, strata = chance.normal(size=40), chance.integers(0, 4, 40)
    member = chance.random((40, 6)) < 0.4
    member[:, 2] = False
    rows = permutation.shuffled(values, strata, 70, np.random.default_rng(1))
    monkeypatch.setattr(permutation, "CHUNK", 1000)
    sums = permutation.shuffled_sums(values, strata, member, 70, np.random.default_rng(1))
    assert sums == pytest.approx(rows @ member)


def test_values_are_shuffled_within_strata() -> None:
    strata = np.array([0, 1, 0, 1, 0])
    values = np.arange(5.0)
    rows = permutation.shuffled(values, strata, 50, np.random.default_rng(1))
    for row in rows:
        assert sorted(row[strata == 0]) == [0, 2, 4]
        assert sorted(row[strata == 1]) == [1, 3]
    assert len(np.unique(rows, axis=0)) > 5


def test_all_detectors_have_no_data_for_an_empty_fleet() -> None:
    detectors = (cohort.CohortSkew(), drift.Drift(), uptime.UptimeHazard())
    answers = [detector.ask(fleet.Fleet(()), fleets.KIND) for detector in detectors]
    assert [(answer.detector, answer.status) for answer in answers] == [
        ("fleet.cohort", Status.NO_DATA),
        ("fleet.drift", Status.NO_DATA),
        ("fleet.uptime", Status.NO_DATA),
    ]
