"""Prompts propose numbers that are computed, and resources are what tools answer."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import assistants
import mcp
import pytest

from overnight import errors
from overnight.app import concierge
from overnight.interfaces.mcp import prompts, resources

SIZE = {"claims_per_minute": "4", "warm_up_seconds": "90", "cost_per_host_hour": "0.4"}


@pytest.fixture
def backend(tmp_path: pathlib.Path) -> concierge.LocalBackend:
    return concierge.LocalBackend(tmp_path)


def test_a_burst_is_sized_with_its_miss_rate_and_cost(backend: concierge.LocalBackend) -> None:
    """The runbook's example: 4 claims a minute, 90 s."""
    text = prompts.PROMPTS["burst"].text(backend, {"hosts": "50", **SIZE})
    assert "Propose target_size 13 (min_size 1, max_size " in text
    assert "0.52 % of claims find no ready member" in text
    assert "The runbook's rule gives 10, which misses 15 %" in text
    assert "a month for idle hosts" in text
    assert "More than 50 at once" in text


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({}, "Ask me for claims_per_minute and warm_up_seconds"),
        ({"claims_per_minute": "4"}, "Ask me for warm_up_seconds"),
        ({"claims_per_minute": "many", "warm_up_seconds": "90"}, "pool_size refuses these numbers"),
    ],
)
def test_a_burst_asks_for_what_is_missing(
    backend: concierge.LocalBackend, given: Mapping[str, str], asked: str
) -> None:
    assert asked in prompts.PROMPTS["burst"].text(backend, given)


@pytest.mark.parametrize("prompt", prompts.PROMPTS.values(), ids=lambda prompt: prompt.name)
def test_a_prompt_names_tools_and_resources_that_exist(
    backend: concierge.LocalBackend, prompt: prompts.Prompt
) -> None:
    import re

    from overnight.interfaces.mcp import catalogue

    text = prompt.text(
        backend, dict.fromkeys(prompt.arguments, "x" if prompt.name != "burst" else "")
    )
    for tool in re.findall(
        r"\b(?:system_\w+|provision_\w+|start_\w+|\w+_status|request_\w+)", text
    ):
        assert tool in catalogue.TOOLS
    for uri in re.findall(r"overnight://\S+[a-z]", text):
        assert resources.read(backend, uri)
    poisoned = prompt.text(backend, dict.fromkeys([*prompt.arguments][:1], assistants.POISON))
    assert "\x1b" not in poisoned
    with pytest.raises(errors.UsageError):
        prompt.text(backend, {"colour": "red"})


def test_clients_list_and_read_them(backend: concierge.LocalBackend) -> None:
    async def scene() -> None:
        async with mcp.Client(assistants.serve(backend)) as client:
            listed = (await client.list_prompts()).prompts
            assert {each.name for each in listed} == {*prompts.PROMPTS}
            fixed = (await client.list_resources()).resources
            assert {str(each.uri) for each in fixed} == {"overnight://vocabulary", "overnight://pools"}  # fmt: skip
            named = (await client.list_resource_templates()).resource_templates
            assert "overnight://plans/{name}" in {each.uri_template for each in named}

            async def read(uri: str) -> Any:
                [content] = (await client.read_resource(uri)).contents
                return content.text

            assert json.loads(await read("overnight://vocabulary"))["pool"]["template_id"] == "template"  # fmt: skip
            assert json.loads(await read("overnight://pools"))["total"] == 0
            assert "arms:" in await read("overnight://plans/driver-resets")
            missing = json.loads(await read("overnight://pools/none"))
            assert missing["error"]["name"] == "PoolNotFoundError"

    asyncio.run(scene())


def test_a_desk_without_a_server_starts_no_investigation(backend: concierge.LocalBackend) -> None:
    with pytest.raises(errors.CannotError, match="cannot be started from here"):
        backend.run("investigation.create", {"plan": None, "confirmed": False})
