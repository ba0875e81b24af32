"""Drafts become findings."""

from __future__ import annotations

from overnight.detectors import _base
from overnight.model.finding import Subject
from overnight.model.selection import Window


def test_numbers_are_rounded_and_small_ones_keep_four_digits() -> None:
    draft = _base.Draft("fleet.drift", Subject(), Window(0, 1), 0.5, "text")
    draft.magnitude.update(p_value=1 / 142_506, cores=0.009_999_999, share=2 / 3, items=51, none=0)
    draft.support("text", "events", p=1 / 142_506, events=51, path="a", unknown=None)
    draft.oppose("text", "host", p=1 / 3)
    finding = draft.finish("fleet.drift")
    assert finding.magnitude == {
        "p_value": 7.017e-06,
        "cores": 0.01,
        "share": 0.6667,
        "items": 51.0,
        "none": 0.0,
    }
    assert finding.evidence[0].values == {"p": 7.017e-06, "events": 51, "path": "a"}
    assert finding.against[0].values == {"p": 0.3333}
