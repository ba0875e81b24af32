"""Fixtures: two hosts of different size over several segments, and their samples."""

from __future__ import annotations

import captures
import pytest

from overnight.model.selection import Selection


@pytest.fixture(scope="session")
def night(tmp_path_factory: pytest.TempPathFactory) -> captures.Night:
    samples = {
        "alpha": captures.random_samples(
            1, 900, begin=captures.BEGIN, end=captures.END, cores=(0, 1, 2, 3), events=2
        ),
        "beta": captures.random_samples(
            2, 500, begin=captures.BEGIN, end=captures.END, cores=(0, 1)
        ),
    }
    cores = {"alpha": (0, 1, 2, 3), "beta": (0, 1)}
    built = [
        captures.build(
            samples[host],
            host=host,
            begin=captures.BEGIN,
            end=captures.END,
            cores=cores[host],
            events=("cpu-clock", "page-faults")[: 2 if host == "alpha" else 1],
        )
        for host in samples
    ]
    source = captures.store(tmp_path_factory.mktemp("night"), *built)
    return captures.Night(source, samples, {"alpha": 4, "beta": 2}, 100)


SELECTIONS = {
    "all": Selection(),
    "idle too": Selection(idle=True),
    "core": Selection(cores=(1,)),
    "two cores, one unknown": Selection(cores=(0, 77)),
    "process": Selection(process="^nginx$"),
    "process with digits": Selection(process="cc1plus"),
    "thread": Selection(thread="worker [1]"),
    "unit": Selection(unit=r"\.service$"),
    "nobody": Selection(process="no such"),
    "function": Selection(function="^malloc$"),
    "function with a plus": Selection(function=r"operator\+"),
    "function that looks like a process": Selection(function="nginx"),
    "kernel": Selection(side="kernel"),
    "user": Selection(side="user", idle=True),
    "other event": Selection(event=1),
    "first event by name": Selection(event="cpu-clock"),
    "everything at once": Selection(
        cores=(0, 1, 2), process="nginx|cc", thread="[a-z]", function="main|parse", side="user", unit="."
    ),
}  # fmt: skip


@pytest.fixture(params=SELECTIONS)
def chosen(request: pytest.FixtureRequest) -> Selection:
    return SELECTIONS[request.param]
