"""The document for programs: `Verdict.as_json`, and it fits the schema that is documented."""

from __future__ import annotations

import io
import json
import math
import pathlib
from typing import TYPE_CHECKING

import jsonschema
import pytest
import verdicts

from overnight.reports.diagnosis import json as documents

if TYPE_CHECKING:
    from overnight.model.verdict import Verdict

SCHEMA = json.loads(
    (pathlib.Path(__file__).parents[4] / "docs/schemas/diagnosis-1.json").read_text()
)


def written(told: Verdict) -> bytes:
    file = io.BytesIO()
    documents.write(told, file)
    return file.getvalue()


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize("name", verdicts.ALL)
def test_every_verdict_fits_the_schema(name: str) -> None:
    told, _ = verdicts.ALL[name]()
    data = written(told)
    document = json.loads(data, parse_constant=refuse)
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(document, SCHEMA)
    assert data.isascii()
    assert set(document) == set(SCHEMA["required"]) == set(SCHEMA["properties"])


def test_it_is_what_the_verdict_says() -> None:
    told, _ = verdicts.reference()
    document = json.loads(written(told))
    assert document == json.loads(json.dumps(told.as_json()))
    assert document["verdict"]["chain"][0]["kind"] == "unit.hidden_crash_loop"
    assert document["verdict"]["chain"][2]["subject"]["core"] == 39


def test_a_word_that_the_schema_does_not_know_is_refused() -> None:
    document = json.loads(written(verdicts.reference()[0]))
    for change in (
        lambda one: one["verdict"].update(status="maybe"),
        lambda one: one["verdict"].update(confidence=1.2),
        lambda one: one.update(more=1),
        lambda one: one["gaps"][0].pop("factor"),
        lambda one: one["verdict"]["chain"][0]["subject"].update(core=-1),
    ):
        broken = json.loads(json.dumps(document))
        change(broken)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, SCHEMA)


def test_numbers_that_json_cannot_hold_are_null() -> None:
    told, _ = verdicts.hostile()
    step = json.loads(written(told), parse_constant=refuse)["findings"][0]
    assert step["magnitude"]["odd"] is None
    assert step["evidence"][0]["values"]["nan"] is None
    assert math.isinf(told.findings[0].magnitude["odd"])
