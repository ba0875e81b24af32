"""How the agent is put together."""

from __future__ import annotations

import pathlib

import exhaustion
import pytest

from overnight import errors, sources
from overnight.agent import __main__ as agent
from overnight.agent import flight_recorder, signals


def test_cloud_labels_are_added_to_the_hosts_and_win():
    facts = {"": {"zone": "", "kernel": "6.1"}, "eth0": {"driver": "ena"}}
    host = sources.FactSignal("host", 600.0, "", lambda root: lambda: facts)
    other = sources.FactSignal("units", 30.0, "", lambda root: lambda: facts)
    named, left = flight_recorder.add_cloud_labels((host, other), {"zone": "us-east-1a"})
    assert named.open(pathlib.Path("/"))() == {
        "": {"zone": "us-east-1a", "kernel": "6.1"},
        "eth0": {"driver": "ena"},
    }
    assert left is other
    assert facts[""]["zone"] == ""
    assert flight_recorder.add_cloud_labels((host,), {}) == (host,)


def test_a_signal_is_polled_at_the_requested_interval():
    census = sources.FactSignal("census", 60.0, "", lambda root: dict)
    host = sources.FactSignal("host", 600.0, "", lambda root: dict)
    named, left = signals.set_intervals((census, host), {"census": 2.0})
    assert (named.name, named.every) == ("census", 2.0)
    assert left is host
    with pytest.raises(errors.UsageError, match="unknown signal nothing"):
        signals.set_intervals((census,), {"nothing": 1.0})


@pytest.mark.parametrize("text", ["", "cpu", "cpu=", "cpu=x", "=1", "cpu=0", "cpu=-1", "cpu=inf"])
def test_an_interval_must_be_a_signal_and_seconds(text):
    with pytest.raises(errors.UsageError, match="is not SIGNAL=SECONDS"):
        flight_recorder.parse_every(text)


def test_a_start_without_descriptors_is_reported_as_that(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
    with exhaustion.no_descriptors():
        assert agent.main(["--home", str(tmp_path)]) == errors.ExitCode.CANNOT
    assert "too many open files" in capsys.readouterr().err
