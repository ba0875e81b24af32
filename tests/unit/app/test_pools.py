"""What `overnight pool show` is built from: a pool of a data home, with its problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from overnight.app import pools
from overnight.model.pool import Request
from overnight.pools import pool_errors, reaper

if TYPE_CHECKING:
    import pathlib


def test_claims_that_missed_are_shown(tmp_path: pathlib.Path) -> None:
    where = pools.Pools(tmp_path)
    where.create("ci", "process", pools.PoolChange(template="plain", target_size=1))
    for _ in range(5):
        with pytest.raises(pool_errors.NoReadyMembersError):
            where.acquire("ci", Request())
    assert {problem.name for problem in where.show("ci").problems} == {
        "reaper_not_running",
        "none_ready",
    }
    reaper.report_alive(where.plane)
    found = {problem.name: problem for problem in where.show("ci").problems}
    assert found["too_small"].what.startswith("of 5 claims in the last hour 5 missed")
    where.plane.context.database.close()
