"""The application: every operation, and the OpenAPI document that describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fastapi
import fastapi.openapi.utils

import overnight
from overnight.interfaces.http import (
    admin,
    agents,
    fleet,
    limits,
    pages,
    pools,
    problems,
    questions,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from overnight.app import serving

ABOUT = """Hosts, events, windows and tasks of a fleet.

Send a token with each request: `Authorization: Bearer TOKEN`. `overnight token create` makes one. A **viewer** reads,
an **operator** also gives tasks to hosts and claims members of pools, an **admin** also manages tokens, hosts and pools.

Lists have at most `limit` items; while `next` is not null, ask again with `cursor` set to it. Times are microseconds
since 1970 (UTC). Errors are problem documents (RFC 9457) that say what failed, why, and what to do. Unknown query
parameters are refused.
"""
TAGS = [
    {"name": "hosts", "description": "Hosts and their CPU time."},
    {"name": "events", "description": "Events, their windows and their diagnosis."},
    {"name": "tasks", "description": "What a host is asked to do; its agent.toml decides."},
    {"name": "questions", "description": "What differs between hosts that fail and others."},
    {"name": "pools", "description": "Warm pools, their members and claims."},
    {"name": "admin", "description": "Tokens and the audit log."},
    {"name": "agents", "description": "What agents send. Each has a credential of its own."},
    {"name": "server", "description": "State of the server."},
]


def create_app(server: serving.Server, allowed: limits.Limits | None = None) -> ASGIApp:
    """Return the application behind its limits."""
    app = build()
    app.state.server = server
    app.state.workers = agents.Workers()
    app.state.slots = pools.Slots()
    return limits.Gate(app, allowed or limits.Limits(), server.counters)


def build() -> fastapi.FastAPI:
    app = fastapi.FastAPI(
        title="overnight",
        version=overnight.__version__,
        description=ABOUT,
        openapi_url="/api/v1/openapi.json",
        openapi_tags=TAGS,
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    problems.install(app)
    for module in (agents, fleet, questions, pools, admin, pages):
        app.include_router(module.ROUTER)
    app.openapi = lambda: _describe(app)  # type: ignore[method-assign]
    return app


def _describe(app: fastapi.FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document: every operation may answer with a problem, none with FastAPI's 422."""
    if app.openapi_schema is None:
        document = fastapi.openapi.utils.get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            tags=app.openapi_tags,
            routes=app.routes,
        )
        parts = document.setdefault("components", {})
        schemas = parts.setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        schemas["ProblemDocument"] = problems.SCHEMA  # a pool has a Problem, too
        parts["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer", "description": "Token of a person or tool."},
            "credential": {"type": "http", "scheme": "bearer", "description": "Credential of an agent."},
        }  # fmt: skip
        problem = {
            "description": "The request was refused, or it failed.",
            "content": {problems.CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
        }  # fmt: skip
        for path, operations in document["paths"].items():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = problem
                if path.startswith(("/api/", "/reports", "/metrics")) and "agents" not in path:
                    operation.setdefault("security", [{"token": []}])
        app.openapi_schema = document
    return app.openapi_schema
