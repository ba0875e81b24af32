"""Metrics of a server: requests, reports, hosts, and those of the pools."""

from __future__ import annotations

import bisect
import collections
import math
import threading

from overnight.model import openmetrics

LIMITS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, math.inf)
# Areas of paths, the first that matches; few, so that a client cannot add series.
AREAS = (
    ("/api/v1/agents/report", "report"),
    ("/api/v1/agents/", "agents"),
    ("/api/v1/questions/", "questions"),
    ("/api/", "api"),
    ("/v1/", "members"),
    ("/reports/", "reports"),
    ("/mcp", "assistants"),
)


class Counters:
    """What this process has done since it started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: collections.Counter[tuple[str, int]] = collections.Counter()
        self._took: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = collections.defaultdict(float)
        self._received: collections.Counter[str] = collections.Counter()
        self._lost: collections.Counter[str] = collections.Counter()

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request; only the event loop calls this."""
        area = next((name for prefix, name in AREAS if path.startswith(prefix)), "other")
        self._requests[area, status] += 1
        counts = self._took.setdefault(area, [0] * len(LIMITS_S))
        counts[bisect.bisect_left(LIMITS_S, seconds)] += 1
        self._seconds[area] += seconds

    def report(self, events: int, lost_events: int, lost_rollups: int) -> None:
        with self._lock:
            self._received["reports"] += 1
            self._received["events"] += events
            self._lost["events"] += lost_events
            self._lost["rollups"] += lost_rollups

    def add_to(self, page: openmetrics.Page) -> None:
        page.family(
            "overnight_server_requests", "counter", "Requests by area and status.",
            [({"area": a, "status": s}, n) for (a, s), n in sorted(self._requests.items())],
        )  # fmt: skip
        page.histogram(
            "overnight_server_request_seconds",
            "Time from the headers of a request to the end of its answer.",
            [
                openmetrics.Histogram(
                    {"area": area}, dict(zip(LIMITS_S, counts, strict=True)), self._seconds[area]
                )
                for area, counts in sorted(self._took.items())
            ],
        )
        with self._lock:
            page.family(
                "overnight_server_reports", "counter", "Reports of agents that were stored.",
                [({}, self._received["reports"])],
            )  # fmt: skip
            page.family(
                "overnight_server_events", "counter", "Events in the reports of agents.",
                [({}, self._received["events"])],
            )  # fmt: skip
            page.family(
                "overnight_server_spool_lost", "counter", "Items that the spools of agents dropped.",
                [({"item": item}, self._lost[item]) for item in ("events", "rollups")],
            )  # fmt: skip


def add_hosts(page: openmetrics.Page, total: int, online: int) -> None:
    page.family(
        "overnight_server_hosts", "gauge", "Enrolled hosts; online: reported in the last five minutes.",
        [({"state": "online"}, online), ({"state": "offline"}, total - online)],
    )  # fmt: skip
