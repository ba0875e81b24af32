"""Metrics as OpenMetrics text, over HTTP on loopback.

    overnight_cpu_saturated_seconds_total{cpu="39"} 6.0
    overnight_kernel_events_total{rule="ena-tx-paused"} 1
    overnight_memory_cgroups{state="dying"} 68440

No message text in labels, and few labels: what a fleet scrapes must stay small. The page is rendered for
each request, from the last second's status.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from overnight import errors
from overnight.agent.outlets import npd
from overnight.model.openmetrics import CONTENT_TYPE, Page

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
        try:
            self._server = http.server.ThreadingHTTPServer(
                (address, port), _handler(lambda: self._status)
            )
        except OSError as error:
            raise errors.CannotError(
                f"cannot serve metrics on {address}:{port}",
                why=str(error),
                todo="choose another port: --metrics 127.0.0.1:PORT",
            ) from error
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def event(self, event: Event) -> None:
        """Do nothing: events are counted in the status."""

    def tick(self, status: outlets.HostStatus) -> None:
        self._status = status

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def _handler(status: Callable[[], outlets.HostStatus | None]) -> type:
    class Handler(http.server.BaseHTTPRequestHandler):
        server_version = "overnight"
        sys_version = ""
        timeout = 5  # a client that sends nothing must not hold a thread

        def do_GET(self) -> None:
            now = status()
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "only /metrics is served")
                return
            if now is None:
                self.send_error(503, "the first second has not passed yet")
                return
            body = render(now).encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it so
            """Log nothing."""

    return Handler
