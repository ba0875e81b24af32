from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from overnight.agent import task_config, task_runner
from overnight.agent.uplink import tasks
from overnight.model import checked_json, process_identity
from overnight.model.protocol import TaskKind

pytestmark = pytest.mark.needs_root  # the file of tasks belongs to root
EVER = 1 << 60
ALL = (
    'allow = ["record","load","age","snapshot","upload-window","instrument","change","undo","stop"]'
)


class Host:
    def __init__(self, home: pathlib.Path, config: str) -> None:
        self.home = home
        self.file = home / "agent.toml"
        self.file.write_text(config)
        self.file.chmod(0o600)
        self.log: list[str] = []
        self.start()

    def start(self) -> None:
        self.runner = task_runner.TaskRunner(self.home, "db-7", self.file, log=self.log.append)
        self.runner._inventory_at = float("inf")

    def ask(self, task_id: str, kind: str, /, expires_us: int = EVER, **arguments: object) -> None:
        task = {"id": task_id, "kind": kind, "arguments": arguments, "expires_us": expires_us}
        tasks.Tasks(self.home / "uplink" / "tasks").accept(task)
        self.runner.step()

    def state(self, name: str) -> dict[str, object]:
        return tasks.read_json(self.home / "uplink" / "tasks" / name / "state.json") or {}

    def finish(self, name: str) -> dict[str, object]:
        """Step until a task has ended."""
        self.until(lambda: self.state(name).get("state") in tasks.FINAL)
        return self.state(name)

    def until(self, done: Callable[[], object]) -> None:
        for _ in range(3000):
            self.runner.step()
            if done():
                return
            time.sleep(0.01)
        pytest.fail("nothing happened for 30 s")


@pytest.fixture
def host(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Host]:
    tmp_path.chmod(0o700)
    made = Host(tmp_path, getattr(request, "param", f"[tasks]\n{ALL}"))
    yield made
    made.runner.close()


def instruments(**commands: str) -> str:
    """Return a configuration with a Python program for each instrument."""
    lines = [f"[tasks]\n{ALL}"]
    for name, program in commands.items():
        argv = json.dumps([sys.executable, "-c", program])
        lines.append(f"[instruments.{name}]\nargv = {argv}\nseconds = 20")
    return "\n".join(lines)


@pytest.mark.parametrize("host", [instruments(hello="print('hello'); import sys; print(sys.argv)", fail="raise SystemExit(4)", env="import os; print(sorted(os.environ))")], indirect=True)  # fmt: skip
def test_an_instrument_is_run_as_it_is_written(host: Host) -> None:
    host.ask("1", "instrument", name="hello")
    done = host.finish("1")
    assert done["state"] == "done"
    assert done["result"] == {"output": "hello\n['-c']\n"}
    host.ask("2", "instrument", name="fail")
    assert host.finish("2")["detail"] == "exit code 4"
    host.ask("3", "instrument", name="env")
    assert "PYTHONPATH" not in str(host.finish("3")["result"])


@pytest.mark.parametrize(
    ("kind", "arguments", "reason"),
    [
        ("instrument", {"name": "hello; rm -rf /"}, "lists no instrument"),
        ("instrument", {"name": "hello", "argv": ["/bin/sh"]}, "unknown argument 'argv'"),
        ("instrument", {"name": ["hello"]}, "lists no instrument"),
        ("change", {"name": "mask"}, "lists no change"),
        ("undo", {}, "no such change"),
        ("record", {}, "seconds is not a whole number from 1 to 3600"),
        ("record", {"seconds": 3601}, "seconds is not a whole number"),
        ("record", {"seconds": True}, "seconds is not a whole number"),
        ("record", {"seconds": 10, "frequency": 10**6}, "frequency is not a whole number"),
        ("record", {"seconds": 10, "every": ["units"]}, "every is not an object"),
        ("load", {"seconds": 5, "workload": "--help"}, "workload is not of the form"),
        ("load", {"seconds": 5, "workload": "cpu", "cores": "--home"}, "cores is not of the form"),
        ("load", {"seconds": 5, "workload": "cpu", "duty": 101}, "duty is not a whole number"),
        ("age", {"state": "x", "number": -1}, "number is not a whole number"),
        ("snapshot", {"root": "/etc"}, "unknown argument"),
        ("upload-window", {"event": "--home"}, "event is not of the form"),
        ("upload-window", {"begin_us": 5, "end_us": 5}, "end_us is not a whole number"),
        ("upload-window", {"begin_us": 0, "end_us": 1 << 50}, "end_us is not a whole number"),
        ("stop", {"signal": 9}, "unknown argument"),
        (
            "load",
            {"workload": "replay", "seconds": 9, "profile": "/etc/shadow"},
            "a profile is a file of the machine",
        ),
        ("load", {"workload": "trials", "seconds": 9, "address": "--home=/"}, "address is not"),
    ],
)
def test_what_is_not_typed_is_refused(
    host: Host, kind: str, arguments: dict[str, object], reason: str
) -> None:
    host.ask("1", kind, **arguments)
    state = host.state("1")
    assert state["state"] == "refused"
    assert reason in str(state["detail"])
    assert not host.runner._jobs.running


