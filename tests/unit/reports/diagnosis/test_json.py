"""JSON verdicts: the output of `Verdict.as_json`, which matches the documented schema."""

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


def render(verdict: Verdict) -> bytes:
    file = io.BytesIO()
    documents.write(verdict, file)
    return file.getvalue()


def refuse_constant(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


@pytest.mark.parametrize("name", verdicts.ALL)
def test_every_verdict_fits_the_schema(name: str) -> None:
    verdict, _ = verdicts.ALL[name]()
    data = render(verdict)
    document = json.loads(data, parse_constant=refuse_constant)
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(document, SCHEMA)
    assert data.isascii()
    assert set(document) == set(SCHEMA["required"]) == set(SCHEMA["properties"])


def test_it_is_the_verdict_as_json() -> None:
    verdict, _ = verdicts.reference()
    document = json.loads(render(verdict))
    assert document == json.loads(json.dumps(verdict.as_json()))
    assert document["verdict"]["chain"][0]["kind"] == "unit.hidden_crash_loop"
    assert document["verdict"]["chain"][2]["subject"]["core"] == 39


def test_the_schema_refuses_unknown_words_and_fields() -> None:
    document = json.loads(render(verdicts.reference()[0]))
    for change in (
        lambda copy: copy["verdict"].update(status="maybe"),
        lambda copy: copy["verdict"].update(confidence=1.2),
        lambda copy: copy.update(more=1),
        lambda copy: copy["gaps"][0].pop("factor"),
        lambda copy: copy["verdict"]["chain"][0]["subject"].update(core=-1),
    ):
        broken = json.loads(json.dumps(document))
        change(broken)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, SCHEMA)


def test_numbers_that_json_cannot_hold_are_null() -> None:
    verdict, _ = verdicts.hostile()
    step = json.loads(render(verdict), parse_constant=refuse_constant)["findings"][0]
    assert step["magnitude"]["odd"] is None
    assert step["evidence"][0]["values"]["nan"] is None
    assert math.isinf(verdict.findings[0].magnitude["odd"])
