"""Write docs/schemas/plan-1.json and the table of keys in docs/investigations.md from the types of a plan."""

from __future__ import annotations

import dataclasses
import enum
import json
import pathlib
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from overnight.investigations import plan_file
from overnight.model import plan as plans

DOCS = pathlib.Path(__file__).parents[1] / "docs"
HEAD = "| key | default | meaning |\n|---|---|---|\n"
TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
NO_FIELD: Mapping[str, Any] = {"unit": None, "least": None}


def schema() -> dict[str, Any]:
    """Return the JSON schema of plan files, for editors."""
    document = _describe(plans.Plan)
    document["properties"] = {"schema": {"const": plans.SCHEMA}, **document["properties"]}
    head = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": head, "title": "a plan of overnight run", **document}


def _describe(kind: Any, field: Mapping[str, Any] = NO_FIELD) -> dict[str, Any]:
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return {"type": "array", "items": _describe(inner[0])}
    if inner:  # a mapping
        return {"type": "object", "additionalProperties": _describe(inner[1])}
    if dataclasses.is_dataclass(kind):
        fields = plan_file.list_fields(kind)
        required = [key for each, key, _ in fields if plan_file.is_required(each)]
        return {
            "description": (kind.__doc__ or "").strip(),
            "type": "object",
            "properties": {key: _describe_key(each, hint) for each, key, hint in fields},
            **({"required": required} if required else {}),
            "additionalProperties": False,
        }
    if issubclass(kind, enum.Enum):
        return {"enum": [str(each) for each in kind]}
    limit = {} if field["least"] is None else {"minimum": field["least"]}
    return {"type": ["number", "string"] if field["unit"] else TYPES[kind], **limit}


def _describe_key(field: dataclasses.Field[Any], hint: Any) -> dict[str, Any]:
    described = {"description": field.metadata["about"], **_describe(hint, field.metadata)}
    default = field.default
    if isinstance(default, (str, int, float)) and default != "":
        described["default"] = plan_file.write_value(default, field.metadata["unit"])
    return described


def list_rows(document: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Yield the line of each key in the table, such as `hosts.count`."""
    for name, key in document["properties"].items():
        inner = key.get("items", key)
        if "properties" in inner:
            yield from list_rows(inner, f"{where}{name}{'[]' if 'items' in key else ''}.")
        elif "const" not in key:
            is_required = name in document.get("required", ())
            default = key.get("default", "required" if is_required else "")
            shown = default if isinstance(default, str) else json.dumps(default)
            yield f"| `{where}{name}` | {shown} | {key['description']} |\n"


def main() -> None:
    document = schema()
    (DOCS / "schemas/plan-1.json").write_text(json.dumps(document, indent=2) + "\n")
    page = DOCS / "investigations.md"
    before, _, after = page.read_text().partition(HEAD)
    page.write_text(before + HEAD + "".join(list_rows(document)) + after[after.index("\n\n") + 1 :])


if __name__ == "__main__":
    main()
