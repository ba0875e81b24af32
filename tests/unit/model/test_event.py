"""Which kinds are built in: every other one is an outcome of an application."""

from __future__ import annotations

import pathlib
import re

import overnight
from overnight.model import event
from overnight.sources.kernelrules import rulefiles

WATCHES = pathlib.Path(overnight.__file__).parent / "agent/watches"


def test_everything_that_the_recorder_reports_is_built_in() -> None:
    texts = [path.read_text() for path in WATCHES.glob("*.py")]
    watched = {kind for text in texts for kind in re.findall(r'"([a-z]+\.[a-z]+_[a-z_]+|net\.[a-z_]+|limit\.near)"', text)}  # fmt: skip
    kinds = {rule.kind for rule in rulefiles.built_in()} | watched | {event.PANIC, event.UNCLEAN_REBOOT, event.IMPORTED}  # fmt: skip
    assert len(kinds) > 40
    assert [kind for kind in sorted(kinds) if event.is_outcome(kind)] == []


def test_other_kinds_are_outcomes() -> None:
    for kind in ("job.failed", "invoice.late", "incident.reported", "network.slow"):
        assert event.is_outcome(kind)
