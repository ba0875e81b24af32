from __future__ import annotations

import io
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

import pytest

from overnight import errors
from overnight.app import agent, record
from overnight.interfaces import cli
from overnight.store.ring import reader as rings


def options(home: pathlib.Path, server: str = "http://127.0.0.1:1", **more: object) -> agent.Options:  # fmt: skip
    recorded = record.Options(home, 1.0, profiles=False)
    config = home.parent / "none.toml"
    return agent.Options(recorded, server, **{"config": config, "token": "t", **more})  # type: ignore[arg-type]


def run(home: pathlib.Path, **more: object) -> None:
    stop = threading.Event()
    stop.set()
    agent.run(options(home, **more), stop, lambda _: None, lambda _: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"server": "http://10.1.2.3"}, "refusing plain HTTP"),
        ({"server": "10.1.2.3"}, "is not the URL"),
        ({"ca": pathlib.Path("/nowhere/ca.pem")}, r"ca\.pem cannot be read"),
        ({"token": ""}, "this host is not enrolled"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(
    tmp_path: pathlib.Path, more: dict[str, object], what: str
) -> None:
    with pytest.raises(errors.OvernightError, match=what):
        run(tmp_path / "home", **more)
    assert not (tmp_path / "home" / "signals").exists()


def test_an_enrolled_host_needs_no_token(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "home" / "uplink"
    folder.mkdir(parents=True)
    (folder / "credential").write_text('{"credential": "c"}')
    with pytest.raises(errors.UsageError, match="refusing plain HTTP"):
        run(tmp_path / "home", token="", server="http://10.1.2.3")


@pytest.mark.needs_root
def test_a_file_of_tasks_that_others_can_write_is_refused(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "agent.toml"
    config.touch()
    config.chmod(0o666)
    with pytest.raises(errors.CannotError, match="can be changed by others"):
        run(tmp_path / "home", config=config)


def test_the_file_of_the_host_decides_before_that_of_a_reservation(tmp_path: pathlib.Path) -> None:
    lent, config = tmp_path / "lease.toml", tmp_path / "agent.toml"
    given = options(tmp_path / "home", config=config, default_config=lent)
    assert given.tasks == lent
    config.symlink_to("nowhere")  # refused, not ignored
    assert given.tasks == config
    assert options(tmp_path / "home", config=lent).tasks == lent


def test_one_agent_a_home(tmp_path: pathlib.Path) -> None:
    home = tmp_path / "home"
    (home / "uplink").mkdir(parents=True)
    with (
        agent._locked(home / "uplink" / "lock"),
        pytest.raises(errors.CannotError, match="another agent runs with this data home"),
    ):
        run(home)


def test_the_token_comes_from_a_file_standard_input_or_the_environment(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    assert agent.read_token(file) == ""  # it was used, and removed
    file.write_text("from-file\n")
    assert agent.read_token(file) == "from-file"
    monkeypatch.setattr(sys, "stdin", io.StringIO("from-stdin\n"))
    assert agent.read_token(pathlib.Path("-")) == "from-stdin"
    monkeypatch.setenv(agent.TOKEN, "from-environment")
    assert agent.read_token(None) == "from-environment"
    assert agent.TOKEN not in os.environ  # no child process gets it
    with pytest.raises(errors.CannotError, match="cannot be read"):
        agent.read_token(tmp_path)


def test_the_command_refuses_plain_http(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--home", str(tmp_path), "agent", "--server", "http://10.1.2.3", "-O", "json"]
    assert cli.main(words) == errors.ExitCode.USAGE
    problem = json.loads(capsys.readouterr().err)["error"]
    assert "https://10.1.2.3" in problem["todo"]


def test_an_uplink_that_ends_is_started_again_later_each_time(tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    (tmp_path / "uplink").mkdir()
    (tmp_path / "uplink" / "credential").write_text("damaged")  # the uplink ends with an error
    log: list[str] = []
    again = threading.Event()

    def note(line: str) -> None:
        log.append(line)
        if len(log) == 2:
            again.set()

    supervisor = agent.Supervisor(options(tmp_path, url), note)
    supervisor._runner._inventory_at = float("inf")
    supervisor.start()
    try:
        assert again.wait(50)
    finally:
        supervisor.stop()
    assert log[0] == "the uplink ended (3), starting it again in 1 s; the recording goes on"
    assert "in 2 s" in log[1]


def test_an_uplink_that_fails_for_days_is_started_again(tmp_path: pathlib.Path) -> None:
    log: list[str] = []
    supervisor = agent.Supervisor(options(tmp_path), log.append)
    supervisor._failures = 5000
    supervisor._started = time.monotonic()
    supervisor._uplink = subprocess.Popen(["false"])
    supervisor._uplink.wait()
    supervisor._check_uplink()
    assert "in 60 s" in log[0]


def test_an_agent_without_permission_goes_on_and_reports_what_is_missing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an event, which the uplink sends."""
    monkeypatch.setattr(
        agent.record, "find_missing", lambda _: ("stacks (EACCES)", "the kernel log")
    )
    monkeypatch.setattr(agent.record, "record", lambda *_: "recorded")
    monkeypatch.setattr(agent.Supervisor, "start", lambda _: None)
    monkeypatch.setattr(agent.Supervisor, "stop", lambda _: None)
    lines: list[str] = []
    options = agent.Options(record.Options(tmp_path, 1.0), "http://127.0.0.1:1", token="t")
    assert agent.run(options, threading.Event(), lambda _: None, lines.append) == "recorded"
    (event,) = rings.Reader(tmp_path).events(0, 1 << 62)
    assert (event.kind, event.severity) == ("recorder.partial", "info")
    assert (
        event.text
        == "cannot record stacks (EACCES) and the kernel log; `overnight doctor` names the fix"
    )
    assert lines == [f"warning: {event.text}"]
