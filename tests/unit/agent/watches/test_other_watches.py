"""The other watches: events, and changes that are not events."""

from __future__ import annotations

import pytest

from overnight.agent.watches import blocked, loops, network, pressure, zombies
from overnight.model import clock
from overnight.sources import vmstat

SECOND = 1_000_000_000
WALL = 1_700_000_000 * SECOND


def at(second: float) -> clock.Clock:
    return clock.Clock(WALL + round(second * SECOND), round(second * SECOND))


def check_all(
    watch, polls: list[tuple[float, dict[str, tuple[int, ...]]]], signal: str = ""
) -> list:
    """Return all sightings of a watch over several polls."""
    name = signal or watch.needs[0]
    return [sighting for second, rows in polls for sighting in watch.check(name, at(second), rows)]


def test_a_reset_counter_that_rises_is_a_reset():
    polls = [(0, {"eth0 total_resets": (3,)}), (10, {"eth0 total_resets": (4,)})]
    (seen,) = check_all(network.DriverCounters(), polls)
    assert (seen.kind, seen.key, seen.severity) == ("net.driver_reset", "eth0", "critical")
    assert seen.fields == {"interface": "eth0", "total_resets": 1}


def test_a_queue_that_timed_out_is_named():
    polls = [(0, {"eth0 q5": (0,)}), (10, {"eth0 q5": (2,)})]
    (seen,) = check_all(network.DriverCounters(), polls, "tx-timeouts")
    assert (seen.kind, seen.fields["queue"]) == ("net.tx_timeout", 5)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"eth0 total_resets": (4,)}),  # a new interface
        ({"eth0 total_resets": (4,)}, {"eth0 total_resets": (0,)}),  # a reloaded driver
        ({"eth0 rx_pages": (4,)}, {"eth0 rx_pages": (9,)}),  # any other counter
        ({"eth0 bw_in_allowance_exceeded": (0,)}, {"eth0 bw_in_allowance_exceeded": (99,)}),
    ],
)
def test_other_changes_are_not_resets(before, after):
    assert check_all(network.DriverCounters(), [(0, before), (10, after)]) == []


def test_drops_and_many_squeezes_of_a_core():
    polls = [
        (0, {"0": (0, 0, 0), "1": (0, 0, 0)}),
        (1, {"0": (10, 2, 0), "1": (10, 0, 99)}),
        (2, {"0": (20, 2, 0), "1": (20, 0, 300)}),
    ]
    drops, squeezes = check_all(network.Softnet(), polls)
    assert (drops.kind, drops.core, drops.fields["dropped"]) == ("net.softnet_drops", 0, 2)
    assert (squeezes.kind, squeezes.core, squeezes.severity) == ("net.softnet_squeezed", 1, "info")


@pytest.mark.parametrize(
    ("tracked", "in_use", "severity"),
    [(68_680, 240, "critical"), (3_000, 240, "warning"), (3_000, 1_900, ""), (240, 239, "")],
)
def test_zombies_by_level(tracked, in_use, severity):
    row = {"": (tracked, in_use, tracked - in_use, 0)}
    seen = check_all(zombies.ZombieGrowth(), [(0, row)])
    assert [sighting.severity for sighting in seen] == ([severity] if severity else [])


def test_the_text_of_the_reference_incident():
    (seen,) = check_all(zombies.ZombieGrowth(), [(0, {"": (68_680, 240, 68_440, 0)})])
    assert seen.text.startswith(
        "the kernel tracks 68680 memory cgroups and 240 are in use (286 to 1)"
    )


