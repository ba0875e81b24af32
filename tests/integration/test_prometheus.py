"""A real Prometheus scrapes a real flight recorder: an alert fires, and the dashboard has data.

The recorder reads a made-up host, so that neither the kernel log nor a core of this machine is needed. Its
dashboard panel on unit restarts needs a systemd; a second page, rendered from a made-up status, has them.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import importlib.util
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from typing import Any

import hoststatus
import livehost
import pytest
import realmachines
import yaml
from prometheus_client.openmetrics import parser

from overnight import http_listener
from overnight.agent.outlets import openmetrics
from overnight.app import pools, reservations
from overnight.model.reservation import Order, Reservation, ReservationState
from overnight.pools import metrics as pool_metrics
from overnight.pools import reaper
from overnight.pools.sql import metric_rows

DEPLOY = pathlib.Path(__file__).parents[2] / "deploy"
RULES = sorted((DEPLOY / "prometheus/rules").glob("*.yml"))
DASHBOARD = json.loads((DEPLOY / "grafana/fleet.json").read_text())
NAME = re.compile(r"\b(?:overnight[_:][a-z0-9_:]+|problem_[a-z]+)\b")
RESET = (
    "ena 0000:20:03.0 ens31: TX q 4 is paused for too long (threshold 5000000). "
    "Time since last napi 6596000 usec. napi scheduled: 1"
)
READ_ONLY = "EXT4-fs (nvme0n1p1): Remounting filesystem read-only"
HAS_SERVER = importlib.util.find_spec("overnight.app.serving_metrics") is not None
pytestmark = pytest.mark.needs_prometheus


def read_rules() -> list[dict[str, Any]]:
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def list_targets() -> list[tuple[str, str]]:
    """Return title and expression of every query in the dashboard."""
    found = [(a["name"], a["expr"]) for a in DASHBOARD["annotations"]["list"]]
    for panel in DASHBOARD["panels"]:
        found += [(panel["title"], target["expr"]) for target in panel.get("targets", ())]
    return found


def is_served(expression: str) -> bool:
    """Whether this checkout has what the expression needs: `overnight serve` is a part of its own."""
    return HAS_SERVER or "overnight_server_" not in expression


def get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


class Prometheus:
    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, what: str, **parameters: str) -> Any:
        path = f"/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        status, body = get(self._port, path)
        assert status == 200, (path, body)
        return json.loads(body)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        for variable, value in {"$__rate_interval": "30s", "$instance": ".*"}.items():
            expression = expression.replace(variable, value)
        return list(self.ask("query", query=expression)["result"])

    def is_ready(self) -> bool:
        try:
            return get(self._port, "/-/ready")[0] == 200
        except OSError:
            return False


def find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def running(*command: str | pathlib.Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=60)


def write_config(
    folder: pathlib.Path, targets: dict[str, list[str]], secrets: dict[str, str]
) -> pathlib.Path:
    """Copy the shipped configuration, and change addresses and intervals only."""
    shutil.copytree(DEPLOY / "prometheus", folder)
    config = yaml.safe_load((folder / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    for job in config["scrape_configs"]:
        if job["job_name"] == "overnight-server" and not secrets:
            # `overnight pool serve` alone has neither TLS nor tokens.
            job.update(scheme="http")
            del job["authorization"], job["tls_config"]
        file = folder / job["file_sd_configs"][0]["files"][0]
        file.write_text(yaml.safe_dump([{"targets": targets[job["job_name"]]}]))
    for name, text in secrets.items():
        (folder / name).write_text(text)
    path = folder / "test.yml"
    path.write_text(yaml.safe_dump(config))
    return path


@contextlib.contextmanager
def serving(folder: pathlib.Path, port: int) -> Iterator[dict[str, str]]:
    """Serve a pool; yield what Prometheus needs besides the address."""
    overnight = [sys.executable, "-m", "overnight", "--home", str(folder / "home")]
    create = [
        "pool",
        "create",
        "ci",
        "--template",
        "plain",
        "--target",
        "0",
        "--provider",
        "process",
    ]
    subprocess.run([*overnight, *create], check=True, capture_output=True)
    if not HAS_SERVER:
        with running(*overnight, "pool", "serve", "--metrics", str(port), "--interval", "1s"):
            yield {}
        return
    certificate, key = folder / "tls.crt", folder / "tls.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
         "-days", "1", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    viewer = [*overnight, "token", "create", "--role", "viewer"]
    token = subprocess.run(viewer, check=True, capture_output=True, text=True).stdout
    where = ["--listen", f"127.0.0.1:{port}", "--tls-cert", certificate, "--tls-key", key]
    with running(*overnight, "serve", *where, "--interval", "1s"):
        yield {"server.token": token.strip(), "server-ca.crt": certificate.read_text()}


def plant_host(root: pathlib.Path) -> int:
    """Add cgroups, and a pipe in place of the kernel log; return its descriptor."""
    files = {
        "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        "sys/fs/cgroup/cgroup.stat": "nr_descendants 239\nnr_dying_descendants 18514\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "dev").mkdir()
    os.mkfifo(root / "dev/kmsg")
    return os.open(root / "dev/kmsg", os.O_RDWR)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, int, str]]:
    """Yield Prometheus, the kernel log of the made-up host, and the host's address."""
    folder = tmp_path_factory.mktemp("prometheus")
    root = folder / "root"
    agent, served, own = (find_port() for _ in range(3))
    page = openmetrics.render(hoststatus.make_status())
    with contextlib.ExitStack() as opened:
        host = opened.enter_context(livehost.LiveHost(root))
        kernel_log = plant_host(root)
        opened.callback(os.close, kernel_log)
        host.saturate(1, pid=4242, name="the-hog")
        made_up = http_listener.Listener(
            "127.0.0.1", 0, http_listener.respond_metrics(lambda: page), serves="x", option="x"
        )
        opened.callback(made_up.close)
        opened.enter_context(running(
            sys.executable, "-m", "overnight.agent", "--home", folder / "agent", "--root", root,
            "--metrics", f"127.0.0.1:{agent}", "--every", "memory-cgroups=1",
        ))  # fmt: skip
        secrets = opened.enter_context(serving(folder, served))
        targets = {
            "overnight-agent": [f"127.0.0.1:{agent}", f"127.0.0.1:{made_up.port}"],
            "overnight-server": [f"127.0.0.1:{served}"],
        }
        config = write_config(folder / "config", targets, secrets)
        opened.enter_context(running(
            "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{own}", "--log.level=warn",
        ))  # fmt: skip
        prometheus = Prometheus(own)
        realmachines.until(prometheus.is_ready, 60)
        with contextlib.suppress(AssertionError):
            realmachines.until(lambda: len(prometheus.query("up == 1")) == 3, 60)
        active = prometheus.ask("targets")["activeTargets"]
        assert {(t["health"], t["lastError"]) for t in active} == {("up", "")}
        yield prometheus, kernel_log, f"127.0.0.1:{agent}"


