"""Drift: ranking, grouping into findings, unknown values, and too little data."""

from __future__ import annotations

import fleets
import numpy as np
import pytest
from scipy import stats

from overnight.detectors.fleet import drift, odds
from overnight.model import fleet
from overnight.model.finding import Status
from overnight.model.snapshot import Gap, Part, Snapshot

BASE = {
    "units": {"sshd.service": {"state": "enabled"}},
    "packages": {"bash": {"version": "5.2"}},
    "sysctl": {"vm.swappiness": "60"},
}


def make_snapshot(parts: dict[str, Part], *gaps: Gap) -> Snapshot:
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


def test_items_only_on_affected_hosts_are_one_finding() -> None:
    answer = drift.Drift().ask(
        make_fleet([make_snapshot(AGENT)] * 4, [make_snapshot({})] * 9), fleets.KIND
    )
    assert answer.status is Status.FOUND
    (finding,) = answer.findings
    assert finding.kind == "fleet.drift"
    assert finding.subject.unit == "agent.service"
    assert finding.subject.item == "units: agent.service"
    assert finding.magnitude["items"] == 4
    assert finding.magnitude["lift"] == pytest.approx(13 / 4)
    assert finding.magnitude["p_value"] == pytest.approx(1 / 715, rel=1e-3)
    assert "packages: agent version = 1.0" in finding.evidence[2].text
    assert "4 of 4 sick hosts and 0 of 9" in finding.summary
    assert finding.summary.endswith("; p = 1/625")  # of the draws, which count all columns
    assert "Fisher's p = 1/715, q = 1/715" in finding.evidence[1].text


def test_what_is_not_there_has_no_values_either() -> None:
    compared = drift.compare(
        make_fleet([make_snapshot({})] * 4, [make_snapshot(AGENT)] * 9), ["s0", "s1", "s2", "s3"]
    )
    (difference,) = compared.differences
    assert difference.name == "no units: agent.service"
    assert difference.others == ("no packages: agent",)


def test_items_missing_on_affected_hosts_are_found() -> None:
    answer = drift.Drift().ask(
        make_fleet([make_snapshot({})] * 4, [make_snapshot(AGENT)] * 9), fleets.KIND
    )
    assert [finding.subject.item for finding in answer.findings] == ["no units: agent.service"]
    assert answer.findings[0].subject.unit == "agent.service"


def test_two_values_of_a_setting_are_one_difference() -> None:
    answer = drift.Drift().ask(
        make_fleet(
            [make_snapshot({"sysctl": {"vm.swappiness": "10"}})] * 4, [make_snapshot({})] * 9
        ),
        fleets.KIND,
    )
    (finding,) = answer.findings
    assert finding.subject.item == "sysctl: vm.swappiness = 10"
    assert "no sysctl: vm.swappiness = 60" in finding.evidence[2].text


def test_unreadable_items_are_neither_present_nor_absent() -> None:
    gap = Gap("packages", "/var/lib/dpkg/status", "not for everybody")
    unread = make_snapshot({"packages": {}}, gap)
    compared = drift.compare(
        make_fleet([make_snapshot({})] * 4, [unread] * 9), ["s0", "s1", "s2", "s3"]
    )  # no healthy host has known packages: nothing can differ
    assert compared.differences == ()
    missing = Snapshot({}, {"units": BASE["units"]}, ())
    assert (
        drift.compare(make_fleet([make_snapshot({})] * 4, [missing] * 9), ["s0"]).differences == ()
    )


