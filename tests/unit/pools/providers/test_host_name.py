"""The name of a host: stable for its data home on its machine, and different anywhere else."""

from __future__ import annotations

import pathlib

import pytest

from overnight import pools
from overnight.pools.providers import _host_name, ec2, nspawn, process


def test_the_name_is_stable_and_unique(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine_id = tmp_path / "machine-id"
    monkeypatch.setattr(_host_name, "MACHINE_ID", machine_id)
    monkeypatch.setattr("platform.node", lambda: "build-07")
    provider = process.create(tmp_path / "home")
    assert provider.host() is None
    assert not (tmp_path / "home").exists()
    first = provider.host(create=True)
    assert str(first).startswith("build-07-")
    monkeypatch.setattr("platform.node", lambda: "renamed")
    # After a restart; and the providers of one host agree.
    assert process.create(tmp_path / "home").host() == first
    assert nspawn.create(tmp_path / "home").host(create=True) == first
    # A container with the same machine id; a copy of the data home, or a shared one, on another machine.
    assert process.create(tmp_path / "container").host(create=True) != first
    machine_id.write_text("5f0c\n")
    assert provider.host() is None
    assert provider.host(create=True) != first
    machine_id.unlink()
    assert provider.host() == first


def test_a_home_that_cannot_be_written_is_an_error_of_the_provider(tmp_path: pathlib.Path) -> None:
    (tmp_path / "pools").write_text("")
    with pytest.raises(pools.ProviderError, match="no name"):
        process.create(tmp_path).host(create=True)


def test_a_cloud_is_not_local(tmp_path: pathlib.Path) -> None:
    assert process.create(tmp_path).host(create=True)
    assert nspawn.create(tmp_path).host(create=True)
    assert ec2.create(tmp_path).host(create=True) is None
