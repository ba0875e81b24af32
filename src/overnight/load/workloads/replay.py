"""Replay a recorded profile: each core is as busy, second by second, as it was when it was recorded."""

from __future__ import annotations

import array
import math
import os
import time
from typing import TYPE_CHECKING

from overnight import errors, load
from overnight.load import controller, profile

if TYPE_CHECKING:
    from overnight.load import worker
    from overnight.undo import journal

SPIN = range(2000)  # about 50 µs: far less than a period
LEAD = 1.0  # seconds for the workers to start; a late one joins in the middle


class Replay:
    name = "replay"
    about = "the busy share of each core and second of a recording (--profile)"
    takes = ("profile",)

    def metrics(self, options: load.Options) -> tuple[load.Metric, ...]:  # noqa: ARG002 - the same for all profiles
        """Judge the distance from the profile; the profile itself need not be constant."""
        return (
            load.Metric("cpu", "cores", "cpu", gated=False),
            load.Metric("wanted", "cores", "wanted", gated=False),
            load.Metric("error", "cores", "error"),
        )

    def prepare(self, options: load.Options, journal: journal.Journal) -> tuple[load.Job, ...]:  # noqa: ARG002 - changes nothing
        if options.profile is None:
            raise errors.UsageError(
                "workload replay needs --profile",
                why="it replays a recording",
                todo="overnight cpu -b TIME -e +10m -O json > profile.json; overnight load replay --profile profile.json",
            )
        recorded = options.profile
        pairs, _ = profile.map_cores(tuple(recorded.shares), options.cores)
        # On a boundary of periods, so that a new second begins with a new budget.
        start = float(math.ceil(time.monotonic() + LEAD))
        return tuple(
            self._job(options, core, recorded.shares[source], start)
            for core, source in pairs.items()
        )

    def _job(
        self, options: load.Options, core: int, shares: tuple[float, ...], start: float
    ) -> load.Job:
        # Not in the settings: an argument is limited to 128 KiB.
        file = os.memfd_create("overnight-profile")
        with os.fdopen(os.dup(file), "wb") as out:
            out.write(array.array("d", shares).tobytes())
        name = f"{options.name or 'replay'}-{core}"
        settings = {"file": file, "start": start}
        track = profile.Track(shares, start)
        return load.Job(name, (core,), settings, files=(file,), wanted=track.wanted)

    def work(self, link: worker.Link) -> None:
        shares = array.array("d")
        file = link.settings["file"]
        shares.frombytes(os.pread(file, os.fstat(file).st_size, 0))
        track = profile.Track(shares, link.settings["start"])
        link.ready()
        time.sleep(max(link.settings["start"] - time.monotonic(), 0))
        first = track.share(time.monotonic())
        pacer = controller.Pacer(first, follow=track.share)
        while True:
            for _ in SPIN:
                pass
            pacer.rest()


WORKLOAD = Replay()
