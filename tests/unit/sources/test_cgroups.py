from __future__ import annotations

from overnight.sources import cgroups


def test_this_very_host() -> None:
    assert cgroups.read_layout().version in ("v1", "v2", "hybrid", "none")
