"""Rules that every signal follows."""

from __future__ import annotations

import importlib
import pathlib
import pkgutil
from collections.abc import Iterable

import fakehost
import nicdriver
import pytest

from overnight import sources
from overnight.sources import ethtool, processes
from overnight.sources.systemd import units

MODULES = [
    importlib.import_module(f"overnight.sources.{info.name}")
    for info in pkgutil.iter_modules(sources.__path__)
]
SIGNALS = [signal for module in MODULES for signal in getattr(module, "SIGNALS", ())]


def test_names_are_unique() -> None:
    names = [signal.name for signal in SIGNALS]
    assert len(set(names)) == len(names) >= 16


class Systemd:
    """Answers as systemd's private socket does: one service that was restarted."""

    def __init__(self, _address: str, **_options: object) -> None:
        pass

    def ask(self, calls: Iterable[tuple[object, ...]]) -> list[list[object] | None]:
        row = ("a.service", "", "loaded", "active", "running", "", "/a")
        values = {"Restart": "always", "NRestarts": 3, "StateChangeTimestamp": 10**12}
        answers: list[list[object] | None] = []
        for _, _, method, words in calls:
            answers.append(
                [[row]] if method == "ListUnitsByPatterns" else [values.get(words[1], "")]
            )
        return answers

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def polled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, sources.Rows | sources.Facts]:
    """The rows of every signal after a busy second, polled in the recorder's order."""
    root = tmp_path_factory.mktemp("polled")
    host = fakehost.FakeHost(root, 192, possible=256, offline=(3, 97))
    (root / "run/systemd/system").mkdir(parents=True)
    (root / "proc/1/ns").mkdir(parents=True)
    (root / "proc/1/ns/net").symlink_to("/proc/self/ns/net")
    host.run(4711, "worker", 0, thread=4712)
    docker = root / "sys/fs/cgroup/memory/docker"
    docker.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ethtool, "InterfaceQuery", lambda: nicdriver.Driver(nicdriver.ENA))
        patch.setattr(units.dbus, "Connection", Systemd)
        readers = {signal.name: signal.open(root) for signal in SIGNALS}
        for read in readers.values():
            read()
        for first in "abc":  # a supervisor's container that comes and goes
            (docker / (first * 64)).mkdir()
            readers["cgroup-births"]()
            host.run(ord(first), "ecs-init", 0, thread=ord(first))
            host.put(f"proc/{ord(first)}/cgroup", "4:memory:/system.slice/ecs.service\n")
        host.advance()
        host.run(4711, "worker", 100, thread=4712)
        processes.full_scan(root)
        (root / "sys/fs/cgroup/memory/user.slice/born").mkdir()
        for number in range(2):  # of Docker, with its state out of reach
            scope = f"system.slice/docker-{number:064x}.scope"
            (root / "sys/fs/cgroup/memory" / scope).mkdir(parents=True)
        readers["cgroup-births"]()
        (root / "proc/4713").mkdir()
        (root / "proc/4713/cgroup").write_text("0::/system.slice/agent.service\n")
        return {name: read() for name, read in readers.items()}


NUMBERS = [signal for signal in SIGNALS if isinstance(signal, sources.Signal)]


@pytest.mark.parametrize("signal", NUMBERS, ids=lambda signal: signal.name)
def test_rows_are_integers_in_the_declared_columns(
    signal: sources.Signal, polled: dict[str, sources.Rows]
) -> None:
    assert len(set(signal.columns)) == len(signal.columns)
    assert set(signal.keep) <= set(signal.columns)
    rows = polled[signal.name]
    assert list(rows) == [""] if not signal.key else rows
    for key, row in rows.items():
        assert isinstance(key, str)
        assert len(row) == len(signal.columns)
        assert all(type(number) is int and -(2**63) <= number < 2**63 for number in row)


@pytest.mark.parametrize(
    ("cores", "offline"),
    [(1, ()), (2, (0,)), (96, range(1, 96, 3)), (192, (191, 5))],
    ids=["1", "2", "96", "192"],
)
def test_each_online_core_has_a_row_in_every_core_signal(
    tmp_path: pathlib.Path, cores: int, offline: tuple[int, ...]
) -> None:
    host = fakehost.FakeHost(tmp_path, cores, offline=offline, queues=2)
    rows = {s.name: set(s.open(tmp_path)()) for s in NUMBERS if s.key == "core"}
    assert {"cpu", "softirqs", "softnet", "schedstat"} <= set(rows)
    online = {str(core) for core in host.online}
    assert {name: keys for name, keys in rows.items() if keys != online} == {}


FACTS = [signal for signal in SIGNALS if isinstance(signal, sources.FactSignal)]


@pytest.mark.parametrize("signal", FACTS, ids=lambda signal: signal.name)
def test_facts_are_plain_values(
    signal: sources.FactSignal, polled: dict[str, sources.Facts]
) -> None:
    assert polled[signal.name]
    for key, fact in polled[signal.name].items():
        assert isinstance(key, str)
        assert all(isinstance(name, str) for name in fact)
        assert all(type(value) in (str, int, float, bool) for value in fact.values())


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: signal.name)
def test_an_empty_host_gives_no_data_or_no_rows(
    signal: sources.Signal, tmp_path: pathlib.Path
) -> None:
    try:
        rows = signal.open(tmp_path)()
    except sources.NoDataError:
        return
    # The clock comes from the kernel, whatever the root.
    assert not rows or signal.name == "clock"
