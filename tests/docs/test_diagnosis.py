"""docs/diagnosis.md lists what clears each detector and suspect, and how old that may be."""

from __future__ import annotations

import pathlib

from overnight.app import diagnose
from overnight.diagnosis import suspects
from overnight.queries import freshness

PAGE = (pathlib.Path(__file__).parents[2] / "docs/diagnosis.md").read_text()


def limits(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}` {freshness.max_age_us(name) / 1e6:g} s" for name in names)


def test_the_table_of_ages_is_that_of_the_code() -> None:
    rows = [
        f"| {detector.name} | {'; '.join(' or '.join(limits((need,)) for need in group) for group in detector.clears_by)} |"
        for detector in diagnose.discover_detectors()
        if detector.clears_by
    ]
    rows += [f"| suspect {check.title} | {limits(check.signals)} |" for check in suspects.CHECKS]
    table = "\n".join(rows)
    assert table in PAGE, table
