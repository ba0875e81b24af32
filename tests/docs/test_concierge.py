"""docs/concierge.md and the skill name every tool, role, prompt and resource, and no others."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

from overnight.app import operations, pool_guards
from overnight.interfaces.mcp import catalogue, prompts, resources, tools, vocabulary
from overnight.interfaces.mcp.values import MAX_TEXT, MOST_ROWS, ROWS

DOCS = pathlib.Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "concierge.md").read_text()
SKILL = (DOCS / "skills/overnight/SKILL.md").read_text()
ROLES = {each.action: str(each.role) for each in operations.OPERATIONS}


def rows(heading: str) -> dict[str, list[str]]:
    """Return the cells of the tables of a section, by each name in the first one."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert section
    found = {}
    for line in section[1].splitlines():
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        found.update({name: cells for name in re.findall(r"`([^`]+)`", first) if cells})
    return found


TOOLS = rows("Tools")


@pytest.mark.parametrize("tool", catalogue.TOOLS.values(), ids=lambda tool: tool.name)
def test_a_tool_is_documented_with_its_role_and_whether_it_is_confirmed(tool: tools.Tool) -> None:
    _, role, confirmed = TOOLS[tool.name]
    if tool.action:
        assert ROLES[tool.action] in role
    guarded = tool.is_guarded and tool.name not in (
        "system_acquire_pooled_instance", "system_provision_instance",
    )  # fmt: skip  # of one, which is direct
    assert not guarded or confirmed


def test_only_tools_prompts_and_resources_that_exist_are_named() -> None:
    named = {name for name in TOOLS if re.fullmatch(r"[a-z_]+", name)}
    fields = {*vocabulary.POOL, *vocabulary.COUNTS, *vocabulary.INSTANCE, *vocabulary.CLAIM}
    assert named - {*fields, "instance_id", "status"} == {*catalogue.TOOLS}
    listed = rows("Prompts and resources")
    uris = {re.sub(r"[A-Z]+", "{name}", name) for name in listed if "://" in name}
    assert uris == {each.uri for each in resources.RESOURCES}
    assert {name for name in listed if "://" not in name} == {*prompts.PROMPTS}
    for name in resources.EXAMPLES:
        assert f"`{name}`" in listed["overnight://plans/NAME"][0]


def test_limits_are_documented() -> None:
    assert f"at most {ROWS} rows\n(`limit`, up to {MOST_ROWS})" in TEXT
    assert f"cut after {MAX_TEXT} characters" in TEXT
    for text in (TEXT, (DOCS / "security.md").read_text()):
        assert f"more than {pool_guards.MANY_HOSTS}" in text


def test_the_skill_names_tools_that_exist() -> None:
    assert SKILL.startswith("---\nname: overnight\ndescription: ")
    named = {*re.findall(r"`((?:system|provision|request|start|pool)_[a-z_]+)`", SKILL)}
    assert named <= {*catalogue.TOOLS}
    assert {"system_drain_instance_pool", "provision_cluster", "pool_size"} <= named
    assert "host_text" in SKILL


def test_configurations_of_clients_are_valid() -> None:
    found = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    assert len(found) == 2
    for text in found:
        assert "overnight" in json.loads(text)["mcpServers"]
