"""Pools and reservations: each operation of `app.operations`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import inspect
import threading
import time
import types
import typing
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import fastapi
import pydantic
from starlette.requests import Request

from overnight.app import operations, serving
from overnight.interfaces.http import access, problems
from overnight.interfaces.http import operations as ops
from overnight.model.control_plane import Principal, Role

ROUTER = ops.router()
AT_ONCE = 32
POLL_SECONDS = 1.0
STRICT = pydantic.ConfigDict(extra="forbid")
# With assistants: the server has people confirm what they ask for.
ROLES: dict[Role, Any] = {
    role: Annotated[Principal, fastapi.Depends(access.require(role))]
    for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
}
NO_NUL = r"^[^\x00]*$"  # PostgreSQL cannot hold it, nor integers of more than 64 bits
LIMITED: dict[Any, Any] = {
    str: Annotated[str, pydantic.Field(max_length=4096, pattern=NO_NUL)],
    int: Annotated[int, pydantic.Field(ge=-(1 << 31), lt=1 << 31)],
    float: Annotated[float, pydantic.Field(allow_inf_nan=False)],
}
SIZE = Annotated[int, pydantic.Field(ge=0, lt=1 << 62)]  # in a document
PATH = Annotated[str, fastapi.Path(max_length=255, pattern=NO_NUL)]
QUERY: dict[Any, Any] = {int: Annotated[int, fastapi.Query(ge=0, lt=1 << 31)]}


class Slots:
    """Threads for changes, which may wait for a member or a provider; refuses more than `count` at once.

    They are not the threads of other requests, and a server that stops does not wait for them.
    """

    def __init__(self, count: int = AT_ONCE) -> None:
        self._free = threading.BoundedSemaphore(count)

    async def run(
        self, call: Callable[[Callable[[], bool]], Any], is_gone: Callable[[], Awaitable[bool]]
    ) -> Any:
        """Return `call(gone)` from a thread; `gone()` is true when the client is, or after an hour."""
        if not self._free.acquire(blocking=False):
            raise problems.HttpError(503, "too many changes at once")
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        done.set_running_or_notify_cancel()  # from now on only its thread ends it
        done.add_done_callback(lambda _: self._free.release())
        left = threading.Event()
        deadline = time.monotonic() + operations.MAX_WAIT_SECONDS

        def work() -> None:
            try:
                done.set_result(call(lambda: left.is_set() or time.monotonic() > deadline))
            except Exception as error:
                done.set_exception(error)

        try:
            threading.Thread(target=work, name="operation", daemon=True).start()
        except RuntimeError as error:  # this process may not have more threads
            done.set_exception(error)
        answer = asyncio.wrap_future(done)
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
        sizes = {f.name: SIZE for f in dataclasses.fields(kind) if f.metadata.get("unit") == "size"}
        fields = {
            f.name: (sizes.get(f.name) or _strict(hints[f.name]), _default(f))
            for f in dataclasses.fields(kind)
        }
        return pydantic.create_model(kind.__name__, __doc__=kind.__doc__, __config__=STRICT, **fields)  # type: ignore[call-overload]  # fmt: skip
    origin, inner = typing.get_origin(kind), tuple(map(_strict, typing.get_args(kind)))
    if origin is types.UnionType:
        return typing.Union[inner]  # noqa: UP007  `|` cannot join a tuple of types
    return origin[inner] if origin else LIMITED.get(kind, kind)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return pydantic.Field(default_factory=field.default_factory)
    return ... if field.default is dataclasses.MISSING else field.default


def _value(kind: Any, sent: Any) -> Any:
    """Return the value that the use case takes, of the one that was validated."""
    if isinstance(sent, pydantic.BaseModel):
        made: Any = next(filter(dataclasses.is_dataclass, (kind, *typing.get_args(kind))))
        hints = typing.get_type_hints(made)
        return made(**{name: _value(hints[name], value) for name, value in vars(sent).items()})
    if isinstance(sent, tuple):
        item, *_ = typing.get_args(kind) or (Any,)
        return tuple(_value(item, each) for each in sent)
    return sent


def _run(
    operation: operations.Operation,
    server: serving.Server,
    by: Principal,
    why: str,
    given: dict[str, Any],
    is_gone: Callable[[], bool] = lambda: False,
    *,
    only_ask: bool = False,
) -> fastapi.Response:
    result = server.run(operation, given, by, is_gone, why, only_ask=only_ask)
    return ops.answer(operations.document(result))


def _add(operation: operations.Operation) -> None:
    parameters = operation.parameters
    taken = [_parameter("server", ops.Served), _parameter("by", ROLES[operation.role])]
    taken += [_parameter(name, PATH) for name in operation.path_names]
    if operation.method == "GET":
        taken += [_parameter(n, QUERY.get(kind, kind), default) for n, (kind, default) in parameters.items()]  # fmt: skip
    elif parameters:
        fields = {n: (_strict(kind), default) for n, (kind, default) in parameters.items()}
        title = "".join(word.title() for word in operation.name.split("_"))
        title += operation.noun.title()
        taken.append(_parameter("body", pydantic.create_model(title, __config__=STRICT, **fields)))  # type: ignore[call-overload]  # fmt: skip

    def collect(values: dict[str, Any]) -> dict[str, Any]:
        body = values.pop("body", None)
        if body is None:
            return values
        return values | {n: _value(kind, getattr(body, n)) for n, (kind, _) in parameters.items()}

    def read(server: serving.Server, by: Principal, **values: Any) -> fastapi.Response:
        return _run(operation, server, by, "", collect(values))

    async def change(
        request: Request, server: serving.Server, by: Principal, why: str, **values: Any
    ) -> fastapi.Response:
        slots: Slots = request.app.state.slots
        given = collect(values)
        only_ask = request.headers.get(operations.ASSISTANT) == operations.ASK
        answer: fastapi.Response = await slots.run(
            lambda gone: _run(operation, server, by, why, given, gone, only_ask=only_ask),
            request.is_disconnected,
        )
        return answer

    handler: Callable[..., Any] = change if operation.waits else read
    if operation.waits:
        taken += [_parameter("request", Request), _parameter("why", ops.Why, "")]
    handler.__doc__ = operation.call.__doc__
    handler.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]  # what FastAPI reads
    kind = operation.answer
    if typing.get_origin(kind) is tuple:
        kind = ops.Listed[typing.get_args(kind)[0]]  # type: ignore[misc]
    ROUTER.add_api_route(
        operation.path, handler, methods=[operation.method], response_model=kind,
        name=f"{operation.noun}_{operation.name}", tags=[operation.area],
    )  # fmt: skip


def _parameter(name: str, kind: Any, default: Any = ...) -> inspect.Parameter:
    value = inspect.Parameter.empty if default is ... else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=value)


for _operation in operations.OPERATIONS:
    _add(_operation)
