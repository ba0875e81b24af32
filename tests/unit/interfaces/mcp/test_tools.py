"""Every tool: its name, schemas, examples and annotations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from overnight.app import operations
from overnight.interfaces.mcp import catalogue, server

if TYPE_CHECKING:
    from overnight.interfaces.mcp.tools import Tool

RUNBOOK = """system_create_instance_pool system_list_instance_pools system_get_instance_pool system_update_instance_pool
system_acquire_pooled_instance system_get_instance system_terminate_instance system_return_pooled_instance
system_drain_instance_pool system_delete_instance_pool system_replenish_instance_pool system_recycle_pool
system_provision_instance system_cancel_task provision_cluster recent_events attribute_failure request_confirmation"""
OURS = """hosts events diagnose cpu top compare cohorts drift audit census reserve start_investigation stop_investigation
investigation_status pool_size cancel_cluster release_cluster reservation_status release_reservation"""
TOOLS = catalogue.TOOLS.values()
# read only, destructive, idempotent, open world
HINTS = {
    "system_list_instance_pools": (True, False, True, False),
    "system_create_instance_pool": (False, False, False, True),
    "system_acquire_pooled_instance": (False, False, False, False),
    "system_drain_instance_pool": (False, True, True, True),
    "system_delete_instance_pool": (False, True, True, False),
    "system_terminate_instance": (False, True, True, True),
    "system_replenish_instance_pool": (False, False, True, True),
    "provision_cluster": (False, False, False, True),
    "request_confirmation": (False, False, True, False),
    "cancel_cluster": (False, True, True, True),
    "release_cluster": (False, True, True, True),
    "reservation_status": (True, False, True, False),
    "release_reservation": (False, True, True, True),
    "diagnose": (True, False, True, True),
    "start_investigation": (False, True, False, True),
}


def test_the_tools_are_those_of_the_runbook_and_ours() -> None:
    assert {*catalogue.TOOLS} == {*RUNBOOK.split(), *OURS.split()}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_schemas_are_valid_closed_and_have_an_example_that_fits(tool: Tool) -> None:
    for schema in (tool.input_schema, tool.output_schema):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
    assert tool.input_schema["additionalProperties"] is False
    shown = catalogue.examples()[tool.name]
    jsonschema.validate(shown["input"], tool.input_schema)
    jsonschema.validate(shown["output"], tool.output_schema)
    tool.input.model_validate(shown["input"])


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_annotations_follow_from_what_a_tool_does(tool: Tool) -> None:
    [described] = [each for each in server.list_tools() if each.name == tool.name]
    hints = described.annotations
    assert hints is not None
    found = (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint)  # fmt: skip
    assert None not in found
    if tool.name in HINTS:
        assert found == HINTS[tool.name]
    if tool.action:
        [operation] = [o for o in operations.OPERATIONS if o.action == tool.action]
        assert hints.read_only_hint is not operation.changes
    assert not (hints.read_only_hint and hints.destructive_hint)
    assert described.description
    assert "title" not in json.dumps(described.input_schema)


def test_what_may_wait_for_a_person_says_so() -> None:
    guarded = {tool.name for tool in TOOLS if tool.is_guarded}
    assert guarded == {
        "system_create_instance_pool", "system_update_instance_pool", "system_acquire_pooled_instance",
        "system_terminate_instance", "system_drain_instance_pool", "system_delete_instance_pool", "system_return_pooled_instance",
        "system_provision_instance", "provision_cluster", "reserve", "start_investigation",
        "stop_investigation", "cancel_cluster", "release_cluster", "release_reservation",
    }  # fmt: skip
    for name in guarded:
        assert "confirmation" in catalogue.TOOLS[name].output_schema["properties"]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_an_unknown_argument_is_an_error_that_names_the_known_ones(tool: Tool) -> None:
    class Nowhere:
        """A backend that nothing may reach."""

    shown: dict[str, Any] = catalogue.examples()[tool.name]["input"]
    answer = catalogue.call(Nowhere(), tool, {**shown, "force": True})  # type: ignore[arg-type]
    assert answer.is_error
    error = answer.document["error"]
    assert (error["name"], error["what"]) == ("UsageError", "invalid argument force")
    for name in tool.input.model_fields:
        assert name in error["todo"]