def test_a_gap_hides_only_its_own_items() -> None:
    gap = Gap("sysctl", "net.ipv6", "no such folder")
    parts = {"sysctl": {"vm.swappiness": "60", "net.ipv6.conf": "1", "vm.new": "1"}}
    compared = drift.compare(
        make_fleet([make_snapshot(parts)] * 4, [make_snapshot({}, gap)] * 9),
        ["s0", "s1", "s2", "s3"],
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
def test_a_broken_unit_file_hides_only_that_unit(what: str, left: list[str]) -> None:
    gap = Gap("units", what, "too many links")
    parts = {"units": {**BASE["units"], "broken.service": "x", "new.service": "x"}}
    compared = drift.compare(
        make_fleet([make_snapshot(parts)] * 4, [make_snapshot({}, gap)] * 9),
        ["s0", "s1", "s2", "s3"],
    )
    names = [str(item) for difference in compared.differences for item, _ in difference.items]
    assert [name for name in names if "=" not in name] == left


def test_incomplete_snapshots_are_not_counted_as_having_an_item() -> None:
    """Half of all hosts have the item; its presence in an incomplete part proves nothing."""
    gap = Gap("packages", "/var/lib/dpkg/status", "cut off")
    incomplete = [make_snapshot({}, gap), make_snapshot({"packages": {}}, gap)] * 8
    compared = drift.compare(
        make_fleet(incomplete, [make_snapshot({}), make_snapshot({"packages": {}})] * 8),
        [f"s{n}" for n in range(16)],
    )
    assert compared.significant == ()


def test_too_few_hosts_is_no_data_but_all_differences_are_listed() -> None:
    compared = drift.compare(
        make_fleet([make_snapshot(AGENT)] * 3, [make_snapshot({})] * 3), ["s0", "s1", "s2"]
    )
    assert "cannot conclude: 3 sick hosts against 3" in compared.why
    assert "0.1" in compared.why
    assert compared.differences
    assert not compared.significant
    answer = drift.Drift().ask(
        make_fleet([make_snapshot(AGENT)] * 3, [make_snapshot({})] * 3), fleets.KIND
    )
    assert (answer.status, answer.why) == (Status.NO_DATA, compared.why)


def test_hosts_without_a_snapshot_are_named() -> None:
    hosts = fleet.Fleet((fleets.host("a", events=[1.0]), fleets.host("b", taken=make_snapshot({}))))
    compared = drift.compare(hosts, ["a"])
    assert compared.without_snapshot == ("a",)
    assert "hosts without one: 1" in compared.why


def make_run(active: str, boot: str, restarts: int, failed: str = "success") -> Snapshot:
    unit = {"active": active, "ran": "yes" if active == "active" else "never", "result": failed}
    parts: dict[str, Part] = {
        "bootstrap": {"setup.service": {"result": boot}},
        "running": {
            "agent.service": unit,
            "other.service": {"active": "active", "restarts": str(restarts)},
        },
        "listening": {"agent": {"tcp": "51678"}} if active == "active" else {},
    }
    return make_snapshot(parts)


def test_a_failed_boot_step_comes_before_what_follows_from_it() -> None:
    """One healthy host booted well, but its agent was stopped: the agent separates better than its cause."""
    sick = [make_run("active", "success", restarts=0) for _ in range(6)]
    healthy = [make_run("inactive", "exit-code", restarts=n) for n in range(8)]
    healthy.append(make_run("inactive", "success", restarts=0))
    compared = drift.compare(make_fleet(sick, healthy), [f"s{n}" for n in range(6)])
    names = [difference.name for difference in compared.differences]
    assert names[:3] == [
        "bootstrap: setup.service result = success (exit-code on the others)",
        "running: agent.service active = active (inactive on the others)",
        "running: other.service restarts = 0 (1 to 9 on the others)",
    ]
    first, second, third = compared.differences
    assert first.column.low < second.column.low
    assert second.others == ("listening: agent tcp = 51678",)
    assert (first.unit, second.unit) == ("", "agent.service")
    assert third.rank == 2


def test_in_a_small_fleet_a_failed_boot_step_comes_before_a_package_that_fits_better() -> None:
    """With 400 packages of random versions, one that separates the hosts perfectly means nothing."""
    hosts, chance = [], np.random.default_rng(1)
    for n in range(12):
        taken = make_run("active", "success" if n in (0, 1, 2, 3, 8) else "exit-code", restarts=0)
        packages: Part = {f"lib{k}": str(chance.integers(2)) for k in range(400)}
        packages["x"] = str(n < 4)
        hosts.append(make_snapshot({**taken.parts, "packages": packages}))
    compared = drift.compare(make_fleet(hosts[:4], hosts[4:]), [f"s{n}" for n in range(4)])
    assert compared.significant == ()
    first, second = compared.differences[:2]
    assert first.name == "bootstrap: setup.service result = success (exit-code on the others)"
    assert second.column.low > first.column.low


def test_volatile_facts_come_last() -> None:
    """The restarts separate perfectly, the failed unit does not."""
    sick = [make_run("active", "success", 0, "exit-code" if n else "success") for n in range(6)]
    healthy = [make_run("active", "success", restarts=5) for n in range(8)]
    compared = drift.compare(make_fleet(sick, healthy), [f"s{n}" for n in range(6)])
    names = [difference.name for difference in compared.significant]
    assert names == [
        "running: agent.service result = exit-code (success on the others)",
        "running: other.service restarts = 0 (1 to 9 on the others)",
    ]


def test_facts_that_an_older_snapshot_lacks_are_unknown() -> None:
    sick = [make_run("active", "success", restarts=0)] * 4
    compared = drift.compare(make_fleet(sick, [make_snapshot({})] * 9), ["s0", "s1", "s2", "s3"])
    assert compared.differences == ()


def test_equal_hosts_are_clear() -> None:
    answer = drift.Drift().ask(
        make_fleet([make_snapshot({})] * 4, [make_snapshot({})] * 9), fleets.KIND
    )
    assert (answer.status, "are the same" in answer.why) == (Status.CLEAR, True)


def test_random_differences_are_clear() -> None:
    chance = np.random.default_rng(1)

    def random_snapshot() -> Snapshot:
        return make_snapshot({"modules": {f"m{n}": "" for n in range(60) if chance.random() < 0.5}})

    answer = drift.Drift().ask(
        make_fleet([random_snapshot() for _ in range(6)], [random_snapshot() for _ in range(14)]),
        fleets.KIND,
    )
    assert answer.status is Status.CLEAR
    assert "smallest attainable" in answer.why


def test_fishers_test_agrees_with_scipy() -> None:
    tables = np.random.default_rng(2).integers(0, 12, (100, 4)).astype(float)
    expected = [stats.fisher_exact(table.astype(int).reshape(2, 2)).pvalue for table in tables]
    assert odds.fisher(odds.Table(*tables.T)) == pytest.approx(expected, abs=1e-12)


def test_the_bound_agrees_with_a_manual_calculation() -> None:
    log_odds, low = odds.bound(odds.Table(*(np.array([float(n)]) for n in (3, 0, 0, 9))))
    assert log_odds[0] == pytest.approx(np.log(3.5 * 9.5 / 0.25))
    assert low[0] == pytest.approx(0.79, abs=0.01)