def test_a_driver_reset_on_a_recorded_host_fires_an_alert(
    scraped: tuple[Prometheus, int, str],
) -> None:
    prometheus, kernel_log, instance = scraped
    selector = f'overnight_events_total{{instance="{instance}", kind="%s"}}'
    assert prometheus.query(selector % "net.driver_reset") == []
    os.write(kernel_log, f"6,1,5000000,-;{RESET}\n".encode())
    realmachines.until(lambda: prometheus.query(selector % "net.driver_reset"), 60)
    os.write(kernel_log, f"2,2,6000000,-;{READ_ONLY}\n".encode())
    realmachines.until(lambda: prometheus.query(selector % "storage.readonly"), 60)

    def firing() -> list[dict[str, str]]:
        alerts = prometheus.ask("alerts")["alerts"]
        return [
            {**alert["labels"], **alert["annotations"]}
            for alert in alerts
            if alert["state"] == "firing" and alert["labels"].get("instance") == instance
        ]

    realmachines.until(lambda: {a["alertname"] for a in firing()} >= {"OvernightDriverReset"}, 60)
    (alert,) = [alert for alert in firing() if alert["alertname"] == "OvernightDriverReset"]
    assert (alert["kind"], alert["severity"]) == ("net.driver_reset", "critical")
    assert alert["summary"].startswith(instance)
    # The other event is critical, too, and has the alert of all other kinds.
    realmachines.until(lambda: "OvernightCriticalEvent" in {a["alertname"] for a in firing()}, 60)


