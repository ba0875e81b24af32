"""Every signature matches its functions and no others."""

from __future__ import annotations

import re

import pytest

from overnight.detectors import _signatures


@pytest.mark.parametrize(
    "signature", _signatures.signatures(), ids=lambda signature: signature.name
)
def test_a_signature_matches_its_examples_only(signature: _signatures.Signature) -> None:
    assert signature.matches
    assert signature.misses
    known = re.compile(signature.functions).fullmatch
    assert [name for name in signature.matches if not known(name)] == []
    assert [name for name in signature.misses if known(name)] == []


def test_names_are_unique() -> None:
    names = [signature.name for signature in _signatures.signatures()]
    assert len(set(names)) == len(names)


def test_the_functions_of_the_reference_incident_are_known() -> None:
    known = _signatures.matcher("memory.cgroup_walk", "reader", "walk", "shrink")
    for name in (
        "memcg_numa_stat_show", "memcg_stat_show", "mem_cgroup_iter", "mem_cgroup_nr_lru_pages",
        "mem_cgroup_node_nr_lru_pages", "memcg_sum_events", "css_next_descendant_pre",
        "css_rstat_flush", "cgroup_rstat_flush", "shrink_slab", "shrink_node",
    ):  # fmt: skip
        assert known(name), name


def test_an_unknown_role_matches_nothing() -> None:
    assert not _signatures.matcher("memory.cgroup_walk", "no such")("")