def test_values_become_arguments_of_a_fixed_command(host: Host) -> None:
    config = task_config.TaskConfig(frozenset({"record", "load", "age"}))
    cli = (sys.executable, "-m", "overnight", "--home", str(host.home))
    for kind, given, words in (
        ("record", {"seconds": 60}, ("record", "--for", "60s", "--profiles-only")),
        ("record", {"seconds": 60, "frequency": 49, "segment": 15, "budget": 10**9, "every": {"units": 2}}, ("record", "--for", "60s", "--frequency", "49", "--segment", "15s", "--budget", "1000000000B", "--every", "units=2", "--profiles-only")),
        ("load", {"workload": "cpu", "seconds": 9, "cores": "1-3,5", "duty": 60}, ("load", "-O", "json", "cpu", "--for", "9s", "--duty", "60%", "--cores", "1-3,5")),
        ("load", {"workload": "trials", "seconds": 9, "seed": 4, "orchestrator": "ray", "address": "ray://head:10001"}, ("load", "-O", "json", "trials", "--for", "9s", "--seed", "4", "--orchestrator", "ray", "--address", "ray://head:10001")),
        ("age", {"state": "memory-cgroups", "number": 500}, ("age", "-O", "json", "memory-cgroups", "500")),
        ("age", {"state": "uptime", "arm": "fixed"}, ("age", "-O", "json", "uptime", "--arm", "fixed")),
        ("age", {"state": "purge", "arm": "purged"}, ("age", "-O", "json", "purge", "--yes", "--arm", "purged")),
        ("age", {"state": "undo"}, ("age", "-O", "json", "--undo")),
    ):  # fmt: skip
        arguments = checked_json.Object(given, "arguments")
        command = host.runner._find_fixed(TaskKind(kind), "1", arguments, config)
        assert command.argv == (*cli, *words)


BUILTIN = f"[tasks]\n{ALL}\nmax_seconds = 600\ninstruments = ['runqueue-latency', 'slow-syscalls', 'later']\n[instruments.talk]\nargv = ['/bin/echo', 'x']"


@pytest.mark.parametrize("host", [BUILTIN], indirect=True)
def test_instruments_of_overnight_run_by_name_if_the_host_lists_them(host: Host) -> None:
    config = task_config.read(host.file)
    cli = (sys.executable, "-m", "overnight", "--home", str(host.home), "instrument")
    for given, words in (
        ({"name": "runqueue-latency", "seconds": 60}, ("runqueue-latency", "--for", "60s")),
        ({"name": "slow-syscalls", "target": "kubelet", "seconds": 9}, ("slow-syscalls", "kubelet", "--for", "9s")),
        ({"name": "talk", "seconds": 9}, ("talk", "--for", "9s")),
    ):  # fmt: skip
        arguments = checked_json.Object(given, "arguments")
        command = host.runner._find_fixed(TaskKind.INSTRUMENT, "1", arguments, config)
        assert command.argv == (*cli, *words, "--config", str(host.file))
        assert command.seconds > int(str(given["seconds"]))
    for n, (given, reason) in enumerate(
        (
            ({"name": "runqueue-latency"}, "seconds is not a whole number from 1 to 600"),
            ({"name": "runqueue-latency", "seconds": 601}, "seconds is not a whole number"),
            ({"name": "off-cpu", "seconds": 5}, "lists no instrument 'off-cpu'"),
            ({"name": "slow-syscalls", "seconds": 5, "target": "--home"}, "target is not of the form"),
            ({"name": "slow-syscalls", "seconds": 5, "target": 'x"{'}, "target is not of the form"),
            ({"name": "--help", "seconds": 5}, "name is not of the form"),
        )
    ):  # fmt: skip
        host.ask(str(n), "instrument", **given)
        assert host.state(str(n))["state"] == "refused"
        assert reason in str(host.state(str(n))["detail"])


