"""`overnight record` refuses what cannot work, and reports at once what fails later."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import socket
import threading
from collections.abc import Iterator

import exhaustion
import jsonschema
import pytest

from overnight import errors, sources
from overnight.agent import profiler
from overnight.app import record
from overnight.interfaces import cli
from overnight.model.recording import Failure, Part, Recording
from overnight.sources import kmsg
from overnight.sources.perf import events

REPOSITORY = pathlib.Path(__file__).parents[3]
SCHEMA = json.loads((REPOSITORY / "docs/schemas/recording-1.json").read_text())


def run(home: pathlib.Path, *words: str) -> int:
    return cli.main(["--home", str(home), "record", "--for", "1s", *words])


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_is_refused(
    tmp_path: pathlib.Path, taken: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--signals-only", "--metrics", str(taken), "-O", "json") == 3
    problem = json.loads(capsys.readouterr().err)["error"]
    assert problem["what"] == f"cannot serve metrics on 127.0.0.1:{taken}"
    assert "Address already in use" in problem["why"]
    assert "--metrics" in problem["todo"]


@pytest.mark.parametrize("folder", ["mine", "rules"])
def test_a_bad_rule_file_is_refused(
    tmp_path: pathlib.Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "bad.toml").write_text("[[rule]]\nname = 1\n")
    words = ["--rules", str(tmp_path / folder)] if folder == "mine" else []
    assert run(tmp_path, "--signals-only", *words) == 2
    assert f"invalid rule file {tmp_path / folder / 'bad.toml'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rules", "/nowhere"], "--rules /nowhere is not a folder"),
        (
            ["--profiles-only", "--metrics", "9464"],
            "--metrics, --rules, --every and --cloud-labels",
        ),
        (["--profiles-only", "--signals-only"], "mutually exclusive"),
    ],
)
def test_options_without_effect_are_refused(
    tmp_path: pathlib.Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *words) == 2
    assert message in capsys.readouterr().err


def test_nothing_to_record_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = events.Probe((), {0: "perf_event_paranoid is 4"}, False, False, False)
    monkeypatch.setattr(events, "probe", lambda _: refused)
    assert run(tmp_path, "--profiles-only") == 3
    assert "perf_event_paranoid is 4" in capsys.readouterr().err


def options(home: pathlib.Path, **changes: object) -> record.Options:
    return record.Options(home, seconds=3600.0, **changes)  # type: ignore[arg-type]


def find_child(module: str) -> int:
    for path in pathlib.Path("/proc/self/task").glob("*/children"):
        for pid in path.read_text().split():
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if module.encode() in words:
                return int(pid)
    raise AssertionError(f"no child runs {module}")


def test_a_recording_ends_when_its_only_part_dies(tmp_path: pathlib.Path) -> None:
    seen: list[tuple[Failure, ...]] = []

    def on_progress(now: record.Progress) -> None:
        if not seen:
            os.kill(find_child("overnight.agent"), signal.SIGKILL)
        seen.append(now.failures)

    recording = record.record(options(tmp_path, profiles=False), threading.Event(), on_progress)
    (failure,) = recording.failures
    assert failure.part is Part.FLIGHT_RECORDER
    assert "signal 9" in failure.why
    assert seen[0] == ()
    assert seen[-1] == (failure,)
    assert recording.signals is None
    jsonschema.validate(json.loads(json.dumps(recording.as_json())), SCHEMA)


STATUS = profiler.Status(
    "recording", "", 1, "native", 97, 120.0, 0, 0, 1.0, 0.1, 1.0, 1, 0, 0, 0, 0, 0, False, 1 << 30
)
SUMMARY = profiler.Summary(1.0, (), (), 0, 0, 0.0, 0)


def test_signals_are_recorded_when_the_profiler_dies(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(_options: object, _stop: object, on_status: object) -> None:
        on_status(STATUS)  # type: ignore[operator]
        raise OSError(5, "Input/output error")

    stop, seen = threading.Event(), []

    def on_progress(now: record.Progress) -> None:
        seen.append(now)
        if now.failures:
            stop.set()

    monkeypatch.setattr(record, "_choose", lambda *_: ("native", ""))
    monkeypatch.setattr(profiler, "run", die)
    recording = record.record(options(tmp_path), stop, on_progress)
    (failure,) = recording.failures
    assert failure.part is Part.PROFILER
    assert "Input/output error" in failure.why
    assert (seen[0].status, seen[0].failures) == (STATUS, ())
    assert recording.signals is not None


@pytest.mark.parametrize("recovers", [True, False])
def test_a_profiler_that_does_not_recover_is_a_failure(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, recovers: bool
) -> None:
    full = dataclasses.replace(STATUS, mode="paused", why="the disk is nearly full")
    stopped = dataclasses.replace(STATUS, mode=profiler.STOPPED)

    def pause(_options: object, _stop: object, on_status: object) -> profiler.Summary:
        for status in (STATUS, full, full, *([STATUS] if recovers else []), stopped):
            on_status(status)  # type: ignore[operator]
        return SUMMARY

    seen: list[int] = []
    monkeypatch.setattr(record, "_choose", lambda *_: ("native", ""))
    monkeypatch.setattr(profiler, "run", pause)
    recording = record.record(
        options(tmp_path), threading.Event(), lambda now: seen.append(len(now.failures))
    )
    assert seen == ([0, 1, 1, 0, 0] if recovers else [0, 1, 1, 1])
    assert [failure.why for failure in recording.failures] == ([] if recovers else [full.why])


def test_children_that_end_with_a_stopped_recording_are_no_failure(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As systemd does it: it sends SIGTERM to every process of a service."""

    def end(_options: object, stop: threading.Event, on_status: object) -> profiler.Summary:
        agent = find_child("overnight.agent")
        stop.set()
        os.kill(agent, signal.SIGTERM)
        os.waitid(os.P_PID, agent, os.WEXITED | os.WNOWAIT)
        on_status(STATUS)  # type: ignore[operator]
        return SUMMARY

    monkeypatch.setattr(record, "_choose", lambda *_: ("native", ""))
    monkeypatch.setattr(profiler, "run", end)
    recording = record.record(options(tmp_path), threading.Event(), lambda _: None)
    assert recording.failures == ()
    assert recording.signals is not None


