from __future__ import annotations

import pytest

from overnight import errors
from overnight.pools import pool_errors


def test_no_ready_members_carries_the_counts() -> None:
    given = {"target": 5, "ready": 0, "warming": 3, "why": "busy", "request_id": "c-1"}
    error = pool_errors.NoReadyMembersError("ci", **given)
    assert "target 5, ready 0, warming 3" in str(error)
    assert error.kind == "no-ready-members"
    assert error.todo.endswith("`overnight pool explain c-1`")
    assert "--wait" in error.todo
    without = pool_errors.NoReadyMembersError("ci", **given, reaped=False).todo
    # A cold claim is refused where no reaper has served, and its member could report to none.
    assert "--wait" not in without
    assert "--cold" not in without
    assert "batch of 4" in str(pool_errors.NoReadyMembersError("ci", **given, wanted=4))


def test_no_live_ready_members_names_each() -> None:
    error = pool_errors.NoLiveReadyMembersError("ci", (("m-1", 200.0), ("m-2", 999.4)), "c-1")
    assert "m-1 (silent for 200 s), m-2 (silent for 999 s)" in str(error)
    assert error.members == ("m-1", "m-2")
    assert error.todo.endswith("`overnight pool explain c-1`")


def test_delete_of_a_pool_with_members_names_a_command_that_exists() -> None:
    """It used to name `system_drain_instance_pool`, which the command line does not have."""
    error = pool_errors.PoolHasMembersError("ci", 3)
    assert error.what == "pool ci still has 3 members"
    assert error.todo.startswith("`overnight pool drain ci`, ")
    assert "system_drain_instance_pool" not in str(error.as_json())


def test_delete_of_a_pool_whose_members_are_ending_says_to_wait() -> None:
    error = pool_errors.PoolHasMembersError("ci", 2, draining=2)
    assert error.todo == "wait until they are terminated (`overnight pool show ci`), then delete it"
    assert "pool drain ci" in pool_errors.PoolHasMembersError("ci", 2, draining=1).todo


@pytest.mark.parametrize("name", [n for n, v in vars(pool_errors).items() if isinstance(v, type)])
def test_every_refusal_is_in_the_one_tree(name: str) -> None:
    refusal = getattr(pool_errors, name)
    assert issubclass(refusal, errors.OvernightError)
    assert name.endswith("Error")