@pytest.mark.parametrize("host", [BUILTIN], indirect=True)
def test_lines_of_a_command_with_a_time_are_stored(host: Host) -> None:
    from overnight.store import readings

    host.ask("1", "instrument", name="talk", seconds=30)
    done = host.finish("1")
    assert done["state"] == "done", done
    (recording,) = readings.read_recordings(host.home)
    stored = readings.read_readings(host.home, recording.host, 0, 1 << 62)
    assert [reading.text for _, reading in stored] == ["x"]
    host.ask("2", "instrument", name="later", seconds=30)
    assert "unknown instrument 'later'" in str(host.finish("2")["detail"])


@pytest.mark.parametrize("host", ["[tasks]\nallow = ['snapshot']\n[instruments.x]\nargv = ['/bin/true']"], indirect=True)  # fmt: skip
def test_a_kind_must_be_allowed_also_if_the_name_is_listed(host: Host) -> None:
    host.ask("1", "instrument", name="x")
    assert "does not allow instrument" in str(host.state("1")["detail"])
    host.ask("2", "snapshot", expires_us=5)
    assert "expired before" in str(host.state("2")["detail"])
    host.file.chmod(0o666)  # anybody could have added this
    host.ask("3", "snapshot")
    assert "chmod go-w" in str(host.state("3")["detail"])
    assert host.state("3")["state"] == "refused"


SLEEP = "import time; print('begun', flush=True); time.sleep(600)"


@pytest.mark.parametrize("host", [instruments(sleep=SLEEP)], indirect=True)
def test_a_task_is_stopped_by_another(host: Host) -> None:
    host.ask("1", "instrument", name="sleep")
    host.until(lambda: "pid" in host.state("1"))
    pid = int(str(host.state("1")["pid"]))
    host.ask("2", "stop", task="1")
    assert "stopped by task 2" in str(host.finish("1")["detail"])
    assert host.state("1")["state"] == "failed"
    assert process_identity.read_stat(pid)[0] in "XZ"


@pytest.mark.parametrize("host", [instruments(sleep=SLEEP).replace("seconds = 20", "seconds = 0.3")], indirect=True)  # fmt: skip
def test_a_task_has_a_time_limit(host: Host) -> None:
    host.ask("1", "instrument", name="sleep")
    assert str(host.finish("1")["detail"]).startswith("it exceeded its time limit")


@pytest.mark.parametrize("host", [instruments(flood="while True: print('x' * 1000)")], indirect=True)  # fmt: skip
def test_output_is_bounded(host: Host) -> None:
    host.ask("1", "instrument", name="flood")
    done = host.finish("1")
    assert done["state"] == "failed"
    assert len(str(done["result"])) < 1 << 17
    assert (host.home / "uplink/tasks/1/log").stat().st_size <= 8 << 20


def test_after_kill_9_running_tasks_are_failed_and_ended(host: Host) -> None:
    child = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
    try:
        host.ask("1", "snapshot")
        host.runner.close()
        state = {"state": "running", "pid": child.pid, **process_identity.read_identity(child.pid)}
        folder = host.home / "uplink" / "tasks"
        (folder / "1" / "state.json").write_text(json.dumps(state))
        (folder / "2").mkdir()
        (folder / "2" / "state.json").write_text('{"state": "running"}')  # killed before the start
        host.start()
        for name in ("1", "2"):
            assert host.state(name)["state"] == "failed"
            assert host.state(name)["detail"] == "the agent ended while it ran"
        assert child.wait(30) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()


def change(folder: pathlib.Path, name: str) -> str:
    program = "import sys, pathlib; pathlib.Path(sys.argv[1]).{}"
    made, undone = "touch()", "unlink()"
    lines = [f"[changes.{name}]"]
    for key, action in (("argv", made), ("undo", undone)):
        argv = [sys.executable, "-c", program.format(action), str(folder / name)]
        lines.append(f"{key} = {json.dumps(argv)}")
    return "\n".join(lines)


def test_changes_are_noted_first_and_undone(host: Host, tmp_path: pathlib.Path) -> None:
    names = ("mask", "limit", "pin")
    host.file.write_text(
        "\n".join([f"[tasks]\n{ALL}", *(change(tmp_path, name) for name in names)])
    )
    for name in names:
        host.ask(name, "change", name=name)
        assert json.loads((tmp_path / "uplink/changes.json").read_text())["changes"][-1]["task"] == name  # fmt: skip
        assert host.finish(name)["state"] == "done"
        assert (tmp_path / name).exists()
    host.file.write_text(f"[tasks]\n{ALL}")  # undone as it was written when it was made
    host.ask("u1", "undo", task="limit")
    assert host.finish("u1")["state"] == "done"
    assert [(tmp_path / name).exists() for name in names] == [True, False, True]
    host.ask("u2", "undo")
    assert host.finish("u2")["state"] == "done"
    assert not any((tmp_path / name).exists() for name in names)
    host.ask("u3", "undo")
    assert host.state("u3")["state"] == "refused"