def test_slow_growth_counts_only_after_six_hours():
    watch = zombies.ZombieGrowth()
    polls = [(60 * m, {"": (100 + m, 100, m, 0)}) for m in range(361)]  # 60 an hour
    seen = check_all(watch, polls)
    assert {sighting.kind for sighting in seen} == {"memory.zombie_growth"}
    assert seen[0].begin.monotonic_ns >= 0.99 * 6 * 3600 * SECOND
    assert (
        check_all(
            zombies.ZombieGrowth(),
            [(60 * m, {"": (100 + m // 2, 100, m // 2, 0)}) for m in range(500)],
        )
        == []
    )


def test_fast_growth_counts_at_once():
    seen = check_all(
        zombies.ZombieGrowth(), [(0, {"": (700, 700, 0, 0)}), (60, {"": (1300, 700, 600, 0)})]
    )
    assert [sighting.kind for sighting in seen] == ["memory.zombie_growth"]
    assert seen[0].fields["growth_per_hour"] == 36_000


def test_a_slow_read_of_the_root_is_critical_whatever_the_number():
    (seen,) = check_all(zombies.ZombieGrowth(), [(0, {"": (900, 240, 660, 150_000)})])
    assert (seen.severity, seen.fields["stat_read_ms"]) == ("critical", 150.0)


def test_five_restarts_in_twenty_minutes_are_a_loop_and_four_are_not():
    polls = [(60 * n, {"ecs.service": (n,), "ssh.service": (0,)}) for n in range(6)]
    (seen,) = check_all(loops.CrashLoop(), polls)
    assert (seen.kind, seen.unit, seen.fields["restarts"]) == ("unit.crash_loop", "ecs.service", 5)
    assert check_all(loops.CrashLoop(), [(400 * n, {"a.service": (n,)}) for n in range(20)]) == []


def test_six_short_lives_under_a_parent_are_a_hidden_loop():
    path = "/system.slice/ecs.service"
    polls = [(11 * n, {path: (n, n, n), "x": (n, n, 0)}) for n in range(7)]
    (seen,) = check_all(loops.HiddenLoop(), polls)
    assert (seen.kind, seen.unit) == ("unit.hidden_crash_loop", "ecs.service")
    assert seen.begin == at(11)


@pytest.mark.parametrize(
    "shelf", ["/system.slice", "/user.slice/user-1000.slice", "/m/system.slice"]
)
def test_timers_of_a_healthy_host_are_not_a_hidden_loop_but_very_many_are(shelf):
    timers = [(30 * n, {shelf: (n, n, n)}) for n in range(100)]  # twenty in ten minutes
    assert check_all(loops.HiddenLoop(), timers) == []
    storm = [(5 * n, {shelf: (n, n, n)}) for n in range(100)]
    assert check_all(loops.HiddenLoop(), storm)


def test_pressure_must_last():
    us = 1_000_000
    watch = pressure.Pressure()
    polls = [(n, {"memory": (n * us // 2, n * us // 4)}) for n in range(5)]
    seen = check_all(watch, polls)
    assert [sighting.kind for sighting in seen] == ["pressure.memory"] * 2
    assert seen[0].begin == at(0)
    flicker = [(n, {"memory": (n // 2 * us // 2, 0)}) for n in range(20)]
    assert check_all(pressure.Pressure(), flicker) == []


def test_a_run_queue_on_one_core():
    polls = [(n, {"0": (n * 1000, n * 5000), "1": (n * 100, n)}) for n in range(5)]
    seen = check_all(pressure.RunQueue(), polls)
    assert {sighting.core for sighting in seen} == {0}
    both = [(n, {"0": (n * 1000, n * 5000), "1": (n * 1000, n * 5000)}) for n in range(5)]
    assert check_all(pressure.RunQueue(), both) == []


def test_tables_that_are_nearly_full():
    rows = {"conntrack": (74, 100), "pids": (70, 100), "files": (96, 100), "odd": (5, 0)}
    seen = check_all(pressure.Limits(), [(0, rows)])
    assert [(sighting.key, sighting.severity) for sighting in seen] == [
        ("pids", "warning"),
        ("files", "critical"),
    ]


def test_an_unsynchronized_clock():
    assert [
        sighting.kind for sighting in check_all(pressure.ClockSync(), [(0, {"": (1, 0x40, 0)})])
    ] == ["clock.unsynchronised"]
    assert check_all(pressure.ClockSync(), [(0, {"": (0, 0x01, 0)})]) == []


def test_an_oom_kill_is_counted_once():
    def row(kills: int) -> dict[str, tuple[int, ...]]:
        return {"": tuple(kills if name == "oom_kill" else 7 for name in vmstat.COLUMNS)}

    (seen,) = check_all(pressure.Reclaim(), [(0, row(1)), (1, row(2)), (2, row(2))])
    assert seen.fields == {"kills": 1}


def test_only_a_process_blocked_for_five_minutes_is_reported():
    def row(state: str) -> tuple[int, ...]:
        return (1, 1, 1, 0, 0, ord(state))

    stuck = [
        (s, {"7 dd": row("D"), "8 cat": row("D" if s % 100 else "R")}) for s in range(0, 320, 5)
    ]
    seen = check_all(blocked.Blocked(), stuck)
    assert {sighting.process for sighting in seen} == {"dd[7]"}
    assert seen[0].begin == at(0)
    assert seen[0].fields["seconds"] == 300
