"""Files of the real perf, dmesg, journalctl, mpstat, sar and sadf are imported and diagnosed."""

from __future__ import annotations

import contextlib
import json
import math
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent import futures

import machines
import noise
import pytest
import rehearsed

from overnight.app import imports
from overnight.interfaces import cli
from overnight.model.selection import Window
from overnight.queries import core_history
from overnight.store.ring import reader

UTC = imports.Options(timezone="UTC")


def save(path: pathlib.Path, *command: str) -> None:
    with path.open("wb") as file:
        subprocess.run(
            ["env", "TZ=UTC", *command], stdout=file, check=True, timeout=noise.HANG_SECONDS
        )


@pytest.mark.needs_mpstat
def test_the_text_of_each_tool_is_read(tmp_path: pathlib.Path) -> None:
    """The numbers are those that mpstat printed, and no line is damaged."""
    sampled: dict[str, tuple[str, ...]] = {
        "mpstat": ("mpstat", "-P", "ALL", "1", "2"),
        "mpstat-iso": ("S_TIME_FORMAT=ISO", "mpstat", "-P", "ALL", "1", "2"),
        "mpstat-json": ("mpstat", "-P", "ALL", "-o", "JSON", "1", "3"),
        "sar": ("sar", "-u", "ALL", "-P", "ALL", "-o", str(tmp_path / "saved"), "1", "2"),
    }
    printed: dict[str, tuple[str, ...]] = {
        "sar-again": ("sar", "-A", "-f", str(tmp_path / "saved")),
        "sadf": ("sadf", "-j", str(tmp_path / "saved"), "--", "-P", "ALL"),
    }
    with futures.ThreadPoolExecutor(len(sampled)) as at_once:  # each takes seconds
        list(at_once.map(lambda name: save(tmp_path / name, *sampled[name]), sampled))
    for name, command in printed.items():
        save(tmp_path / name, *command)
    for name in (*sampled, *printed):
        home = tmp_path / f"home-{name}"
        (imported,) = imports.import_files(home, [tmp_path / name], UTC)
        assert (imported.readings, imported.damaged) == (2, 0), name
        history = core_history.read_history(
            reader.Reader(home), imported.host, Window(imported.begin_us, imported.end_us)
        )
        assert [each.readings for each in history.intervals] == [1, 1], name
        if name == "mpstat":
            lines = [line.split() for line in (tmp_path / name).read_text().splitlines()]
            idle = [float(words[-1]) for words in lines if words[1:2] == ["0"] and words[0] != "Average:"]  # fmt: skip
            assert [row.cores[0].values["idle"] for row in history.intervals] == pytest.approx(idle, abs=0.02)  # fmt: skip


