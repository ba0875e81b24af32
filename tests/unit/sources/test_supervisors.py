"""Which unit acts when containers are born: connections from the real kernel, processes of a made-up /proc."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import struct
from collections.abc import Iterable

import pytest

from overnight.sources.cgroupchurn import supervisors

ECS, NOISE = "ecs.service", "noise.service"


def write_process(root: pathlib.Path, pid: int, cgroup: str, *inodes: int) -> None:
    folder = root / f"proc/{pid}"
    (folder / "fd").mkdir(parents=True)
    (folder / "cgroup").write_text(f"12:memory:/\n1:name=systemd:{cgroup}\n0::/\n")
    for number, inode in enumerate(inodes):
        (folder / f"fd/{number}").symlink_to(f"socket:[{inode}]")


class Host:
    """A /proc, connections and a clock that a test sets."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root, self.inodes, self.now = root, set[int](), 100.0
        (root / "proc").mkdir()
        self.actions = supervisors.Actions(
            root, connections=lambda: set(self.inodes), clock=lambda: self.now
        )

    def look(self) -> frozenset[str]:
        self.now += 1
        return self.actions.look()


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    write = Host(tmp_path)
    write_process(tmp_path, 10, f"/system.slice/{ECS}", 71, 72)
    write.look()
    return write


def test_the_kernel_lists_connections_to_a_runtime_only(tmp_path: pathlib.Path) -> None:
    with contextlib.ExitStack() as stack:
        inodes = {}
        for name in ("docker.sock", "other.sock"):
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(os.fspath(tmp_path / name))
            server.listen()
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(os.fspath(tmp_path / name))
            stack.enter_context(server.accept()[0])
            inodes[name] = os.fstat(client.fileno()).st_ino
        connected = supervisors.read_connections()
    assert inodes["docker.sock"] in connected
    assert inodes["other.sock"] not in connected
    assert inodes["docker.sock"] not in supervisors.read_connections()


def message(name: bytes, peer: int) -> bytes:
    def attribute(kind: int, value: bytes) -> bytes:
        size = 4 + len(value)
        return struct.pack("=HH", size, kind) + value + b"\0" * (-size % 4)

    body = attribute(0, name + b"\0") + attribute(2, struct.pack("=I", peer))
    head = struct.pack("=BBBBIII", 1, 1, 1, 0, 5, 1, 0)
    length = 16 + len(head) + len(body)
    return struct.pack("=IHHII", length, supervisors.DIAG_BY_FAMILY, 2, 1, 0) + head + body


def test_a_damaged_dump_is_read_as_far_as_it_goes() -> None:
    whole = message(b"/run/docker.sock", 7) + message(b"/run/x.sock", 8)
    assert supervisors.parse_connections(whole) == {7}
    for cut in range(len(whole)):
        assert supervisors.parse_connections(whole[:cut]) <= {7}
    for at in range(0, len(whole), 3):
        supervisors.parse_connections(whole[:at] + b"\0\0" + whole[at + 2 :])
        supervisors.parse_connections(whole[:at] + b"\xff\xff" + whole[at + 2 :])


def test_a_new_process_of_a_unit_is_an_action(host: Host) -> None:
    assert host.look() == frozenset()
    write_process(host.root, 11, f"/system.slice/{ECS}")
    assert host.look() == {ECS}
    assert host.look() == frozenset()


def test_a_new_connection_of_a_unit_is_an_action(host: Host) -> None:
    host.inodes = {71}
    assert host.look() == {ECS}
    assert host.look() == frozenset()
    host.inodes = {72}
    assert host.look() == {ECS}
    host.inodes = {99}  # of a process that has ended
    assert host.look() == frozenset()


@pytest.mark.parametrize(
    "cgroup",
    [
        "/system.slice/docker.service",
        "/system.slice/containerd.service",
        "/system.slice/systemd-udevd.service",
        "/kubelet.slice/kubelet.service",
        "/system.slice/cron.service",
        "/system.slice/crond.service",
        f"/docker/{5:064x}",
        f"/system.slice/docker-{5:064x}.scope",
        "/init.scope",
        "/",
    ],
)
def test_runtimes_and_containers_supervise_nothing(host: Host, cgroup: str) -> None:
    write_process(host.root, 12, cgroup, 80)
    host.inodes = {80}
    assert host.look() == frozenset()


def test_the_first_look_after_a_pause_is_none(host: Host) -> None:
    host.now += supervisors.PAUSE_S
    write_process(host.root, 13, f"/system.slice/{NOISE}")
    host.inodes = {71}
    assert host.look() == frozenset()


def test_all_processes_are_searched_every_five_seconds_at_most(host: Host) -> None:
    write_process(host.root, 14, f"/system.slice/{NOISE}", 90, 91)
    host.look()
    host.inodes = {1000}  # nobody's: all processes were searched
    host.look()
    host.inodes = {90}
    assert host.look() == frozenset()
    host.now += 1
    host.look()
    host.now += 1
    host.look()
    host.inodes = {91}
    assert host.look() == {NOISE}


def play(looks: Iterable[tuple[bool, set[str]]]) -> dict[str, tuple[int, ...]]:
    acted = iter([frozenset(units) for _, units in looks])
    coincidences = supervisors.Coincidences(lambda: next(acted))
    for born, _ in looks:
        coincidences.add({"docker:a"} if born else set(), ["docker:a"])
    return dict(coincidences.rows())


def test_births_and_actions_are_counted_together_and_apart() -> None:
    looks = [(second % 14 == 1, {ECS} if second % 14 == 0 else {NOISE}) for second in range(140)]
    rows = play(looks)
    # The action of one look and the birth of the next coincide. A unit that acts all the time does, too.
    assert rows[f"docker:a {ECS}"] == (10, 10, 140, 20, 10, 0)
    assert rows[f"docker:a {NOISE}"] == (10, 10, 140, 139, 0, 10)
    late = [(second % 14 == 0, {ECS} if second % 14 == 3 else set()) for second in range(140)]
    assert play(late)[f"docker:a {ECS}"][1] == 0


def test_what_reacts_to_a_birth_follows_it() -> None:
    """It is seen in the look of a birth or in the next; a supervisor in that look or in the one before."""
    looks = []
    for number in range(10):
        looks += [(False, set())] * 10
        looks += [(False, {ECS}), (True, {NOISE})] if number < 3 else [(True, {ECS})]
        looks += [(False, {NOISE})] if number >= 3 else []
    rows = play(looks)
    assert rows[f"docker:a {ECS}"] == (10, 10, len(looks), 20, 3, 0)
    assert rows[f"docker:a {NOISE}"] == (10, 3, len(looks), 19, 0, 7)


def test_creators_and_units_are_bounded() -> None:
    coincidences = supervisors.Coincidences(lambda: frozenset(f"u{n}.service" for n in range(500)))
    coincidences.add({"docker:a"}, ["docker:a", "docker:b"])
    assert len(coincidences.rows()) == 2 * supervisors.SHOWN
    coincidences.add(set(), ["docker:b"])
    assert {key.split()[0] for key in coincidences.rows()} == {"docker:b"}
