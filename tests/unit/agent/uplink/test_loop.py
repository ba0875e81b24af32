from __future__ import annotations

import itertools
import json
import pathlib
from collections.abc import Callable

import pytest
import uplinks

from overnight.agent.uplink import loop, rollup_spool
from overnight.store.ring import layout

# Half a window after a whole half minute: the window at the end of a block continues in the next block.
BEGIN_S = 1_794_969_000 + 15


class Killed(BaseException):
    """The process ends here: nothing handles it."""


def run_uplink(ring: uplinks.LiveRing, wait: Callable[[float], bool]) -> None:
    """Run the uplink of a host that is not enrolled: it spools, and reports nothing."""
    options = loop.Options(
        str(ring.home), str(ring.folder), uplinks.HOST, uplinks.BOOT, "http://127.0.0.1:9"
    )
    loop.Uplink(options, lambda _: None).run(wait)


def test_a_kill_behind_a_spooled_window_counts_no_second_twice(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = uplinks.LiveRing(tmp_path, BEGIN_S)
    ring.seconds(layout.BLOCK_SECONDS - 10)
    (first_block,) = ring.folder.glob("*.open")

    def record_and_kill(_: float) -> bool:
        ring.seconds(30)
        monkeypatch.setattr(rollup_spool.RollupSpool, "add", add_and_kill)
        return False

    def add_and_kill(spool: rollup_spool.RollupSpool, line: bytes) -> None:
        add(spool, line)
        raise Killed

    add = rollup_spool.RollupSpool.add
    with pytest.raises(Killed):
        run_uplink(ring, record_and_kill)
    monkeypatch.setattr(rollup_spool.RollupSpool, "add", add)
    while first_block.exists():  # it is packed before the uplink is started again
        ring.second()
    run_uplink(ring, lambda _: True)

    lines = (tmp_path / "uplink/rollups-0.jsonl").read_bytes().splitlines()
    spells = [spell for line in lines for spell in json.loads(line)["spells"]]
    steps_us = [b["begin_us"] - a["end_us"] for a, b in itertools.pairwise(spells)]
    assert steps_us == [0] * len(steps_us)
    assert spells[0]["begin_us"] == (BEGIN_S + 1) * 10**6
    assert spells[-1]["end_us"] == ring.wall_ns // 1000
