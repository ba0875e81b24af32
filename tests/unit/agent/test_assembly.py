"""How the agent is put together."""

from __future__ import annotations

import pathlib

import pytest

from overnight import errors, sources
from overnight.agent import assembly


def test_what_the_cloud_says_is_among_the_hosts_labels_and_counts_more():
    facts = {"": {"zone": "", "kernel": "6.1"}, "eth0": {"driver": "ena"}}
    host = sources.FactSignal("host", 600.0, "", lambda root: lambda: facts, "made up")
    other = sources.FactSignal("units", 30.0, "", lambda root: lambda: facts, "made up")
    named, left = assembly.labelled((host, other), {"zone": "us-east-1a"})
    assert named.open(pathlib.Path("/"))() == {
        "": {"zone": "us-east-1a", "kernel": "6.1"},
        "eth0": {"driver": "ena"},
    }
    assert left is other
    assert facts[""]["zone"] == ""
    assert assembly.labelled((host,), {}) == (host,)


@pytest.mark.parametrize("text", ["", "x", "1.2.3.4:", "127.0.0.1:70000", ":-1"])
def test_an_address_without_a_port_is_refused(text):
    with pytest.raises(errors.UsageError, match="no address"):
        assembly.parse_address(text)
