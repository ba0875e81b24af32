"""docs/security.md has the limits of the server."""

from __future__ import annotations

import pathlib

import pytest

from overnight.app import answer_process, fleet_agents, operations
from overnight.fleet import rollups
from overnight.interfaces.http import agents, limits, use_cases

TEXT = (pathlib.Path(__file__).parents[2] / "docs/security.md").read_text()
L, A = limits.Limits(), answer_process
REPORT = f"a report {L.report_bytes >> 20} MiB, decompressed {fleet_agents.DOCUMENT_BYTES >> 20} MiB ({fleet_agents.SNAPSHOT_BYTES >> 20} MiB with a snapshot)"
ROWS = [
    f"| connections | {L.connections:,}, or",
    f"| request line and headers | {L.head_bytes >> 10} KB, {L.head_seconds:g} s |",
    f"| idle connection | {L.idle_seconds:g} s |",
    f"| body | {L.body_bytes >> 10} KB; {REPORT}; a piece of a window {L.chunk_bytes >> 20} MiB; {L.body_seconds:g} s |",
    f"| bodies in memory | {L.held_bytes >> 20} MiB, of one address half of it, of one credential an eighth |",
    f"| requests | {L.address_rate:,.0f} a second from an address (an IPv6 /64), {L.credential_rate:g} a second with one credential |",
    f"| requests of one agent | {agents.AGENT_JOBS} at a time |",
    f"| answer | {L.answer_seconds:g} s; a window or report {L.window_seconds / 60:g} min |",
    f"| changes, waiting claims | {use_cases.AT_ONCE} at a time; a claim waits for at most {operations.MAX_WAIT_SECONDS / 3600:g} h |",
    f"| questions and diagnoses | {A.AT_ONCE} at a time, {A.WAITING} wait; {A.CPU_SECONDS} s of CPU time each |",
    f"| answers about CPU time | 2 at a time; {rollups.MAX_ROWS:,} intervals of all cores |",
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_a_limit_is_documented(row: str) -> None:
    assert row in TEXT
