"""Drift: what is ranked, what is one finding, what is not known, and when nothing can be concluded."""

from __future__ import annotations

import fleets
import numpy as np
import pytest
from scipy import stats

from overnight.detectors.fleet import drift, odds
from overnight.model.finding import Status
from overnight.model.snapshot import Gap, Part, Snapshot
from overnight.queries import fleet

BASE = {
    "units": {"sshd.service": {"state": "enabled"}},
    "packages": {"bash": {"version": "5.2"}},
    "sysctl": {"vm.swappiness": "60"},
}


def taken(parts: dict[str, Part], *gaps: Gap) -> Snapshot:
    return Snapshot({}, {**BASE, **parts}, gaps)


def make_fleet(sick: list[Snapshot], healthy: list[Snapshot]) -> fleet.Fleet:
    return fleet.Fleet(
        (
            *(
                fleets.host(f"s{n}", events=[1.0], taken=snapshot)
                for n, snapshot in enumerate(sick)
            ),
            *(fleets.host(f"w{n}", taken=snapshot) for n, snapshot in enumerate(healthy)),
        )
    )


AGENT = {
    "units": {"sshd.service": {"state": "enabled"}, "agent.service": {"state": "enabled"}},
    "packages": {"bash": {"version": "5.2"}, "agent": {"version": "1.0"}},
}


def test_what_only_sick_hosts_have_is_one_finding() -> None:
    answer = drift.look(make_fleet([taken(AGENT)] * 4, [taken({})] * 9), fleets.KIND)
    assert answer.status is Status.FOUND
    (finding,) = answer.findings
    assert finding.kind == "fleet.drift"
    assert finding.subject.unit == "agent.service"
    assert finding.subject.item == "units: agent.service"
    assert finding.magnitude["items"] == 4
    assert finding.magnitude["lift"] == pytest.approx(13 / 4)
    assert finding.magnitude["p_value"] == pytest.approx(1 / 715)
    assert "packages: agent version = 1.0" in finding.evidence[2].text
    assert "4 of 4 sick hosts and 0 of 9" in finding.summary


def test_what_sick_hosts_lack_is_found_too() -> None:
    answer = drift.look(make_fleet([taken({})] * 4, [taken(AGENT)] * 9), fleets.KIND)
    assert [finding.subject.item for finding in answer.findings] == ["no units: agent.service"]
    assert answer.findings[0].subject.unit == "agent.service"


def test_two_values_of_a_setting_are_one_difference() -> None:
    answer = drift.look(
        make_fleet([taken({"sysctl": {"vm.swappiness": "10"}})] * 4, [taken({})] * 9), fleets.KIND
    )
    (finding,) = answer.findings
    assert finding.subject.item == "sysctl: vm.swappiness = 10"
    assert "no sysctl: vm.swappiness = 60" in finding.evidence[2].text


def test_what_could_not_be_read_is_neither_there_nor_absent() -> None:
    gap = Gap("packages", "/var/lib/dpkg/status", "not for everybody")
    unread = taken({"packages": {}}, gap)
    compared = drift.compare(
        make_fleet([taken({})] * 4, [unread] * 9), ["s0", "s1", "s2", "s3"]
    )  # packages are known on no healthy host: nothing can differ
    assert compared.differences == ()
    missing = Snapshot({}, {"units": BASE["units"]}, ())
    assert drift.compare(make_fleet([taken({})] * 4, [missing] * 9), ["s0"]).differences == ()


def test_a_gap_of_one_thing_hides_that_alone() -> None:
    gap = Gap("sysctl", "net.ipv6", "no such folder")
    with_it = {"sysctl": {"vm.swappiness": "60", "net.ipv6.conf": "1", "vm.new": "1"}}
    compared = drift.compare(
        make_fleet([taken(with_it)] * 4, [taken({}, gap)] * 9), ["s0", "s1", "s2", "s3"]
    )
    names = [str(item) for difference in compared.differences for item, _ in difference.items]
    assert names == ["sysctl: vm.new = 1", "sysctl: vm.new"]


@pytest.mark.parametrize(
    ("what", "left"),
    [
        ("/etc/systemd/system/broken.service", ["units: new.service"]),
        ("/etc/systemd/system/broken.service.d/10-x.conf", ["units: new.service"]),
        ("/etc/systemd/system", []),
    ],
)
def test_a_broken_unit_file_hides_that_unit_alone(what: str, left: list[str]) -> None:
    gap = Gap("units", what, "too many links")
    with_it = {"units": {**BASE["units"], "broken.service": "x", "new.service": "x"}}
    compared = drift.compare(
        make_fleet([taken(with_it)] * 4, [taken({}, gap)] * 9), ["s0", "s1", "s2", "s3"]
    )
    names = [str(item) for difference in compared.differences for item, _ in difference.items]
    assert [name for name in names if "=" not in name] == left


def test_hosts_that_were_read_in_pieces_are_not_known_to_have_more() -> None:
    """Half of all hosts have it; where a part is not whole, that it is there is no news."""
    gap = Gap("packages", "/var/lib/dpkg/status", "cut off")
    some = [taken({}, gap), taken({"packages": {}}, gap)] * 8
    compared = drift.compare(
        make_fleet(some, [taken({}), taken({"packages": {}})] * 8), [f"s{n}" for n in range(16)]
    )
    assert compared.standing == ()


def test_too_few_hosts_to_conclude_anything_and_yet_all_is_shown() -> None:
    compared = drift.compare(make_fleet([taken(AGENT)] * 3, [taken({})] * 3), ["s0", "s1", "s2"])
    assert "cannot conclude: 3 sick hosts against 3" in compared.why_not
    assert "0.1" in compared.why_not
    assert compared.differences
    assert not compared.standing
    answer = drift.look(make_fleet([taken(AGENT)] * 3, [taken({})] * 3), fleets.KIND)
    assert (answer.status, answer.why) == (Status.NO_DATA, compared.why_not)


def test_hosts_without_a_snapshot_are_named() -> None:
    hosts = fleet.Fleet((fleets.host("a", events=[1.0]), fleets.host("b", taken=taken({}))))
    compared = drift.compare(hosts, ["a"])
    assert compared.without == ("a",)
    assert "1 hosts have none" in compared.why_not


def test_nothing_differs() -> None:
    answer = drift.look(make_fleet([taken({})] * 4, [taken({})] * 9), fleets.KIND)
    assert (answer.status, "are the same" in answer.why) == (Status.CLEAR, True)


def test_noise_is_clear() -> None:
    chance = np.random.default_rng(1)

    def random_snapshot() -> Snapshot:
        return taken({"modules": {f"m{n}": "" for n in range(60) if chance.random() < 0.5}})

    answer = drift.look(
        make_fleet([random_snapshot() for _ in range(6)], [random_snapshot() for _ in range(14)]),
        fleets.KIND,
    )
    assert answer.status is Status.CLEAR
    assert "smallest attainable" in answer.why


def test_fisher_is_scipys() -> None:
    tables = np.random.default_rng(2).integers(0, 12, (100, 4)).astype(float)
    expected = [stats.fisher_exact(table.astype(int).reshape(2, 2)).pvalue for table in tables]
    assert odds.fisher(odds.Table(*tables.T)) == pytest.approx(expected, abs=1e-12)


def test_the_bound_by_hand() -> None:
    log_odds, low = odds.bound(odds.Table(*(np.array([float(n)]) for n in (3, 0, 0, 9))))
    assert log_odds[0] == pytest.approx(np.log(3.5 * 9.5 / 0.25))
    assert low[0] == pytest.approx(0.79, abs=0.01)
