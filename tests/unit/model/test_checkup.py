from __future__ import annotations

import pytest

from overnight.model.checkup import Checkup, Question

QUESTION = Question("perf", "perf", "because")


def test_a_problem_without_a_fix_is_refused() -> None:
    with pytest.raises(ValueError, match="has no fix"):
        QUESTION.missing("nothing", "")


def test_recording_needs_profiles_or_signals() -> None:
    for profiles, signals in ((True, False), (False, True)):
        assert Checkup("h", {}, profiles, signals).can_record
    assert not Checkup("h", {}, profiles=False, signals=False).can_record
