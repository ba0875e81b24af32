"""All tools, and what a call of one of them answers."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import sys
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pydantic

from overnight import errors
from overnight.interfaces.mcp import fleet_tools, night_tools, pool_tools, tools
from overnight.interfaces.mcp import values as v
from overnight.model.confirmation import Confirmation, ConfirmationNeededError

if TYPE_CHECKING:
    from overnight.app import concierge

TOOLS = {tool.name: tool for tool in (*pool_tools.TOOLS, *fleet_tools.TOOLS, *night_tools.TOOLS)}
EXAMPLES = pathlib.Path(__file__).with_name("examples.json")
# The tool that helps after an error.
NEXT = {
    "NoReadyMembersError": "attribute_failure",
    "NoLiveReadyMembersError": "attribute_failure",
    "PoolHasMembersError": "system_drain_instance_pool",
    "PoolNotActiveError": "system_get_instance_pool",
    "PoolNotFoundError": "system_list_instance_pools",
    "MemberNotFoundError": "system_get_instance_pool",
    "AutoscaledError": "system_get_instance_pool",
    "HostOfflineError": "hosts",
}
# Errors that quote nobody but the caller.
OWN = {
    *NEXT,
    "UsageError",
    "BadKnobError",
    "BadSizeError",
    "NotAllowedError",
    "MissingPermissionError",
}
ADVICE = {"PoolHasMembersError": " — drain first via system_drain_instance_pool"}  # the runbook's


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a call returns; `pending` is what a person has to confirm first."""

    document: Mapping[str, Any]
    is_error: bool = False
    pending: Confirmation | None = None


@functools.cache
def examples() -> dict[str, dict[str, Any]]:
    """Return arguments and answer of a real call, by tool."""
    found: dict[str, dict[str, Any]] = json.loads(EXAMPLES.read_text())
    return found


def call(backend: concierge.Backend, tool: tools.Tool, arguments: Mapping[str, Any]) -> Answer:
    """Run a tool; errors are answers, so that an assistant can correct itself."""
    try:
        return Answer(_dump(tool.run(backend, arguments)))
    except ConfirmationNeededError as error:
        pending = tools.describe(error.confirmation, error.why)
        return Answer({"confirmation": _dump(pending)}, pending=error.confirmation)
    except pydantic.ValidationError as error:
        return refuse(_explain(tool, error))
    except errors.OvernightError as error:
        return refuse(error)
    except Exception as error:  # a bug must not end the connection, nor show what it held
        frames = "".join(traceback.format_tb(error.__traceback__))
        sys.stderr.write(f"overnight mcp: internal error: {type(error).__name__}\n{frames}")
        todo = "read the log of overnight, and report it"
        return refuse(
            errors.OvernightError("internal error", why="this is a bug in overnight", todo=todo)
        )


def _dump(value: pydantic.BaseModel) -> dict[str, Any]:
    return value.model_dump(mode="json")


def _explain(tool: tools.Tool, error: pydantic.ValidationError) -> errors.UsageError:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"])) or "arguments"
    known = ", ".join(tool.input.model_fields) or "none"
    return errors.UsageError(
        f"invalid argument {place[:60]}", why=str(first["msg"]), todo=f"{tool.name} takes: {known}"
    )


def refuse(error: errors.OvernightError) -> Answer:
    # By the kind: a server's answer has no other name of the error.
    name = "".join(word.title() for word in error.kind.split("-")) + "Error"
    texts = {"what": error.what + ADVICE.get(name, ""), "why": error.why, "todo": error.todo}
    said = (
        texts if name in OWN else {n: v.HostText.model_validate(text) for n, text in texts.items()}
    )
    answer = tools.ErrorAnswer.model_validate({**said, "name": name, "next_tool": NEXT.get(name)})
    return Answer({"error": _dump(answer)}, is_error=True)


def message(pending: Confirmation) -> str:
    """Return what a person at the client is asked."""
    shown = tools.describe(pending, "")
    lines = [f"ends: {name}" for name in shown.ends[:10]]
    lines += [f"claim: {claim.host_text}" for claim in shown.claims[:10]]
    lines += [f"host: {name}" for name in shown.hosts[:10]]
    lines += [f"note: {text.host_text}" for text in shown.concerns[:10]]
    hours = [] if shown.host_hours is None else [f"host-hours, at most: {shown.host_hours:g}"]
    cost = [] if shown.cost is None else [f"cost, at most: {shown.cost:g}"]
    return "\n".join([f"{pending.caller_name} asks to {shown.what}", *lines, *hours, *cost])
