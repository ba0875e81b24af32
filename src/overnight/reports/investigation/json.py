"""The report for programs; docs/schemas/investigation-report-1.json describes it."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, BinaryIO

from overnight.reports import investigation as package
from overnight.reports.diagnosis import json as diagnosis
from overnight.reports.investigation import wording

if TYPE_CHECKING:
    from overnight.queries import contrast


def write(report: package.Report, file: BinaryIO) -> None:
    """Write one document, ASCII, with a final newline; a number that JSON cannot hold is null."""
    plain = {name: diagnosis.plain(value) for name, value in document(report).items()}
    file.write(json.dumps(plain, indent=2, allow_nan=False).encode() + b"\n")


def document(report: package.Report) -> dict[str, Any]:
    missed = report.not_reproduced
    return {
        "schema": package.SCHEMA,
        "headline": wording.headline(report),
        "parts": [dataclasses.asdict(part) for part in wording.parts(report)],
        "investigation": report.investigation.as_json(),
        "contrast": {
            **dataclasses.asdict(dataclasses.replace(report.contrast, pairs=())),
            "pairs": [_pair(pair) for pair in report.contrast.pairs],
        },
        "verdicts": [
            {
                "event": each.occurrence.event,
                "kind": each.occurrence.kind,
                "host": each.occurrence.host,
                "report": each.report,
                "verdict": each.verdict.as_json() if each.verdict else None,
            }
            for each in report.diagnosed
        ],
        "differences": [
            {
                "arm": each.arm,
                "base": each.base,
                "denominator": each.denominator,
                "functions": each.functions.as_json(),
                "processes": [dataclasses.asdict(process) for process in each.processes],
            }
            for each in report.differences
        ],
        "not_reproduced": None
        if missed is None
        else {**dataclasses.asdict(missed), "hours_per_event": missed.hours_per_event},
        "next_plan": report.next_plan,
        "reservations": [reservation.as_json() for reservation in report.reservations],
        "not_possible": list(wording.list_limits(report)),
        "notes": [dataclasses.asdict(note) for note in report.notes],
        "written_us": report.written_us,
    }


def _pair(pair: contrast.Pair) -> dict[str, Any]:
    return {**dataclasses.asdict(pair), "outcome": str(pair.compared.outcome), "caveats": wording.list_caveats(pair)}  # fmt: skip
