"""Levels and counts as OpenMetrics text, over HTTP on loopback.

    overnight_cpu_saturated_seconds_total{cpu="39"} 6.0
    overnight_kernel_events_total{rule="ena-tx-paused"} 1
    overnight_memory_cgroups{state="dying"} 68440

No message text in labels, and few labels: what a fleet scrapes must stay small. The page is made when
it is asked for, from the last standing.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from overnight import errors
from overnight.agent.outlets import npd

if TYPE_CHECKING:
    from overnight.agent import outlets
    from overnight.model.event import Event

__all__ = ["CONTENT_TYPE", "Endpoint", "render"]

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
MAX_UNITS = 100
HOST_LABELS = ("zone", "image", "kernel", "instance_type")


def _escape(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _line(name: str, labels: Mapping[str, object], value: float) -> str:
    inside = ",".join(f'{key}="{_escape(one)}"' for key, one in labels.items())
    number = int(value) if float(value).is_integer() else value
    return f"{name}{{{inside}}} {number}\n" if inside else f"{name} {number}\n"


class _Page:
    """One OpenMetrics text, family after family."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def family(
        self,
        name: str,
        kind: str,
        about: str,
        rows: Iterable[tuple[Mapping[str, object], float]],
    ) -> None:
        """One family; without a row it is left out."""
        suffix = {"counter": "_total", "info": "_info"}.get(kind, "")
        lines = [_line(name + suffix, labels, value) for labels, value in rows]
        if lines:
            self._parts.append(f"# TYPE {name} {kind}\n# HELP {name} {about}\n")
            self._parts += lines

    def text(self) -> str:
        """The whole page."""
        return "".join(self._parts) + "# EOF\n"


def render(standing: outlets.Standing) -> str:
    """The page of one standing."""
    page = _Page()
    labels = dict(standing.facts.get("host", {}).get("", {}))
    page.family(
        "overnight_host",
        "info",
        "Labels of this host.",
        [({"host": standing.host, **{n: labels.get(n, "") for n in HOST_LABELS}}, 1)],
    )
    page.family(
        "overnight_cpu_saturated_seconds",
        "counter",
        "Seconds in which a core was pinned while the others had room.",
        [({"cpu": core}, seconds) for core, seconds in sorted(standing.saturated.items())],
    )
    page.family(
        "overnight_events",
        "counter",
        "Events seen on this host.",
        [({"kind": k, "severity": s}, n) for (k, s), n in sorted(standing.counts.items())],
    )
    page.family(
        "overnight_kernel_events",
        "counter",
        "Kernel-log lines by the rule that knew them.",
        [({"rule": rule}, count) for rule, count in sorted(standing.rules.items())],
    )
    census = standing.rows.get("memory-cgroups", {}).get("")
    if census is not None:
        page.family(
            "overnight_memory_cgroups",
            "gauge",
            "Memory cgroups that the kernel tracks, those in use, and those dying.",
            [
                ({"state": state}, value)
                for state, value in zip(("tracked", "in_use", "dying"), census, strict=False)
            ],
        )
    restarts = standing.rows.get("unit-restarts", {})
    looping = sorted(restarts, key=lambda unit: -restarts[unit][0])[:MAX_UNITS]
    page.family(
        "overnight_unit_restarts",
        "counter",
        "How often systemd restarted a unit; those that it did.",
        [({"unit": unit}, restarts[unit][0]) for unit in sorted(looping) if restarts[unit][0]],
    )
    _agent(page, standing)
    npd.counters(page.family, standing)
    return page.text()


def _agent(page: _Page, standing: outlets.Standing) -> None:
    agent = standing.agent
    page.family(
        "overnight_agent_cpu_seconds",
        "counter",
        "CPU time that the agent itself used.",
        [({}, round(agent.get("cpu_seconds", 0.0), 3))],
    )
    page.family(
        "overnight_agent_resident_memory_bytes",
        "gauge",
        "Memory that the agent itself uses.",
        [({}, agent.get("rss_bytes", 0.0))],
    )


class Endpoint:
    """Answers GET /metrics; made only where it is asked for, as http.server costs some megabytes."""

    def __init__(self, address: str, port: int) -> None:
        self._standing: outlets.Standing | None = None
        try:
            self._server = http.server.ThreadingHTTPServer(
                (address, port), _handler(lambda: self._standing)
            )
        except OSError as error:
            raise errors.CannotError(
                f"metrics cannot be served on {address}:{port}",
                why=str(error),
                todo="choose another: --metrics 127.0.0.1:PORT",
            ) from error
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def event(self, told: Event) -> None:
        """Counted in the standing."""

    def tick(self, standing: outlets.Standing) -> None:
        """What the next reader gets."""
        self._standing = standing

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def _handler(
    standing: Callable[[], outlets.Standing | None],
) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        """One page, and 404 for the rest."""

        server_version = "overnight"
        sys_version = ""
        timeout = 5  # a reader that sends nothing does not hold a thread for ever

        def do_GET(self) -> None:
            now = standing()
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "only /metrics is here")
                return
            if now is None:
                self.send_error(503, "no second has passed yet")
                return
            body = render(now).encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name there
            """Nobody reads who asked for metrics."""

    return Handler
