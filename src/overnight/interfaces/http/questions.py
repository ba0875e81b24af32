"""Questions about many hosts, with the parameters and documents of the commands of the same name."""

from __future__ import annotations

import dataclasses

import fastapi
from starlette.requests import Request

from overnight.app import fleet_questions
from overnight.interfaces.http import operations as ops

ROUTER = ops.Router(prefix="/api/v1/questions", tags=["questions"])
QUESTIONS = {
    "cohorts": "Which labels do events of a kind follow?",
    "hazard": "How does the rate of a kind depend on uptime?",
    "drift": "What differs between hosts that fail and others?",
    "compare": "Did the rate of events change?",
    "findings": "What do all detectors answer about a kind?",
}
TEXT = {"type": "string"}


def _add(name: str, summary: str) -> None:
    question = fleet_questions.find_question(name)
    parameters = [
        {
            "name": field.name,
            "in": "query",
            "description": f"As `overnight {name}` takes it.",
            "schema": TEXT if field.type == "str" else {"type": "array", "items": TEXT},
        }
        for field in dataclasses.fields(question.request)
    ]

    def answer(request: Request, server: ops.Served, _: ops.Viewer) -> fastapi.Response:
        query = request.query_params
        document = server.ask(name, {key: query.getlist(key) for key in query})
        return fastapi.Response(document, media_type="application/json")

    answer.__doc__ = f"{summary}\n\nThe answer is the document {question.schema} of the command."
    ROUTER.get(f"/{name}", name=f"ask_{name}", openapi_extra={"parameters": parameters})(answer)


for _name, _summary in QUESTIONS.items():
    _add(_name, _summary)
