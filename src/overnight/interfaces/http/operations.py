"""What operations of people and tools share: parameters, pages, and how they are described."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Generic, TypeVar

import fastapi
import pydantic
from fastapi import Depends, Path, Query
from fastapi.types import DecoratedCallable

from overnight.app import serving
from overnight.interfaces.http import access
from overnight.model.control_plane import Principal, Role

Item = TypeVar("Item")
Served = Annotated[serving.Server, Depends(access.service)]
Viewer = Annotated[Principal, Depends(access.require(Role.VIEWER))]
Operator = Annotated[Principal, Depends(access.require(Role.OPERATOR))]
Admin = Annotated[Principal, Depends(access.require(Role.ADMIN))]
Name = Annotated[str, Path(max_length=255, description="Name of the host.")]
EventId = Annotated[str, Path(max_length=128, description="Id of the event, or a prefix.")]
Sha256 = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="Digest of the bundle.")]
Host = Annotated[str, Query(max_length=255, description="Name of a host.")]
Time = Annotated[int, Query(ge=0, le=1 << 53, description="µs since 1970; 0: no limit.")]
Cursor = Annotated[str, Query(max_length=2000, description="`next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Items on a page.")]
Why = Annotated[
    str,
    fastapi.Header(alias="X-Overnight-Why", max_length=500, description="Reason, for the audit log."),
]  # fmt: skip


class Listed(pydantic.BaseModel, Generic[Item]):
    """A page of a list; `next` is the cursor of the next page, null on the last one."""

    items: list[Item]
    next: str | None = None


def router(**options: Any) -> fastapi.APIRouter:
    return fastapi.APIRouter(
        prefix="/api/v1", dependencies=[Depends(access.refuse_unknown)], **options
    )


def described(
    add: Callable[..., Any], path: str, tag: str, model: object = None,
    *, status: int = 200, media: tuple[str, ...] = (), responses: Mapping[int, Any] = MappingProxyType({}), **more: Any,
) -> Callable[[DecoratedCallable], DecoratedCallable]:  # fmt: skip
    """Return the decorator of an operation; `add` is a method of a router.

    The first line of its docstring is the summary. `model` and `media` describe the answer; nothing is validated
    on the way out.
    """

    def decorate(call: DecoratedCallable) -> DecoratedCallable:
        summary, _, about = inspect.cleandoc(call.__doc__ or "").partition("\n\n")
        answered: dict[str, Any] = {"description": summary}
        if model is not None:
            answered["model"] = model
        if media:
            answered["content"] = {name: {"schema": {}} for name in media}
        decorator = add(
            path, tags=[tag], summary=summary.removesuffix("."), description=about,
            status_code=status, responses={status: answered, **responses},
            response_class=fastapi.Response, **more,
        )  # fmt: skip
        decorator(call)
        return call

    return decorate


def answer(document: object, status: int = 200) -> fastapi.Response:
    return fastapi.Response(json.dumps(document), status, media_type="application/json")


def page(items: Iterable[dict[str, object]], following: str = "") -> fastapi.Response:
    return answer({"items": list(items), "next": following or None})
