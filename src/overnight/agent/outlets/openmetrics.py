"""Metrics as OpenMetrics text, over HTTP on loopback.

    overnight_cpu_saturated_seconds_total{cpu="39"} 6.0
    overnight_kernel_events_total{rule="ena-tx-paused"} 1
    overnight_memory_cgroups{state="dying"} 68440

No message text in labels, and few labels: what a fleet scrapes must stay small. The page is rendered on
request, at most once a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight import errors, http_listener
from overnight.agent.outlets import npd
from overnight.model.openmetrics import Page

if TYPE_CHECKING:
    from overnight.agent import outlets
    from overnight.model.event import Event

MAX_UNITS = 100
HOST_LABELS = ("zone", "image", "kernel", "instance_type")


def render(status: outlets.HostStatus) -> str:
    page = Page()
    labels = dict(status.facts.get("host", {}).get("", {}))
    page.family(
        "overnight_host",
        "info",
        "Labels of this host.",
        [({"host": status.host, **{n: labels.get(n, "") for n in HOST_LABELS}}, 1)],
    )
    page.family(
        "overnight_cpu_saturated_seconds",
        "counter",
        "Seconds in which a core was saturated while the others had room.",
        [({"cpu": core}, seconds) for core, seconds in sorted(status.saturated.items())],
    )
    page.family(
        "overnight_events",
        "counter",
        "Events seen on this host.",
        [({"kind": k, "severity": s}, n) for (k, s), n in sorted(status.counts.items())],
    )
    page.family(
        "overnight_kernel_events",
        "counter",
        "Kernel-log lines by matching rule.",
        [({"rule": rule}, count) for rule, count in sorted(status.rules.items())],
    )
    census = status.rows.get("memory-cgroups", {}).get("")
    if census is not None:
        page.family(
            "overnight_memory_cgroups",
            "gauge",
            "Memory cgroups: tracked by the kernel, in use, dying.",
            [
                ({"state": state}, value)
                for state, value in zip(("tracked", "in_use", "dying"), census, strict=False)
            ],
        )
    restarts = status.rows.get("unit-restarts", {})
    looping = sorted(restarts, key=lambda unit: -restarts[unit][0])[:MAX_UNITS]
    page.family(
        "overnight_unit_restarts",
        "counter",
        "Restarts by systemd of units that were restarted.",
        [({"unit": unit}, restarts[unit][0]) for unit in sorted(looping) if restarts[unit][0]],
    )
    cpu, memory = status.agent.get("cpu_seconds", 0.0), status.agent.get("rss_bytes", 0.0)
    page.family(
        "overnight_agent_cpu_seconds",
        "counter",
        "CPU time used by the agent.",
        [({}, round(cpu, 3))],
    )
    page.family(
        "overnight_agent_resident_memory_bytes",
        "gauge",
        "Memory used by the agent.",
        [({}, memory)],
    )
    npd.add_families(page, status)
    return page.text()


class Endpoint:
    """Serves GET /metrics."""

    def __init__(self, address: str, port: int) -> None:
        self._status: outlets.HostStatus | None = None
        self._rendered: tuple[outlets.HostStatus | None, str] = (None, "")
        self._listener = http_listener.Listener(
            address,
            port,
            http_listener.respond_metrics(self._render),
            serves="metrics",
            option="--metrics",
        )
        self.port = self._listener.port

    def event(self, event: Event) -> None:
        """Do nothing: events are counted in the status."""

    def tick(self, status: outlets.HostStatus) -> None:
        self._status = status

    def close(self) -> None:
        self._listener.close()

    def _render(self) -> str:
        status, (rendered, page) = self._status, self._rendered
        if status is None:
            raise errors.CannotError(
                "there are no metrics yet",
                why="the first second has not passed",
                todo="repeat the request in a second",
            )
        if rendered is not status:
            page = render(status)
            self._rendered = status, page
        return page
