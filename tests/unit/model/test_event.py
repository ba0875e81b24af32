"""Which kinds are built in: every other one is an outcome of an application."""

from __future__ import annotations

from overnight.app import event_kinds
from overnight.model import event


def test_everything_that_overnight_reports_is_built_in() -> None:
    kinds = event_kinds.find_known()
    assert len(kinds) > 40
    assert [kind for kind in kinds if event.is_outcome(kind)] == []


def test_other_kinds_are_outcomes() -> None:
    for kind in ("job.failed", "invoice.late", "incident.reported", "network.slow"):
        assert event.is_outcome(kind)