def test_every_query_of_the_dashboard_returns_series(
    scraped: tuple[Prometheus, int, str],
) -> None:
    prometheus, kernel_log, _ = scraped
    os.write(kernel_log, f"6,9,9000000,-;{RESET}\n".encode())
    wanted = [target for target in list_targets() if is_served(target[1])]
    empty: list[tuple[str, str]] = []

    def has_all() -> bool:
        nonlocal empty
        empty = [(title, e) for title, e in wanted if not prometheus.query(e)]
        return not empty

    with contextlib.suppress(AssertionError):
        realmachines.until(has_all, 40)
    assert empty == []
    health = prometheus.ask("rules")["groups"]
    broken = [r["name"] for group in health for r in group["rules"] if r["health"] != "ok"]
    assert broken == []
    assert {r["name"] for group in health for r in group["rules"]} == {
        rule.get("alert") or rule["record"] for rule in read_rules()
    }


def test_every_metric_of_rules_and_dashboard_is_exposed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = pools.Pools(tmp_path)
    where.create("ci", "process", pools.PoolChange(template="plain", target_size=0))
    where.plane.set(reaper.SEEN, "1")
    monkeypatch.setattr(metric_rows, "count_by_pool", lambda *_: [("ci", 1)])
    texts = [openmetrics.render(hoststatus.make_status()), pool_metrics.render(where.plane)]
    if HAS_SERVER:
        counters = importlib.import_module("overnight.app.serving_metrics")
        from overnight.model.openmetrics import Page

        page, counts = Page(), counters.Counters()
        counts.request("/api/v1/agents/report", 200, 0.01)
        counts.report(1, 0, 0)
        counts.add_to(page)
        counters.add_hosts(page, 1, 1)
        held = Reservation(id="r-1", order=Order(provider="local"), state=ReservationState.ACTIVE, made_us=0, until_us=0, cap_us=0)  # fmt: skip
        use = reservations.Reservations(tmp_path)
        monkeypatch.setattr(use, "list", lambda: (held,))
        importlib.import_module("overnight.app.reservation_serving").add_metrics(page, use)
        texts.append(page.text())
    exposed = {
        sample.name
        for text in texts
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }
    recorded = {rule["record"] for rule in read_rules() if "record" in rule}
    expressions = [*(rule["expr"] for rule in read_rules()), *(e for _, e in list_targets())]
    named = {name for e in expressions for name in NAME.findall(e) if is_served(name)}
    assert len(named) >= 25
    assert named - exposed - recorded == set()
    assert recorded <= {name for e in expressions for name in NAME.findall(e)}  # none is unused


def test_the_shipped_configuration_and_rules_pass_promtool(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "prometheus"
    shutil.copytree(DEPLOY / "prometheus", folder)
    for secret in ("server.token", "server-ca.crt"):
        (folder / secret).write_text("")
    promtool = functools.partial(subprocess.run, cwd=folder, capture_output=True, text=True)
    checked = promtool(["promtool", "check", "config", "prometheus.yml"], check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tests = sorted(str(path.relative_to(folder)) for path in (folder / "tests").glob("*.yml"))
    done = promtool(["promtool", "test", "rules", *tests], check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test_in_which_it_fires_and_says_what_to_do() -> None:
    text = "".join(path.read_text() for path in (DEPLOY / "prometheus/tests").glob("*.yml"))
    alerts = [rule for rule in read_rules() if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts)
    for rule in alerts:
        assert re.search(rf'alertname="{rule["alert"]}".*value: 1', text), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description", "action"}
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_panels_of_the_dashboard_do_not_overlap_and_are_described() -> None:
    cells: set[tuple[int, int]] = set()
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        covered = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not covered & cells, panel["title"]
        cells |= covered
        if panel["type"] != "row":
            assert panel["description"].endswith(".")
            assert {t["datasource"]["uid"] for t in panel["targets"]} == {"${datasource}"}
