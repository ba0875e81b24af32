"""`overnight diagnose --server` right after an event, with a real agent and a real server on this host."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import signal
import subprocess
import time

import pytest
import serverprocesses

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_perf, pytest.mark.timeout(400)]
RULE = """
[[rule]]
name = "incident-of-a-test"
kind = "test.incident"
severity = "critical"
regex = '{mark} (?P<number>\\d+)'
meaning = "A test wrote it."
incident = "{{number}}"
matches = [{{ line = "{mark} 1", fields = {{ number = "1" }} }}]
misses = ["x"]
"""


def wait_for(path: pathlib.Path, pattern: str) -> pathlib.Path:
    deadline = time.monotonic() + 120
    while not (found := [*path.glob(pattern)]):
        assert time.monotonic() < deadline, pattern
        time.sleep(0.2)
    return found[0]


def test_an_event_is_diagnosed_from_its_first_window(tmp_path: pathlib.Path) -> None:
    home, mark = tmp_path / "home", f"ovn{os.getpid()}x{time.time_ns()}"
    (home / "rules").mkdir(parents=True)
    (home / "rules/test.toml").write_text(RULE.format(mark=mark))
    home.chmod(0o700)
    with serverprocesses.running(tmp_path / "server") as server:
        (tmp_path / "token").write_text(server.create_token("agent"))
        agent = subprocess.Popen([
            *serverprocesses.OVERNIGHT, "--home", str(home), "agent", "--server", server.url,
            "--token-file", str(tmp_path / "token"),
        ])  # fmt: skip
        try:
            wait_for(home, "spool/*.writing")
            wait_for(home, "signals/*/kernel-log.json")
            wait_for(home, "uplink/credential")
            time.sleep(6)
            pathlib.Path("/dev/kmsg").write_text(f"<2>{mark} 1\n")
            request = wait_for(home, "uplink/windows/test.incident-*.request")
            event_id = request.name.removesuffix(".request").removesuffix(".first")
            time.sleep(1)  # it is reported before it is bundled
            done = subprocess.run(
                [*serverprocesses.OVERNIGHT, "diagnose", event_id, "--server", server.url, "-O", "json"],
                env=os.environ | {"OVERNIGHT_TOKEN": server.create_token("viewer")},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.wait(120)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["event"]["id"] == event_id
    assert document["notes"][0].startswith(f"provisional: {platform.node()} has not uploaded")
    assert document["next"][0]["command"].startswith(f"overnight --server {server.url} diagnose")
    assert "follows at about" in document["notes"][0]
    lines = done.stderr.splitlines()
    assert lines[-1] == "downloading the window"
    assert len(lines) == len({*lines}) <= 2
    assert [path.name for path in home.glob(f"profiles/v1/{platform.node()}/*/*")] != []
