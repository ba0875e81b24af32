from __future__ import annotations

import json

from overnight.agent.uplink import cpu_tail, rollups
from overnight.model import cpu, uplink

BEGIN_US = 1_794_969_000_000_000  # at a whole half minute
QUIET = (2, 0, 1, 97, 0, 0, 0, 0)


class Host:
    def __init__(self, cores: int = 2) -> None:
        self.cores = tuple(range(cores))
        self.boot = "1a2b3c4d"
        self.wall_us, self.mono_us = BEGIN_US, 10_000_000
        self.ticks = {name: [1000] * cores for name in cpu.TOTAL}
        self.number = 0

    def read(self, busy: dict[int, tuple[int, ...]] | None = None, seconds: float = 1.0) -> cpu_tail.Reading:  # fmt: skip
        self.wall_us += round(seconds * 1e6)
        self.mono_us += round(seconds * 1e6)
        self.number += 1
        for core in self.cores:
            for name, step in zip(cpu.TOTAL, (busy or {}).get(core, QUIET), strict=True):
                self.ticks[name][core] += step
        ticks = {name: list(row) for name, row in self.ticks.items()}
        return cpu_tail.Reading(self.boot, self.wall_us, self.mono_us, self.cores, ticks, ("f", self.number))  # fmt: skip


def fold(folded: rollups.Rollups, *readings: cpu_tail.Reading) -> list[rollups.Document]:
    return [done for reading in readings if (done := folded.add(reading))]


def test_mean_maximum_and_worst_second_of_each_core() -> None:
    host, folded = Host(), rollups.Rollups()
    readings = [host.read() for _ in range(12)]
    readings.append(host.read({1: (10, 0, 70, 10, 0, 5, 5, 0)}))  # the second from 12 to 13
    readings += [host.read() for _ in range(18)]
    (done,) = fold(folded, *readings)
    rollup = uplink.Rollup.from_json(done["rollup"])
    assert (rollup.begin_us, rollup.seconds) == (BEGIN_US + 1_000_000, 28)
    assert rollup.cores == (0, 1)
    assert rollup.mean == (3, 6)
    assert rollup.max == (3, 90)
    assert rollup.kernel_max == (1, 80)
    assert rollup.worst_ms == (1000, 12_000)


def test_windows_follow_each_other_without_a_lost_second() -> None:
    host, folded = Host(), rollups.Rollups()
    done = fold(folded, *(host.read() for _ in range(95)))
    last = folded.finish()
    assert last is not None
    spells = [spell for document in [*done, last] for spell in document["spells"]]
    assert [spell["end_us"] for spell in spells[:-1]] == [s["begin_us"] for s in spells[1:]]
    assert (spells[0]["begin_us"], spells[-1]["end_us"]) == (BEGIN_US + 1_000_000, host.wall_us)
    assert spells[0]["uptime_us"] == 11_000_000
    assert [document["rollup"]["seconds"] for document in [*done, last]] == [28, 30, 30, 6]


def test_a_restart_at_the_place_gives_the_same_windows() -> None:
    host, folded = Host(), rollups.Rollups()
    readings = [host.read() for _ in range(95)]
    all_at_once = fold(rollups.Rollups(), *readings)
    first = fold(folded, *readings[:50])
    at = rollups.parse_place(json.dumps(first[-1]).encode())[1]
    again = [reading for reading in readings if reading.place[1] >= at]
    assert first + fold(rollups.Rollups(), *again) == all_at_once


def test_unobserved_time_is_not_in_a_spell() -> None:
    host, folded = Host(), rollups.Rollups()
    fold(folded, host.read(), host.read())
    host.wall_us += 3_600_000_000  # the clock is set forward
    (done,) = fold(folded, host.read(), host.read())
    assert [spell["end_us"] - spell["begin_us"] for spell in done["spells"]] == [1_000_000]
    host.wall_us -= 7_200_000_000  # and back
    (done,) = fold(folded, host.read(), host.read())
    assert [spell["end_us"] - spell["begin_us"] for spell in done["spells"]] == [1_000_000]
    (done,) = fold(folded, host.read(seconds=40), host.read())  # the recorder did not run
    assert len(done["spells"]) == 1
    host.boot, host.mono_us = "ffffffff", 5_000_000
    fold(folded, host.read(), host.read())
    done = folded.finish()
    assert done is not None
    assert [spell["boot"] for spell in done["spells"]] == ["1a2b3c4d", "ffffffff"]


