"""Real programs of six mechanisms, and look-alikes, recorded at once: each gets its actor and mechanism.

The stacks of a program do not depend on what else runs. They are recorded on this host, however busy it is; a
made-up night, on which nothing else saturates a core, gives the rest of the evidence.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import noise
import pytest
from tests import mechanisms
from tests.mechanisms import programs, recording, results

import scenarios
from overnight import load
from overnight.agent import profiler
from overnight.app import diagnose, spool_ingest, spool_paths
from overnight.model.selection import Selection
from overnight.queries import flame, reader, top
from overnight.store import segments
from scenarios import work

pytestmark = [pytest.mark.needs_root, pytest.mark.alone, pytest.mark.timeout(240)]
SCENES = mechanisms.discover()
FAMILIES = (
    "smaps-reading", "page-faults", "mmap-churn", "futex-convoy", "pipe-ping-pong", "user-crypto",
)  # fmt: skip
KEYS = [results.Key(name, other, 0, 0) for name in FAMILIES for other in (False, True)]
SECONDS, FREQUENCY, WARM_SECONDS = 6.0, 499, 1.0


class Recorded(NamedTuple):
    expected: str  # regular expression of the actor
    name: str
    stacks: work.Stacks


@contextlib.contextmanager
def _running(folder: pathlib.Path, core: int) -> Iterator[dict[results.Key, programs.Built]]:
    """Run all programs on one core."""
    with contextlib.ExitStack() as stack:
        built = {}
        for key in KEYS:
            scene, place = SCENES[key.mechanism], folder / key.label
            place.mkdir()
            program = scene.lookalike if key.lookalike else scene.program
            assert program is not None
            name = programs.draw_name(random.Random(key.label), program)
            built[key] = programs.build(program, place, name, key.seed)
            process = programs.start(
                built[key], (str(place), str(core), ""),
                core=core, seconds=120, environment=dict(os.environ),
            )  # fmt: skip
            stack.enter_context(process)
            stack.callback(process.kill)
        yield built


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[results.Key, Recorded]:
    home = tmp_path_factory.mktemp("home")
    spool = spool_paths.spool_folder(home)
    spool.mkdir()
    core = noise.find_quietest_core()
    options = profiler.ProfilerOptions(
        spool, "native", FREQUENCY, seconds=SECONDS, segment_seconds=SECONDS / 2
    )
    with (
        noise.prefer_this_process(),
        tempfile.TemporaryDirectory() as folder,
        load.keep_off((core,)),
        _running(pathlib.Path(folder), core) as built,
    ):
        time.sleep(WARM_SECONDS)
        profiler.run(options, threading.Event())
        assert list(spool_ingest.Ingester(home, 1 << 40, 3600.0).run()) == []
    source = reader.Reader(segments.Catalogue(home))
    names = [row.name for row in top.top(source, source.extent(), limit=1000).rows]
    found = {}
    for key, program in built.items():
        (name,) = (name for name in names if re.fullmatch(program.actor, name))
        found[key] = Recorded(program.actor, name, _read_stacks(source, name))
    return found


def _read_stacks(source: reader.Reader, name: str) -> work.Stacks:
    tree = flame.flame(source, source.extent(), Selection(process=f"^{re.escape(name)}$"))
    paths: list[work.Path] = []
    for frame, parent in zip(tree.frame.tolist(), tree.parent.tolist(), strict=True):
        function = (tree.names[frame], tree.modules[frame], tree.kinds[frame])
        paths.append((*paths[parent], function) if parent >= 0 else ())  # the first is its name
    return tuple(
        (float(own), path)
        for own, path in zip(tree.own.tolist(), paths, strict=True)
        if own and path
    )


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.label)
def test_a_real_program_gets_its_actor_and_mechanism(
    recorded: dict[results.Key, Recorded], key: results.Key, tmp_path: pathlib.Path
) -> None:
    expected, name, stacks = recorded[key]
    night = scenarios.build(
        "busy-process", tmp_path, seed=4, minutes=6.0, cores=4, culprit=(name, stacks)
    )
    verdict, _ = diagnose.diagnose_event(night.home, night.event)
    row = results.Row(key.mechanism, key.lookalike, 0, 0, expected=expected)
    row = recording.compare(row, SCENES[key.mechanism], verdict, {})
    samples = sum(weight for weight, _ in stacks)
    assert (row.actor_right, row.mechanism_right) == (True, True), (
        samples,
        row.chain,
        row.headline,
    )
