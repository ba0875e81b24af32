"""Questions about many hosts, with the parameters and documents of the commands of the same name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import fastapi
from starlette.requests import Request

from overnight.app import fleet_questions
from overnight.interfaces.http import access, fleet

ROUTER = fastapi.APIRouter(prefix="/api/v1/questions", tags=["questions"])
QUESTIONS = {
    "cohorts": "Which labels do events of a kind follow?",
    "hazard": "How does the rate of a kind depend on uptime?",
    "drift": "What differs between hosts that fail and others?",
    "compare": "Did the rate of events change?",
    "findings": "What do all detectors answer about a kind?",
}


def _add(name: str, summary: str) -> None:
    question = fleet_questions.find_question(name)
    parameters = [
        {
            "name": field.name,
            "in": "query",
            "description": f"As `overnight {name}` takes it.",
            "schema": {"type": "string"} if field.type == "str" else {"type": "array", "items": {"type": "string"}},
        }
        for field in dataclasses.fields(question.request)
    ]  # fmt: skip
    about = f"The document that `overnight {name} -O json` prints ({question.schema})."
    content = {
        "application/json": {
            "schema": {"type": "object", "properties": {"schema": {"const": question.schema}}}
        }
    }
    responses: dict[int | str, dict[str, Any]] = {200: {"description": about, "content": content}}
    ROUTER.add_api_route(
        f"/{name}", _answer(name), methods=["GET"], name=f"ask_{name}", summary=summary,
        responses=responses, openapi_extra={"parameters": parameters},
    )  # fmt: skip


def _answer(name: str) -> Callable[..., fastapi.Response]:
    def answer(request: Request, _: fleet.Viewer) -> fastapi.Response:
        query = request.query_params
        document = access.service(request).ask(name, {key: query.getlist(key) for key in query})
        return fastapi.Response(document, media_type="application/json")

    return answer


for _name, _summary in QUESTIONS.items():
    _add(_name, _summary)
