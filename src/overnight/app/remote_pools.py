"""The pools of a server: the methods of `pools.Pools`, each as a request."""

from __future__ import annotations

import functools
import inspect
import typing
from typing import Any

from overnight import errors, http_client
from overnight.app import pool_operations, pools, server_requests

ANSWER_SECONDS = 300.0  # a provider may be slow
UNCONFIRMED = "claims-affected"


class RemotePools(pools.Pools):
    """Pools behind a server; `pool_operations` lists what it answers. `why` is for its audit log."""

    def __init__(self, api: server_requests.Requests) -> None:
        self._api = api
        self.why = ""

    def send(self, operation: pool_operations.Operation, given: dict[str, Any]) -> Any:
        """Send a request, and return the answer as the type that the local method returns."""
        quoted = {n: server_requests.quote(str(given[n])) for n in operation.path_names}
        path = operation.path.lstrip("/").format(**quoted)
        rest = {n: pool_operations.encode(v) for n, v in given.items() if n not in quoted}
        try:
            if operation.method == "GET":
                pairs = [(n, str(v).lower()) for n, v in rest.items()]
                document = self._api.get(path, pairs)
            else:
                document = self._change(operation, path, rest)
        except http_client.RefusedError as error:
            if error.problem == UNCONFIRMED:
                raise errors.UnconfirmedError(error.what, why=error.why, todo=error.todo) from None
            raise
        return self._decode(operation.answer, document)

    def _change(
        self, operation: pool_operations.Operation, path: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        request = body.get("request", {})
        seconds = ANSWER_SECONDS + request.get("wait_seconds", 0.0)
        if request.get("cold"):
            seconds = ANSWER_SECONDS + pool_operations.MAX_WAIT_SECONDS
        again = not operation.changes or bool(request.get("idempotency_key"))
        headers = {pool_operations.WHY: self.why} if self.why else {}
        try:
            return self._api.change(
                operation.method, path, body, headers, seconds=seconds, again=again
            )
        except http_client.ServerAwayError as error:
            if not again:
                error.todo += "; the change may have been made: overnight pool show POOL"
            raise

    def _decode(self, kind: Any, document: dict[str, Any]) -> Any:
        is_page = typing.get_origin(kind) is tuple
        value = document.get("items") if is_page else document
        return self._api.decode(kind, value, **pool_operations.names())


def _make(operation: pool_operations.Operation) -> Any:
    signature = inspect.signature(operation.call)

    @functools.wraps(operation.call)
    def call(self: RemotePools, *arguments: Any, **named: Any) -> Any:
        bound = signature.bind(self, *arguments, **named)
        bound.apply_defaults()
        sent = {n: v for n, v in bound.arguments.items() if n not in pool_operations.HERE}
        return self.send(operation, sent)

    return call


for _operation in pool_operations.OPERATIONS:
    setattr(RemotePools, _operation.name, _make(_operation))
