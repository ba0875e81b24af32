"""The use cases that a server publishes: one table for its operations, its client and the tools of assistants.

Requests and answers have the types of the methods, as `dataclasses.asdict` writes them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any

from overnight import errors
from overnight.app import clusters, confirmations, investigations, pools, reservations
from overnight.model.control_plane import Role

if typing.TYPE_CHECKING:
    from overnight.model.pool import Request

MAX_WAIT_SECONDS = 3600.0
HERE = ("self", "is_gone", "reference", "return")  # not sent
ANSWERS = ("outlook", "preflight", "check")  # with a body, but they only answer
WHY = "X-Overnight-Why"
# What is asked for an assistant, whatever the token: `call`, or `ask` for the confirmation alone.
ASSISTANT, CALL, ASK = "X-Overnight-Assistant", "call", "ask"


@dataclasses.dataclass(frozen=True)
class Operation:
    """A method of a class of use cases; the names in `path` are parameters of it."""

    of: type[Any]
    name: str
    method: str
    path: str
    role: Role

    @property
    def call(self) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self.of, self.name)
        return call

    @property
    def area(self) -> str:
        """The name of the class where a server has it, and of its operations."""
        return self.of.__name__.lower()

    @property
    def noun(self) -> str:
        return self.area.removesuffix("s")

    @property
    def action(self) -> str:
        """How the audit log names it: `pool.drain`."""
        return f"{self.noun}.{self.name}"

    @property
    def changes(self) -> bool:
        """Whether it changes something: the audit log has it, and it is not repeated after a lost connection."""
        return self.method != "GET" and self.name not in ANSWERS

    @property
    def waits(self) -> bool:
        """Whether it may wait for a provider, and runs in a thread of its own."""
        return self.role is not Role.VIEWER

    @property
    def path_names(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        return typing.get_type_hints(self.call, localns=names())

    @property
    def answer(self) -> Any:
        """The type of the answer; `tuple[T, ...]` is sent as a list of one page."""
        return self.hints["return"]

    @property
    def parameters(self) -> dict[str, tuple[Any, Any]]:
        """Type and default of what a request has besides its path; `...`: required."""
        declared = inspect.signature(self.call).parameters
        return {
            name: (self.hints[name], ... if given.default is given.empty else given.default)
            for name, given in declared.items()
            if name not in (*HERE, *self.path_names)
        }


def _publish(of: type[Any], *rows: tuple[str, str, str, Role]) -> tuple[Operation, ...]:
    return tuple(Operation(of, *row) for row in rows)


VIEWER, OPERATOR, ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN
POOLS = _publish(
    pools.Pools,
    ("list", "GET", "/pools", VIEWER),
    ("create", "POST", "/pools", ADMIN),
    ("show", "GET", "/pools/{name}", VIEWER),
    ("update", "PATCH", "/pools/{name}", ADMIN),
    ("delete", "DELETE", "/pools/{name}", ADMIN),
    ("past", "GET", "/pools/{name}/past", VIEWER),
    ("acquire", "POST", "/pools/{name}/claims", OPERATOR),
    ("replenish", "POST", "/pools/{name}/replenish", OPERATOR),
    ("recycle", "POST", "/pools/{name}/recycle", OPERATOR),
    ("drain", "POST", "/pools/{name}/drain", ADMIN),
    ("set_autoscale", "PATCH", "/pools/{name}/autoscale", ADMIN),
    ("autoscale_off", "DELETE", "/pools/{name}/autoscale", ADMIN),
    ("outlook", "POST", "/pools/{name}/autoscale/outlook", VIEWER),
    ("return_member", "POST", "/pools/{name}/members/{member_id}/return", OPERATOR),
    ("renew", "POST", "/pool-claims/{claim_id}/renew", OPERATOR),
    ("give_back", "POST", "/pool-claims/{claim_id}/return", OPERATOR),
    ("show_member", "GET", "/pool-members/{member_id}", VIEWER),
    ("set_cordoned", "PUT", "/pool-members/{member_id}/cordoned", OPERATOR),
    ("terminate", "POST", "/pool-members/{member_id}/terminate", ADMIN),
    ("forget", "POST", "/pool-hosts/{host}/forget", ADMIN),
    ("events", "GET", "/pool-events", VIEWER),
    # It may wait for a provider, and a console may hold secrets.
    ("explain", "GET", "/pool-explanations/{name}", OPERATOR),
    ("cancel", "POST", "/pool-tasks/{task}/cancel", ADMIN),
)
CLUSTERS = _publish(
    clusters.Clusters,
    ("list", "GET", "/clusters", VIEWER),
    ("create", "POST", "/clusters", ADMIN),
    ("preflight", "POST", "/clusters/preflight", OPERATOR),
    ("show", "GET", "/clusters/{cluster_id}", VIEWER),
    ("cancel", "POST", "/clusters/{cluster_id}/cancel", OPERATOR),
    ("renew", "POST", "/clusters/{cluster_id}/renew", OPERATOR),
    ("release", "POST", "/clusters/{cluster_id}/release", OPERATOR),
)
# `reservation_serving` decides whether a caller may extend or end the reservation of another one.
RESERVATIONS = _publish(
    reservations.Reservations,
    ("list", "GET", "/reservations", VIEWER),
    ("create", "POST", "/reservations", OPERATOR),
    ("preflight", "POST", "/reservations/preflight", OPERATOR),
    ("show", "GET", "/reservations/{reservation_id}", VIEWER),
    ("members", "GET", "/reservations/{reservation_id}/members", VIEWER),
    ("check", "POST", "/reservations/{reservation_id}/check", OPERATOR),
    ("extend", "POST", "/reservations/{reservation_id}/extend", OPERATOR),
    ("end", "POST", "/reservations/{reservation_id}/release", OPERATOR),
)
# As with reservations, `investigation_serving` decides whether a caller may stop another one's investigation.
INVESTIGATIONS = _publish(
    investigations.Investigations,
    ("list", "GET", "/investigations", VIEWER),
    ("create", "POST", "/investigations", OPERATOR),
    ("preflight", "POST", "/investigations/preflight", OPERATOR),
    ("show", "GET", "/investigations/{investigation_id}", VIEWER),
    ("stop", "POST", "/investigations/{investigation_id}/stop", OPERATOR),
)
# `fleet.confirmations` decides whether a caller may confirm; a code is a secret, and not part of a path.
CONFIRMATIONS = _publish(
    confirmations.Confirmations,
    ("list", "GET", "/confirmations", OPERATOR),
    ("show", "GET", "/confirmations/{confirmation_id}", VIEWER),
    ("confirm", "POST", "/confirmations/confirm", OPERATOR),
    ("decline", "POST", "/confirmations/decline", OPERATOR),
)
OPERATIONS = (*POOLS, *CLUSTERS, *RESERVATIONS, *INVESTIGATIONS, *CONFIRMATIONS)


@functools.cache
def names() -> dict[str, Any]:
    """Return the names in hints that modules import for type checkers only."""
    from overnight.model import cluster, pool, pool_explanation
    from overnight.pools import autoscaler

    known = {**vars(pool), **vars(pool_explanation), **vars(cluster)}
    kinds = {name: kind for name, kind in known.items() if isinstance(kind, type)}
    return {**kinds, "autoscaler": autoscaler}


def encode(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    is_instance = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return dataclasses.asdict(value) if is_instance else value


def document(result: Any) -> dict[str, Any]:
    """Return the answer of an operation; every tuple is a page that is the last one."""
    if isinstance(result, tuple):
        return {"items": encode(result), "next": None}
    answer: dict[str, Any] = encode(result)
    return answer


def find_target(operation: Operation, given: Mapping[str, Any], result: Any) -> str:
    """Return what a change was made to, for the audit log; for a claim with its id, or that of its batch."""
    named = " ".join(str(given[name]) for name in operation.path_names)
    if operation.name == "acquire":
        named += f" {result[0].claim.batch_id or result[0].claim.id}"
    return str(named or given.get("name") or getattr(result, operation.noun).id)


def find_reason(given: Mapping[str, Any]) -> str:
    request, order = given.get("request"), given.get("order")
    return getattr(request, "acquired_for", "") or getattr(order, "purpose", "")


def run(
    where: Any, operation: Operation, given: Mapping[str, Any], is_gone: Callable[[], bool]
) -> Any:
    """Run an operation; `is_gone` ends the wait of a caller, who does not get members any more."""
    if operation.name != "acquire":
        return getattr(where, operation.name)(**given)
    request: Request = given["request"]
    if request.wait_seconds > MAX_WAIT_SECONDS:
        raise errors.UsageError(
            f"a server lets callers wait for at most 1h (got {request.wait_seconds:g}s)",
            why="the caller keeps a connection and a place in the queue",
            todo="use --wait 1h, and repeat the command",
        )
    grants = where.acquire(**given, is_gone=is_gone)
    if not is_gone() or request.idempotency_key:  # the caller gets it again with the key
        return grants
    for grant in grants:
        where.give_back(grant.claim.id)
    raise errors.CannotError(
        "the claim was given back",
        why="the caller left while it waited, or the wait took too long",
        todo="repeat the request",
    )
