"""docs/security.md has the limits of the server."""

from __future__ import annotations

import pathlib

import pytest

from overnight.app import answer_process, fleet_agents
from overnight.interfaces.http import limits

TEXT = (pathlib.Path(__file__).parents[2] / "docs/security.md").read_text()
LIMITS = limits.Limits()


@pytest.mark.parametrize(
    "row",
    [
        f"| connections | {LIMITS.connections:,}, or",
        f"| request line and headers | {LIMITS.head_bytes >> 10} KB, {LIMITS.head_seconds:g} s |",
        f"| idle connection | {LIMITS.idle_seconds:g} s |",
        f"| body | {LIMITS.body_bytes >> 10} KB; a report {LIMITS.report_bytes >> 20} MiB, decompressed "
        f"{fleet_agents.DOCUMENT_BYTES >> 20} MiB ({fleet_agents.SNAPSHOT_BYTES >> 20} MiB with a snapshot); "
        f"a piece of a window {LIMITS.chunk_bytes >> 20} MiB; {LIMITS.body_seconds:g} s |",
        f"| bodies in memory | {LIMITS.held_bytes >> 20} MiB, of one address half of it |",
        f"| requests | {LIMITS.address_rate:,.0f} a second from an address (an IPv6 /64), "
        f"{LIMITS.credential_rate:g} a second with one credential |",
        f"| answer | {LIMITS.answer_seconds:g} s; a window or report {LIMITS.window_seconds / 60:g} min |",
        f"| questions and diagnoses | {answer_process.AT_ONCE} at a time, {answer_process.WAITING} wait; "
        f"{answer_process.CPU_SECONDS} s of CPU time each |",
    ],
)
def test_a_limit_is_documented(row: str) -> None:
    assert row in TEXT
