"""The figures and the output in docs/sizing.md are those of the current code."""

from __future__ import annotations

import pathlib
import re
import shlex
import time

import pytest
import rich.console
from poolworld import S, World

from overnight import errors
from overnight.app import pool_sizing
from overnight.interfaces import cli
from overnight.interfaces.cli import miss_curve
from overnight.interfaces.cli.commands import pool_size
from overnight.model.pool import Past, Pool
from overnight.pools import bursts, history, miss_rates, size_advice, sizing

TEXT = (pathlib.Path(__file__).parents[2] / "docs/sizing.md").read_text()

PLAIN = {"claims_per_minute": 4.0, "warm_up_s": 90.0}
POOLS = {
    "0.1 claims a minute": {**PLAIN, "claims_per_minute": 0.1},
    "1 claim a minute": {**PLAIN, "claims_per_minute": 1.0},
    "20 claims a minute": {**PLAIN, "claims_per_minute": 20.0},
    "a warm-up of 10 s": {**PLAIN, "warm_up_s": 10.0},
    "a warm-up of 5 min": {**PLAIN, "warm_up_s": 300.0},
    "a tick of 5 min": {**PLAIN, "interval_s": 300.0},
    "1": PLAIN,
    "2": {**PLAIN, "burst": bursts.Burst(2)},
    "5": {**PLAIN, "burst": bursts.Burst(5)},
    "5, spread 5": {**PLAIN, "burst": bursts.Burst(5, 5)},
    "10": {**PLAIN, "burst": bursts.Burst(10)},
}


def test_the_example_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command, output = re.findall(r"```\n\$ overnight (.+)\n((?:.*\n)+?)```", TEXT)[0]
    assert cli.main(command.split()) == 0
    assert capsys.readouterr().out == output


@pytest.mark.parametrize("name", POOLS)
def test_the_tables_have_the_sizes_of_the_code(name: str) -> None:
    row = re.search(
        rf"^\| {re.escape(name)} \| (\d+) \| ([\d.]+) % \| (.+) \|$", TEXT, re.MULTILINE
    )
    assert row
    demand = sizing.Demand(**POOLS[name])  # type: ignore[arg-type]
    result = sizing.size(demand)
    assert int(row[1]) == demand.runbook
    # Where it is simulated, another numpy version may draw other claims.
    rate = result.at(demand.runbook).give_up
    assert float(row[2]) / 100 == pytest.approx(rate.miss, abs=0.00051 + 5 * rate.error)
    sizes = row[3].split(" | ")
    assert [int(size) for size in sizes[:2]] == [
        result.recommended,
        result.recommended_event_driven,
    ]
    if len(sizes) > 2:
        assert float(sizes[2]) == pytest.approx(result.at(result.recommended).idle, abs=0.051)


def test_the_three_miss_rates_are_those_of_the_code() -> None:
    rows = re.findall(
        r"^\| (\d+) \| ([\d.]+ %) \| ([\d.]+ %) \| (<?[\d.]+ %) \|$", TEXT, re.MULTILINE
    )
    assert len(rows) == 5
    traffic = bursts.Traffic(bursts.SINGLE, 4 / 60, 90, 60)
    wait = miss_rates.wait(20, traffic)
    for size, *documented in rows:
        number = int(size)
        give_up = miss_rates.give_up([number], traffic)[0].miss
        woken = miss_rates.woken([number], traffic)[0].miss
        want = [give_up, float(wait[number]), woken]
        computed = [
            f"{100 * rate:.2f} %" if number == 10 else miss_curve.share(rate) for rate in want
        ]
        assert documented == computed


def test_the_commands_run(tmp_path: pathlib.Path) -> None:
    """Run them on an empty pool with a missed claim every ten minutes for the last hours."""
    world = World(f"sqlite:///{tmp_path / 'pools/pools.db'}")
    world.clock.now_us = time.time_ns() // 1000 - 7 * 3600 * S
    world.pool(target=2)
    world.plane.replenish("ci")
    world.clock.forward(60)
    world.boot_all()
    for member in world.members():
        world.plane.terminate(member.id)
    for _ in range(40):
        world.clock.forward(600)
        with pytest.raises(errors.OvernightError):
            world.plane.acquire("ci")
    world.close()
    lines = "".join(re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)).splitlines()
    assert len(lines) == 8
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "overnight"
        assert cli.main(["--home", str(tmp_path), *words]) == 0, line


def test_the_example_of_a_history_is_what_the_command_prints() -> None:
    console = rich.console.Console(width=100)
    spread = history.Spread(1884, 90.2, 89.0, 101.0, 120.0)
    low, high = (60 * rate for rate in history.rate_between(1920, 8 * 3600))
    measured = history.Measurement(1920, 8 * 3600, 4.0, low, high, 1.1, False, spread, True)
    demand = pool_sizing.MeasuredDemand(
        Pool(id="p", name="ci", template="t", target_size=10, min_size=0, max_size=20),
        Past(begin_us=0, end_us=1, asked_us=(), warm_ups_us=(), missed_us=(0,) * 41),
        measured, 4.0, 90.2, bursts.SINGLE, pool_sizing.describe_assumptions(pool_sizing.SizeRequest(), measured),
    )  # fmt: skip
    with console.capture() as captured:
        pool_size.show_measured(demand, console)
    assert captured.get().rstrip() in TEXT


def test_the_table_of_warm_ups_is_that_of_the_code() -> None:
    row = r"^\| (\d+) (s|min) \| ([\d.]+) \| (\d+) \| (\d+) hosts? \|$"
    rows = re.findall(row, TEXT, re.MULTILINE)
    assert len(rows) == 3
    for number, unit, idle, woken, saved in rows:
        warm_up_s = float(number) * (60 if unit == "min" else 1)
        advice = size_advice.advise(sizing.size(sizing.Demand(4.0, warm_up_s)))
        assert advice.idle_per_saved_hour == pytest.approx(float(idle), abs=0.051)
        assert (advice.target_size, advice.prebaked.hosts_saved) == (int(woken), int(saved))


def test_every_case_of_the_wrong_tool_is_in_the_table() -> None:
    for kind in size_advice.WrongTool:
        assert f"| `{kind}` |" in TEXT
    assert f"more than {size_advice.LARGEST_BURST} claims come together" in TEXT
    assert f"for more than {size_advice.WORTH:g} h" in TEXT
    rare = size_advice.advise(sizing.size(sizing.Demand(0.001, 90.0)))
    assert f"{rare.idle_per_saved_hour:.0f} h for each hour of waiting" in TEXT
