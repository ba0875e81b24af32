"""A stage without a victim, in a folder of the test."""

from __future__ import annotations

import contextlib
import pathlib
import random
import threading
from collections.abc import Iterator

from overnight import rehearsals
from overnight.undo import journal

__all__ = ["make_stage"]


@contextlib.contextmanager
def make_stage(
    folder: pathlib.Path, seed: int = 1, core: int = 0, spare: int = 1
) -> Iterator[rehearsals.Stage]:
    """Create a stage; undo its changes and stop its fault at the end."""
    with journal.Journal("a test", folder / "undo") as run_journal:
        stage_folder = folder / f"{run_journal.run}-stage-{seed}"
        stage_folder.mkdir(exist_ok=True)
        stage = rehearsals.Stage(
            seed=seed,
            core=core,
            spare=spare,
            home=folder,
            folder=stage_folder,
            journal=run_journal,
            chance=random.Random(seed),
            stop=threading.Event(),
            brief=True,
            interface="eth1",
            queue=3,
        )
        try:
            yield stage
        finally:
            stage.stop.set()
            for thread in stage.ending:
                thread.join(10)
