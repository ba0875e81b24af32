"""Warm pools, their members and claims: each operation of `app.pool_operations`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import threading
import time
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any

import fastapi
import pydantic
from starlette.requests import Request

from overnight.app import pool_operations, serving
from overnight.interfaces.http import access, problems
from overnight.interfaces.http import operations as ops
from overnight.model.control_plane import Principal, Role

ROUTER = ops.router()
AT_ONCE = 32
POLL_SECONDS = 1.0
STRICT = pydantic.ConfigDict(extra="forbid")
ROLES: dict[Role, Any] = {
    Role.VIEWER: ops.Viewer,
    Role.OPERATOR: ops.Operator,
    Role.ADMIN: ops.Admin,
}
NO_NUL = r"^[^\x00]*$"  # PostgreSQL cannot hold it, nor integers of more than 64 bits
LIMITED: dict[Any, Any] = {
    str: Annotated[str, pydantic.Field(max_length=4096, pattern=NO_NUL)],
    int: Annotated[int, pydantic.Field(ge=-(1 << 31), lt=1 << 31)],
    float: Annotated[float, pydantic.Field(allow_inf_nan=False)],
}

QUERY: dict[Any, Any] = {int: Annotated[int, fastapi.Query(ge=0, lt=1 << 31)]}


class Slots:
    """Threads for changes of pools, which may wait for a member or a provider; refuses more than `count` at once.

    They are not the threads of other requests, and a server that stops does not wait for them.
    """

    def __init__(self, count: int = AT_ONCE) -> None:
        self._free = count

    async def run(
        self, call: Callable[[Callable[[], bool]], Any], is_gone: Callable[[], Any]
    ) -> Any:
        """Return `call(gone)` from a thread; `gone()` is true when the client is, or after an hour."""
        if not self._free:
            raise problems.HttpError(503, "too many changes of pools at once")
        loop, left = asyncio.get_running_loop(), threading.Event()
        answer: asyncio.Future[Any] = loop.create_future()
        deadline = time.monotonic() + pool_operations.MAX_WAIT_SECONDS

        def finish(result: Any, error: Exception | None) -> None:
            self._free += 1
            if not answer.cancelled():
                answer.set_exception(error) if error else answer.set_result(result)

        def work() -> None:
            result, problem = None, None
            try:
                result = call(lambda: left.is_set() or time.monotonic() > deadline)
            except Exception as error:
                problem = error
            with contextlib.suppress(RuntimeError):  # the server has stopped
                loop.call_soon_threadsafe(finish, result, problem)

        self._free -= 1
        threading.Thread(target=work, name="pool operation", daemon=True).start()
        try:
            while not answer.done():
                await asyncio.wait([answer], timeout=POLL_SECONDS)
                if not answer.done() and await is_gone():
                    left.set()
            return answer.result()
        finally:
            left.set()
            answer.cancel()


def _strict(kind: Any) -> Any:
    """Return a type of a request that refuses unknown fields and values that the database cannot hold."""
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        hints = typing.get_type_hints(kind)
        fields = {f.name: (_strict(hints[f.name]), _default(f)) for f in dataclasses.fields(kind)}
        return pydantic.create_model(kind.__name__, __doc__=kind.__doc__, __config__=STRICT, **fields)  # type: ignore[call-overload]  # fmt: skip
    origin, inner = typing.get_origin(kind), tuple(map(_strict, typing.get_args(kind)))
    if origin is types.UnionType:
        return typing.Union[inner]  # noqa: UP007  there is no other way to build one
    return origin[inner] if origin else LIMITED.get(kind, kind)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return pydantic.Field(default_factory=field.default_factory)
    return ... if field.default is dataclasses.MISSING else field.default


def _value(kind: Any, sent: Any) -> Any:
    """Return the value that the use case takes, of the one that was validated."""
    return kind(**vars(sent)) if isinstance(kind, type) and dataclasses.is_dataclass(kind) else sent


def _described(kind: Any) -> Any:
    """Return a type of an answer for the OpenAPI document; those of `app` name types that only checkers import."""
    if typing.get_origin(kind) is tuple:
        return ops.Listed[typing.get_args(kind)[0]]  # type: ignore[misc]
    if not dataclasses.is_dataclass(kind) or kind.__module__.startswith("overnight.model."):
        return kind
    assert isinstance(kind, type)
    hints = typing.get_type_hints(kind, localns=pool_operations.names())
    fields = {name: (_nested(hint), ...) for name, hint in hints.items()}
    return pydantic.create_model(kind.__name__, __doc__=kind.__doc__, **fields)  # type: ignore[call-overload]


def _nested(kind: Any) -> Any:
    return kind if typing.get_origin(kind) else _described(kind)


def _run(
    operation: pool_operations.Operation,
    server: serving.Server,
    by: Principal,
    why: str,
    given: dict[str, Any],
    is_gone: Callable[[], bool] = lambda: False,
) -> fastapi.Response:
    asked = given.get("request")
    if asked is not None:
        pool_operations.check_wait(asked)
    result = pool_operations.run(server.pools, operation, given, is_gone)
    if operation.changes:
        target = " ".join(str(given[name]) for name in operation.path_names or ("name",))
        reason = why or getattr(asked, "acquired_for", "")
        server.fleet.audit(access.who(by), f"pool.{operation.name}", target, reason[:500])
    return ops.answer(pool_operations.document(result))


def _add(operation: pool_operations.Operation) -> None:
    parameters = operation.parameters
    names = {
        name: Annotated[str, fastapi.Path(max_length=255, pattern=NO_NUL)]
        for name in operation.path_names
    }
    declared: dict[str, tuple[Any, Any]] = {}
    if operation.method == "GET":
        declared = {
            n: (QUERY.get(kind, kind), default) for n, (kind, default) in parameters.items()
        }
    elif parameters:
        fields = {n: (_strict(kind), default) for n, (kind, default) in parameters.items()}
        title = "".join(word.title() for word in operation.name.split("_")) + "Pool"
        body = pydantic.create_model(title, __config__=STRICT, **fields)  # type: ignore[call-overload]
        declared = {"body": (body, ...)}

    def collect(values: dict[str, Any]) -> dict[str, Any]:
        body = values.pop("body", None)
        if body is None:
            return values
        return values | {n: _value(kind, getattr(body, n)) for n, (kind, _) in parameters.items()}

    def read(server: ops.Served, by: Principal, **values: Any) -> fastapi.Response:
        return _run(operation, server, by, "", collect(values))

    async def change(
        request: Request, server: ops.Served, by: Principal, why: str, **values: Any
    ) -> fastapi.Response:
        slots: Slots = request.app.state.slots
        given = collect(values)
        answer: fastapi.Response = await slots.run(
            lambda gone: _run(operation, server, by, why, given, gone), request.is_disconnected
        )
        return answer

    shared: dict[str, tuple[Any, Any]] = {
        "server": (ops.Served, ...),
        "by": (ROLES[operation.role], ...),
        **{name: (kind, ...) for name, kind in names.items()},
        **declared,
    }
    handler: Callable[..., Any] = read
    if operation.changes:
        handler = change
        shared = {"request": (Request, ...), **shared, "why": (ops.Why, "")}
    handler.__doc__ = inspect.cleandoc(operation.call.__doc__ or "")
    handler.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what FastAPI reads
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=kind,
                default=inspect.Parameter.empty if default is ... else default,
            )
            for name, (kind, default) in shared.items()
        ]
    )
    add = getattr(ROUTER, operation.method.lower())
    ops.described(add, operation.path, "pools", _described(operation.answer), name=f"pool_{operation.name}")(handler)  # fmt: skip


for _operation in pool_operations.OPERATIONS:
    _add(_operation)
