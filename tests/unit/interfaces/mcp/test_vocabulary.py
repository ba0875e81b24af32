"""The runbook's names and ours: a table that is used in both directions, and the tools that have them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from overnight.interfaces.mcp import catalogue, pool_tools, vocabulary
from overnight.model.cluster import Cluster
from overnight.model.pool import (
    Claim,
    Counts,
    Member,
    MemberState,
    Pool,
    PoolDetails,
    PoolEvent,
    PoolSettings,
    PoolStatus,
)

POOL = Pool(
    id="p-1", name="ci", template="runner", target_size=5, min_size=2, max_size=10, region="eu-west-1",
    instance_type="m7i.large", created_us=1_794_712_447_250_000, settings=PoolSettings(ready_ttl_seconds=60),
)  # fmt: skip
MEMBER = Member(
    id="m-1", pool_id="p-1", state=MemberState.CLAIMED, address="10.0.0.1", machine_id="i-7",
    warming_started_us=1_794_712_447_250_000, acquired_us=1_794_712_449_250_000,
)  # fmt: skip
CLAIM = Claim(id="c-1", pool_id="p-1", member_id="m-1", acquired_by="job", acquired_us=5)
COUNTS = Counts(ready=1, warming=2, claimed=3, errored=4, deficit=5)
VALUES = [
    (vocabulary.POOL, POOL),
    (vocabulary.INSTANCE, MEMBER),
    (vocabulary.CLAIM, CLAIM),
    (vocabulary.COUNTS, COUNTS),
    (vocabulary.EVENT, PoolEvent(id=1, at_us=5, kind="member_ready", member_id="m-1")),
    (
        vocabulary.CLUSTER,
        Cluster(id="k", template="t", provider="p", count=2, at_least=1, lease_seconds=5),
    ),
]


@pytest.mark.parametrize(("table", "value"), VALUES, ids=lambda each: type(each).__name__)
def test_names_are_translated_in_both_directions(table: dict[str, str], value: Any) -> None:
    theirs = vocabulary.to_runbook(value)
    assert {*theirs} == {*table}
    assert vocabulary.to_ours(table, theirs) == {n: getattr(value, n) for n in table.values()}
    assert len({*table.values()}) == len(table)


def test_fields_of_a_pool_that_can_be_set_have_a_name_in_both() -> None:
    """What a caller sets with the runbook's names, it reads back with them."""
    given = {
        "name": "ci", "template_id": "runner", "target_size": 5, "min_size": 2, "max_size": 10,
        "lifecycle_class": "spot", "provider_region_id": "eu-west-1",
        "provider_instance_type_id": "m7i.large", "metadata": {"ready_ttl_seconds": 60},
    }  # fmt: skip
    create = catalogue.TOOLS["system_create_instance_pool"]
    called = create.given(create.input.model_validate(given))
    assert (called["name"], called["provider"]) == ("ci", "ec2")
    change = called["change"]
    assert (change.template, change.region, change.settings) == ("runner", "eu-west-1", {"ready_ttl_seconds": 60})  # fmt: skip
    changed = {n: getattr(change, n) for n in vocabulary.POOL.values() if hasattr(change, n)}
    changed |= {"settings": PoolSettings(**change.settings), "preferred_regions": ()}
    pool = dataclasses.replace(POOL, **{n: v for n, v in changed.items() if v is not None and n != "status"})  # fmt: skip
    details = PoolDetails(pool=pool, counts=COUNTS)
    shown = pool_tools.InstancePool.model_validate(vocabulary.describe(details))
    assert {n: shown.model_dump()[n] for n in given} == given


@pytest.mark.parametrize(
    ("knob", "default"),
    [
        ("warming_timeout_seconds", 1800),
        ("ready_ttl_seconds", 14400),
        ("claimed_ttl_seconds", 86400),
        ("heartbeat_stale_after_seconds", 180),
        ("terminate_attempts", 5),
        ("terminate_backoff_seconds", 300),
        ("terminate_backoff_max_seconds", 3600),
        ("record_retention_seconds", 7 * 86400),
        ("reuse_without_reset", False),
    ],
)
def test_a_knob_of_the_metadata_is_a_setting_with_the_same_default(
    knob: str, default: object
) -> None:
    assert vocabulary.DEFAULTS[knob] == default


def test_words_for_states() -> None:
    assert {str(state) for state in PoolStatus} == {"active", "paused", "draining", "archived"}
    words = {"warming", "ready", "claimed", "draining", "errored"}
    assert {str(state) for state in vocabulary.STATUSES} == words
    assert vocabulary.describe(MEMBER)["status"] == "running"
    gone = dataclasses.replace(MEMBER, gone_us=7)
    assert vocabulary.describe(gone)["status"] == "terminated"


# Inputs (with ! those that are required) and fields of the output, as the runbook shows them.
RUNBOOK = {
    "system_create_instance_pool": (
        "name! template_id! target_size! min_size max_size lifecycle_class provider_region_id provider_instance_type_id metadata",
        "instance_pool.id instance_pool.status instance_pool.target_size instance_pool.ready_count instance_pool.warming_count instance_pool.claimed_count",
    ),
    "system_get_instance_pool": (
        "id!",
        "instance_pool.status instance_pool.ready_count instance_pool.warming_count instance_pool.claimed_count instance_pool.errored_count members.instance_id members.pool_state",
    ),
    "system_list_instance_pools": ("", "instance_pools.id instance_pools.ready_count"),
    "system_update_instance_pool": ("id! target_size min_size max_size metadata", "instance_pool.id"),
    "system_acquire_pooled_instance": (
        "pool_id! acquired_by acquired_for",
        "instance.id instance.status instance.host_address claim_id",
    ),
    "system_get_instance": ("id!", "instance.id instance.status instance.instance_pool_id"),
    "system_terminate_instance": ("id!", "instance.id"),
    "system_return_pooled_instance": ("pool_id! instance_id!", "instance.pool_state"),
    "system_drain_instance_pool": (
        "id!",
        "pool.status drain_result.drained drain_result.claimed_remaining",
    ),
    "system_delete_instance_pool": ("id!", "deleted"),
    "system_replenish_instance_pool": ("id!", "launched"),
    "system_recycle_pool": ("id!", "changed"),
    "system_provision_instance": ("template_id!", "instance.id"),
    "system_cancel_task": ("id!", "instance.id"),
    "provision_cluster": ("count! template_id!", "cluster.id cluster.status members.instance_id"),
    "recent_events": ("", "events.kind events.reason"),
    "attribute_failure": ("id!", "cause summary evidence.what"),
    "request_confirmation": ("action! arguments", "required confirmation.id confirmation.what"),
}  # fmt: skip


def find(schema: dict[str, Any], root: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """Return the schema at a path through objects and lists."""
    for choice in schema.get("anyOf", []):
        if "$ref" in choice:
            schema = choice
    if "$ref" in schema:
        return find(root["$defs"][schema["$ref"].rpartition("/")[2]], root, path)
    if schema.get("type") == "array":
        return find(schema["items"], root, path)
    return find(schema["properties"][path[0]], root, path[1:]) if path else schema


@pytest.mark.parametrize("name", RUNBOOK)
def test_a_tool_has_the_inputs_and_outputs_of_the_runbook(name: str) -> None:
    inputs, outputs = RUNBOOK[name]
    tool = catalogue.TOOLS[name]
    for word in inputs.split():
        assert word.rstrip("!") in tool.input_schema["properties"]
        assert (word.rstrip("!") in tool.input_schema.get("required", [])) is word.endswith("!")
    for path in outputs.split():
        assert find(tool.output_schema, tool.output_schema, path.split("."))
