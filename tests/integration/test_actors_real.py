"""Two scripts of one interpreter, and a script that starts programs as fast as it can, recorded for real."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from overnight.agent import profiler as agent
from overnight.app import spool_ingest, spool_paths
from overnight.model.selection import Selection, Window
from overnight.queries import diff, flame, heatmap, reader, top, view
from overnight.sources import perf
from overnight.sources.processes import table
from overnight.store import segments

pytestmark = [pytest.mark.needs_root, pytest.mark.alone]
HOST = perf.read_identity().host
# Each ends with its standard input, whatever happens to the test.
BUSY = "import sys, threading\nthreading.Thread(target=sys.stdin.read).start()\n"
SCRIPTS = {
    "collect_metrics.py": BUSY + "while threading.active_count() > 1: sum(range(999))\n",
    "train.py": BUSY + "while threading.active_count() > 1: sorted(range(999))\n",
    "storm.sh": "while ! read -t 0; do /bin/true; done\n",
    "calm.sh": "while read -t 0.5; [ $? -gt 128 ]; do /bin/true; done\n",
}


@contextlib.contextmanager
def running(folder: pathlib.Path) -> Iterator[dict[str, int]]:
    """Run the scripts; yield their pids."""
    with contextlib.ExitStack() as stack:
        pids = {}
        for name, text in SCRIPTS.items():
            (folder / name).write_text(text)
            program = sys.executable if name.endswith(".py") else "/bin/bash"
            command = [program, str(folder / name)]
            process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE))
            pids[name] = process.pid
        yield pids


@dataclasses.dataclass(frozen=True)
class Recorded:
    home: pathlib.Path
    pids: dict[str, int]
    keys: list[str]  # of the flight recorder's signal


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    home, scripts = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("scripts")
    folder = spool_paths.spool_folder(home)
    folder.mkdir()
    ingester = spool_ingest.Ingester(home, 1 << 40, 3600.0)
    with running(scripts) as pids:
        processes = table.Table()
        processes.read()
        agent.run(
            agent.ProfilerOptions(folder, recorder="native", seconds=4.0, segment_seconds=2.0),
            threading.Event(),
        )
        processes.full_scan()
        keys = list(processes.read())
        processes.close()
        assert list(ingester.run()) == []
    return Recorded(home, pids, keys)


def test_two_scripts_of_one_interpreter_are_two_actors_everywhere(recorded: Recorded) -> None:
    source = reader.Reader(segments.Catalogue(recorded.home))
    window = source.extent()
    middle = (window.begin_us + window.end_us) // 2
    wanted = {"collect_metrics.py (python3)", "train.py (python3)"}
    assert wanted <= {row.name for row in top.top(source, window).rows}
    tree = flame.flame(source, window)
    assert wanted <= {tree.names[frame] for frame in tree.frame[tree.parent < 0].tolist()}
    assert wanted <= set(view.view(source, window, HOST).strings)
    for name in wanted:
        chosen = Selection(process=f"^{re.escape(name)}$")
        assert heatmap.by_core(source, window, chosen=chosen).values.sum() > 0
        before, after = Window(window.begin_us, middle), Window(middle, window.end_us)
        compared = diff.diff(source, after, before, chosen)
        assert min(compared.coverage.samples, compared.baseline.samples) > 0
        # The signal, and with it every event, has the same name.
        script = name.partition(" ")[0]
        assert f"{recorded.pids[script]} {name}" in recorded.keys