def test_a_core_may_come_and_go() -> None:
    host, folded = Host(2), rollups.Rollups()
    fold(folded, host.read(), host.read())
    fewer = host.read()
    gone = fewer._replace(cores=(0,), ticks={name: row[:1] for name, row in fewer.ticks.items()})
    fold(folded, gone, gone._replace(wall_us=gone.wall_us + 10**6, mono_us=gone.mono_us + 10**6))
    done = folded.finish()
    assert done is not None
    assert uplink.Rollup.from_json(done["rollup"]).cores == (0, 1)


def test_a_window_of_a_part_of_a_second_counts_as_the_whole_second() -> None:
    host, folded = Host(), rollups.Rollups()
    fold(folded, host.read(), host.read(seconds=2.0), host.read(seconds=0.5))
    done = folded.finish()
    assert done is not None
    assert done["rollup"]["seconds"] == 3


def test_few_ticks_show_no_maximum_and_no_ticks_no_core() -> None:
    """Core 1 was busy for 5 ticks, core 2 for 6, core 3 was off, and core 4 counted back."""
    host, folded = Host(5), rollups.Rollups()
    rows = {core: (ticks, 0, 0, 0, 0, 0, 0, 0) for core, ticks in ((1, 5), (2, 6), (3, 0))}
    rows[4] = (10, 0, 0, -20, 0, 0, 0, 0)  # idle: as the kernel's iowait does
    fold(folded, host.read(), host.read(rows))
    done = folded.finish()
    assert done is not None
    rollup = uplink.Rollup.from_json(done["rollup"])
    assert rollup.cores == (0, 1, 2, 4)
    assert rollup.max == (3, 0, 100, 100)
    assert rollup.mean == (3, 100, 100, 100)


def observed(*readings: cpu_tail.Reading) -> int:
    """Return how many µs count as observed."""
    folded = rollups.Rollups()
    fold(folded, *readings)
    done = folded.finish()
    return sum(each["end_us"] - each["begin_us"] for each in done["spells"]) if done else 0


def test_time_is_observed_only_where_both_clocks_agree() -> None:
    first = Host().read()

    def later(wall_us: int, mono_us: int, **changes: str) -> cpu_tail.Reading:
        moved = first._replace(wall_us=first.wall_us + wall_us, mono_us=first.mono_us + mono_us)
        return moved._replace(**changes)  # type: ignore[arg-type]

    for wall_us, mono_us, is_observed in (
        (20_000_000, 20_000_000, True),
        (rollups.MAX_PAUSE_US, rollups.MAX_PAUSE_US, True),
        (rollups.MAX_PAUSE_US + 1, rollups.MAX_PAUSE_US + 1, False),
        (11_000_000, 10_000_000, True),  # the clock was set by a second
        (9_000_000, 10_000_000, True),
        (11_000_001, 10_000_000, False),
        (8_999_999, 10_000_000, False),
        (-300_000, 500_000, False),  # back, by less than a second
        (1_000_000, 0, False),
    ):
        # At the begin of a half minute: a pause of 30 s is in one window with what follows.
        expected = wall_us if is_observed else 0
        assert observed(first, later(wall_us, mono_us)) == expected, (wall_us, mono_us)
    assert observed(first, later(1_000_000, 1_000_000, boot="ffffffff")) == 0


def test_spells_of_two_boots_are_two_also_without_a_gap() -> None:
    spells = [{"boot": "a", "begin_us": 1, "end_us": 5, "uptime_us": 1}]
    rollups.extend(spells, {"boot": "b", "begin_us": 5, "end_us": 9, "uptime_us": 0})
    rollups.extend(spells, {"boot": "b", "begin_us": 9, "end_us": 12, "uptime_us": 4})
    assert [(each["boot"], each["end_us"]) for each in spells] == [("a", 5), ("b", 12)]


def test_one_reading_is_nothing() -> None:
    folded = rollups.Rollups()
    assert fold(folded, Host().read()) == []
    assert folded.finish() is None