def test_an_undo_that_fails_can_be_repeated(host: Host, tmp_path: pathlib.Path) -> None:
    host.file.write_text(f"[tasks]\n{ALL}\n{change(tmp_path, 'mask')}")
    host.ask("1", "change", name="mask")
    host.finish("1")
    (tmp_path / "mask").unlink()
    host.ask("2", "undo")
    assert host.finish("2")["state"] == "failed"
    (tmp_path / "mask").touch()
    host.ask("3", "undo")
    assert host.finish("3")["state"] == "done"


def test_a_bundle_is_begun_when_it_is_due_and_tried_again(
    host: Host, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_runner, "RETRY_SECONDS", 0.0)
    folder = tmp_path / "uplink" / "windows"
    later = time.time_ns() // 1000 + 60_000_000
    (folder / "a-1.request").write_text(json.dumps({"event": "a-1", "due_us": later}))
    host.runner.step()
    assert not host.runner._jobs.running
    begun: list[tuple[str, ...]] = []

    def command(name: str, given: checked_json.Object) -> tuple[str, ...]:
        begun.append((name, given.text("event")))
        program = f"import pathlib; pathlib.Path({str(folder)!r}, {name + '.json'!r}).touch()"
        return (sys.executable, "-c", "raise SystemExit(3)" if len(begun) < 3 else program)

    monkeypatch.setattr(host.runner, "_bundle", command)
    (folder / "a-1.request").write_text(json.dumps({"event": "a-1", "due_us": 5}))
    host.until(lambda: not (folder / "a-1.request").exists())
    assert (folder / "a-1.json").exists()
    assert begun == [("a-1", "a-1")] * 3
    assert not (folder / "a-1.done").exists()
    begun.clear()
    monkeypatch.setattr(host.runner, "_bundle", lambda *_: (sys.executable, "-c", "raise SystemExit(3)"))  # fmt: skip
    (folder / "b-1.request").write_text(json.dumps({"event": "b-1", "due_us": 5}))
    host.until((folder / "b-1.done").exists)
    assert "no bundle of event b-1: exit code 3" in host.log[-1]


