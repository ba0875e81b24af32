"""The page as Prometheus' own strict parser reads it."""

from __future__ import annotations

import contextlib
import http.client
import os
import pathlib
import socket

import descriptors
import hoststatus
import noise
import pytest
from prometheus_client.openmetrics import parser

from overnight import errors, sources
from overnight.agent import recorder_loop
from overnight.agent.outlets import openmetrics
from overnight.model.openmetrics import CONTENT_TYPE


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_metric_of_the_convention_has_its_value():
    metrics = samples(openmetrics.render(hoststatus.make_status()))
    assert metrics["overnight_cpu_saturated_seconds_total", ("39",)] == 6.0
    assert metrics["overnight_kernel_events_total", ("ena-tx-paused",)] == 2
    assert metrics["overnight_memory_cgroups", ("dying",)] == 68_440
    assert metrics["overnight_memory_cgroups", ("tracked",)] == 68_680
    assert metrics["overnight_events_total", ("critical", "net.driver_reset")] == 2
    assert metrics["overnight_unit_restarts_total", ("ecs.service",)] == 17
    assert ("overnight_unit_restarts_total", ("ssh.service",)) not in metrics
    assert metrics["overnight_agent_resident_memory_bytes", ()] == 20e6


def test_metrics_of_node_problem_detector_are_served():
    metrics = samples(openmetrics.render(hoststatus.make_status()))
    assert metrics["problem_counter", ("NetDriverReset",)] == 2
    assert metrics["problem_gauge", ("MemoryZombieCgroups", "ZombieMemoryCgroups")] == 1
    quiet = samples(openmetrics.render(hoststatus.make_status(open=())))
    assert quiet["problem_gauge", ("MemoryZombieCgroups", "ZombieMemoryCgroups")] == 0


def test_hostile_labels_stay_labels():
    text = openmetrics.render(hoststatus.make_status(rules={'a"} 1\n# EOF\nevil{x="': 1}))
    metrics = samples(text)
    assert ("overnight_kernel_events_total", ('a"} 1\n# EOF\nevil{x="',)) in metrics
    assert text.count("# EOF\n") == 1


def test_a_host_without_events_has_a_page():
    empty = hoststatus.make_status(
        rows={}, facts={}, counts={}, rules={}, saturated={}, open=(), agent={}
    )
    assert samples(openmetrics.render(empty))["overnight_host_info", ("", "", "", "", "db-7")] == 1


@pytest.fixture
def endpoint():
    opened = openmetrics.Endpoint("127.0.0.1", 0)
    yield opened
    opened.close()


def ask(endpoint: openmetrics.Endpoint, path: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=5)
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.body = answer.read()
    connection.close()
    return answer


def test_the_endpoint_answers_once_a_second_has_passed(endpoint):
    assert ask(endpoint, "/metrics").status == 503
    endpoint.tick(hoststatus.make_status())
    answer = ask(endpoint, "/metrics?x=1")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == CONTENT_TYPE
    assert samples(answer.body.decode())
    assert ask(endpoint, "/etc/passwd").status == 404


def test_an_address_in_use_is_an_error(endpoint):
    with pytest.raises(errors.CannotError, match="cannot serve metrics"):
        openmetrics.Endpoint("127.0.0.1", endpoint.port)


def test_a_page_is_rendered_once_a_second_however_often_it_is_requested(endpoint, monkeypatch):
    rendered = []
    render = openmetrics.render
    monkeypatch.setattr(openmetrics, "render", lambda s: (rendered.append(s), render(s))[1])
    for _ in range(2):
        status = hoststatus.make_status()
        endpoint.tick(status)
        pages = {ask(endpoint, "/metrics").body for _ in range(3)}
        assert len(pages) == 1
        assert rendered.pop() is status
        assert not rendered


class Sink:
    """Stores nothing."""

    def numbers(self, *_, **__): ...


def test_slow_clients_do_not_cost_the_collector_a_poll(endpoint):
    """16 clients hold a descriptor, one more is being refused, and 8 are left for the collector."""

    def read() -> sources.Rows:
        opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
        for descriptor in opened:
            os.close(descriptor)
        return {"": (len(opened),)}

    signal = sources.Signal("a", 1.0, "", ("n",), lambda root: read)
    loop = recorder_loop.RecorderLoop(
        recorder_loop.Parts(
            "db-7", "boot", (signal,), (), Sink(), root=pathlib.Path("/nonexistent")
        )
    )
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(socket.socket()) for _ in range(32)]
        with descriptors.leave_descriptors(25):
            for client in clients:
                client.settimeout(noise.HANG_SECONDS)
                client.connect(("127.0.0.1", endpoint.port))
                client.sendall(b"G")
            refused = [client for client in clients[16:] if client.recv(12) == b"HTTP/1.0 503"]
            assert len(refused) == 16
            assert loop.poll("a", hoststatus.make_status().clock) is None
