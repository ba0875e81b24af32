from __future__ import annotations

import contextlib
import pathlib

import fakehost

from overnight.sources.processes import affinity, table


def test_busy_processes_have_a_row(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 2)
    host.run(4711, "worker", 0, thread=4712)
    host.run(4713, "idle", 0, thread=4714)
    with contextlib.closing(table.Table(tmp_path)) as processes:
        read = affinity.Affinity(processes, tmp_path).read
        processes.read()
        assert read() == {}
        host.run(4711, "worker", 100, thread=4712)
        processes.full_scan()
        processes.read()
        assert read() == {"4711 worker": (4, 4)}
        (tmp_path / "proc/4711/status").unlink()  # it has ended
        assert read() == {}


def test_a_text_without_an_affinity() -> None:
    assert affinity.parse_affinity(b"Name:\tkthread\n") is None