def test_a_profiler_that_does_not_start_is_an_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise errors.CannotError("no", why="busy", todo="wait")

    monkeypatch.setattr(record, "_choose", lambda *_: ("native", ""))
    monkeypatch.setattr(profiler, "run", refuse)
    with pytest.raises(errors.CannotError, match="no"):
        record.record(options(tmp_path), threading.Event(), lambda _: None)


def test_a_failure_is_shown_at_once_and_the_command_exits_with_3(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = Failure(Part.FLIGHT_RECORDER, "killed by [red]signal 9", 1_794_725_459_000_000)

    def fail(given: record.Options, stop: object, on_progress: object) -> Recording:
        for failures in ((), (failure,), (failure,)):
            on_progress(record.Progress(1.0, STATUS, (0, 1.0), failures))  # type: ignore[operator]
        shown = capsys.readouterr().err
        assert shown.count("error: the flight recorder failed") == 1
        assert "killed by [red]signal 9" in shown
        return Recording("h", str(given.home), 0, 1, 1.0, (), None, None, (), failures=(failure,))

    monkeypatch.setattr(record, "record", fail)
    assert run(tmp_path) == 3
    assert "killed by [red]signal 9" in capsys.readouterr().out
    assert run(tmp_path, "-O", "json") == 3
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert document["failures"][0]["part"] == "flight-recorder"


@pytest.mark.parametrize(
    ("environment", "named", "begin"),
    [
        ({}, True, "overnight --home '{home}' "),
        ({"OVERNIGHT_HOME": "{home}"}, False, "overnight "),
        (
            {"OVERNIGHT_HOME": "{home}", "SUDO_USER": "ada"},
            False,
            "sudo overnight --home '{home}' ",
        ),
    ],
)
def test_the_next_commands_read_this_recording(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    environment: dict[str, str],
    named: bool,
    begin: str,
) -> None:
    home = tmp_path / "a night"
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(home=home))
    recording = Recording("db-7", str(home), 0, 1, 1.0, (), None, None, ())
    monkeypatch.setattr(record, "record", lambda *_: recording)
    assert cli.main([*(["--home", str(home)] if named else []), "record"]) == 0
    printed = capsys.readouterr().out
    for command in ("events", "diagnose"):
        assert f"next: `{begin.format(home=home)}{command}` " in printed


def test_progress_without_descriptors_does_not_end_the_recording() -> None:
    shown: list[record.Progress] = []
    monitor = record.Monitor(threading.Event(), shown.append)
    with exhaustion.no_descriptors():
        monitor.show()
    assert len(shown) == 1


@pytest.mark.parametrize(
    ("cores", "refused", "kernel", "missing"),
    [
        ((0, 1), {}, True, ()),
        ((), {0: "EACCES: Permission denied"}, False, ("stacks (perf_event_open: EACCES: Permission denied)",)),
        ((0,), {1: "EBUSY: busy"}, True, ("stacks of cores 1 (perf_event_open: EBUSY: busy)",)),
        ((0, 1), {}, False, ("kernel stacks (perf_event_open: only user space is allowed)",)),
        ((), {}, False, ("stacks (perf_event_open: no core to sample)",)),
    ],
)  # fmt: skip
def test_what_may_not_be_recorded_is_found_before_the_start(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    cores: tuple[int, ...],
    refused: dict[int, str],
    kernel: bool,
    missing: tuple[str, ...],
) -> None:
    probe = events.Probe(cores, refused, kernel, hardware_cycles=False, own_process=True)
    monkeypatch.setattr(events, "probe", lambda _: probe)
    asked = record.Options(tmp_path, 1.0, signals=False)
    assert record.find_missing(asked) == missing
    assert record.find_missing(dataclasses.replace(asked, profiles=False)) == ()


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        (errors.MissingPermissionError("x", why="denied", todo="y"), ("the kernel log (denied)",)),
        (sources.NoDataError("does not exist"), ()),
        (OSError(24, "Too many open files"), ()),
    ],
)
def test_a_kernel_log_that_may_not_be_read_is_missing_an_absent_one_is_not(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    missing: tuple[str, ...],
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(kmsg.KernelLog, "open", refuse)
    assert record.find_missing(record.Options(tmp_path, 1.0, profiles=False)) == missing
