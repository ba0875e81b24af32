"""Real containers of Docker and containerd that end and are started again, and the unit that starts them."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import runtimes

from overnight.detectors import _creators
from overnight.sources import cgroupchurn

if TYPE_CHECKING:
    from overnight import sources

pytestmark = [
    pytest.mark.long,
    pytest.mark.alone,
    pytest.mark.needs_docker,
    pytest.mark.timeout(240),
]


@pytest.fixture(scope="module")
def running() -> Iterator[runtimes.Runtimes]:
    with runtimes.running() as started:
        yield started


def watch(root: pathlib.Path, seconds: int) -> tuple[sources.Rows, sources.Facts, sources.Rows]:
    """Poll as the flight recorder does; return births, creators and supervisors."""
    births, creators, supervisors = (signal.open(root) for signal in cgroupchurn.SIGNALS)
    begin = time.monotonic()
    for second in range(seconds):
        births()
        time.sleep(max(0.0, begin + second + 1 - time.monotonic()))
    return births(), creators(), supervisors()  # type: ignore[return-value]  # numbers, facts, numbers


def supervisor_of(key: str, unit: str, rows: sources.Rows) -> _creators.Supervisor:
    return _creators.Supervisor(unit, *rows[f"{key} {unit}"])


def test_the_unit_that_has_docker_start_its_container_is_found(running: runtimes.Runtimes) -> None:
    key, unit = "docker:ecs-agent", "ecs.service"
    with (
        runtimes.as_unit(unit, *runtimes.supervisor_words(running, 5000)),
        runtimes.as_unit("noise.service", "/bin/sh", "-c", "while :; do sleep 3; done"),
    ):
        births, creators, supervisors = watch(running.root, 75)
    born, died, short, _ = births[key]
    assert born >= 9
    assert born - 1 <= died == short <= born
    assert "/docker" not in births or births["/docker"][0] == 0
    fact = creators[key]
    assert (fact["container"], fact["image"], fact["cgroup"]) == (
        "ecs-agent",
        runtimes.IMAGE,
        "/docker",
    )
    assert "agent" in str(fact["programs"])
    own = supervisor_of(key, unit, supervisors)
    assert own.coincided >= own.births - 2, supervisors
    assert (
        own.coincides or own.births < 14
    )  # few births prove little: the floor holds for real ones, too
    assert own.followed <= own.led + 1  # of so few births; a unit that reacts has one after most
    noise = supervisors.get(f"{key} noise.service")
    assert noise is None or not _creators.Supervisor("noise.service", *noise).coincides


def test_a_unit_that_runs_a_container_in_the_foreground_is_found(
    running: runtimes.Runtimes,
) -> None:
    unit = "web.service"
    docker = f"docker --host unix://{running.docker_socket} run --rm --network host --name web {runtimes.IMAGE} /bin/agent 4000"
    loop = f"PATH={running.environment['PATH']}; while :; do {docker}; sleep 1; done"
    with runtimes.as_unit(unit, "/bin/sh", "-c", loop):
        births, creators, supervisors = watch(running.root, 60)
    assert births["docker:web"][0] >= 7
    assert creators["docker:web"]["container"] == "web"
    own = supervisor_of("docker:web", unit, supervisors)
    assert own.coincided >= own.births - 2, supervisors


def test_a_container_that_is_gone_before_its_file_is_read_is_named_by_the_api(
    running: runtimes.Runtimes, tmp_path: pathlib.Path
) -> None:
    root = tmp_path / "root"
    (root / "run").mkdir(parents=True)
    for name in ("proc", "sys"):
        (root / name).symlink_to(f"/{name}")
    (root / "run/docker.sock").symlink_to(running.docker_socket)  # but not /var/lib/docker
    births = cgroupchurn.open_churn(root)
    births()
    for _ in range(3):
        running.docker(
            "run",
            "--rm",
            "--network",
            "host",
            "--name",
            "brief",
            runtimes.IMAGE,
            "/bin/agent",
            "50",
            code=5,
        )
        rows = births()
    # On a busy machine an answer may be late; then the API is left alone, and the rest has no name.
    unnamed = rows.get("docker:?", (0,))[0]
    assert rows["docker:brief"][0] + unnamed == 3
    assert rows["docker:brief"][0] >= 1


def test_docker_that_restarts_a_container_itself_is_not_a_units_fault(
    running: runtimes.Runtimes,
) -> None:
    running.docker(
        "run", "--detach", "--restart", "always", "--network", "host", "--name", "again", runtimes.IMAGE, "/bin/agent", "200",
    )  # fmt: skip
    _, creators, _ = watch(running.root, 12)
    running.docker("rm", "--force", "again")
    assert int(creators["docker:again"]["restarted"]) >= 2


def test_a_container_of_containerd_is_named(running: runtimes.Runtimes) -> None:
    ctr = (
        f"ctr --address {running.containerd_socket} run --rm --snapshotter native"
        f" docker.io/{runtimes.IMAGE} agent-1 /bin/agent 3000"
    )
    loop = f"PATH={running.environment['PATH']}; while :; do {ctr}; sleep 1; done"
    with runtimes.as_unit("loop.service", "/bin/sh", "-c", loop):
        births, creators, supervisors = watch(running.root, 40)
    key = "containerd:default/agent-1"
    assert births[key][0] >= 5
    assert creators[key]["cgroup"] == "/default"
    own = supervisor_of(key, "loop.service", supervisors)
    assert own.coincided >= own.births - 2, supervisors
