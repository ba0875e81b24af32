"""What operations of people and tools share: parameters, pages, and how they are described.

`response_model` only describes an answer: operations return responses, which FastAPI does not validate.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, TypeVar

import fastapi
import pydantic
from fastapi import Depends, Path, Query

from overnight.app import serving
from overnight.interfaces.http import access
from overnight.model.control_plane import Page, Principal, Role

Item = TypeVar("Item")
Served = Annotated[serving.Server, Depends(access.service)]
Viewer = Annotated[Principal, Depends(access.require(Role.VIEWER))]
Operator = Annotated[Principal, Depends(access.require(Role.OPERATOR, people=True))]
Admin = Annotated[Principal, Depends(access.require(Role.ADMIN, people=True))]
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


class Router(fastapi.APIRouter):
    """A router whose operations have the first line of their docstring as summary."""

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        summary, _, about = inspect.cleandoc(endpoint.__doc__ or "").partition("\n\n")
        options |= {"summary": summary.removesuffix("."), "description": about}
        options["response_description"] = summary
        super().add_api_route(path, endpoint, **options)


def router(**options: Any) -> Router:
    return Router(prefix="/api/v1", dependencies=[Depends(access.refuse_unknown)], **options)


def returns(*media: str) -> dict[str, Any]:
    """Return the options of an operation that does not answer with JSON alone."""
    answered: dict[str, Any] = {"content": {name: {"schema": {}} for name in media}}
    return {"response_class": fastapi.Response, "responses": {200: answered}}


def answer(document: object, status: int = 200) -> fastapi.Response:
    text = json.dumps(document, default=_plain)
    return fastapi.Response(text, status, media_type="application/json")


def page(found: Page[Any] | Sequence[object]) -> fastapi.Response:
    """Answer with a page of a list, or with a list that has only one."""
    items, following = (found.items, found.next) if isinstance(found, Page) else (found, "")
    return answer({"items": items, "next": following or None})


def _plain(value: Any) -> dict[str, object]:
    plain: dict[str, object] = value.as_json() if hasattr(value, "as_json") else vars(value)
    return plain
