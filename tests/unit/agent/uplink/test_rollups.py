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


def test_one_reading_is_nothing() -> None:
    folded = rollups.Rollups()
    assert fold(folded, Host().read()) == []
    assert folded.finish() is None
