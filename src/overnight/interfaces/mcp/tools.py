"""A tool: a row that names an operation or a question, its types, and how its fields are translated."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from overnight.app import guards, operations
from overnight.interfaces.mcp import values as v

if TYPE_CHECKING:
    from overnight.app import concierge
    from overnight.model.confirmation import Confirmation

NEXT = "A person runs `overnight confirmations` with another credential; repeat the same call afterwards."
ACTIONS = {each.action: each for each in operations.OPERATIONS}


class PendingConfirmation(v.Output):
    """A call that waits for a person's confirmation. Nothing was changed."""

    id: v.Word
    status: v.Word = Field(description="pending or confirmed")
    what: v.Sentence
    ends: list[v.Word] = Field(description="Instances that are terminated.")
    claims: list[v.HostText] = Field(
        description="Claims that end, or whose instances are not replaced."
    )
    hosts: list[v.Word] = Field(description="Hosts that are taken, emptied or changed.")
    concerns: list[v.HostText] = Field(
        description="Disturbed workloads, and changes of hosts or settings."
    )
    most_hosts: int
    host_hours: v.Number
    cost: v.Number = Field(description="null: the price is not known")
    truncated: bool = Field(description="Whether names were left out; `what` has their number.")
    expires_at: v.Instant
    why: v.Sentence
    next: v.Sentence = NEXT


def describe(pending: Confirmation, why: str) -> PendingConfirmation:
    effect = pending.effect
    lists = {name: getattr(effect, name) for name in ("ends", "claims", "hosts", "concerns")}
    shown = {name: names[: v.MOST_ROWS] for name, names in lists.items()}
    return PendingConfirmation.model_validate(
        {**vars(effect), **shown, "truncated": shown != lists, "what": effect.summary, "id": pending.id,
         "status": pending.state, "expires_at": pending.expires_us, "why": why}
    )  # fmt: skip


class ErrorAnswer(v.Output):
    """Failure, reason and next step: sentences of overnight, or marked where they may quote others."""

    name: v.Word = Field(examples=["NoReadyMembersError"])
    what: v.Sentence | v.HostText
    why: v.Sentence | v.HostText
    todo: v.Sentence | v.HostText
    next_tool: v.Word | None = Field(description="Tool that helps.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tool:
    """`action` is the operation that it runs, with the arguments that `given` makes of the input; `show` makes the answer
    of the result, the backend and the input. A tool without one has `answer`.
    """

    name: str
    about: str
    input: type[v.Input]
    output: type[v.Output]
    action: str = ""
    given: Callable[[Any], dict[str, Any]] = lambda asked: asked.model_dump()
    show: Callable[..., Any] = lambda result, *_: result
    answer: Callable[[concierge.Backend, Any], Any] | None = None
    changes: bool = False  # of one with `answer`; an operation says so itself
    destructive: bool = False  # it may end or change what is there; others only add
    idempotent: bool = False
    open_world: bool = False  # it reaches hosts, or the platform that has them

    @property
    def read_only(self) -> bool:
        return not (ACTIONS[self.action].changes if self.action else self.changes)

    @property
    def is_guarded(self) -> bool:
        """Whether a person may have to confirm it."""
        if not self.action:
            return False
        operation = ACTIONS[self.action]
        return (operation.area, operation.name) in guards.GUARDS

    def run(self, backend: concierge.Backend, arguments: Mapping[str, Any]) -> v.Output:
        """Return the answer; raise pydantic.ValidationError for arguments that it does not take."""
        asked = self.input.model_validate(arguments)
        if self.answer is not None:
            return self.output.model_validate(self.answer(backend, asked))
        backend.check_role(self.action)
        result = backend.run(self.action, self.given(asked))
        return self.output.model_validate(self.show(result, backend, asked))

    def ask(self, backend: concierge.Backend, arguments: Mapping[str, Any]) -> None:
        """Ask a person for the confirmation alone: always raises."""
        asked = self.input.model_validate(arguments)
        backend.check_role(self.action)
        backend.run(self.action, self.given(asked), only_ask=True)

    @functools.cached_property
    def input_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = _plain(self.input.model_json_schema())
        return schema

    @functools.cached_property
    def output_schema(self) -> dict[str, Any]:
        """The schema of the answer, or of a pending confirmation where a person may have to confirm the call."""
        schema: dict[str, Any] = _plain(self.output.model_json_schema(mode="serialization"))
        if self.is_guarded:
            pending = _plain(PendingConfirmation.model_json_schema(mode="serialization"))
            inner = pending.pop("$defs", {})
            schema["$defs"] = {**schema.get("$defs", {}), **inner, "PendingConfirmation": pending}
            schema["properties"]["confirmation"] = {"$ref": "#/$defs/PendingConfirmation"}
            schema["anyOf"] = [
                {"required": schema.pop("required", [])},
                {"required": ["confirmation"]},
            ]
        return schema


def _plain(schema: Any) -> Any:
    """Return a schema without the titles that pydantic makes of every name."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    named = {"properties", "$defs"}
    return {
        key: {name: _plain(inner) for name, inner in value.items()} if key in named else _plain(value)
        for key, value in schema.items()
        if key != "title"
    }  # fmt: skip