@pytest.mark.needs_root
@pytest.mark.needs_nspawn
def test_the_kernel_log_of_a_real_journal_is_read(tmp_path: pathlib.Path) -> None:
    """systemd-journald of a machine reads this host's kernel log; journalctl prints it in each format."""
    line = "overnight rehearsal: ena 0000:ff:03.0 rehearsal0: TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec. napi scheduled: 1"
    saved = tmp_path / "saved"
    saved.mkdir()
    with machines.machine(
        files={"etc/systemd/journald.conf": "[Journal]\nReadKMsg=yes\nStorage=volatile\n"},
        binds={"/dev/kmsg": "/dev/kmsg"},
        options=("--capability=CAP_SYSLOG",),
    ) as machine:
        before = time.time()
        pathlib.Path("/dev/kmsg").write_bytes(f"<7>{line}\n".encode())
        deadline = time.monotonic() + noise.HANG_SECONDS
        while line not in machine.run("journalctl", "-k", "-o", "cat", "--no-pager"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        until = f"--until=@{math.ceil(time.time())}"  # the same lines in each format
        for form in ("short", "short-precise", "short-iso", "short-iso-precise", "short-unix", "json"):  # fmt: skip
            text = machine.run("journalctl", "-k", "-o", form, "--no-pager", until)
            (saved / form).write_text(text)
    entries = [json.loads(text) for text in (saved / "json").read_text().splitlines()]
    kernel = [entry for entry in entries if entry.get("SYSLOG_IDENTIFIER") == "kernel"]
    assert kernel, "the kernel logs the mounts of the machine"
    last_us = int(kernel[-1]["__REALTIME_TIMESTAMP"])
    for path in saved.iterdir():
        home = tmp_path / f"home-{path.name}"
        (imported,) = imports.import_files(home, [path], UTC)
        assert (imported.format, imported.host, imported.damaged) == ("journal", machine.name, 0), path.name  # fmt: skip
        events = reader.Reader(home).events(0, 1 << 62, kinds=["net.driver_reset"])
        if path.name != "json":  # lines that a process wrote are not of `kernel:`
            assert (imported.lines, events) == (len(kernel), ()), path.name
            exact = path.name in ("short-precise", "short-iso-precise", "short-unix")
            assert last_us - imported.end_us in range(1 if exact else 1_000_000), path.name
            continue
        assert imported.lines == len(entries)
        (event,) = [each for each in events if each.time_us >= before * 1e6 - 1e5]
        assert (event.fields["interface"], event.fields["queue"], event.source) == ("rehearsal0", 5, "ena-tx-paused")  # fmt: skip


@contextlib.contextmanager
def running(*command: str, output: pathlib.Path) -> Iterator[None]:
    """Run a recorder until the block ends."""
    with output.open("wb") as file:
        process = subprocess.Popen(["env", "TZ=UTC", *command], stdout=file)
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(noise.HANG_SECONDS)


@pytest.mark.long
@pytest.mark.needs_root
@pytest.mark.needs_perf
@pytest.mark.needs_mpstat
@pytest.mark.timeout(400)
def test_plain_files_have_the_root_cause_of_the_recording(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One incident, recorded by overnight and beside it by perf, dmesg and mpstat alone."""
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    saved = tmp_path / "saved"
    saved.mkdir()
    perf = ("timeout", "-s", "INT", "380", "perf", "record", "-q", "-a", "-g", "-F", "199", "-k", "CLOCK_MONOTONIC")  # fmt: skip
    with (
        running(*perf, "-o", str(saved / "perf.data"), output=tmp_path / "unused"),
        running("timeout", "380", "mpstat", "-P", "ALL", "1", output=saved / "mpstat.txt"),
    ):
        outcome = rehearsed.rehearse("lock-convoy", 12, tmp_path / "native", need_verdict=True)
    save(saved / "dmesg.txt", "dmesg", "-x")
    save(saved / "dmesg-T.txt", "dmesg", "-T", "-x")
    assert outcome.diagnosis is not None
    native = outcome.diagnosis.verdict.chain
    assert native is not None

    home = tmp_path / "elsewhere"
    files = {pathlib.Path(f.path).name: f for f in imports.import_files(home, [saved], UTC)}
    assert {name: file.format for name, file in files.items()} == {
        "mpstat.txt": "sysstat", "perf.data": "perf.data", "dmesg.txt": "dmesg", "dmesg-T.txt": "dmesg",
    }  # fmt: skip
    ours = [
        event
        for event in reader.Reader(home).events(0, 1 << 62, kinds=["net.driver_reset"])
        if event.fields.get("rehearsal") == outcome.run
    ]
    assert cli.main(["--home", str(home), "diagnose", ours[-1].id, "-O", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    root = document["verdict"]["chain"][0]
    assert (root["kind"], root["subject"]["process"], root["subject"]["core"]) == (
        native.root.kind,
        native.root.subject.process,
        native.root.subject.core,
    )
    # What these files do not contain is named.
    suspects = {each["name"]: each["outcome"] for each in document["suspects"]}
    assert {suspects[name] for name in ("memory", "disk", "network")} == {"not-checked"}
    assert suspects["steal"] == "cleared", "mpstat has it"
    missing = {each["detector"] for each in document["detectors"] if each["status"] == "no-data"}
    assert {"zombies", "crash-loops", "rt-hog"} <= missing
