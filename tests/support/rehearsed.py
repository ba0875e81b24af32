"""A rehearsal on a machine that others may use, too: its plumbing always, its verdict where the core was quiet.

Other work that saturates the victim's core before the fault leaves nothing for the diagnosis to find: the core was
saturated all the time. Recorded rehearsals (tests/scenarios/test_recorded.py) hold the verdict to the truth in
any case.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any
from unittest import mock

import noise

from overnight import errors
from overnight.app import rehearsal, rehearsal_host, scoreboard
from overnight.model import cpu as cpushares
from overnight.sources import cpu
from overnight.undo import journal

__all__ = ["rehearse"]

SEED_STEP = 100
MAX_DISTURBED = 2
# The victim uses 68 to 75 % of its core before the fault.
QUIET_SHARE = 0.88


class _Baseline:
    """How busy the victim's core was in the baseline, the victim included."""

    def __init__(self, core: int) -> None:
        self._core = str(core)
        self._read = cpu.open_ticks()
        self._ticks: list[Sequence[int]] = []
        self._crowd: rehearsal_host.Crowd | None = None
        self.others: list[str] = []

    def on_progress(self, progress: rehearsal.Progress) -> None:
        inside = progress.phase == "baseline"
        if progress.phase and inside == (not self._ticks) and len(self._ticks) < 2:
            self._ticks.append(self._read()[self._core])
            if self._crowd is not None:
                self.others = self._crowd.describe()[:3]
            self._crowd = rehearsal_host.Crowd(os.environ[journal.MARK])

    @property
    def busy(self) -> float:
        shares = cpushares.tick_shares(cpushares.tick_changes(*self._ticks))
        assert shares is not None
        return shares.busy + shares.steal


def _with_baseline(seconds: float | None) -> contextlib.AbstractContextManager[object]:
    """Let plans have a baseline of that length during the block."""
    if seconds is None:
        return contextlib.nullcontext()
    draw = rehearsal_host.draw

    def draw_with(*plan: Any, **options: Any) -> rehearsal_host.Plan:
        return dataclasses.replace(draw(*plan, **options), baseline=seconds)

    return mock.patch.object(rehearsal_host, "draw", draw_with)


def rehearse(
    name: str,
    seed: int,
    home: pathlib.Path,
    *,
    need_verdict: bool = False,
    brief: bool = True,
    baseline_seconds: float | None = None,
) -> scoreboard.Outcome:
    """Return the first right outcome; a wrong one fails unless the measured noise of others explains it.

    Even then no false cause may be claimed. Such runs are repeated, and then fail with `need_verdict`; without
    it the last one is returned, with a warning that names the noise. A host too busy for a run at all fails, too.
    """
    disturbed: list[str] = []
    while True:
        core = noise.find_quietest_core()
        baseline = _Baseline(core)
        try:
            with _with_baseline(baseline_seconds):
                outcome = rehearsal.rehearse(
                    rehearsal.find(name),
                    seed=seed + SEED_STEP * len(disturbed),
                    home=home,
                    brief=brief,
                    core=core,
                    on_progress=baseline.on_progress,
                )
        except errors.CannotError as error:
            disturbed.append(f"{error.what}: {error.why}")
            if "busy" not in f"{error.todo}" or len(disturbed) > MAX_DISTURBED:
                raise AssertionError("\n".join(disturbed)) from error
            continue
        assert outcome.leftovers == (), outcome.leftovers
        text = f"seed {outcome.seed}: {'; '.join((*outcome.problems, *outcome.disturbances))}"
        if outcome.correct and not outcome.problems:
            assert outcome.rank == 1
            return outcome
        assert baseline.busy > QUIET_SHARE or outcome.disturbances, text
        assert not _claimed(outcome) & outcome.expected.absent, text
        others = ", ".join(baseline.others) or "many short ones"
        disturbed.append(
            f"core {core} was {baseline.busy:.0%} busy before the fault; other processes: {others}; {text}"
        )
        if len(disturbed) >= MAX_DISTURBED:
            noisy = "noisy host, the verdict is not checked:\n" + "\n".join(disturbed)
            assert not need_verdict, noisy
            warnings.warn(noisy, stacklevel=2)
            return outcome


def _claimed(outcome: scoreboard.Outcome) -> set[str]:
    chain = outcome.diagnosis.verdict.chain if outcome.diagnosis else None
    return {step.kind for step in chain.steps} if chain else set()
