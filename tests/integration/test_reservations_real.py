"""A real process reserves this machine, and is killed."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from overnight import reservations
from overnight.model import times
from overnight.model.reservation import Lease, Order, ReservationState
from overnight.reservations import decisions, janitor
from overnight.reservations.providers import local

if TYPE_CHECKING:
    from collections.abc import Callable

# It measures the processes of the host for an hour, once the host is claimed.
RESERVE = """
import pathlib, sys
from overnight.interfaces import cli
from overnight.reservations.providers import local
local.SYSTEM = pathlib.Path(sys.argv[1])
local.SAMPLE_SECONDS = 0.01
claim = local.Local.claim
def claim_and_stall(*words):
    claim(*words)
    local.SAMPLE_SECONDS = 3600
local.Local.claim = claim_and_stall
sys.exit(cli.main(["--home", sys.argv[2], "reserve", "--for", "12h"]))
"""


def wait_for(what: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture
def here(tmp_path: pathlib.Path) -> local.Local:
    settings = reservations.Settings(home=tmp_path / "home")
    return local.Local(settings, tmp_path / "run" / "overnight", sleep=lambda _: None)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_reserver_gives_this_machine_back(
    here: local.Local, tmp_path: pathlib.Path, ending: signal.Signals
) -> None:
    from overnight.app import reservations as use_cases

    folder, home = tmp_path / "run" / "overnight", tmp_path / "home"
    command = [sys.executable, "-c", RESERVE, str(folder), str(home)]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(folder.parent)}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE) as reserver:
        wait_for(lambda: here.list_held(Order(provider="local")))
        time.sleep(0.2)
        reserver.send_signal(ending)
        reserver.communicate(timeout=60)
    order = Order(provider="local")
    [made] = use_cases.Reservations(home).list(ended=True)
    if ending is signal.SIGINT:
        assert made.state is ReservationState.RELEASED
        assert here.list_held(order) == []
        return
    assert made.state is ReservationState.PREPARING
    [held] = here.list_held(order)
    assert isinstance(held.lease, Lease)
    assert janitor.clean(here, order, clock=times.now_us)[0].why == ""
    later = held.lease.until_us + (decisions.GRACE_SECONDS + 1) * 1_000_000
    assert later < made.made_us + 20 * 60 * 1_000_000  # not twelve hours
    assert janitor.clean(here, order, clock=lambda: later)[0].released
    assert here.list_held(order) == []