def test_first_bundles_are_begun_before_whole_ones(
    host: Host, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "uplink" / "windows"
    for name in ("a-1", "z-1", "z-1.first"):
        document = {"event": name.removesuffix(".first"), "due_us": 5}
        (folder / f"{name}.request").write_text(json.dumps(document))
    begun: list[tuple[str, ...]] = []

    def command(name: str, given: checked_json.Object) -> tuple[str, ...]:
        begun.append((name, given.text("event")))
        return (sys.executable, "-c", "")

    monkeypatch.setattr(host.runner, "_bundle", command)
    host.until(lambda: not [*folder.glob("*.request")])
    assert begun == [("z-1.first", "z-1"), ("a-1", "a-1"), ("z-1", "z-1")]


def test_the_folder_of_bundles_is_bounded(host: Host, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "uplink" / "windows"
    for n in range(5):
        (folder / f"e-{n}.overnight").write_bytes(bytes(1000))
        (folder / f"e-{n}.json").touch()
        os.utime(folder / f"e-{n}.overnight", (n, n))
    host.runner._window_bytes = 2500
    host.runner._make_room()
    assert sorted(path.name for path in folder.iterdir()) == [
        "e-0.done", "e-1.done", "e-2.done", "e-3.json", "e-3.overnight", "e-4.json", "e-4.overnight",
    ]  # fmt: skip


@pytest.mark.parametrize(("left", "state"), [("d" * 64, "done"), ("", "failed")])
def test_a_window_that_was_uploaded_before_its_process_is_seen_to_end_is_done(
    host: Host, monkeypatch: pytest.MonkeyPatch, left: str, state: str
) -> None:
    path = host.home / "uplink/windows/task-1.done"
    program = f"import pathlib; pathlib.Path({str(path)!r}).write_text({left!r})"
    monkeypatch.setattr(host.runner, "_bundle", lambda *_: (sys.executable, "-c", program))
    host.ask("1", "upload-window", begin_us=1, end_us=2)
    ended = host.finish("1")
    assert (ended["state"], ended["result"]) == (state, {"sha256": left})
    assert ("refused" in str(ended["detail"])) == (state == "failed")


BUILTIN = """
[changes.mask]
builtin = "mask-unit"
targets = ["ember-*.service"]
[changes.cap]
builtin = "cap-cpu"
targets = ["/overnight-none/*"]
[changes.reboot]
builtin = "reboot"
[changes.echo]
argv = ["/bin/true"]
undo = ["/bin/true"]
"""


@pytest.mark.parametrize("host", [f"[tasks]\n{ALL}\n{BUILTIN}"], indirect=True)
@pytest.mark.parametrize(
    ("name", "target", "reason"),
    [
        ("mask", None, "takes a service"),
        ("mask", "sshd.service", "no pattern of targets allows 'sshd.service'"),
        ("mask", "--now", "is not a service"),
        ("mask", "ember-a.service; reboot", "mask-unit takes"),
        ("mask", "ember-x/../../sshd.service", "is not a service"),
        ("mask", "ember-$(reboot).service", "is not a service"),
        ("mask", ["ember-a.service"], "target is not a text"),
        ("mask", "x" * 5000, "target is not a text"),
        ("reboot", "now", "takes no target"),
        ("echo", "x", "is a command, and takes no target"),
        ("cap", "/overnight-none/a 50", "is not a share"),
    ],
)
def test_targets_that_are_not_allowed_are_refused(
    host: Host, name: str, target: object, reason: str
) -> None:
    host.ask("1", "change", name=name, **({} if target is None else {"target": target}))
    assert host.state("1")["state"] == "refused"
    assert reason in str(host.state("1")["detail"])
    assert not host.runner._jobs.running
    assert not (host.home / "uplink/changes.json").exists()


@pytest.mark.parametrize("host", [f"[tasks]\n{ALL}\n{BUILTIN}"], indirect=True)
def test_a_builtin_change_runs_as_a_child_process_and_is_undone(host: Host) -> None:
    host.ask("1", "change", name="cap", target="/overnight-none/a 50%")
    noted = json.loads((host.home / "uplink/changes.json").read_text())["changes"]
    assert noted[0]["builtin"] == "cap-cpu /overnight-none/a 50%"
    assert host.finish("1")["state"] == "failed"  # the cgroup does not exist
    assert "cannot limit /overnight-none/a" in str(host.state("1")["detail"])
    host.file.write_text(f"[tasks]\n{ALL}")
    host.ask("2", "undo", task="1")
    assert host.finish("2")["detail"] == "nothing of task 1 is left to undo\n"
    host.ask("3", "undo", task="1")
    assert host.state("3")["state"] == "refused"


@pytest.mark.parametrize("host", [f"[tasks]\n{ALL}\n{BUILTIN}"], indirect=True)
@pytest.mark.parametrize("ends", ["with the host", "without a reboot", "by itself"])
def test_a_reboot_is_done_when_the_boot_id_is_another(
    host: Host, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    program = "raise SystemExit(3)" if ends == "by itself" else SLEEP
    argv = (sys.executable, "-c", program)
    command = task_config.Command(argv, 60, is_builtin=True, is_reboot=True)
    monkeypatch.setattr(host.runner, "_builtin", lambda *_, **__: command)
    host.ask("1", "change", name="reboot")
    if ends == "by itself":
        assert host.finish("1")["detail"] == "exit code 3"
        return
    host.until(lambda: "pid" in host.state("1"))
    host.runner.close()
    assert host.state("1")["state"] == "running"
    if ends == "with the host":
        monkeypatch.setattr(process_identity, "read_boot", lambda: "b2")
    host.start()
    after = {"with the host": ("done", "rebooted, boot b2"), "without a reboot": ("failed", "the agent ended while it ran")}  # fmt: skip
    assert (host.state("1")["state"], host.state("1")["detail"]) == after[ends]


def test_an_agent_that_records_stacks_itself_only_waits(tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o700)
    host = Host(tmp_path, f"[tasks]\n{ALL}")
    host.runner = task_runner.TaskRunner(tmp_path, "db-7", host.file, records_stacks=True)
    host.runner._inventory_at = float("inf")
    host.ask("t-1", "record", seconds=1)
    ended = host.finish("t-1")
    assert ended["state"] == "done"
    assert ended["result"]["seconds"] >= 1  # type: ignore[index]
    host.runner.close()


@pytest.mark.parametrize("hosts", ["a,b", ["a", "-b"], ["a;b"], [1]])
def test_hosts_of_a_cluster_are_plain_names(host: Host, hosts: object) -> None:
    host.ask("t-1", "load", workload="trials", seconds=1, hosts=hosts)
    assert host.state("t-1")["detail"] == "hosts is not a list of host names"
    words = task_runner._list_options(checked_json.Object({"hosts": ["a", "b.c"]}, "arguments"))
    assert [*words] == ["--hosts", "a,b.c"]
